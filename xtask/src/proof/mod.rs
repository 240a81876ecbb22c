//! Proofs on machines other than this one: a host with cgroup v2 and systemd (booted in QEMU), a toolchain without
//! `libc.a`, and an ordinary Docker container.
//!
//! Each makes all it needs below `target/proofs`, which is a cache: the second run is quick, and deleting it does no
//! harm. Each stops what it started. They want root on a Debian host and the programs of [`PACKAGES`].

mod container;
mod ground;
mod no_libc;
mod tools;
mod verdict;
mod vm;

pub(crate) use container::container;
pub(crate) use ground::Ground;
pub(crate) use no_libc::no_libc;
pub(crate) use vm::vm;

use std::path::PathBuf;

/// The Debian packages whose programs the proofs use.
pub(crate) const PACKAGES: &[&str] = &[
    "busybox-static",
    "docker.io",
    "e2fsprogs",
    "mmdebstrap",
    "qemu-system-x86",
    "util-linux",
];

/// Why a proof can't be had, or fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProofError {
    #[error("{program} can't be started; Debian has it in the package {package}")]
    Program {
        program: String,
        package: &'static str,
        source: std::io::Error,
    },
    #[error("`{command}` ended with {status}\n{output}")]
    Command {
        command: String,
        status: std::process::ExitStatus,
        output: String,
    },
    #[error("`{command}` was still running after {seconds} s\n{output}")]
    TimedOut {
        command: String,
        seconds: u64,
        output: String,
    },
    #[error("{path:?}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{0}")]
    Host(&'static str),
    #[error("{failed} of {} checks failed", failed + passed)]
    Failed { passed: usize, failed: usize },
    #[error("{what} ended before its last check; its console says:\n{console}")]
    Unfinished { what: &'static str, console: String },
}
