//! A blob as a stream that mends itself.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use ureq::BodyReader;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use ureq::http::{HeaderMap, Method};

use super::error::RegistryError;
use super::exchange::Ask;
use super::host::Endpoint;
use super::said::FoundSize;
use super::send::{Client, Request};
use super::wait::Patience;
use crate::cancel::Cancel;
use crate::digest::{Digest, Hasher};
use crate::manifest::Descriptor;

/// After so many bytes a cut counts as the first one again. A server that sends a byte per connection gets no further
/// than one that sends none.
const PROGRESS: u64 = 64 * 1024;

/// A blob on its way. When the connection is cut or stalls, it goes on from the byte it had, at another mirror if this
/// one fails for good. Errors carry a [`RegistryError`], see [`RegistryError::from_io`].
pub struct Blob {
    client: Arc<Client>,
    /// Where it comes from, and after that where else it may.
    endpoints: VecDeque<Endpoint>,
    repository: String,
    digest: Digest,
    size: u64,
    cancel: Cancel,
    patience: Patience,
    body: Option<BodyReader<'static>>,
    at: u64,
    /// Bytes since a cut last counted.
    progress: u64,
    hasher: Hasher,
    end: Option<End>,
}

/// How it ended.
#[derive(Clone, Copy)]
enum End {
    Good,
    OtherDigest(Digest),
    TooLong,
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blob")
            .field("digest", &self.digest)
            .field("at", &self.at)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Blob {
    pub(crate) fn open(
        client: Arc<Client>,
        endpoints: VecDeque<Endpoint>,
        repository: String,
        descriptor: &Descriptor,
        cancel: Cancel,
    ) -> Result<Self, RegistryError> {
        let patience = client.patience(&endpoints[0]);
        let mut blob = Self {
            client,
            endpoints,
            repository,
            digest: descriptor.digest,
            size: descriptor.size,
            cancel,
            patience,
            body: None,
            at: 0,
            progress: 0,
            hasher: Hasher::default(),
            end: None,
        };
        blob.connect()?;
        Ok(blob)
    }

    /// The bytes that have come.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The bytes that there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// All of it.
    pub(crate) fn into_bytes(mut self) -> Result<Vec<u8>, RegistryError> {
        let mut bytes = Vec::new();
        let host = self.host();
        match self.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => {
                Err(
                    RegistryError::from_io(error).unwrap_or_else(|source| RegistryError::Cut {
                        host,
                        digest: self.digest,
                        at: self.at,
                        size: self.size,
                        source,
                    }),
                )
            }
        }
    }

    fn host(&self) -> String {
        self.endpoints[0].name.clone()
    }

    /// Asks for what is missing, where it is first to be had.
    fn connect(&mut self) -> Result<(), RegistryError> {
        loop {
            let error = match self.request() {
                Ok(body) => {
                    self.body = Some(body);
                    return Ok(());
                }
                Err(error) => error,
            };
            if matches!(error, RegistryError::Cancelled(_)) || !self.leave() {
                return Err(error);
            }
            tracing::info!(%error, "a mirror can't help");
        }
    }

    /// Gives the present mirror up. `false` when there is nothing else.
    fn leave(&mut self) -> bool {
        if self.endpoints.len() == 1 {
            return false;
        }
        self.endpoints.pop_front();
        self.patience = self.client.patience(&self.endpoints[0]);
        true
    }

