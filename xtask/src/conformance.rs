//! What a driver promises, tried on it, on the programs that others use where they can run the same trial, and on
//! other machines.

use crate::aarch64;
use crate::error::{Result, TaskError};
use crate::proof::{self, Ground};
use crate::repo::{Repo, run};
use crate::test;

pub(crate) fn conformance(repo: &Repo, proofs: &[&str]) -> Result<()> {
    let ground = Ground::of_this_workspace()?;
    for proof in proofs {
        match *proof {
            "--v2" => proof::vm(&ground, &test::attacks(repo)?)?,
            "--no-libc" => proof::no_libc(&ground)?,
            "--container" => proof::container(&ground)?,
            "--aarch64" => aarch64::aarch64(repo)?,
            _ => {
                return Err(TaskError::Usage(
                    "usage: cargo xtask conformance [--v2] [--no-libc] [--container] [--aarch64]",
                ));
            }
        }
    }
    if !proofs.is_empty() {
        return Ok(());
    }
    run(&mut repo.cargo([
        "test",
        "--locked",
        "-p",
        "cosm-driver",
        "-p",
        "cosm-driver-ns",
    ]))?;
    test::trials(repo)?;
    aarch64::aarch64(repo)?;
    proof::no_libc(&ground)?;
    proof::container(&ground)?;
    Ok(proof::vm(&ground, &test::attacks(repo)?)?)
}
