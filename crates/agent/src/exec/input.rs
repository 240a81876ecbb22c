//! Bytes on their way to a command.

use alloc::vec::Vec;

use cosm_proto::agent::STDIN_WINDOW;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::termios::{SpecialCodeIndex, tcgetattr};

use crate::link::Broken;

/// Control-D, where a terminal does not say what it takes for the end of its input.
const END_OF_FILE: u8 = 4;

/// What the host sent and the command has not taken, in a pipe's writing end or a terminal.
pub(super) struct Input {
    fd: OwnedFd,
    terminal: bool,
    pending: Vec<u8>,
    written: usize,
    /// Bytes of `pending` that the host did not send.
    own: u32,
    /// No more will come: close once the pending ones are written.
    last: bool,
}

impl Input {
    pub(super) const fn new(fd: OwnedFd, terminal: bool) -> Self {
        Self {
            fd,
            terminal,
            pending: Vec::new(),
            written: 0,
            own: 0,
            last: false,
        }
    }

    /// What to wait for: room for what is pending; else, on a pipe, only that the command closes its end.
    pub(super) fn interest(&self) -> (Option<&OwnedFd>, PollFlags) {
        match (self.pending.is_empty(), self.terminal) {
            (false, _) => (Some(&self.fd), PollFlags::OUT),
            (true, false) => (Some(&self.fd), PollFlags::empty()),
            (true, true) => (None, PollFlags::empty()),
        }
    }

    /// A host that sends more than the window breaks the protocol.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        if self.pending.len() - self.written + bytes.len() > STDIN_WINDOW {
            return Err(Broken);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// No more will come.
    pub(super) fn end(&mut self) {
        if self.terminal {
            let typed = tcgetattr(&self.fd).map_or(END_OF_FILE, |modes| {
                modes.special_codes[SpecialCodeIndex::VEOF]
            });
            self.pending.push(typed);
            self.own += 1;
        } else {
            self.last = true;
        }
    }

    /// Writes what can be written at once: how many of the host's bytes that was, and whether it is the end.
    pub(super) fn write(&mut self) -> Result<(u32, bool), Errno> {
        let mut taken = 0;
        while self.written < self.pending.len() {
            match rustix::io::write(&self.fd, &self.pending[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    taken += count as u32;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if self.written == self.pending.len() {
            // Nothing to write shows nothing of whether anybody reads.
            if taken == 0 && !self.last && !self.terminal && is_abandoned(&self.fd) {
                return Err(Errno::PIPE);
            }
            self.pending.clear();
            self.written = 0;
            taken = taken.saturating_sub(core::mem::take(&mut self.own));
        }
        Ok((taken, self.last && self.pending.is_empty()))
    }
}

/// Whether the last reader of a pipe has gone.
fn is_abandoned(pipe: &OwnedFd) -> bool {
    let mut wanted = [PollFd::new(pipe, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut wanted, Some(&now)).is_ok() && wanted[0].revents().contains(PollFlags::ERR)
}
