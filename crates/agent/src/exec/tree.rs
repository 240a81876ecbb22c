//! The processes below a handler: reaping them, signalling them, ending them all.
//!
//! A handler is a subreaper, so that whatever a command starts, however it detaches, stays below it until it ends. To
//! end a tree that forks meanwhile, all of it is stopped first: what is stopped starts nothing, so looking again and
//! again until nobody new is found comes to an end, and then all are killed at once.

use alloc::collections::BTreeSet;

use cosm_sys_guest::{self as sys, Reaped, Usage, signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use rustix::process::{Pid, getpid, set_child_subreaper};

use crate::clock::{Moment, until};
use crate::procs;

/// A process that can't be killed (in an uninterruptible sleep) is waited for as long as this.
const PATIENCE_MS: u64 = 5_000;
/// Between two looks at a tree that is being killed.
const LOOK_MS: u64 = 20;
/// A tree that still has new members after so many looks is killed as far as it is known, and looked at again.
const MAX_LOOKS: usize = 64;

/// From here on this process is its descendants' last parent. Answers a descriptor that is readable when one ended.
pub(super) fn adopt_descendants() -> Result<OwnedFd> {
    sys::notice_child_exits()?;
    set_child_subreaper(Some(getpid()))?;
    sys::signalfd(signals::CHILD)
}

/// The tree below this process.
#[derive(Debug)]
pub(super) struct Tree {
    main: Pid,
    exits: OwnedFd,
    ended: Option<Reaped>,
    used: Usage,
}

impl Tree {
    /// The tree whose root is `main`; `exits` is what [`adopt_descendants`] answered.
    pub(super) const fn new(main: Pid, exits: OwnedFd) -> Self {
        Self {
            main,
            exits,
            ended: None,
            used: Usage::NOTHING,
        }
    }

    /// The command's number.
    pub(super) const fn main(&self) -> i32 {
        self.main.as_raw_nonzero().get()
    }

    /// What all who have ended used: the command, whom it waited for, and whom it left behind to this process.
    pub(super) const fn used(&self) -> Usage {
        self.used
    }

    /// Readable when somebody ended.
    pub(super) const fn exits(&self) -> &OwnedFd {
        &self.exits
    }

    /// The command's own end, once it was seen.
    pub(super) const fn ended(&self) -> Option<&Reaped> {
        self.ended.as_ref()
    }

    /// Takes in everybody who has ended. False when nobody is left.
    pub(super) fn reap(&mut self) -> bool {
        // Emptied first: who ends after this makes it readable again.
        let mut info = [0; 128];
        while rustix::io::read(&self.exits, &mut info).is_ok_and(|count| count > 0) {}
        loop {
            match sys::wait(None, false) {
                Ok(Some(reaped)) => {
                    self.used.add(&reaped.usage);
                    if reaped.pid == self.main && self.ended.is_none() {
                        self.ended = Some(reaped);
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Sends a signal to the command, or to all that is below this process.
    pub(super) fn signal(&self, signal: i32, all: bool) {
        if !(1..=64).contains(&signal) {
            return;
        }
        let mut targets = BTreeSet::new();
        if self.ended.is_none() {
            targets.insert(self.main.as_raw_nonzero());
        }
        if all && let Ok(found) = procs::descendants(getpid()) {
            targets.extend(found.iter().map(|pid| pid.as_raw_nonzero()));
        }
        for pid in targets {
            tell(pid.get(), signal);
        }
    }

    /// Ends everybody. False if somebody would not go.
    pub(super) fn kill(&mut self) -> bool {
        let patience = Moment::now().after_ms(PATIENCE_MS);
        while self.reap() {
            if patience.has_passed() {
                return false;
            }
            self.kill_once();
            let mut wanted = [PollFd::new(&self.exits, PollFlags::IN)];
            match poll(
                &mut wanted,
                until(&[Some(Moment::now().after_ms(LOOK_MS))]).as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn kill_once(&self) {
        let mut stopped = BTreeSet::new();
        for _ in 0..MAX_LOOKS {
            let Ok(found) = procs::descendants(getpid()) else {
                // No /proc to look into: the command goes, and with it, at the next round, nobody else that we know.
                self.signal(signals::KILL, false);
                return;
            };
            let new: alloc::vec::Vec<i32> = found
                .iter()
                .map(|pid| pid.as_raw_nonzero().get())
                .filter(|pid| !stopped.contains(pid))
                .collect();
            if new.is_empty() {
                break;
            }
            for pid in new {
                tell(pid, signals::STOP);
                stopped.insert(pid);
            }
        }
        for pid in stopped {
            tell(pid, signals::KILL);
        }
    }
}

/// Nobody below this process can have been replaced by a stranger: numbers are free only once we reaped, and those that
/// others reap were seen below us a moment ago. Who is gone is gone.
fn tell(pid: i32, signal: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        sys::send(pid, signal).unwrap_or_default();
    }
}
