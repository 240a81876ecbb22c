//! Asking a keeper.

use std::path::PathBuf;
use std::time::Duration;

use cosm_base::{ErrorKind, SandboxId};
use cosm_proto::keeper::{Call, EndReport, Reply, Request, VERSION};
use tokio::net::UnixStream;

use crate::error::{Error, Result};
use crate::wire;

/// Where a keeper answers.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    path: PathBuf,
    name: String,
    /// Why nobody may be there.
    crash: Option<String>,
}

impl Control {
    pub(crate) fn new(runtime: &cosm_base::RuntimeDir, id: SandboxId, name: &str) -> Self {
        Self {
            path: runtime.control(id),
            name: name.to_owned(),
            crash: None,
        }
    }

    /// Of a sandbox that was seen to have crashed.
    pub(crate) fn with_crash(self, crash: Option<String>) -> Self {
        Self { crash, ..self }
    }

    /// Sends a request; the answer is still to be read.
    pub(crate) async fn send(&self, request: Request) -> Result<UnixStream> {
        let stream = wire::connect(&self.path).await?;
        let mut stream = stream.ok_or_else(|| match &self.crash {
            Some(reason) => Error::crashed(&self.name, reason).retry_safe(),
            None => Error::state(&self.name, "not running").retry_safe(),
        })?;
        let call = Call {
            version: VERSION,
            request,
        };
        wire::write_message(&mut stream, &call).await?;
        Ok(stream)
    }

    /// Reads the answer to what was sent.
    pub(crate) async fn answer(&self, stream: &mut UnixStream) -> Result<Reply> {
        match wire::read_message(stream).await? {
            Some(Reply::Refused(failure)) => Err(Error::from_keeper(failure)),
            Some(reply) => Ok(reply),
            None => Err(Error::keeper_lost(&self.name)),
        }
    }

    /// Asks and waits for at most `limit`.
    pub(crate) async fn ask(&self, request: Request, limit: Duration) -> Result<Reply> {
        wire::within(limit, self.ask_for_ever(request)).await
    }

    /// Asks and waits for as long as the keeper lives.
    pub(crate) async fn ask_for_ever(&self, request: Request) -> Result<Reply> {
        let mut stream = self.send(request).await?;
        self.answer(&mut stream).await
    }

    /// Asks for something that has no answer but yes.
    pub(crate) async fn tell(&self, request: Request) -> Result<()> {
        match self.ask(request, wire::ANSWER).await? {
            Reply::Ok => Ok(()),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Asks for the guest's end.
    pub(crate) async fn end(&self, request: Request, limit: Option<Duration>) -> Result<EndReport> {
        let reply = match limit {
            Some(limit) => self.ask(request, limit).await?,
            None => self.ask_for_ever(request).await?,
        };
        self.ended(reply)
    }

    /// The answer to a request for the guest's end.
    pub(crate) fn ended(&self, reply: Reply) -> Result<EndReport> {
        match reply {
            Reply::Ended(report) => Ok(report),
            Reply::TimedOut => Err(Error::state(
                &self.name,
                "still running: it did not stop in time",
            )),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Keeps the guest in use until the result is dropped.
    pub(crate) async fn hold(&self) -> Result<Pending> {
        let stream = self.send(Request::Hold).await?;
        Ok(Pending {
            control: self.clone(),
            stream,
        })
    }

    pub(crate) fn out_of_turn(&self) -> Error {
        Error::out_of_turn("the keeper")
    }
}

/// A hold that was asked for.
pub(crate) struct Pending {
    control: Control,
    stream: UnixStream,
}

/// As long as this lives the guest counts as in use.
#[derive(Debug)]
pub(crate) struct Hold {
    _stream: UnixStream,
}

impl Pending {
    /// Waits until it is granted, for at most `limit`.
    pub(crate) async fn granted(mut self, limit: Duration) -> Result<Hold> {
        let answer = self.control.answer(&mut self.stream);
        match wire::within(limit, answer).await? {
            Reply::Held => Ok(Hold {
                _stream: self.stream,
            }),
            _ => Err(self.control.out_of_turn()),
        }
    }
}

/// True for an error that says that nobody answers at the control socket.
pub(crate) fn nobody_there(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WrongState | ErrorKind::GuestDied)
}
