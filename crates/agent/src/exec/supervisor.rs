//! The loop around a running command.
//!
//! ```text
//! spawning --verdict closes--> running --command ends--> draining --streams at their end--> told
//!     \--verdict speaks--> failed         \--time-out, kill, host gone--> tree killed --/
//! ```
//!
//! The host may stop reading at any moment, and the command may stop reading or write without end: nothing here waits
//! for either alone, and nothing is buffered beyond one chunk out and one window in.

use alloc::vec::Vec;

use cosm_proto::agent::{ExecIn, ExecOut, ExitStatus};
use cosm_proto::frame::{DATA_CHUNK, Kind};
use cosm_sys_guest::signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::draining::Draining;
use super::input::Input;
use super::spawn::{Spawned, Subjects, VERDICT};
use super::stdio::resize;
use super::tree::Tree;
use crate::clock::{Moment, until};
use crate::link::{Broken, Link, message};
use crate::procs;

/// When a command has run this long, it is worth knowing how often memory ran out before: the count is read once then,
/// so that short commands do not pay for it.
const OOM_LOOK_MS: u64 = 50;

pub(super) struct Supervisor {
    link: Link,
    tree: Tree,
    begun: Moment,
    deadline: Option<Moment>,
    kill_leftovers: bool,
    verdict: Option<(OwnedFd, Subjects)>,
    input: Option<Input>,
    output: Option<OwnedFd>,
    error: Option<OwnedFd>,
    scratch: Vec<u8>,
    terminal: bool,
    timed_out: bool,
    killed: bool,
    oom_look: Option<Moment>,
    oom_before: Option<u64>,
    draining: Option<Draining>,
}

/// What is left of a command after its exit was told.
pub(crate) struct Ended {
    tree: Tree,
    deadline: Option<Moment>,
    clean: bool,
}

/// What `poll` found.
struct Ready {
    host: bool,
    exits: bool,
    verdict: bool,
    input: bool,
    output: bool,
    error: bool,
}

impl Supervisor {
    pub(super) fn new(
        link: Link,
        spawned: Spawned,
        begun: Moment,
        deadline: Option<Moment>,
        kill_leftovers: bool,
    ) -> Self {
        let Spawned {
            tree,
            ours,
            verdict,
            subjects,
        } = spawned;
        Self {
            link,
            tree,
            begun,
            deadline,
            kill_leftovers,
            verdict: Some((verdict, subjects)),
            input: ours.input.map(|fd| Input::new(fd, ours.terminal)),
            output: ours.output,
            error: ours.error,
            scratch: Vec::new(),
            terminal: ours.terminal,
            timed_out: false,
            killed: false,
            oom_look: Some(begun.after_ms(OOM_LOOK_MS)),
            oom_before: None,
            draining: None,
        }
    }

    /// Until the host knows how it ended. If the host is gone before, so is the command.
    pub(super) fn run(mut self) -> Result<Ended, Broken> {
        match self.supervise() {
            Ok(clean) => Ok(Ended {
                tree: self.tree,
                deadline: self.deadline,
                clean,
            }),
            Err(Broken) => {
                self.tree.kill();
                Err(Broken)
            }
        }
    }

    /// Answers whether it returned 0 and left nothing running.
    fn supervise(&mut self) -> Result<bool, Broken> {
        // What came right behind the request has been read with it: the socket will not tell of it again.
        self.obey()?;
        loop {
            self.link.flush()?;
            if self.is_drained() {
                return self.tell_exit();
            }
            let ready = self.wait()?;
            if ready.host {
                self.link.fill()?;
                self.obey()?;
            }
            if ready.verdict && self.hear_verdict()? {
                return self.link.flush_all().map(|()| false);
            }
            if ready.exits {
                self.tree.reap();
            }
            if ready.input {
                self.feed()?;
            }
            self.look_at_clock();
            if self.verdict.is_none() && self.tree.ended().is_some() && self.draining.is_none() {
                self.begin_draining();
            }
            self.read_streams(&ready);
        }
    }

