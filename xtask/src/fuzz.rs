//! Coverage-guided trials of what reads foreign bytes: the programs of `fuzz/`, each for a while.
//!
//! libFuzzer needs counters in the code, which the compiler's stable options put there. What it has learned is kept in
//! `target/fuzz/corpus`; an input that shows a fault goes into `fuzz/corpus`, where every later run tries it first.

mod seeds;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Result, TaskError};
use crate::repo::{Repo, has, output, run, say};

/// What puts the counters in, and keeps the linker from taking them out.
const COUNTERS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Clink-arg=-Wl,-z,nostart-stop-gc --cfg fuzzing";

const TARGETS: &[&str] = &[
    "agent_client",
    "agent_messages",
    "frames",
    "job_log",
    "keeper_messages",
    "records",
];

const USAGE: &str = "usage: cargo xtask fuzz [--seconds N] [TARGET]\n\nTARGET is agent_client, agent_messages, frames, job_log, keeper_messages or records; all of them without it.";

/// How long each target runs when nothing is said.
const SECONDS: u32 = 60;

pub(crate) fn fuzz(repo: &Repo, words: &[&str]) -> Result<()> {
    let (seconds, chosen) = options(words).ok_or(TaskError::Usage(USAGE))?;
    if !["c++", "g++", "clang++"].into_iter().any(has) {
        println!(
            "skipped: the fuzzer, because there is no C++ compiler to build it with; `cargo xtask setup` installs g++"
        );
        return Ok(());
    }
    let folder = repo.target().join("fuzz");
    let programs = build(repo, &folder)?;
    let mut failed = Vec::new();
    println!();
    for target in &chosen {
        match trial(repo, &folder, &programs, target, seconds)? {
            Ended::Well { runs } => println!("ok      {target}: {runs} inputs in {seconds} s"),
            Ended::Badly { log } => {
                println!("{log}");
                println!(
                    "FAILED  {target}: mend it, and put the input that it names into fuzz/corpus/{target}"
                );
                failed.push(*target);
            }
        }
    }
    println!(
        "\n{} passed, {} failed",
        chosen.len() - failed.len(),
        failed.len()
    );
    if failed.is_empty() {
        Ok(())
    } else {
        Err(TaskError::Failed(failed.join(", ")))
    }
}

fn options(mut words: &[&str]) -> Option<(u32, Vec<&'static str>)> {
    let mut seconds = SECONDS;
    if let ["--seconds", number, rest @ ..] = words {
        seconds = number.parse().ok().filter(|number| *number > 0)?;
        words = rest;
    }
    match words {
        [] => Some((seconds, TARGETS.to_vec())),
        [name] => {
            let target = TARGETS.iter().find(|target| *target == name)?;
            Some((seconds, vec![target]))
        }
        _ => None,
    }
}

/// Builds the programs and returns their folder.
fn build(repo: &Repo, folder: &Path) -> Result<PathBuf> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .ok_or_else(|| TaskError::Failed("asking rustc for its host".to_owned()))?;
    let manifest = ["--manifest-path", "fuzz/Cargo.toml"];
    // With a target named, build scripts are left without counters.
    run(repo
        .cargo(["build", "--release", "--locked", "--target", host])
        .args(manifest)
        .env("CARGO_TARGET_DIR", folder)
        .env("RUSTFLAGS", COUNTERS))?;
    Ok(folder.join(host).join("release"))
}

enum Ended {
    Well { runs: u64 },
    Badly { log: String },
}

fn trial(repo: &Repo, folder: &Path, programs: &Path, target: &str, seconds: u32) -> Result<Ended> {
    let learned = folder.join("corpus").join(target);
    let given = folder.join("seeds").join(target);
    let faults = folder.join("faults");
    for place in [&learned, &given, &faults] {
        std::fs::create_dir_all(place).map_err(TaskError::file(place))?;
    }
    for (name, bytes) in seeds::of(repo, target)? {
        let path = given.join(name);
        std::fs::write(&path, bytes).map_err(TaskError::file(path))?;
    }
    let mut command = Command::new(programs.join(target));
    command
        .arg(format!("-max_total_time={seconds}"))
        .args(["-max_len=8192", "-timeout=30", "-rss_limit_mb=1024"])
        .arg(format!("-artifact_prefix={}/{target}-", faults.display()))
        .arg(&learned)
        .arg(&given);
    let kept = repo.path("fuzz/corpus").join(target);
    if kept.is_dir() {
        command.arg(kept);
    }
    // The trials make many small files.
    if Path::new("/dev/shm").is_dir() {
        command.env("TMPDIR", "/dev/shm");
    }
    say(&format!("{target}, for {seconds} s"));
    let ended = command
        .stdin(Stdio::null())
        .output()
        .map_err(TaskError::program(&command))?;
    let log = String::from_utf8_lossy(&ended.stderr);
    Ok(match runs(&log) {
        Some(runs) if ended.status.success() && runs > 0 => Ended::Well { runs },
        _ => Ended::Badly { log: tail(&log) },
    })
}

/// Of `Done 1495760 runs in 9 second(s)`.
fn runs(log: &str) -> Option<u64> {
    let line = log
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("Done "))?;
    line.split(' ').next()?.parse().ok()
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        assert_eq!(options(&[]), Some((SECONDS, TARGETS.to_vec())));
        assert_eq!(
            options(&["--seconds", "5", "frames"]),
            Some((5, vec!["frames"]))
        );
        for wrong in [
            &["nothing"][..],
            &["--seconds"],
            &["--seconds", "0"],
            &["frames", "records"],
        ] {
            assert_eq!(options(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn each_target_is_known_to_cargo_and_has_seeds() {
        let repo = Repo::of_this_workspace();
        let manifest = repo.read("fuzz/Cargo.toml").expect("a manifest");
        let mut named: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("name = ")?.strip_prefix('"'))
            .map(|name| name.trim_end_matches('"'))
            .filter(|name| *name != "cosm-fuzz")
            .collect();
        named.sort_unstable();
        assert_eq!(named, TARGETS);
        for target in TARGETS {
            let seeds = seeds::of(&repo, target).expect("seeds");
            let kept = repo.path("fuzz/corpus").join(target);
            assert!(!seeds.is_empty() || kept.is_dir(), "{target}");
        }
    }

    #[test]
    fn the_number_of_runs_is_read() {
        assert_eq!(runs("#1 x\nDone 12 runs in 9 second(s)\n"), Some(12));
        assert_eq!(runs("==1== ERROR: libFuzzer: deadly signal"), None);
    }
}
