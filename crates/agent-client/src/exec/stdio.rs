//! The two ends of a command's standard streams.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cosm_proto::agent::Stdio;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;

use super::input::{Credit, ExecInput};
use super::output::Streams;
use crate::AgentError;
use crate::wire::Writer;

/// The ends that stay here.
pub(super) enum Ours {
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Frames {
        stdin: bool,
    },
}

/// The ends that go to the guest: pipes made for this command, and nothing else ever.
pub(super) struct Theirs(Vec<OwnedFd>);

impl Theirs {
    pub(super) fn borrowed(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(OwnedFd::as_fd).collect()
    }
}

pub(super) fn open(stdio: Stdio) -> Result<(Ours, Theirs), AgentError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| AgentError::Io(errno.into()));
    let with_input = match stdio {
        Stdio::Passed { stdin } => stdin,
        Stdio::Framed { stdin } => return Ok((Ours::Frames { stdin }, Theirs(Vec::new()))),
        Stdio::Terminal { .. } => return Ok((Ours::Frames { stdin: true }, Theirs(Vec::new()))),
    };
    let mut theirs = Vec::with_capacity(3);
    let mut stdin = None;
    if with_input {
        let (read, write) = pipe()?;
        theirs.push(read);
        stdin = Some(write);
    }
    let (stdout, write) = pipe()?;
    theirs.push(write);
    let (stderr, write) = pipe()?;
    theirs.push(write);
    Ok((
        Ours::Pipes {
            stdin,
            stdout,
            stderr,
        },
        Theirs(theirs),
    ))
}

impl Ours {
    pub(super) fn connect(
        self,
        writer: &Writer,
    ) -> Result<(Option<ExecInput>, Streams, Arc<Credit>), AgentError> {
        let credit = Arc::new(Credit::new());
        match self {
            Self::Frames { stdin } => {
                let input = stdin.then(|| ExecInput::frames(writer.clone(), credit.clone()));
                let streams = Streams {
                    frames: true,
                    stdout: None,
                    stderr: None,
                    stderr_first: false,
                };
                Ok((input, streams, credit))
            }
            Self::Pipes {
                stdin,
                stdout,
                stderr,
            } => {
                let input = stdin
                    .map(pipe::Sender::from_owned_fd)
                    .transpose()
                    .map_err(AgentError::Io)?;
                let reader = |fd| {
                    pipe::Receiver::from_owned_fd(fd)
                        .map(Some)
                        .map_err(AgentError::Io)
                };
                let (stdout, stderr) = (reader(stdout)?, reader(stderr)?);
                let streams = Streams {
                    frames: false,
                    stdout,
                    stderr,
                    stderr_first: false,
                };
                Ok((input.map(ExecInput::pipe), streams, credit))
            }
        }
    }
}
