//! A toolchain without `libc.a`, a second target or a network: what several distributions install.
//!
//! The files are hidden in a mount namespace, so the proof changes nothing on the host. Its build folder is its own
//! and used by nothing else, so what is cached there was made without them too.

use std::env;
use std::time::{Duration, Instant};

use super::tools::{self, Scratch, bound, run};
use super::{Ground, ProofError, verdict};

const SCRIPT: &str = include_str!("no_libc.sh");

/// A release build from nothing takes a few minutes on two cores.
const TIME_BOX: Duration = Duration::from_secs(1800);

/// Proves that `cosm` builds, installs and runs there.
pub(crate) fn no_libc(ground: &Ground) -> Result<(), ProofError> {
    // Offline later: what the lock file names has to be here first.
    run(ground.cargo().args(["fetch", "--locked"]), TIME_BOX)?;
    let agent = ground.repo.join("crates/agent/bin/Cargo.toml");
    run(
        ground
            .cargo()
            .args(["fetch", "--locked", "--manifest-path"])
            .arg(agent),
        TIME_BOX,
    )?;
    let scratch = Scratch::new("no-libc")?;
    let script = scratch.path().join("script");
    tools::write(&script, SCRIPT, 0o755)?;
    let target = ground.cache.join("no-libc");
    tools::folder(&target)?;
    let started = Instant::now();
    let mut unshare = bound("unshare");
    unshare
        .args(["--mount", "--net", "--propagation", "private", "--"])
        .arg("sh")
        .arg(&script);
    unshare.arg(scratch.path()).arg(&target).arg(&ground.repo);
    unshare.arg(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let said = run(&mut unshare, TIME_BOX)?;
    println!("no-libc: took {:.1} s", started.elapsed().as_secs_f64());
    if !verdict::report("no-libc", &said)? {
        return Err(ProofError::Unfinished {
            what: "the build without libc.a",
            console: tools::tail(&said),
        });
    }
    Ok(())
}
