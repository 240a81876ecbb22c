//! What comes from a running command.
//!
//! The order of things is the agent's: all that the command itself wrote is in the pipes, or was sent as frames,
//! before `Exit` is. With pipes a descendant that lives on may hold the other end open; then the pipes are read until
//! they have been empty for [`QUIET`], or for [`LINGER`] at most once the command's own bytes are through.

use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cosm_proto::agent::{ExecOut, ExitReport};
use cosm_proto::frame::Kind;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::input::Credit;
use crate::AgentError;
use crate::wire::{Frame, Reader};

/// Pipes that were empty for this long after the command's end are held by somebody who does not write.
const QUIET: Duration = Duration::from_millis(100);
/// Nobody's output is waited for longer than this after the command's end.
const LINGER: Duration = Duration::from_secs(2);
/// Read at once; what a pipe holds by default.
const CHUNK: usize = 64 << 10;

/// Something a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It wrote this to its standard output or its terminal.
    Stdout(Vec<u8>),
    /// It wrote this to its standard error.
    Stderr(Vec<u8>),
    /// It no longer reads its input (told with frames only; a pipe tells the writer itself).
    StdinClosed,
    /// It ended. Nothing comes after this.
    Exit(ExecExit),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecExit {
    /// What the agent says.
    pub report: ExitReport,
    /// A descendant still holds its output open. What that one writes is not read any more.
    pub detached_holders: bool,
}

/// A command's output and end. Dropping it before [`ExecEvent::Exit`] kills the command and its descendants.
#[derive(Debug)]
pub struct ExecOutput {
    reader: Reader,
    streams: Streams,
    credit: Arc<Credit>,
    /// When silence about the end becomes an error.
    end: Option<Instant>,
    ending: Option<Ending>,
    done: bool,
    scratch: Vec<u8>,
}

/// Where output comes from.
#[derive(Debug)]
pub(super) struct Streams {
    /// Frames on the connection; else pipes, each until its end of file.
    pub(super) frames: bool,
    pub(super) stdout: Option<pipe::Receiver>,
    pub(super) stderr: Option<pipe::Receiver>,
    /// Which pipe is looked at first next time, so that neither starves the other.
    pub(super) stderr_first: bool,
}

/// The command's end, while what is left in the pipes is read.
#[derive(Debug)]
struct Ending {
    result: Result<ExitReport, AgentError>,
    /// Bytes that were in the pipes at the end, and so are the command's own.
    owed: usize,
    last_byte: Instant,
    linger_until: Instant,
}

/// One step of reading.
enum Step {
    Read { stderr: bool, count: usize },
    Event(Option<ExecEvent>),
    Ended(Result<ExitReport, AgentError>),
    Quiet,
}

impl ExecOutput {
    pub(super) fn new(
        reader: Reader,
        streams: Streams,
        credit: Arc<Credit>,
        end: Option<Instant>,
    ) -> Self {
        Self {
            reader,
            streams,
            credit,
            end,
            ending: None,
            done: false,
            scratch: Vec::new(),
        }
    }

