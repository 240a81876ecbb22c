//! Making a fresh Debian machine one that all tests can run on.

use std::process::Command;

use crate::error::Result;
use crate::proof;
use crate::repo::{has, run};
use crate::user;

/// The Debian packages of the programs that the tests and the benches call.
const PACKAGES: &[&str] = &[
    "apache2-utils",
    "bubblewrap",
    "busybox-static",
    "ca-certificates",
    "crun",
    "dbus-user-session",
    "docker-registry",
    "docker.io",
    "e2fsprogs",
    "fuse2fs",
    "g++",
    "gcc",
    "gcc-aarch64-linux-gnu",
    "libc6-dev",
    "libc6-dev-arm64-cross",
    "openssl",
    "perl-base",
    "procps",
    "python3",
    "qemu-user",
    "runc",
    "skopeo",
    "strace",
    "tmux",
    "uidmap",
];

pub(crate) fn setup() -> Result<()> {
    if !user::is_root() {
        println!("skipped: packages and the test user, because this is not root");
        return Ok(());
    }
    packages()?;
    user::make()
}

fn packages() -> Result<()> {
    let mut wanted: Vec<&str> = PACKAGES.iter().chain(proof::PACKAGES).copied().collect();
    wanted.sort_unstable();
    wanted.dedup();
    if !has("apt-get") {
        println!(
            "skipped: packages, because there is no apt-get; the tests call the programs of {}",
            wanted.join(" ")
        );
        return Ok(());
    }
    wanted.retain(|package| !is_installed(package));
    if wanted.is_empty() {
        println!("all packages are installed");
        return Ok(());
    }
    run(apt().arg("update"))?;
    let all = run(apt()
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&wanted));
    if all.is_ok() {
        return Ok(());
    }
    // One that a release does not have must not keep the others away.
    for package in wanted {
        if run(apt().args(["install", "--yes", "--no-install-recommends", package])).is_err() {
            println!(
                "skipped: {package}, because apt-get can't install it; the tests that need it will say so"
            );
        }
    }
    Ok(())
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet");
    apt
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .output()
        .is_ok_and(|answer| answer.stdout == b"installed")
}
