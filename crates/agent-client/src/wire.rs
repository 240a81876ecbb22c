//! Frames over a stream socket whose other end is not trusted.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use cosm_proto::frame::{self, HEADER, Kind, MAX_PAYLOAD};
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::AgentError;

/// How much is read at once, so that small frames cost few system calls.
const READ: usize = 64 << 10;
/// A buffer that has grown over this for one large frame is given back after it.
const KEEP: usize = 128 << 10;

/// The reading half of a connection. Descriptors that the peer attaches are closed by the kernel: nothing here asks
/// for them.
#[derive(Debug)]
pub struct Reader {
    stream: Arc<UnixStream>,
    buffer: Vec<u8>,
    start: usize,
}

/// A frame as it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the payload is.
    pub kind: Kind,
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: &'a [u8],
}

/// The writing half of a connection. Clones write whole frames, one after the other.
#[derive(Debug, Clone)]
pub struct Writer {
    stream: Arc<UnixStream>,
    turn: Arc<Mutex<()>>,
}

/// Both halves of a connection.
pub fn halves(stream: UnixStream) -> (Reader, Writer) {
    let stream = Arc::new(stream);
    let reader = Reader {
        stream: stream.clone(),
        buffer: Vec::new(),
        start: 0,
    };
    (
        reader,
        Writer {
            stream,
            turn: Arc::default(),
        },
    )
}

impl Reader {
    /// The next frame, or `None` when the peer closed between two frames. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError::Protocol`], [`AgentError::Lost`] if it closed inside a frame, [`AgentError::Io`].
    pub async fn next(&mut self) -> Result<Option<Frame<'_>>, AgentError> {
        let (kind, length) = loop {
            if let Some(found) = self.complete()? {
                break found;
            }
            if self.fill().await? == 0 {
                return if self.buffer.len() == self.start {
                    Ok(None)
                } else {
                    Err(AgentError::Lost)
                };
            }
        };
        let from = self.start + HEADER;
        self.start = from + length;
        Ok(Some(Frame {
            kind,
            payload: &self.buffer[from..from + length],
        }))
    }

    /// The next frame, which must be a message of this type. Cancel-safe.
    ///
    /// # Errors
    /// As [`Reader::next`]; [`AgentError::Lost`] if the peer closed; [`AgentError::Refused`].
    pub async fn message<T: DeserializeOwned>(&mut self) -> Result<T, AgentError> {
        match self.next().await? {
            None => Err(AgentError::Lost),
            Some(frame) => frame.message(),
        }
    }

    fn complete(&self) -> Result<Option<(Kind, usize)>, AgentError> {
        let waiting = &self.buffer[self.start..];
        let Some(header) = waiting.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let (kind, length) = frame::parse_header(*header)?;
        Ok((waiting.len() >= HEADER + length).then_some((kind, length)))
    }

    async fn fill(&mut self) -> Result<usize, AgentError> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > KEEP {
            self.buffer = Vec::new();
        }
        self.buffer.reserve(READ);
        let Self { stream, buffer, .. } = self;
        let read = stream.async_io(Interest::READABLE, || {
            Ok(rustix::net::recv(
                stream.as_fd(),
                spare_capacity(buffer),
                RecvFlags::DONTWAIT,
            )?)
        });
        match read.await {
            Ok((count, _)) => Ok(count),
            // The peer closed with something of ours unread, and all that it had said has been read.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            Err(error) => Err(AgentError::Io(error)),
        }
    }

    /// Ends the connection in both directions, whoever else holds a half.
    pub(crate) fn close(&self) {
        // It may have ended already.
        rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Both).unwrap_or_default();
    }
}

impl Frame<'_> {
    /// The message in this frame.
    ///
    /// # Errors
    /// [`AgentError::Protocol`], or [`AgentError::Refused`] if that is what it says.
    pub fn message<T: DeserializeOwned>(&self) -> Result<T, AgentError> {
        match self.kind {
            Kind::Message => Ok(frame::parse(self.payload)?),
            Kind::Refused => Err(self.refusal()),
            _ => Err(AgentError::out_of_place()),
        }
    }

    pub(crate) fn refusal(&self) -> AgentError {
        match self.payload.try_into() {
            Ok(bytes) => {
                AgentError::Refused(io::Error::from_raw_os_error(i32::from_le_bytes(bytes)))
            }
            Err(_) => AgentError::out_of_place(),
        }
    }
}

