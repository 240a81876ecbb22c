//! What the attacks are made with: a house of its own for each case, a census of what may be left behind, and a
//! runner that gives each case a process of its own.
//!
//! A case's process is the subreaper of all it starts, so that nothing it started can get out of its sight: whatever
//! is still its descendant at the end was left behind.

#![forbid(unsafe_code)]

mod census;
mod house;
mod noise;
mod procs;
mod runner;

pub use census::Census;
pub use house::{Done, House, Running};
pub use noise::{Noise, fingerprint};
pub use procs::{Process, alive, descendants, kill, resident_kib};
pub use runner::{Case, Verdict, main};

/// Why a case can't be tried here; it is printed.
pub fn skip(why: impl Into<String>) -> Verdict {
    Verdict::Skipped(why.into())
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program is here.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

/// Waits until something holds, looking every few milliseconds. Returns whether it did in time.
pub fn eventually(limit: std::time::Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = std::time::Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if std::time::Instant::now() >= end {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