    fn wait(&self) -> Result<Ready, Broken> {
        let idle = self.tree.exits();
        let host = if self.link.queued() > 0 {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::IN
        };
        let room = self.link.queued() < DATA_CHUNK;
        let (input, input_flags) = self
            .input
            .as_ref()
            .map_or((None, PollFlags::empty()), Input::interest);
        let mut wanted = [
            PollFd::new(&self.link, host),
            PollFd::new(idle, PollFlags::IN),
            watch(
                self.verdict.as_ref().map(|verdict| &verdict.0),
                idle,
                PollFlags::IN,
            ),
            watch(input, idle, input_flags),
            watch(self.output.as_ref().filter(|_| room), idle, PollFlags::IN),
            watch(self.error.as_ref().filter(|_| room), idle, PollFlags::IN),
        ];
        // Without room there is nothing to look at: the host's turn comes first.
        let draining = self
            .draining
            .as_ref()
            .filter(|_| room)
            .map(Draining::next_look);
        match poll(
            &mut wanted,
            until(&[self.deadline, self.oom_look, draining]).as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is = |index: usize| !wanted[index].revents().is_empty();
        let host = wanted[0]
            .revents()
            .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        Ok(Ready {
            host,
            exits: is(1),
            verdict: is(2),
            input: is(3),
            output: is(4),
            error: is(5),
        })
    }

    /// True when the command could not begin, and that was told.
    fn hear_verdict(&mut self) -> Result<bool, Broken> {
        let Some((pipe, subjects)) = self.verdict.take() else {
            return Ok(false);
        };
        let mut words = [0; VERDICT];
        match rustix::io::read(&pipe, &mut words) {
            Err(Errno::AGAIN | Errno::INTR) => {
                self.verdict = Some((pipe, subjects));
                Ok(false)
            }
            Ok(VERDICT) => {
                self.link.queue(&ExecOut::Failed(subjects.failure(words)))?;
                Ok(true)
            }
            Ok(_) | Err(_) => {
                self.link.queue(&ExecOut::Started {
                    pid: self.tree.main(),
                })?;
                Ok(false)
            }
        }
    }

    /// Does what the host said.
    fn obey(&mut self) -> Result<(), Broken> {
        loop {
            let said: ExecIn = match self.link.next()? {
                None => return Ok(()),
                Some((Kind::Stdin, bytes)) => {
                    if let Some(input) = &mut self.input {
                        input.take(bytes)?;
                    }
                    self.feed()?;
                    continue;
                }
                Some((kind, payload)) => message(kind, payload)?,
            };
            match said {
                ExecIn::StdinEof => {
                    if let Some(input) = &mut self.input {
                        input.end();
                    }
                    self.feed()?;
                }
                ExecIn::Resize(size) => {
                    if let Some(terminal) = self.output.as_ref().filter(|_| self.terminal) {
                        // Too late to matter if it fails: the terminal is gone with its command.
                        resize(terminal, size).unwrap_or_default();
                    }
                }
                ExecIn::Signal { signal, tree } => self.tree.signal(signal, tree),
                ExecIn::Kill => self.end_tree(),
            }
        }
    }

    fn end_tree(&mut self) {
        self.killed = true;
        self.tree.kill();
    }

    /// Gives the command what has come for it, as far as it takes it.
    fn feed(&mut self) -> Result<(), Broken> {
        let Some(input) = &mut self.input else {
            return Ok(());
        };
        match input.write() {
            Ok((taken, done)) => {
                if done {
                    self.input = None;
                }
                if taken > 0 {
                    self.link.queue(&ExecOut::StdinTaken(taken))
                } else {
                    Ok(())
                }
            }
            Err(_) => {
                self.input = None;
                self.link.queue(&ExecOut::StdinClosed)
            }
        }
    }

    fn read_streams(&mut self, ready: &Ready) {
        let Self {
            link,
            output,
            error,
            scratch,
            draining,
            ..
        } = self;
        let (mut count, mut empty) = (0, true);
        for (stream, kind, ready) in [
            (output, Kind::Stdout, ready.output),
            (error, Kind::Stderr, ready.error),
        ] {
            let Some(fd) = stream else { continue };
            if !(ready || draining.is_some()) || link.queued() >= DATA_CHUNK {
                empty = false;
                continue;
            }
            scratch.resize(DATA_CHUNK, 0);
            match rustix::io::read(fd, scratch.as_mut_slice()) {
                Ok(0) => *stream = None,
                Ok(bytes) => {
                    link.queue_raw(kind, &scratch[..bytes]);
                    count += bytes as u64;
                    empty = false;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // A terminal says so when its last user has gone.
                Err(_) => *stream = None,
            }
        }
        if let Some(draining) = draining {
            draining.saw(count, empty);
        }
    }

    fn look_at_clock(&mut self) {
        if self.oom_look.is_some_and(Moment::has_passed) {
            self.oom_look = None;
            self.oom_before = procs::oom_kills();
        }
        if self.draining.is_none() && self.deadline.is_some_and(Moment::has_passed) {
            self.deadline = None;
            self.timed_out = true;
            self.end_tree();
        }
    }

    fn begin_draining(&mut self) {
        let mut leftovers = self.tree.reap();
        if leftovers && self.kill_leftovers {
            leftovers = !self.tree.kill();
        }
        self.input = None;
        self.oom_look = None;
        let waiting = |fd: &Option<OwnedFd>| {
            fd.as_ref()
                .and_then(|fd| rustix::io::ioctl_fionread(fd).ok())
                .unwrap_or(0)
        };
        let owed = waiting(&self.output) + waiting(&self.error);
        self.draining = Some(Draining::begin(self.begun, owed, leftovers));
    }

    fn is_drained(&self) -> bool {
        let closed = self.output.is_none() && self.error.is_none();
        self.draining
            .as_ref()
            .is_some_and(|draining| closed || draining.is_over())
    }

    fn tell_exit(&mut self) -> Result<bool, Broken> {
        let (Some(ended), Some(draining)) = (self.tree.ended(), &self.draining) else {
            return Err(Broken);
        };
        let mut report = draining.report(ended, &self.tree.used());
        let by_others = report.status == ExitStatus::Signal(signals::KILL) && !self.killed;
        report.oom |= by_others
            && self
                .oom_before
                .is_some_and(|before| procs::oom_kills().is_some_and(|now| now > before));
        report.timed_out = self.timed_out;
        let clean = report.status == ExitStatus::Code(0) && !report.leftovers && !report.timed_out;
        self.link.send(&ExecOut::Exit(report)).map(|()| clean)
    }
}

fn watch<'a>(fd: Option<&'a OwnedFd>, idle: &'a OwnedFd, flags: PollFlags) -> PollFd<'a> {
    match fd {
        Some(fd) => PollFd::new(fd, flags),
        None => PollFd::new(idle, PollFlags::empty()),
    }
}

impl Ended {
    /// Whether the command returned 0 and left nothing running.
    pub(crate) const fn is_clean(&self) -> bool {
        self.clean
    }

    /// Stays as the parent of what the command left running, with its time-out, until nobody is left.
    pub(crate) fn see_off(mut self) -> Result<(), Broken> {
        while self.tree.reap() {
            if self.deadline.is_some_and(Moment::has_passed) {
                self.deadline = None;
                self.tree.kill();
                continue;
            }
            let mut wanted = [PollFd::new(self.tree.exits(), PollFlags::IN)];
            match poll(&mut wanted, until(&[self.deadline]).as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
