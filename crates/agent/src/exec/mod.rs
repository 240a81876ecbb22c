//! Commands: everything between a request and its exit report.

mod command;
mod draining;
mod environment;
mod input;
mod spawn;
mod stdio;
mod supervisor;
mod tree;
mod user;

use alloc::vec::Vec;

use cosm_proto::agent::{ExecOut, ExecStart, SpawnFailure, SpawnReason};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::boot::Guest;
use crate::clock::Moment;
use crate::link::{Broken, Link};
use supervisor::{Ended, Supervisor};

pub(crate) use user::Identity;

/// Runs a command until the host knows of its end; `None` if it could not be started.
pub(crate) fn run(
    guest: &Guest,
    mut link: Link,
    start: ExecStart,
    fds: Vec<OwnedFd>,
) -> Result<Option<Ended>, Broken> {
    let begun = Moment::now();
    let deadline = start.timeout_ms.map(|ms| begun.after_ms(ms));
    let kill_leftovers = start.kill_leftovers;
    let spawned = match prepare(guest, start, fds) {
        Ok(spawned) => spawned,
        Err(failure) => {
            link.send(&ExecOut::Failed(failure))?;
            return Ok(None);
        }
    };
    let supervisor = Supervisor::new(link, spawned, begun, deadline, kill_leftovers);
    supervisor.run().map(Some)
}

fn prepare(
    guest: &Guest,
    start: ExecStart,
    fds: Vec<OwnedFd>,
) -> Result<spawn::Spawned, SpawnFailure> {
    let (ours, theirs) = stdio::open(start.stdio, fds)?;
    let command = command::Command::resolve(guest, start)?;
    let exits = tree::adopt_descendants()
        .map_err(|errno| failure(SpawnReason::ResourceLimit, errno, b"subreaper"))?;
    spawn::spawn(&command, ours, theirs, exits)
}

fn failure(reason: SpawnReason, errno: Errno, subject: &[u8]) -> SpawnFailure {
    SpawnFailure {
        reason,
        errno: errno.raw_os_error(),
        subject: subject.to_vec(),
    }
}

/// A failure without a system call behind it.
fn wrong(reason: SpawnReason, subject: &[u8]) -> SpawnFailure {
    SpawnFailure {
        reason,
        errno: 0,
        subject: subject.to_vec(),
    }
}
