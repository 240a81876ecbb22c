//! One agent, and the operations on it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cosm_proto::agent::{self, GuestStats, Hello, Request, SystemReply, SystemRequest};
use tokio::time::timeout;

use crate::AgentError;
use crate::connect::connect;
use crate::wire::{Reader, Writer, halves};

/// How long the guest may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Until a connection stands. Default 10 s.
    pub connect: Duration,
    /// Until a command has started or failed to. Default 30 s: a guest under load starts slowly.
    pub start: Duration,
    /// Until the next answer of a file or system operation. Default 60 s.
    pub answer: Duration,
    /// After a command's own time-out has passed, until the guest tells of its end. Default 15 s.
    pub after_timeout: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            start: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            after_timeout: Duration::from_secs(15),
        }
    }
}

/// The agent of one guest. Holds no connection: each operation opens its own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AgentClient {
    socket: Arc<Path>,
    deadlines: Deadlines,
}

impl AgentClient {
    /// The agent that listens at this Unix socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into().into(),
            deadlines: Deadlines::default(),
        }
    }

    /// With other deadlines.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// The deadlines in force.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// The agent's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks whether the agent answers.
    ///
    /// # Errors
    /// Those of every operation: [`AgentError::Connect`], `Refused`, `Silent`, `Lost`, `Protocol`, `Io`.
    pub async fn ping(&self) -> Result<(), AgentError> {
        match self.system(SystemRequest::Ping).await? {
            SystemReply::Ok => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Sends a signal to every process of the guest but the agent's own.
    ///
    /// # Errors
    /// As [`AgentClient::ping`].
    pub async fn signal_all(&self, signal: i32) -> Result<(), AgentError> {
        match self.system(SystemRequest::SignalAll(signal)).await? {
            SystemReply::Ok => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// What the guest's processes use, as the guest counts: a hostile guest can say anything here.
    ///
    /// # Errors
    /// As [`AgentClient::ping`].
    pub async fn stats(&self) -> Result<GuestStats, AgentError> {
        match self.system(SystemRequest::Stats).await? {
            SystemReply::Stats(stats) => Ok(stats),
            other => Err(unexpected(other)),
        }
    }

    async fn system(&self, request: SystemRequest) -> Result<SystemReply, AgentError> {
        let (mut reader, writer) = self.open().await?;
        let answer = async {
            writer.message(&hello(Request::System(request))).await?;
            reader.message().await
        };
        self.answered(answer).await
    }

    pub(crate) async fn open(&self) -> Result<(Reader, Writer), AgentError> {
        Ok(halves(connect(&self.socket, self.deadlines.connect).await?))
    }

    /// Bounds one step of an operation by the deadline for answers.
    pub(crate) async fn answered<T>(
        &self,
        step: impl Future<Output = Result<T, AgentError>>,
    ) -> Result<T, AgentError> {
        within(self.deadlines.answer, "an answer was due", step).await
    }
}

pub(crate) async fn within<T>(
    after: Duration,
    waiting_for: &'static str,
    step: impl Future<Output = Result<T, AgentError>>,
) -> Result<T, AgentError> {
    timeout(after, step)
        .await
        .unwrap_or(Err(AgentError::Silent { waiting_for, after }))
}

pub(crate) fn hello(request: Request) -> Hello {
    Hello {
        version: agent::VERSION,
        request,
    }
}

fn unexpected(reply: SystemReply) -> AgentError {
    match reply {
        SystemReply::Failed(errno) => AgentError::Refused(std::io::Error::from_raw_os_error(errno)),
        SystemReply::Ok | SystemReply::Stats(_) => AgentError::out_of_place(),
    }
}