    /// The next event; `None` after [`ExecEvent::Exit`] or an error. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError::Lost`] if the guest's side ended without telling of the command's end; `Silent` if its time-out
    /// passed and the guest still says nothing; `Protocol`, `Io`.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, AgentError> {
        while !self.done {
            match self.step().await {
                Ok(Step::Read { stderr, count: 0 }) => self.streams.forget(stderr),
                Ok(Step::Read {
                    stderr: false,
                    count,
                }) => return Ok(Some(ExecEvent::Stdout(self.taken(count)))),
                Ok(Step::Read {
                    stderr: true,
                    count,
                }) => return Ok(Some(ExecEvent::Stderr(self.taken(count)))),
                Ok(Step::Event(None)) => {}
                Ok(Step::Event(event)) => return Ok(event),
                Ok(Step::Ended(result)) => self.begin_ending(result),
                Ok(Step::Quiet) => return self.finish(true).map(Some),
                Err(error) => {
                    self.settle();
                    return Err(error);
                }
            }
            if self.ending.is_some() && self.streams.are_closed() {
                return self.finish(false).map(Some);
            }
        }
        Ok(None)
    }

    /// Reads to the end and keeps at most `cap` bytes of each stream.
    ///
    /// # Errors
    /// As [`ExecOutput::next`].
    pub async fn collect(mut self, cap: usize) -> Result<super::Collected, AgentError> {
        let mut collector = super::Collector::new(cap);
        while let Some(event) = self.next().await? {
            if let Some(exit) = collector.take(event) {
                return Ok(collector.finish(exit));
            }
        }
        Err(AgentError::Lost)
    }

    /// The reading ends themselves, for a caller that splices them, and the rest of the conversation.
    ///
    /// # Errors
    /// [`AgentError::Io`]; `Unsupported` where output is frames.
    pub fn into_pipes(mut self) -> Result<ExecPipes, AgentError> {
        if self.streams.frames {
            return Err(AgentError::Io(io::ErrorKind::Unsupported.into()));
        }
        // A stream that was read to its end already is a pipe at its end.
        let end = |pipe: Option<pipe::Receiver>| match pipe {
            Some(pipe) => pipe.into_blocking_fd(),
            None => io::pipe().map(|(reader, _)| reader.into()),
        };
        let stdout = end(self.streams.stdout.take()).map_err(AgentError::Io)?;
        let stderr = end(self.streams.stderr.take()).map_err(AgentError::Io)?;
        Ok(ExecPipes {
            stdout,
            stderr,
            wait: ExecWait(self),
        })
    }

    async fn step(&mut self) -> Result<Step, AgentError> {
        let ending = self.ending.as_ref();
        let (quiet, over) = (
            ending.map(|e| e.quiet_at()),
            ending.is_some_and(Ending::is_over),
        );
        let passed = !self.streams.frames;
        tokio::select! {
            biased;
            () = at(self.end), if ending.is_none() => Err(overdue()),
            () = std::future::ready(()), if over => Ok(Step::Quiet),
            read = self.streams.read(&mut self.scratch) => {
                let (stderr, count) = read.map_err(AgentError::Io)?;
                Ok(Step::Read { stderr, count })
            }
            frame = self.reader.next(), if ending.is_none() => match frame {
                Ok(Some(frame)) => take_frame(&frame, &self.credit, passed),
                Ok(None) | Err(AgentError::Lost) => Ok(Step::Ended(Err(AgentError::Lost))),
                Err(error) => Err(error),
            },
            () = at(quiet), if quiet.is_some() => Ok(Step::Quiet),
        }
    }

    fn taken(&mut self, count: usize) -> Vec<u8> {
        if let Some(ending) = &mut self.ending {
            ending.owed = ending.owed.saturating_sub(count);
            ending.last_byte = Instant::now();
        }
        self.scratch[..count].to_vec()
    }

    fn begin_ending(&mut self, result: Result<ExitReport, AgentError>) {
        self.credit.close();
        let now = Instant::now();
        let owed = self.streams.waiting();
        self.ending = Some(Ending {
            result,
            owed,
            last_byte: now,
            linger_until: now + LINGER,
        });
    }

    fn finish(&mut self, held: bool) -> Result<ExecEvent, AgentError> {
        self.settle();
        let report = self
            .ending
            .take()
            .map_or(Err(AgentError::Lost), |ending| ending.result)?;
        let detached_holders = held || (self.streams.frames && report.leftovers);
        Ok(ExecEvent::Exit(ExecExit {
            report,
            detached_holders,
        }))
    }

    fn settle(&mut self) {
        self.done = true;
        self.credit.close();
        self.reader.close();
    }
}

impl Drop for ExecOutput {
    fn drop(&mut self) {
        // Other halves of the connection may live on; the command must not.
        self.reader.close();
    }
}

impl Ending {
    fn quiet_at(&self) -> Instant {
        // The command's own bytes get the longer wait.
        if self.owed > 0 {
            self.linger_until.max(self.last_byte + QUIET)
        } else {
            self.last_byte + QUIET
        }
    }

