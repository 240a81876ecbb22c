//! One connection to the host.

use alloc::vec::Vec;
use core::mem::MaybeUninit;

use cosm_proto::agent::{Hello, VERSION};
use cosm_proto::frame::{self, FrameError, HEADER, Kind};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::{Moment, until};

/// How long a connection may be silent before its first frame is whole.
const FIRST_FRAME_MS: u64 = 10_000;
/// The most descriptors that come with a request: the three standard streams.
const MAX_FDS: usize = 3;
const READ: usize = 16 << 10;
/// Buffers that grew over this for large frames are given back when they are empty.
const KEEP: usize = 128 << 10;

/// Why a connection is of no more use. There is nobody left to tell, so it says no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

impl From<Errno> for Broken {
    fn from(_: Errno) -> Self {
        Self
    }
}

impl From<FrameError> for Broken {
    fn from(_: FrameError) -> Self {
        Self
    }
}

/// A connection with its buffers. What is queued goes out with `flush`.
pub(crate) struct Link {
    socket: OwnedFd,
    input: Vec<u8>,
    start: usize,
    output: Vec<u8>,
    sent: usize,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link {
    pub(crate) const fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            input: Vec::new(),
            start: 0,
            output: Vec::new(),
            sent: 0,
        }
    }

    /// Reads the first frame and the descriptors that came with it.
    pub(crate) fn hello(&mut self) -> Result<(Hello, Vec<OwnedFd>), Broken> {
        let deadline = Moment::now().after_ms(FIRST_FRAME_MS);
        let mut fds = Vec::new();
        loop {
            if let Some((kind, payload)) = self.next()? {
                let hello: Hello = message(kind, payload)?;
                return if hello.version == VERSION {
                    Ok((hello, fds))
                } else {
                    Err(Broken)
                };
            }
            let mut wanted = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut wanted, until(&[Some(deadline)]).as_ref()) {
                Ok(0) => return Err(Broken),
                Ok(_) => self.receive_with_fds(&mut fds)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn receive_with_fds(&mut self, fds: &mut Vec<OwnedFd>) -> Result<(), Broken> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut chunk = [0; READ];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut chunk)],
            &mut control,
            flags,
        ) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            other => other?,
        };
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = part {
                fds.extend(some);
            }
        }
        if received.bytes == 0 || fds.len() > MAX_FDS {
            return Err(Broken);
        }
        self.input.extend_from_slice(&chunk[..received.bytes]);
        Ok(())
    }

    /// The next whole frame that has been read, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<(Kind, &[u8])>, Broken> {
        let waiting = &self.input[self.start..];
        let Some(header) = waiting.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let (kind, length) = frame::parse_header(*header)?;
        if waiting.len() < HEADER + length {
            return Ok(None);
        }
        let from = self.start + HEADER;
        self.start = from + length;
        Ok(Some((kind, &self.input[from..from + length])))
    }

    /// Reads what has come, without waiting. An error also when the host has closed.
    pub(crate) fn fill(&mut self) -> Result<(), Broken> {
        self.input.drain(..self.start);
        self.start = 0;
        if self.input.is_empty() && self.input.capacity() > KEEP {
            self.input = Vec::new();
        }
        self.input.reserve(READ);
        match recv(
            &self.socket,
            spare_capacity(&mut self.input),
            RecvFlags::DONTWAIT,
        ) {
            Ok((0, _)) => Err(Broken),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for the next whole frame.
    pub(crate) fn wait_next(&mut self) -> Result<(Kind, &[u8]), Broken> {
        loop {
            // Twice because of what the borrow checker can't see yet: a frame found here is returned below.
            if self.has_frame()? {
                break;
            }
            self.wait(PollFlags::IN)?;
            self.fill()?;
        }
        self.next()?.ok_or(Broken)
    }

    fn has_frame(&self) -> Result<bool, Broken> {
        let waiting = &self.input[self.start..];
        let Some(header) = waiting.first_chunk::<HEADER>() else {
            return Ok(false);
        };
        let (_, length) = frame::parse_header(*header)?;
        Ok(waiting.len() >= HEADER + length)
    }

    /// Bytes that are queued and not sent.
    pub(crate) fn queued(&self) -> usize {
        self.output.len() - self.sent
    }

    pub(crate) fn queue<T: Serialize>(&mut self, value: &T) -> Result<(), Broken> {
        let bytes = frame::message(value)?;
        self.output.extend_from_slice(&bytes);
        Ok(())
    }

    /// Queues one frame of raw bytes; the caller keeps it below the frame's limit.
    pub(crate) fn queue_raw(&mut self, kind: Kind, payload: &[u8]) {
        self.output
            .extend_from_slice(&frame::header(kind, payload.len() as u32));
        self.output.extend_from_slice(payload);
    }

    /// Sends what is queued, as far as the host takes it at once.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        while self.queued() > 0 {
            match send(
                &self.socket,
                &self.output[self.sent..],
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.output.clear();
        self.sent = 0;
        if self.output.capacity() > KEEP {
            self.output = Vec::new();
        }
        Ok(())
    }

    /// Sends all that is queued, however long the host takes.
    pub(crate) fn flush_all(&mut self) -> Result<(), Broken> {
        self.flush()?;
        while self.queued() > 0 {
            self.wait(PollFlags::OUT)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Sends one message.
    pub(crate) fn send<T: Serialize>(&mut self, value: &T) -> Result<(), Broken> {
        self.queue(value)?;
        self.flush_all()
    }

    fn wait(&self, flags: PollFlags) -> Result<(), Broken> {
        match poll(&mut [PollFd::new(&self.socket, flags)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The message in a frame.
pub(crate) fn message<T: DeserializeOwned>(kind: Kind, payload: &[u8]) -> Result<T, Broken> {
    match kind {
        Kind::Message => Ok(frame::parse(payload)?),
        _ => Err(Broken),
    }
}
