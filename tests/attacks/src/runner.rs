//! Runs each case in a process of its own, one after the other, and counts.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_child_subreaper, set_parent_process_death_signal};

use crate::house::House;
use crate::procs;

/// The exit code of a case that can't be tried here, as automake has it.
const SKIPPED: u8 = 77;

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All it claims holds.
    Passed,
    /// It can't be tried here, and why.
    Skipped(String),
}

/// One attack or fault.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// `group::name`.
    pub name: &'static str,
    /// Panics when something does not hold.
    pub run: fn(&House) -> Verdict,
    /// The seconds after which it hangs.
    pub limit: u64,
}

/// Runs the cases whose name contains one of the arguments; all of them without arguments.
pub fn main(cases: &[Case]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = &args[..]
        && flag == "--case"
    {
        return alone(cases, name);
    }
    let words: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let chosen = cases
        .iter()
        .filter(|case| words.is_empty() || words.iter().any(|word| case.name.contains(word)));
    if args.iter().any(|arg| arg == "--list") {
        chosen.for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    let Some(program) = program() else {
        println!(
            "skipped: all attacks, because there is no cosm program; `cargo build` makes it, or COSM_BIN names it"
        );
        println!(
            "test result: ok. 0 passed; 0 failed; {} skipped",
            chosen.count()
        );
        return ExitCode::SUCCESS;
    };
    println!("attacking {}", program.display());
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    for case in chosen {
        let started = Instant::now();
        print!("test {} ... ", case.name);
        // A terminal that is gone is no reason to stop.
        drop(std::io::stdout().flush());
        let (word, output) = run_one(case, &program);
        println!("{word} ({:.1} s)", started.elapsed().as_secs_f64());
        match word {
            "ok" => passed += 1,
            "skipped" => {
                skipped += 1;
                println!("{output}");
            }
            _ => {
                failed.push(case.name);
                println!("---- {} ----\n{output}\n----", case.name);
            }
        }
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    for name in &failed {
        println!("    {name}");
    }
    println!(
        "test result: {word}. {passed} passed; {} failed; {skipped} skipped",
        failed.len()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The `cosm` under attack: `COSM_BIN`, or the one beside this program's folder.
fn program() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("COSM_BIN") {
        return Some(path.into());
    }
    let own = std::env::current_exe().ok()?;
    let beside = own.parent()?.parent()?.join("cosm");
    beside.is_file().then_some(beside)
}

fn run_one(case: &Case, program: &Path) -> (&'static str, String) {
    set_child_subreaper(Some(rustix::process::getpid())).expect("any process may");
    let own = std::env::current_exe().expect("Linux has /proc/self/exe");
    let log = std::env::temp_dir().join(format!("cosm-attack-log-{}", std::process::id()));
    let file = std::fs::File::create(&log).expect("a file in the temporary folder");
    let mut child = Command::new(own)
        .args(["--case", case.name])
        .env("COSM_BIN", program)
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a descriptor"))
        .stderr(file)
        .spawn()
        .expect("this program can be started");
    let end = Instant::now() + Duration::from_secs(case.limit);
    let status = loop {
        match child.try_wait().expect("it is our child") {
            Some(status) => break Some(status),
            None if Instant::now() >= end => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if status.is_none() {
        drop(child.kill());
        drop(child.wait());
    }
    let mut output = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    drop(std::fs::remove_file(&log));
    clean_up(child.id());
    let word = match status.map(|status| status.code()) {
        Some(Some(0)) => "ok",
        Some(Some(code)) if code == i32::from(SKIPPED) => "skipped",
        Some(_) => "FAILED",
        None => {
            output.push_str(&format!("\nstill running after {} s", case.limit));
            "FAILED"
        }
    };
    (word, output)
}

/// What a failed case left must not trouble the next.
fn clean_up(pid: u32) {
    let own = rustix::process::getpid();
    for _ in 0..50 {
        let left = procs::descendants(own.as_raw_nonzero().get());
        if left.is_empty() {
            break;
        }
        for process in left {
            procs::kill(process.pid);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let folder = std::env::temp_dir().join(format!("cosm-attack-{pid}"));
    if folder.exists() {
        drop(std::fs::remove_dir_all(folder));
    }
}

/// One case, in this process.
fn alone(cases: &[Case], name: &str) -> ExitCode {
    set_child_subreaper(Some(rustix::process::getpid())).expect("any process may");
    set_parent_process_death_signal(Some(Signal::KILL)).expect("any process may");
    let case = cases
        .iter()
        .find(|case| case.name == name)
        .expect("a case of this name");
    let house = House::new(&program().expect("the runner found it"));
    let verdict = (case.run)(&house);
    let left = house.left_behind();
    assert!(left.is_empty(), "left behind: {left:#?}");
    match verdict {
        Verdict::Passed => ExitCode::SUCCESS,
        Verdict::Skipped(why) => {
            println!("skipped: {name}, because {why}");
            ExitCode::from(SKIPPED)
        }
    }
}
