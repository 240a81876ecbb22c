//! Measures cosm and its peers alternately, in one run, and writes what it found as JSON.
//!
//! `cosm-bench --cosm PROGRAM --out FILE [--quick]`; `cargo xtask bench` runs it as root and as an ordinary user and
//! makes the tables.

#![forbid(unsafe_code)]

mod crowd;
mod ground;
mod life;
mod moves;
mod peers;
mod pipe;
mod procs;
mod stats;
mod whole;

use std::path::PathBuf;
use std::process::ExitCode;

use ground::Ground;
use stats::Findings;

type Error = Box<dyn std::error::Error>;
type Result<T> = std::result::Result<T, Error>;

/// One part of the table.
type Part = fn(&Ground, &mut Findings) -> Result<()>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(source) = cause {
                eprintln!("  because: {source}");
                cause = source.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let (mut cosm, mut out, mut quick, mut only) = (None, None, false, Vec::new());
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--cosm") => cosm = args.next().map(PathBuf::from),
            Some("--out") => out = args.next().map(PathBuf::from),
            Some("--quick") => quick = true,
            Some(part) if !part.starts_with('-') => only.push(part.to_owned()),
            _ => return Err(format!("{} is no option", arg.display()).into()),
        }
    }
    let (Some(cosm), Some(out)) = (cosm, out) else {
        return Err("usage: cosm-bench --cosm PROGRAM --out FILE [--quick] [PART…]".into());
    };
    // Keepers are found among this process's descendants, also those whose creator has ended.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let ground = Ground::new(cosm, quick)?;
    let mut findings = Findings::new();
    let parts: [(&str, Part); 5] = [
        ("whole", whole::measure),
        ("move", moves::measure),
        ("life", life::measure),
        ("pipe", pipe::measure),
        ("crowd", crowd::measure),
    ];
    for (name, measure) in parts {
        if !only.is_empty() && !only.iter().any(|part| part == name) {
            continue;
        }
        eprintln!("-- {name}");
        if let Err(error) = measure(&ground, &mut findings) {
            // The other parts still have something to say.
            findings.note(format!(
                "{name} could not be measured to its end: {}",
                chain(error.as_ref())
            ));
        }
    }
    std::fs::write(&out, findings.to_json().to_string())?;
    Ok(())
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