impl Writer {
    /// Writes one message. Once begun a frame is finished even if the future is dropped before its turn is over only
    /// when nothing of it was written: a dropped half-written frame closes the connection.
    ///
    /// # Errors
    /// [`AgentError::Lost`] if the peer closed, [`AgentError::Io`], [`AgentError::Protocol`] if it is too long.
    pub async fn message<T: Serialize>(&self, value: &T) -> Result<(), AgentError> {
        let bytes = frame::message(value)?;
        self.send(&[], &bytes, &[]).await
    }

    /// Writes one message and attaches descriptors to its first byte.
    ///
    /// # Errors
    /// As [`Writer::message`].
    pub async fn message_with<T: Serialize>(
        &self,
        value: &T,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), AgentError> {
        let bytes = frame::message(value)?;
        self.send(&[], &bytes, fds).await
    }

    /// Writes one frame of raw bytes, at most [`MAX_PAYLOAD`] of them.
    ///
    /// # Errors
    /// As [`Writer::message`].
    pub async fn raw(&self, kind: Kind, payload: &[u8]) -> Result<(), AgentError> {
        if payload.len() > MAX_PAYLOAD {
            return Err(frame::FrameError::MessageTooLarge.into());
        }
        self.send(&frame::header(kind, payload.len() as u32), payload, &[])
            .await
    }

    async fn send(
        &self,
        header: &[u8],
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), AgentError> {
        let turn = self.turn.lock().await;
        let whole = HalfFrame {
            stream: &self.stream,
            begun: false,
        };
        let sent = self.send_all(header, payload, fds, whole).await;
        drop(turn);
        sent
    }

    async fn send_all(
        &self,
        mut header: &[u8],
        mut payload: &[u8],
        mut fds: &[BorrowedFd<'_>],
        mut guard: HalfFrame<'_>,
    ) -> Result<(), AgentError> {
        while !(header.is_empty() && payload.is_empty()) {
            let sent = self
                .stream
                .async_io(Interest::WRITABLE, || {
                    send_once(&self.stream, header, payload, fds)
                })
                .await;
            let count = sent.map_err(lost_or_io)?;
            guard.begun = true;
            fds = &[];
            let of_header = count.min(header.len());
            header = &header[of_header..];
            payload = &payload[count - of_header..];
        }
        guard.begun = false;
        Ok(())
    }

    /// One message if it can be written at once; for a place that can't wait.
    pub(crate) fn try_message<T: Serialize>(&self, value: &T) -> bool {
        let (Ok(bytes), Ok(_turn)) = (frame::message(value), self.turn.try_lock()) else {
            return false;
        };
        let mut guard = HalfFrame {
            stream: &self.stream,
            begun: false,
        };
        let sent = send_once(&self.stream, &[], &bytes, &[]);
        guard.begun = matches!(sent, Ok(count) if count < bytes.len());
        matches!(sent, Ok(count) if count == bytes.len())
    }
}

/// A frame that was begun and never finished would make the next one unreadable, so the connection ends with it.
struct HalfFrame<'a> {
    stream: &'a UnixStream,
    begun: bool,
}

impl Drop for HalfFrame<'_> {
    fn drop(&mut self) {
        if self.begun {
            rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Both)
                .unwrap_or_default();
        }
    }
}

fn send_once(
    stream: &UnixStream,
    header: &[u8],
    payload: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(header), IoSlice::new(payload)];
    Ok(rustix::net::sendmsg(
        stream.as_fd(),
        &parts,
        &mut control,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?)
}

fn lost_or_io(error: io::Error) -> AgentError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AgentError::Lost,
        _ => AgentError::Io(error),
    }
}
