//! Changes, as the guest sees them.

use cosm_proto::agent::{Change, FileReply};

use super::refused;
use crate::AgentError;
use crate::wire::{Reader, Writer};

/// A watch on a file or a folder. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    reader: Reader,
    // The connection stays open in both directions for as long as the watch lives.
    _writer: Writer,
}

impl Watch {
    pub(super) const fn new(reader: Reader, writer: Writer) -> Self {
        Self {
            reader,
            _writer: writer,
        }
    }

    /// The next change. Waits as long as it takes: a watch without changes is silent. Cancel-safe.
    ///
    /// # Errors
    /// [`AgentError::Lost`] when the guest ends; those of every operation.
    pub async fn next(&mut self) -> Result<Change, AgentError> {
        match self.reader.message().await? {
            FileReply::Changed(change)
                if change.name.is_empty() || cosm_proto::files::is_name(&change.name) =>
            {
                Ok(change)
            }
            other => Err(refused(other)),
        }
    }
}
