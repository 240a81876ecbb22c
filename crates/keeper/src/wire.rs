//! Frames over the control socket. A connection costs nothing but its descriptor while it says nothing.

use std::io;

use cosm_proto::frame::{self, FrameError, HEADER, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// A frame that came whole; `None` at the end of the stream, also in the middle of a frame.
pub(crate) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut header = [0; HEADER];
    if !filled(stream.read_exact(&mut header).await)? {
        return Ok(None);
    }
    let (kind, length) = frame::parse_header(header).map_err(invalid)?;
    // Memory is taken as bytes come, not as the peer claims.
    let mut payload = Vec::new();
    stream.take(length as u64).read_to_end(&mut payload).await?;
    Ok((payload.len() == length).then_some((kind, payload)))
}

/// A message; `None` at the end of the stream.
pub(crate) async fn read_message<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<T>> {
    match read_frame(stream).await? {
        None => Ok(None),
        Some((Kind::Message, payload)) => frame::parse(&payload).map(Some).map_err(invalid),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub(crate) async fn write_message<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> io::Result<()> {
    stream
        .write_all(&frame::message(value).map_err(invalid)?)
        .await
}

/// Returns once the peer has closed, or broken the connection. What it says meanwhile is thrown away.
pub(crate) async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut scratch = [0; 256];
    loop {
        match stream.read(&mut scratch).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

fn filled(read: io::Result<usize>) -> io::Result<bool> {
    match read {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn invalid(error: FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
