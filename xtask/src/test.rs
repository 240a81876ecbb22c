//! All tests, and one line at the end that says how they went.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Result, TaskError};
use crate::repo::{Repo, output, run, watch};
use crate::user::{self, Stage};

/// How many tests passed, failed and were left out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    /// Counts a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn see(&mut self, line: &str) {
        let Some(rest) = line.trim().strip_prefix("test result:") else {
            return;
        };
        for part in rest.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let Some(count) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            match words.next() {
                Some("passed") => self.passed += count,
                Some("failed") => self.failed += count,
                Some("ignored" | "skipped") => self.skipped += count,
                _ => {}
            }
        }
    }
}

pub(crate) fn test(repo: &Repo) -> Result<()> {
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    let units = [
        "test",
        "--locked",
        "--workspace",
        "--exclude",
        "cosm-attacks",
        "--no-fail-fast",
    ];
    if !watch(&mut repo.cargo(units), |line| tally.see(line))? {
        broken.push("the crates' own tests".to_owned());
    }
    let cosm = repo.cosm()?;
    let attacks = attacks(repo)?;
    let mut command = std::process::Command::new(&attacks);
    command.env("COSM_BIN", &cosm).current_dir(repo.root());
    if !watch(&mut command, |line| tally.see(line))? {
        broken.push("the attacks".to_owned());
    }
    if user::is_root() {
        as_user(repo, &cosm, &attacks, &mut tally, &mut broken)?;
    } else {
        println!("\nskipped: what only root can try, because this is not root");
    }
    println!(
        "\n{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    if broken.is_empty() && tally.failed == 0 {
        Ok(())
    } else {
        Err(TaskError::Failed(broken.join(", and ")))
    }
}

/// The agent's and the command line's tests and the attacks once more, as somebody who owns nothing but an empty home.
fn as_user(
    repo: &Repo,
    cosm: &Path,
    attacks: &Path,
    tally: &mut Tally,
    broken: &mut Vec<String>,
) -> Result<()> {
    let Some(user) = user::find() else {
        println!(
            "\nskipped: the tests as an ordinary user, because there is no test user; `cargo xtask setup` makes it"
        );
        tally.skipped += 1;
        return Ok(());
    };
    let stage = Stage::new(user)?;
    let program = stage.program(cosm)?;
    let mut command = stage.command(&stage.program(attacks)?);
    command.env("COSM_BIN", &program);
    if !watch(&mut command, |line| tally.see(line))? {
        broken.push("the attacks as an ordinary user".to_owned());
    }
    for test in test_programs(repo, "cosm-agent-client", false)? {
        let mut command = stage.command(&stage.program(&test)?);
        if !watch(&mut command, |line| tally.see(line))? {
            broken.push(format!("{} as an ordinary user", test.display()));
        }
    }
    // These know the place of the program they test from when they were built.
    let folder = repo.path("crates/cli");
    if !stage.reads(&folder) || !stage.reads(&repo.target().join("debug/cosm")) {
        println!(
            "\nskipped: the command line's tests as an ordinary user, because that user can't read this checkout"
        );
        tally.skipped += 1;
        return Ok(());
    }
    for test in test_programs(repo, "cosm-cli", false)? {
        let mut command = stage.command(&stage.program(&test)?);
        command
            .current_dir(&folder)
            .env("INSTA_WORKSPACE_ROOT", repo.root())
            .env("INSTA_UPDATE", "no")
            .env("CARGO_MANIFEST_DIR", &folder);
        if !watch(&mut command, |line| tally.see(line))? {
            broken.push(format!("{} as an ordinary user", test.display()));
        }
    }
    Ok(())
}

/// The trials that other sandbox programs run too, alone.
pub(crate) fn trials(repo: &Repo) -> Result<()> {
    let cosm = repo.cosm()?;
    run(std::process::Command::new(attacks(repo)?)
        .arg("reference::")
        .env("COSM_BIN", &cosm))
}

/// Builds the program of the attacks.
pub(crate) fn attacks(repo: &Repo) -> Result<PathBuf> {
    let programs = test_programs(repo, "cosm-attacks", true)?;
    programs
        .into_iter()
        .next()
        .ok_or_else(|| TaskError::Failed("building the attacks".to_owned()))
}

/// Builds a package's integration tests and returns them.
fn test_programs(repo: &Repo, package: &'static str, release: bool) -> Result<Vec<PathBuf>> {
    let mut cargo = repo.cargo([
        "test",
        "--locked",
        "--no-run",
        "--message-format=json",
        "--package",
        package,
    ]);
    cargo.args(["--tests"]);
    if release {
        cargo.arg("--release");
    }
    let mut programs = Vec::new();
    for line in output(&mut cargo)?.lines() {
        let message: Value = serde_json::from_str(line).map_err(|source| TaskError::Json {
            command: "cargo test --no-run",
            source,
        })?;
        let is_test = message["target"]["kind"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"));
        if let (true, Some(path)) = (is_test, message["executable"].as_str()) {
            programs.push(path.into());
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn results_are_counted() {
        let mut tally = Tally::default();
        tally.see("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        tally.see("test result: FAILED. 1 passed; 2 failed; 4 skipped");
        tally.see("something else: 9 passed");
        assert_eq!(
            tally,
            Tally {
                passed: 4,
                failed: 2,
                skipped: 5
            }
        );
    }
}
