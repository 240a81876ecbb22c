//! The other processor: everything is linted for it, its agent is linked, and that agent answers under emulation.
//!
//! The emulator does not know all that the kernel does (a subreaper, say), so it is asked for its files, not for commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::error::{Result, TaskError};
use crate::repo::{Repo, has, output, run};
use crate::user;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";

pub(crate) fn aarch64(repo: &Repo) -> Result<()> {
    if !target_is_there()? {
        println!("skipped: aarch64, because there is no rustup that could add the target {TARGET}");
        return Ok(());
    }
    if !has(COMPILER) {
        println!(
            "skipped: aarch64, because there is no {COMPILER}; Debian has it in gcc-aarch64-linux-gnu"
        );
        return Ok(());
    }
    run(cross(repo, "clippy")
        .args(["--workspace", "--all-targets"])
        .args(["--", "-D", "warnings"]))?;
    let agent = agent(repo)?;
    if !has(EMULATOR) {
        println!(
            "skipped: running the agent for aarch64, because there is no {EMULATOR}; Debian has it in qemu-user"
        );
        return Ok(());
    }
    // As in a guest it is process 1.
    let user = if user::is_root() {
        ""
    } else {
        "--user --map-root-user"
    };
    run(repo
        .cargo(["test", "--locked", "-p", "cosm-agent-client"])
        .args(["--test", "ping", "--test", "files"])
        .env(
            "COSM_TEST_AGENT",
            format!(
                "unshare {user} --pid --fork --kill-child {EMULATOR} '{}'",
                agent.display()
            ),
        ))
}

/// Cargo for the target, which builds the C of a dependency too.
fn cross(repo: &Repo, task: &str) -> Command {
    let mut cargo = repo.cargo([task, "--locked", "--target", TARGET]);
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER);
    cargo
}

/// Whether the standard library for the target is installed, by now.
fn target_is_there() -> Result<bool> {
    let root = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let library = Path::new(root.trim()).join("lib/rustlib").join(TARGET);
    if library.is_dir() {
        return Ok(true);
    }
    Ok(has("rustup") && run(Command::new("rustup").args(["target", "add", TARGET])).is_ok())
}

/// The agent for the target, linked by the script that embeds it.
fn agent(repo: &Repo) -> Result<PathBuf> {
    let mut cargo = cross(repo, "check");
    cargo.args(["--message-format=json", "-p", "cosm-agent-image"]);
    for line in output(&mut cargo)?.lines() {
        let message: Value = serde_json::from_str(line).map_err(|source| TaskError::Json {
            command: "cargo check",
            source,
        })?;
        let is_image = message["package_id"]
            .as_str()
            .is_some_and(|id| id.contains("crates/agent/image"));
        if let (true, Some(folder)) = (is_image, message["out_dir"].as_str()) {
            return Ok(Path::new(folder).join("cosm-agent"));
        }
    }
    Err(TaskError::Failed(
        "building the agent for aarch64".to_owned(),
    ))
}
