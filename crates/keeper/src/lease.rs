//! What a leased sandbox's life hangs on: its creator.
//!
//! Two signs, whichever comes first: end of file on a pipe whose other end the creator holds (it gave the sandbox up, or
//! ended), and the creator's own end (a forked child of it may hold the pipe open for ever).

use std::io;
use std::os::fd::OwnedFd;

use cosm_sys::process;
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

/// A lease that is held.
#[derive(Debug)]
pub(crate) struct Lease {
    pipe: OwnedFd,
    creator: OwnedFd,
}

impl Lease {
    /// Takes the lease of the process with this number, which must be this one's parent; `None` if it has ended already.
    pub(crate) fn take(pipe: OwnedFd, creator: i32) -> io::Result<Option<Self>> {
        let Some(pid) = Pid::from_raw(creator) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let opened = match process::pidfd_open(pid) {
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            other => other?,
        };
        // In this order: as long as it is the parent its number is not anybody else's, so that the descriptor is its.
        if rustix::process::getppid() != Some(pid) {
            return Ok(None);
        }
        Ok(Some(Self {
            pipe,
            creator: opened,
        }))
    }

    /// Returns once the creator has given up the lease or ended.
    pub(crate) async fn ended(self) -> io::Result<()> {
        let pipe = pipe::Receiver::from_owned_fd(self.pipe)?;
        tokio::select! {
            closed = end_of_file(&pipe) => closed,
            ended = readable(self.creator) => ended,
        }
    }
}

async fn end_of_file(pipe: &pipe::Receiver) -> io::Result<()> {
    let mut scratch = [0; 64];
    loop {
        pipe.readable().await?;
        match pipe.try_read(&mut scratch) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            // Nobody has anything to say here.
            Ok(_) | Err(_) => {}
        }
    }
}

async fn readable(fd: OwnedFd) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; an OwnedFd keeps all that it demands"
    )]
    let watched = AsyncFd::with_interest(fd, Interest::READABLE)?;
    watched.readable().await?.retain_ready();
    Ok(())
}