    fn is_over(&self) -> bool {
        self.owed == 0 && Instant::now() >= self.linger_until
    }
}

impl Streams {
    fn are_closed(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    fn forget(&mut self, stderr: bool) {
        *(if stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        }) = None;
    }

    /// Bytes that wait to be read.
    fn waiting(&self) -> usize {
        let of = |pipe: &Option<pipe::Receiver>| {
            pipe.as_ref()
                .and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok())
                .unwrap_or(0)
        };
        usize::try_from(of(&self.stdout).saturating_add(of(&self.stderr))).unwrap_or(usize::MAX)
    }

    /// Reads from whichever pipe has something; for ever if there is none. Cancel-safe.
    async fn read(&mut self, scratch: &mut Vec<u8>) -> io::Result<(bool, usize)> {
        if self.are_closed() {
            return pending().await;
        }
        scratch.resize(CHUNK, 0);
        poll_fn(|context| {
            for stderr in [self.stderr_first, !self.stderr_first] {
                let pipe = if stderr {
                    &mut self.stderr
                } else {
                    &mut self.stdout
                };
                let Some(pipe) = pipe else { continue };
                let mut buffer = ReadBuf::new(scratch);
                if let Poll::Ready(read) = Pin::new(pipe).poll_read(context, &mut buffer) {
                    self.stderr_first = !stderr;
                    return Poll::Ready(read.map(|()| (stderr, buffer.filled().len())));
                }
            }
            Poll::Pending
        })
        .await
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => pending().await,
    }
}

const fn overdue() -> AgentError {
    AgentError::Silent {
        waiting_for: "a command's end was due",
        after: Duration::ZERO,
    }
}

/// What a frame of a running command means. With pipes, output in frames is out of place.
fn take_frame(frame: &Frame<'_>, credit: &Credit, passed: bool) -> Result<Step, AgentError> {
    match frame.kind {
        Kind::Stdout if !passed => Ok(Step::Event(Some(ExecEvent::Stdout(frame.payload.to_vec())))),
        Kind::Stderr if !passed => Ok(Step::Event(Some(ExecEvent::Stderr(frame.payload.to_vec())))),
        Kind::Stdout | Kind::Stderr | Kind::Stdin | Kind::Data => Err(AgentError::out_of_place()),
        Kind::Message | Kind::Refused => match frame.message()? {
            ExecOut::StdinTaken(bytes) => credit.give(bytes).map(|()| Step::Event(None)),
            ExecOut::StdinClosed => {
                credit.close();
                Ok(Step::Event(Some(ExecEvent::StdinClosed)))
            }
            ExecOut::Exit(report) => Ok(Step::Ended(Ok(report))),
            ExecOut::Started { .. } | ExecOut::Failed(_) => Err(AgentError::out_of_place()),
        },
    }
}

/// A command's output as pipes. The rule for their end: once [`ExecWait::wait`] has answered, all that the command
/// itself wrote is in them; they are at their end at end of file, or when nothing has come for 100 ms.
#[derive(Debug)]
pub struct ExecPipes {
    /// The reading end of its standard output, in blocking mode.
    pub stdout: OwnedFd,
    /// The reading end of its standard error, in blocking mode.
    pub stderr: OwnedFd,
    /// Its end.
    pub wait: ExecWait,
}

/// A command's end, for who reads its output elsewhere. Dropping it kills the command.
#[derive(Debug)]
pub struct ExecWait(ExecOutput);

impl ExecWait {
    /// Waits for the end. Cancel-safe; to be called until it answers.
    ///
    /// # Errors
    /// As [`ExecOutput::next`].
    pub async fn wait(&mut self) -> Result<ExitReport, AgentError> {
        loop {
            match self.0.next().await? {
                Some(ExecEvent::Exit(exit)) => return Ok(exit.report),
                Some(_) => {}
                None => return Err(AgentError::Lost),
            }
        }
    }
}
