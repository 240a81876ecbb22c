//! A keeper that was made before anybody knows what it is to keep.
//!
//! A program with one thread can become its first sandbox's keeper by a mere fork, which takes a tenth of what starting
//! the program anew does, while it is still reading its arguments. Everything else is as with a started keeper: its
//! descriptors, its session, its plan.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use cosm_sys::process::{self, CloneArgs};
use cosm_sys::{inherit, scm};

use crate::launch::{EVENTS_FD, LEASE_FD, PLAN_FD};

/// A keeper without a plan. Dropping it unused ends it.
#[derive(Debug)]
pub struct SpareKeeper {
    pub(crate) pidfd: OwnedFd,
    pub(crate) socket: UnixStream,
}

/// Where a host keeps its spare.
#[derive(Debug, Default)]
pub(crate) struct Place(Mutex<Option<SpareKeeper>>);

impl Place {
    pub(crate) fn new(spare: Option<SpareKeeper>) -> Self {
        Self(Mutex::new(spare))
    }

    pub(crate) fn take(&self) -> Option<SpareKeeper> {
        self.0.lock().map_or(None, |mut place| place.take())
    }
}

impl SpareKeeper {
    /// Forks one off. `ready` is what it does at once, and what that returns is what it does once it has its plan:
    /// being a keeper.
    ///
    /// For a program's first steps: it must have one thread and no runtime yet. With more threads there is none.
    ///
    /// # Errors
    /// Processes or descriptors ran out.
    pub fn fork<K: FnOnce()>(ready: impl FnOnce() -> K) -> io::Result<Option<Self>> {
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Ok(None);
        }
        let (ours, theirs) = UnixStream::pair()?;
        let child = process::fork(&CloneArgs::default(), || {
            i32::from(serve(theirs.as_fd(), ready).is_err())
        })?;
        Ok(Some(Self {
            pidfd: child.into_pidfd(),
            socket: ours,
        }))
    }

    /// Gives it its plan (a sealed memfd), and what its guest's life hangs on.
    pub(crate) fn order(
        &self,
        plan: BorrowedFd<'_>,
        lease: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = [plan].into_iter().chain(lease).collect();
        scm::send(&self.socket, &[1], &fds).map(drop)
    }
}

/// The forked process: makes itself what a started keeper is, waits for its plan, and keeps.
fn serve<K: FnOnce()>(socket: BorrowedFd<'_>, ready: impl FnOnce() -> K) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    // Out of the way first: the numbers below may be taken by either.
    let (socket, null) = (above(socket)?, above(null.as_fd())?);
    for number in 0..3 {
        process::place_fd(null.as_fd(), number)?;
    }
    process::place_fd(socket.as_fd(), EVENTS_FD)?;
    // Kept for what comes with the plan.
    for number in [PLAN_FD, LEASE_FD] {
        process::place_fd(null.as_fd(), number)?;
    }
    // Whoever owned what is closed here is never returned to.
    std::mem::forget((socket, null));
    process::close_from(LEASE_FD.unsigned_abs() + 1)?;
    let keeper = ready();
    let events = inherit::take(EVENTS_FD)?;
    let mut byte = [0];
    let (count, fds) = scm::receive(&events, &mut byte)?;
    if count == 0 {
        return Ok(());
    }
    for (fd, number) in fds.iter().zip([PLAN_FD, LEASE_FD]) {
        process::place_fd(fd.as_fd(), number)?;
    }
    drop(fds);
    // The keeper takes it again.
    std::mem::forget(events);
    keeper();
    Ok(())
}

fn above(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 64)?)
}