    fn request(&mut self) -> Result<BodyReader<'static>, RegistryError> {
        let digest = self.digest.to_string();
        let request = Request {
            endpoint: &self.endpoints[0],
            repository: &self.repository,
            path: format!("{}/blobs/{digest}", self.repository),
            what: &digest,
            ask: Ask {
                method: Method::GET,
                accept: "",
                from: self.at,
            },
        };
        let answer = self
            .client
            .send(&request, &mut self.patience, &self.cancel)
            .map_err(|error| match error {
                // It ends where this one has come to.
                RegistryError::Status { status: 416, .. } if self.at > 0 => {
                    self.other_size(FoundSize::Exactly(self.at))
                }
                error => error,
            })?;
        let skip = match answer.status.as_u16() {
            206 => {
                let Some((first, whole)) = part(&answer.headers) else {
                    return Err(self.wrong_part());
                };
                if self.at == 0 || first != self.at {
                    return Err(self.wrong_part());
                }
                self.check_size(whole)?;
                0
            }
            // The whole, as nobody asked for less or this server does not know how to give it.
            200 => {
                self.check_size(number(&answer.headers, CONTENT_LENGTH.as_str()))?;
                self.at
            }
            _ => return Err(self.wrong_part()),
        };
        let mut body = answer.body.into_reader();
        self.skip(&mut body, skip)?;
        Ok(body)
    }

    /// Passes over what has come already.
    fn skip(&self, body: &mut BodyReader<'_>, mut left: u64) -> Result<(), RegistryError> {
        let mut block = [0; 16 * 1024];
        while left > 0 {
            self.cancel.check()?;
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            match body.read(&mut block[..want]) {
                Ok(0) => return Err(self.cut(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => left -= n as u64,
                Err(error) => return Err(self.cut(error)),
            }
        }
        Ok(())
    }

    fn check_size(&self, found: Option<u64>) -> Result<(), RegistryError> {
        match found {
            Some(found) if found != self.size => Err(self.other_size(FoundSize::Exactly(found))),
            _ => Ok(()),
        }
    }

    fn other_size(&self, found: FoundSize) -> RegistryError {
        RegistryError::Size {
            host: self.host(),
            digest: self.digest,
            expected: self.size,
            found,
        }
    }

    fn wrong_part(&self) -> RegistryError {
        RegistryError::WrongPart {
            host: self.host(),
            digest: self.digest,
        }
    }

    fn cut(&self, source: io::Error) -> RegistryError {
        RegistryError::Cut {
            host: self.host(),
            digest: self.digest,
            at: self.at,
            size: self.size,
            source,
        }
    }

    /// Counts a cut, and waits before the next attempt, or goes elsewhere.
    fn was_cut(&mut self, cause: io::Error) -> Result<(), RegistryError> {
        self.body = None;
        if self.progress >= PROGRESS {
            self.patience.refill();
        }
        self.progress = 0;
        tracing::debug!(%cause, at = self.at, "cut");
        if self.patience.wait(None, &self.cancel)? || self.leave() {
            return Ok(());
        }
        Err(self.cut(cause))
    }

    /// All bytes have come: there must be no more, and they must be the right ones.
    fn finish(&mut self) -> End {
        let mut more = [0];
        // That what comes after the last byte is cut does not matter any more.
        let is_longer = self
            .body
            .take()
            .is_some_and(|mut body| matches!(body.read(&mut more), Ok(1..)));
        let found = std::mem::take(&mut self.hasher).finish();
        if is_longer {
            End::TooLong
        } else if found != self.digest {
            End::OtherDigest(found)
        } else {
            End::Good
        }
    }

    fn outcome(&self, end: End) -> Result<usize, RegistryError> {
        match end {
            End::Good => return Ok(0),
            End::TooLong => Err(self.other_size(FoundSize::More)),
            End::OtherDigest(found) => Err(RegistryError::Digest {
                host: self.host(),
                expected: self.digest,
                found,
            }),
        }
        // Whoever starts again should not end here again.
        .inspect_err(|_| self.client.distrust(&self.endpoints[0]))
    }

    fn next(&mut self, buffer: &mut [u8]) -> Result<usize, RegistryError> {
        loop {
            self.cancel.check()?;
            if let Some(end) = self.end {
                return self.outcome(end);
            }
            if self.at == self.size {
                self.end = Some(self.finish());
                continue;
            }
            let Some(body) = &mut self.body else {
                match self.connect() {
                    Err(RegistryError::Cut { source, .. }) => self.was_cut(source)?,
                    result => result?,
                }
                continue;
            };
            let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
            let want = buffer.len().min(left);
            match body.read(&mut buffer[..want]) {
                Ok(0) => self.was_cut(io::ErrorKind::UnexpectedEof.into())?,
                Ok(n) => {
                    self.hasher.update(&buffer[..n]);
                    self.at += n as u64;
                    self.progress += n as u64;
                    return Ok(n);
                }
                Err(cause) => self.was_cut(cause)?,
            }
        }
    }
}

impl Read for Blob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.next(buffer).map_err(io::Error::from)
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// `Content-Range: bytes 5-9/10`: the first byte, and how many there are in all if that is said.
fn part(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, whole) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    let whole = match whole.trim() {
        "*" => None,
        whole => Some(whole.parse().ok()?),
    };
    Some((first.trim().parse().ok()?, whole))
}
