//! Moving a command's bytes, in the kernel where that works.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use tokio::sync::oneshot;

use crate::error::{CliError, Result, os};

/// A pipe that was empty for this long after the command's end is held by somebody who does not write.
const QUIET: Duration = Duration::from_millis(100);
/// What others write after the command's end is moved for this long at most.
const LINGER: Duration = Duration::from_secs(2);
const CHUNK: usize = 1 << 20;

/// Where output goes.
#[derive(Debug)]
pub(crate) enum Target {
    /// This program's standard output.
    Stdout,
    /// This program's standard error.
    Stderr,
    /// Nowhere any more: the reader has gone.
    Gone,
}

impl Target {
    /// Standard output.
    pub(crate) fn stdout() -> Self {
        Self::Stdout
    }

    /// Standard error.
    pub(crate) fn stderr() -> Self {
        Self::Stderr
    }

    /// Whether nobody reads it any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }

    fn fd(&self) -> Option<BorrowedFd<'static>> {
        match self {
            Self::Stdout => Some(rustix::stdio::stdout()),
            Self::Stderr => Some(rustix::stdio::stderr()),
            Self::Gone => None,
        }
    }

    /// Writes all of it. A reader that has gone is no error.
    ///
    /// # Errors
    /// The target can't be written to (a full disk).
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some(fd) = self.fd().filter(|_| !bytes.is_empty()) {
            match rustix::io::write(fd, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::PIPE) => *self = Self::Gone,
                Err(error) => wait_or(fd, PollFlags::OUT, error).map_err(os("writing output"))?,
            }
        }
        Ok(())
    }
}

/// Waits where the error says that the other side is not ready (somebody made this description non-blocking).
fn wait_or(fd: BorrowedFd<'_>, what: PollFlags, error: Errno) -> io::Result<()> {
    match error {
        Errno::INTR => Ok(()),
        Errno::AGAIN => {
            wait_for(&mut [PollFd::from_borrowed_fd(fd, what)], None)?;
            Ok(())
        }
        error => Err(error.into()),
    }
}

