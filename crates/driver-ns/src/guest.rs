//! A guest that runs.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cosm_driver::{Guest, GuestExit, GuestUsage, IdMap, Measured};
use cosm_sys::process::{self, Child, Exit};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::limits::{self, Prepared};

/// A guest of this driver. Dropping it does not end it; the end of its keeper does.
#[derive(Debug)]
pub struct NsGuest {
    init: Child,
    limits: Prepared,
    exit: Option<GuestExit>,
    started: Instant,
}

impl NsGuest {
    pub(crate) fn new(init: Child, limits: Prepared) -> Self {
        Self {
            init,
            limits,
            exit: None,
            started: Instant::now(),
        }
    }

    /// The number of the guest's process 1 on the host.
    pub fn pid(&self) -> i32 {
        self.init.pid().as_raw_nonzero().get()
    }

    /// Returns when the guest has ended, or has run long enough to get its default limits, with them.
    async fn until_late(&mut self, pidfd: &OwnedFd) {
        let Ok(pidfd) = pidfd.try_clone() else { return };
        let late = tokio::time::Instant::from_std(self.started + limits::LATE);
        if tokio::time::timeout_at(late, crate::watch::until_ended(pidfd))
            .await
            .is_err()
        {
            // A guest that ended just now needs none; else there are none, which its usage shows.
            drop(self.limits.enforce_late());
        }
    }

    fn collect(&mut self) -> GuestExit {
        let mut usage = self.limits.usage();
        let (code, signal) = match process::wait_with_usage(self.init.as_fd()) {
            Ok((exit, spent)) => {
                // A group knows better, unless it counts in clock ticks.
                usage.cpu_us = usage.cpu_us.max(Some(spent.cpu_us));
                usage.peak_memory.get_or_insert(spent.peak_memory);
                match exit {
                    Exit::Code(code) => (Some(code), None),
                    Exit::Signal(signal) => (None, Some(signal)),
                }
            }
            // Somebody else reaped it; that it has ended is all that is known.
            Err(_) => (None, None),
        };
        self.limits.remove();
        GuestExit {
            code,
            signal,
            oom: usage.oom_kills.is_some_and(|kills| kills > 0),
            usage,
        }
    }
}

impl Guest for NsGuest {
    fn kill(&mut self) -> io::Result<()> {
        if self.exit.is_some() {
            return Ok(());
        }
        match process::pidfd_signal(self.init.as_fd(), Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn wait(&mut self) -> GuestExit {
        if let Some(exit) = self.exit {
            return exit;
        }
        // Where the runtime can't watch it, waiting the plain way is all that is left.
        if let Ok(pidfd) = self.init.as_fd().try_clone_to_owned() {
            if self.limits.has_late() {
                self.until_late(&pidfd).await;
            }
            drop(crate::watch::until_ended(pidfd).await);
        }
        let exit = self.collect();
        self.exit = Some(exit);
        exit
    }

    fn usage(&self) -> GuestUsage {
        self.exit
            .map_or_else(|| self.limits.usage(), |exit| exit.usage)
    }

    fn freeze(&mut self, frozen: bool) -> io::Result<()> {
        self.limits.freeze(frozen)
    }

    fn measure(
        &self,
        folder: PathBuf,
        ids: Option<IdMap>,
        time: Duration,
    ) -> impl Future<Output = io::Result<Measured>> + 'static {
        crate::measure::files(self.pid(), folder, ids, time)
    }
}
