//! Frames: a length, a kind, a payload.
//!
//! ```text
//! u32 little endian   length of the payload, at most MAX_PAYLOAD
//! u8                  kind
//! [u8; length]        payload
//! ```

use alloc::vec::Vec;

use serde::{Serialize, de::DeserializeOwned};

/// The longest payload, in bytes. A longer one is a broken peer: nothing is allocated for it.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes before the payload.
pub const HEADER: usize = 5;
/// What one data frame carries at most when we write it.
pub const DATA_CHUNK: usize = 64 << 10;

/// What a frame's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// One postcard value whose type the conversation gives.
    Message = 0,
    /// Bytes for the command's standard input.
    Stdin = 1,
    /// Bytes of the command's standard output, or of its terminal.
    Stdout = 2,
    /// Bytes of the command's standard error.
    Stderr = 3,
    /// Bytes of a file, at the place that the message before it named.
    Data = 4,
    /// The agent could not serve the connection at all (no process for it, say): four bytes, an error number, little
    /// endian. Ends any conversation.
    Refused = 5,
}

impl Kind {
    /// The kind with this number.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Message,
            1 => Self::Stdin,
            2 => Self::Stdout,
            3 => Self::Stderr,
            4 => Self::Data,
            5 => Self::Refused,
            _ => return None,
        })
    }
}

/// What is wrong with the bytes of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The length is over [`MAX_PAYLOAD`].
    TooLong(u32),
    /// No such kind.
    UnknownKind(u8),
    /// The payload is not the message that belongs here.
    BadMessage,
    /// The message is larger than a frame.
    MessageTooLarge,
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooLong(n) => {
                write!(f, "a frame of {n} bytes is over the limit of {MAX_PAYLOAD}")
            }
            Self::UnknownKind(k) => write!(f, "unknown frame kind {k}"),
            Self::BadMessage => f.write_str("a message that can't be read"),
            Self::MessageTooLarge => write!(f, "a message over the limit of {MAX_PAYLOAD} bytes"),
        }
    }
}

impl core::error::Error for FrameError {}

/// The header of a frame with this payload's length.
pub const fn header(kind: Kind, length: u32) -> [u8; HEADER] {
    let l = length.to_le_bytes();
    [l[0], l[1], l[2], l[3], kind as u8]
}

/// Reads a header.
///
/// # Errors
/// [`FrameError::TooLong`], [`FrameError::UnknownKind`].
pub const fn parse_header(bytes: [u8; HEADER]) -> Result<(Kind, usize), FrameError> {
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if length as usize > MAX_PAYLOAD {
        return Err(FrameError::TooLong(length));
    }
    match Kind::from_byte(bytes[4]) {
        Some(kind) => Ok((kind, length as usize)),
        None => Err(FrameError::UnknownKind(bytes[4])),
    }
}

/// A whole frame that carries one message.
///
/// # Errors
/// [`FrameError::MessageTooLarge`].
pub fn message<T: Serialize>(value: &T) -> Result<Vec<u8>, FrameError> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&[0; HEADER]);
    let mut out = postcard::to_extend(value, out).map_err(|_| FrameError::MessageTooLarge)?;
    let length = out.len() - HEADER;
    if length > MAX_PAYLOAD {
        return Err(FrameError::MessageTooLarge);
    }
    out[..HEADER].copy_from_slice(&header(Kind::Message, length as u32));
    Ok(out)
}

/// Reads one message out of a payload. Bytes left over are an error: they would be a smuggled second meaning.
///
/// # Errors
/// [`FrameError::BadMessage`].
pub fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(payload) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::BadMessage),
    }
}
