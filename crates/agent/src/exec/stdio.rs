//! The two ends of a command's standard streams.

use alloc::vec::Vec;

use cosm_proto::agent::{SpawnFailure, SpawnReason, Stdio, WindowSize};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, Result};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{failure, wrong};

/// What the handler keeps. All of it is non-blocking.
#[derive(Debug, Default)]
pub(super) struct Ours {
    /// Bytes from the host go in here.
    pub(super) input: Option<OwnedFd>,
    /// Bytes for the host come out of here: standard output, or the terminal.
    pub(super) output: Option<OwnedFd>,
    /// Standard error.
    pub(super) error: Option<OwnedFd>,
    /// Input and output are a terminal's two directions.
    pub(super) terminal: bool,
}

/// What the command gets.
#[derive(Debug)]
pub(super) enum Theirs {
    Streams {
        /// `None` is `/dev/null`.
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Terminal(OwnedFd),
}

pub(super) fn open(
    stdio: Stdio,
    fds: Vec<OwnedFd>,
) -> core::result::Result<(Ours, Theirs), SpawnFailure> {
    match stdio {
        Stdio::Passed { stdin } => {
            passed(stdin, fds).ok_or_else(|| wrong(SpawnReason::BadRequest, b"descriptors"))
        }
        Stdio::Framed { stdin } => {
            framed(stdin).map_err(|errno| failure(SpawnReason::ResourceLimit, errno, b"pipe"))
        }
        Stdio::Terminal { size } => {
            terminal(size).map_err(|errno| failure(SpawnReason::Other, errno, b"/dev/ptmx"))
        }
    }
}

fn passed(stdin: bool, fds: Vec<OwnedFd>) -> Option<(Ours, Theirs)> {
    let mut fds = fds.into_iter();
    let stdin = if stdin { Some(fds.next()?) } else { None };
    let theirs = Theirs::Streams {
        stdin,
        stdout: fds.next()?,
        stderr: fds.next()?,
    };
    fds.next().is_none().then_some((Ours::default(), theirs))
}

fn framed(stdin: bool) -> Result<(Ours, Theirs)> {
    let (input, stdin) = if stdin {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        (Some(without_blocking(write)?), Some(read))
    } else {
        (None, None)
    };
    let (output, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (error, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let ours = Ours {
        input,
        output: Some(without_blocking(output)?),
        error: Some(without_blocking(error)?),
        terminal: false,
    };
    Ok((
        ours,
        Theirs::Streams {
            stdin,
            stdout,
            stderr,
        },
    ))
}

fn terminal(size: WindowSize) -> Result<(Ours, Theirs)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let host_end = openpt(flags)?;
    unlockpt(&host_end)?;
    let command_end = ioctl_tiocgptpeer(&host_end, flags)?;
    resize(&host_end, size)?;
    let input = rustix::io::fcntl_dupfd_cloexec(host_end.as_fd(), 3)?;
    let ours = Ours {
        input: Some(input),
        output: Some(without_blocking(host_end)?),
        error: None,
        terminal: true,
    };
    Ok((ours, Theirs::Terminal(command_end)))
}

pub(super) fn resize(terminal: &OwnedFd, size: WindowSize) -> Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size)
}

fn without_blocking(fd: OwnedFd) -> Result<OwnedFd> {
    let flags = fcntl_getfl(&fd)?;
    fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
    Ok(fd)
}

/// An input without any bytes.
pub(super) fn null() -> Result<OwnedFd> {
    match rustix::fs::open(
        c"/dev/null",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        // A root file system without devices: a pipe that nobody writes to does as well.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::NXIO) => {
            pipe_with(PipeFlags::CLOEXEC).map(|(read, _)| read)
        }
        other => other,
    }
}