/// Whether something happened before the time was over.
fn wait_for(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<bool> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    loop {
        match poll(fds, limit.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A thread that moves one pipe's bytes to a target.
#[derive(Debug)]
pub(crate) struct Pump {
    /// Closing it tells the thread that the command has ended.
    running: io::PipeWriter,
    done: oneshot::Receiver<Result<bool>>,
}

impl Pump {
    /// Starts moving.
    ///
    /// # Errors
    /// Threads or descriptors ran out.
    pub(crate) fn start(from: OwnedFd, to: Target) -> Result<Self> {
        let (ended, running) = io::pipe().map_err(os("making a pipe"))?;
        let (tell, done) = oneshot::channel();
        std::thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                // Nobody listens any more when this program is told to end.
                drop(
                    tell.send(
                        Mover {
                            from,
                            to,
                            splices: true,
                        }
                        .run(&ended),
                    ),
                );
            })
            .map_err(os("starting a thread"))?;
        Ok(Self { running, done })
    }

    /// The command has ended: waits until all of its bytes are moved. True if somebody else still holds the pipe.
    ///
    /// # Errors
    /// The target can't be written to.
    pub(crate) async fn finish(self) -> Result<bool> {
        drop(self.running);
        self.done.await.unwrap_or(Err(CliError::NoEnd))
    }
}

struct Mover {
    from: OwnedFd,
    to: Target,
    splices: bool,
}

impl Mover {
    fn run(mut self, ended: &io::PipeReader) -> Result<bool> {
        let waiting = os("waiting for output");
        loop {
            let mut fds = [
                PollFd::new(&self.from, PollFlags::IN),
                PollFd::new(ended, PollFlags::IN),
            ];
            if let Err(error) = wait_for(&mut fds, None) {
                return Err(waiting(error));
            }
            let (ready, over) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if ready && self.step()? == 0 {
                return Ok(false);
            }
            if self.to.is_gone() {
                // The command finds its pipe closed when it writes again, as it would without a sandbox.
                return Ok(false);
            }
            if over {
                return self.drain();
            }
        }
    }

    fn drain(mut self) -> Result<bool> {
        let begin = Instant::now();
        let mut owed = rustix::io::ioctl_fionread(&self.from)
            .map_err(|e| os("looking at output")(e.into()))?;
        loop {
            let mut fds = [PollFd::new(&self.from, PollFlags::IN)];
            if !wait_for(&mut fds, Some(QUIET)).map_err(os("waiting for output"))? {
                return Ok(true);
            }
            match self.step()? {
                0 => return Ok(false),
                count => owed = owed.saturating_sub(count as u64),
            }
            if self.to.is_gone() {
                return Ok(false);
            }
            if owed == 0 && begin.elapsed() > LINGER {
                return Ok(true);
            }
        }
    }

    /// Moves some bytes that are there; 0 at the end.
    fn step(&mut self) -> Result<usize> {
        let Some(fd) = self.to.fd() else { return Ok(0) };
        if self.splices {
            match splice(&self.from, None, fd, None, CHUNK, SpliceFlags::MOVE) {
                Ok(count) => return Ok(count),
                Err(Errno::PIPE) => {
                    self.to = Target::Gone;
                    return Ok(0);
                }
                // Terminals and files in append mode take no splice.
                Err(Errno::INVAL) => self.splices = false,
                Err(error) => wait_or(fd, PollFlags::OUT, error).map_err(os("writing output"))?,
            }
        }
        let mut buffer = vec![0; 64 << 10];
        let count = loop {
            match rustix::io::read(&self.from, &mut buffer) {
                Ok(count) => break count,
                Err(error) => wait_or(self.from.as_fd(), PollFlags::IN, error)
                    .map_err(os("reading output"))?,
            }
        };
        self.to.write(&buffer[..count])?;
        Ok(count)
    }
}

/// Moves this program's input to a command on a thread that nobody waits for.
///
/// # Errors
/// Threads ran out.
pub(crate) fn feed(mut from: impl io::Read + Send + 'static, to: OwnedFd) -> Result<()> {
    std::thread::Builder::new()
        .name("input".into())
        .spawn(move || {
            let mut to = std::fs::File::from(to);
            let mut buffer = vec![0; 64 << 10];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => return,
                    // A command that stopped reading is the command's own affair.
                    Ok(count) if to.write_all(&buffer[..count]).is_err() => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        })
        .map(drop)
        .map_err(os("starting a thread"))
}

/// Where a command's input goes as frames.
pub(crate) trait Sink {
    /// Writes all of these bytes. False if the command takes no more.
    async fn write(&mut self, bytes: &[u8]) -> bool;
    /// Ends the input.
    async fn close(self);
}

impl Sink for cosm::ExecStdin {
    async fn write(&mut self, bytes: &[u8]) -> bool {
        self.write_all(bytes).await.is_ok()
    }

    async fn close(self) {
        // The command may have ended; then nobody needs the end of its input.
        drop(cosm::ExecStdin::close(self).await);
    }
}

/// Moves this program's input to a command as frames. Ends with the runtime.
pub(crate) async fn frames_in(mut to: impl Sink) {
    let (tell, mut parts) = tokio::sync::mpsc::channel::<Vec<u8>>(4);
    let reader = std::thread::Builder::new()
        .name("input".into())
        .spawn(move || {
            let mut from = io::stdin().lock();
            let mut buffer = vec![0; 16 << 10];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) if tell.blocking_send(buffer[..count].to_vec()).is_err() => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
    if reader.is_err() {
        return;
    }
    while let Some(part) = parts.recv().await {
        if !to.write(&part).await {
            return;
        }
    }
    to.close().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_holder_keeps_open_ends_when_it_is_quiet() {
        let (from, mut writer) = io::pipe().expect("pipe");
        let (ended, running) = io::pipe().expect("pipe");
        writer.write_all(b"said before the end\n").expect("write");
        drop(running);
        let begin = Instant::now();
        let mover = Mover {
            from: from.into(),
            to: Target::Stderr,
            splices: true,
        };
        assert!(
            mover.run(&ended).expect("moves"),
            "the writer is still open"
        );
        assert!(begin.elapsed() >= QUIET && begin.elapsed() < LINGER);
    }

    #[test]
    fn the_end_of_file_ends_it_at_once() {
        let (from, writer) = io::pipe().expect("pipe");
        let (ended, _running) = io::pipe().expect("pipe");
        drop(writer);
        let mover = Mover {
            from: from.into(),
            to: Target::Stderr,
            splices: true,
        };
        assert!(!mover.run(&ended).expect("ends"));
    }
}
