//! What goes to a running command.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cosm_proto::agent::{ExecIn, STDIN_WINDOW, WindowSize};
use cosm_proto::frame::{DATA_CHUNK, Kind};
use tokio::net::unix::pipe;
use tokio::sync::Semaphore;

use crate::AgentError;
use crate::wire::Writer;

/// A command's standard input. Dropping it is end of file.
#[derive(Debug)]
pub struct ExecInput(Way);

#[derive(Debug)]
enum Way {
    Pipe(pipe::Sender),
    Frames(FrameInput),
}

#[derive(Debug)]
struct FrameInput {
    writer: Writer,
    credit: Arc<Credit>,
    open: bool,
}

impl ExecInput {
    pub(super) fn pipe(sender: pipe::Sender) -> Self {
        Self(Way::Pipe(sender))
    }

    pub(super) fn frames(writer: Writer, credit: Arc<Credit>) -> Self {
        Self(Way::Frames(FrameInput {
            writer,
            credit,
            open: true,
        }))
    }

    /// Writes all of these bytes, as fast as the command reads. With frames, somebody has to call
    /// [`ExecOutput::next`](super::ExecOutput::next) meanwhile: that is where the guest says that it took them.
    ///
    /// # Errors
    /// [`AgentError::InputClosed`] once the command has closed its input or ended.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), AgentError> {
        while !bytes.is_empty() {
            let count = self.write(bytes).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Writes some of these bytes and says how many.
    ///
    /// # Errors
    /// As [`ExecInput::write_all`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<usize, AgentError> {
        match &mut self.0 {
            Way::Pipe(sender) => loop {
                sender.writable().await.map_err(AgentError::Io)?;
                match sender.try_write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    other => return other.map_err(closed_or_io),
                }
            },
            Way::Frames(input) => {
                let part = &bytes[..bytes.len().min(DATA_CHUNK)];
                input.credit.take(part.len()).await?;
                input
                    .writer
                    .raw(Kind::Stdin, part)
                    .await
                    .map_err(lost_is_closed)?;
                Ok(part.len())
            }
        }
    }

    /// Ends the input: the command reads end of file. On a terminal, types its end-of-file character.
    ///
    /// # Errors
    /// [`AgentError::Io`]; none if the command has ended.
    pub async fn close(self) -> Result<(), AgentError> {
        match self.0 {
            Way::Pipe(_) => Ok(()),
            Way::Frames(mut input) => {
                input.open = false;
                forgive_lost(input.writer.message(&ExecIn::StdinEof).await)
            }
        }
    }

    /// The writing end itself, in blocking mode, where the input is a pipe.
    ///
    /// # Errors
    /// [`AgentError::Io`]; `Unsupported` where the input is frames.
    pub fn into_fd(self) -> Result<OwnedFd, AgentError> {
        match self.0 {
            Way::Pipe(sender) => sender.into_blocking_fd().map_err(AgentError::Io),
            Way::Frames(_) => Err(AgentError::Io(io::ErrorKind::Unsupported.into())),
        }
    }
}

impl Drop for FrameInput {
    fn drop(&mut self) {
        if self.open {
            // Where the connection is so full that this does not fit, a task that ends it in an orderly way exists:
            // `close`.
            self.writer.try_message(&ExecIn::StdinEof);
        }
    }
}

/// Steers a running command. Clones steer the same one. What comes after its end is ignored.
#[derive(Debug, Clone)]
pub struct ExecControl(Writer);

impl ExecControl {
    pub(super) const fn new(writer: Writer) -> Self {
        Self(writer)
    }

    /// Tells the terminal's new size.
    ///
    /// # Errors
    /// [`AgentError::Io`].
    pub async fn resize(&self, size: WindowSize) -> Result<(), AgentError> {
        self.say(ExecIn::Resize(size)).await
    }

    /// Sends a signal by number: to the command, or with `tree` to all its descendants too.
    ///
    /// # Errors
    /// [`AgentError::Io`].
    pub async fn signal(&self, signal: i32, tree: bool) -> Result<(), AgentError> {
        self.say(ExecIn::Signal { signal, tree }).await
    }

    /// Kills the command and all its descendants.
    ///
    /// # Errors
    /// [`AgentError::Io`].
    pub async fn kill(&self) -> Result<(), AgentError> {
        self.say(ExecIn::Kill).await
    }

    async fn say(&self, what: ExecIn) -> Result<(), AgentError> {
        forgive_lost(self.0.message(&what).await)
    }
}

/// How many bytes of input may still be sent before the guest must have taken some.
#[derive(Debug)]
pub(super) struct Credit(Semaphore);

impl Credit {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(STDIN_WINDOW))
    }

    async fn take(&self, bytes: usize) -> Result<(), AgentError> {
        let permits = self
            .0
            .acquire_many(bytes as u32)
            .await
            .map_err(|_| AgentError::InputClosed)?;
        permits.forget();
        Ok(())
    }

    pub(super) fn give(&self, bytes: u32) -> Result<(), AgentError> {
        let outstanding = STDIN_WINDOW.saturating_sub(self.0.available_permits());
        if bytes as usize > outstanding {
            return Err(AgentError::out_of_place());
        }
        self.0.add_permits(bytes as usize);
        Ok(())
    }

    pub(super) fn close(&self) {
        self.0.close();
    }
}

fn forgive_lost(result: Result<(), AgentError>) -> Result<(), AgentError> {
    match result {
        Err(AgentError::Lost) => Ok(()),
        other => other,
    }
}

fn lost_is_closed(error: AgentError) -> AgentError {
    match error {
        AgentError::Lost => AgentError::InputClosed,
        other => other,
    }
}

fn closed_or_io(error: io::Error) -> AgentError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => AgentError::InputClosed,
        _ => AgentError::Io(error),
    }
}
