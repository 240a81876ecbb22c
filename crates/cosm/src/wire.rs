//! Frames over a keeper's sockets. Every wait has a deadline unless the caller asked to wait.

use std::path::Path;
use std::time::Duration;

use cosm_base::ErrorKind;
use cosm_proto::frame::{self, HEADER, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::error::{Error, Fault, Result};

/// How long a keeper may take for an answer that needs no waiting.
pub(crate) const ANSWER: Duration = Duration::from_secs(20);
const KEEPER: &str = "the keeper";

/// A frame, or the end of the stream.
pub(crate) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(Kind, Vec<u8>)>> {
    let mut header = [0; HEADER];
    let mut have = 0;
    while have < HEADER {
        let count = match stream.read(&mut header[have..]).await {
            Ok(count) => count,
            // It ended with something of ours unread, or with us in its queue.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(Error::os("reading from the keeper")(error)),
        };
        match (count, have) {
            (0, 0) => return Ok(None),
            (0, _) => return Err(cut_off()),
            _ => have += count,
        }
    }
    let (kind, length) = frame::parse_header(header).map_err(unreadable)?;
    let mut payload = vec![0; length];
    match stream.read_exact(&mut payload).await {
        Ok(_) => Ok(Some((kind, payload))),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(cut_off()),
        Err(error) => Err(Error::os("reading from the keeper")(error)),
    }
}

/// A message, or the end of the stream. A data frame does not belong here.
pub(crate) async fn read_message<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<T>> {
    match read_frame(stream).await? {
        None => Ok(None),
        Some((Kind::Message, payload)) => frame::parse(&payload).map(Some).map_err(unreadable),
        Some(_) => Err(Error::out_of_turn(KEEPER)),
    }
}

pub(crate) async fn write_message<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> Result<()> {
    let bytes = frame::message(value).map_err(unreadable)?;
    stream
        .write_all(&bytes)
        .await
        .map_err(Error::os("writing to the keeper"))
}

pub(crate) fn unreadable(source: frame::FrameError) -> Error {
    let fault = Fault::Protocol {
        peer: KEEPER,
        source,
    };
    Error::new(ErrorKind::Protocol, fault)
}

fn cut_off() -> Error {
    Error::os("the keeper's answer was cut off")(std::io::ErrorKind::UnexpectedEof.into())
}

/// Connects; `None` where nobody listens.
pub(crate) async fn connect(path: &Path) -> Result<Option<UnixStream>> {
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::host_path("connecting to", path)(error)),
    }
}

/// Gives a wait a deadline.
pub(crate) async fn within<T>(limit: Duration, wait: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, wait).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::TimedOut, Fault::NoAnswer(limit))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cosm_proto::keeper::Reply;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(work)
    }

    #[test]
    fn a_cut_frame_is_an_error_and_an_end_is_not() {
        block_on(async {
            let whole = frame::message(&Reply::Ok).expect("small");
            for cut in 1..whole.len() {
                let result = read_message::<Reply>(&mut &whole[..cut]).await;
                assert!(result.is_err(), "cut at {cut}");
            }
            assert!(matches!(
                read_message::<Reply>(&mut &whole[..]).await,
                Ok(Some(Reply::Ok))
            ));
            assert!(matches!(
                read_message::<Reply>(&mut &[][..]).await,
                Ok(None)
            ));
        });
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        block_on(async {
            let huge = [255, 255, 255, 255, 0];
            let error = read_frame(&mut &huge[..]).await.expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::Protocol);
        });
    }
}
