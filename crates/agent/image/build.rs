//! Builds the agent with a cargo of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::{env, fs, io};

/// Variables of cargo's that are about where things come from, and so are as true for the inner cargo.
const KEPT: &[&str] = &[
    "CARGO_HOME",
    "CARGO_MAKEFLAGS",
    "CARGO_NET_",
    "CARGO_HTTP_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_SOURCE_",
    "CARGO_TERM_",
];

/// What makes the program static and independent of any libc. `--target` is given too, so these reach neither build
/// scripts nor macros.
const FLAGS: &[&str] = &[
    "-Crelocation-model=static",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-static",
    "-Clink-arg=-Wl,--build-id=none",
    "-Clink-arg=-Wl,-z,noexecstack",
];

/// What the agent is made from, relative to `crates/`.
const SOURCES: &[&str] = &[
    "agent/src",
    "agent/Cargo.toml",
    "agent/bin",
    "proto",
    "sys/guest",
];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(text)) => {
            eprintln!("\nThe agent (crates/agent/bin) could not be built.\n{text}");
            ExitCode::FAILURE
        }
    }
}

struct Failure(String);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

fn build() -> Result<(), Failure> {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let crates = here
        .ancestors()
        .nth(2)
        .ok_or_else(|| Failure("this folder has no parents".into()))?;
    println!("cargo::rerun-if-env-changed=COSM_AGENT_PREBUILT");
    println!("cargo::rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", crates.join(source).display());
    }
    println!(
        "cargo::rerun-if-changed={}",
        crates.join("../Cargo.toml").display()
    );
    let target = variable("TARGET")?;
    let agent = match env::var_os("COSM_AGENT_PREBUILT") {
        Some(path) => PathBuf::from(path),
        None => compile(
            &crates.join("agent/bin/Cargo.toml"),
            &out.join("target"),
            &target,
        )?,
    };
    fs::copy(&agent, out.join("cosm-agent"))
        .map_err(|error| Failure(format!("{}: {error}", agent.display())))?;
    Ok(())
}

fn variable(name: &str) -> Result<String, Failure> {
    env::var(name).map_err(|_| Failure(format!("{name} is not set: run this through cargo")))
}

/// First without the network: the programs around the agent use the same libraries, so they are here already.
fn compile(manifest: &Path, target_dir: &Path, target: &str) -> Result<PathBuf, Failure> {
    let mut output = cargo(manifest, target_dir, target, true)?;
    if !output.status.success() && !offline() {
        output = cargo(manifest, target_dir, target, false)?;
    }
    if !output.status.success() {
        return Err(Failure(format!(
            "{}\nTo use one that is built already, set COSM_AGENT_PREBUILT to its path.",
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    Ok(target_dir.join(target).join("release/cosm-agent"))
}

fn offline() -> bool {
    env::var("CARGO_NET_OFFLINE").is_ok_and(|value| value == "true")
}

fn cargo(
    manifest: &Path,
    target_dir: &Path,
    target: &str,
    offline: bool,
) -> Result<Output, Failure> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(["build", "--release", "--locked", "--target", target]);
    command.arg("--manifest-path").arg(manifest);
    // A folder of its own: the outer cargo holds the lock of the other one until this script ends.
    command.arg("--target-dir").arg(target_dir);
    if offline {
        command.arg("--offline");
    }
    for (name, _) in env::vars_os() {
        if leaks(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    if let Some(folder) = manifest.parent() {
        command.current_dir(folder);
    }
    Ok(command.output()?)
}

/// Whether this variable is about the outer build: its flags, its wrappers (clippy is one), its target.
fn leaks(name: &str) -> bool {
    let linker = name.starts_with("CARGO_TARGET_") && name.ends_with("_LINKER");
    let kept = linker || KEPT.iter().any(|kept| name.starts_with(kept));
    (name.starts_with("CARGO_") && !kept)
        || name.starts_with("RUSTC_")
        || matches!(
            name,
            "RUSTFLAGS" | "RUSTDOCFLAGS" | "CLIPPY_ARGS" | "CLIPPY_CONF_DIR" | "LLVM_PROFILE_FILE"
        )
}
