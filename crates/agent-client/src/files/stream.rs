//! Files' contents, piece by piece.

use cosm_proto::agent::FileReply;
use cosm_proto::frame::{DATA_CHUNK, Kind};

use super::refused;
use crate::wire::{Reader, Writer};
use crate::{AgentClient, AgentError};

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Permissions of a new file; `None` is 0644.
    pub mode: Option<u32>,
    /// Add to its end instead of replacing its content.
    pub append: bool,
    /// Fail with `EEXIST` if it is there.
    pub create_new: bool,
}

/// A file's bytes as they come. The guest waits for whoever is slow.
#[derive(Debug)]
pub struct FileReader {
    client: AgentClient,
    reader: Reader,
    left: u64,
    done: bool,
}

impl FileReader {
    pub(super) const fn new(client: AgentClient, reader: Reader, length: u64) -> Self {
        Self {
            client,
            reader,
            left: length,
            done: false,
        }
    }

    /// The next bytes; `None` at the end. An end is told only when the guest said that it was one.
    ///
    /// # Errors
    /// [`AgentError::File`], and those of every operation.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, AgentError> {
        if self.done {
            return Ok(None);
        }
        let left = self.left;
        let step = async {
            let Some(frame) = self.reader.next().await? else {
                return Err(AgentError::Lost);
            };
            match frame.kind {
                Kind::Data if !frame.payload.is_empty() && frame.payload.len() as u64 <= left => {
                    Ok(Some(frame.payload.to_vec()))
                }
                _ => match frame.message()? {
                    FileReply::Done => Ok(None),
                    other => Err(refused(other)),
                },
            }
        };
        let part = self.client.answered(step).await;
        match &part {
            Ok(Some(bytes)) => self.left -= bytes.len() as u64,
            Ok(None) | Err(_) => self.done = true,
        }
        part
    }
}

/// A file being written. Dropping it unfinished leaves what was written so far.
#[derive(Debug)]
pub struct FileWriter {
    client: AgentClient,
    reader: Reader,
    writer: Writer,
}

impl FileWriter {
    pub(super) const fn new(client: AgentClient, reader: Reader, writer: Writer) -> Self {
        Self {
            client,
            reader,
            writer,
        }
    }

    /// Writes all of these bytes, as fast as the guest takes them.
    ///
    /// # Errors
    /// [`AgentError::File`] if the guest has refused the file or a part of it; those of every operation.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        for part in bytes.chunks(DATA_CHUNK) {
            let sent = self
                .client
                .answered(self.writer.raw(Kind::Data, part))
                .await;
            if let Err(AgentError::Lost) = sent {
                return Err(self.verdict().await.err().unwrap_or(AgentError::Lost));
            }
            sent?;
        }
        Ok(())
    }

    /// Ends the file and waits until the guest has closed it.
    ///
    /// # Errors
    /// As [`FileWriter::write_all`].
    pub async fn finish(mut self) -> Result<(), AgentError> {
        match self.client.answered(self.writer.raw(Kind::Data, &[])).await {
            Ok(()) | Err(AgentError::Lost) => self.verdict().await,
            Err(error) => Err(error),
        }
    }

    /// What the guest says of it all.
    async fn verdict(&mut self) -> Result<(), AgentError> {
        match self.client.answered(self.reader.message()).await? {
            FileReply::Done => Ok(()),
            other => Err(refused(other)),
        }
    }
}
