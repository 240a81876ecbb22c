//! What this program is asked by signals while a command runs.

use cosm::Host;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, Result};

/// What a signal asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Pass this signal on to the command.
    Interrupt(i32),
    /// End, and the command with this program.
    Leave(i32),
}

impl Ask {
    /// The signal itself.
    fn signal(self) -> i32 {
        match self {
            Self::Interrupt(signal) | Self::Leave(signal) => signal,
        }
    }
}

/// Waits for signals. One that this program was started to ignore, as by `nohup`, asks for nothing (`None`).
#[derive(Debug)]
pub(crate) struct Asked {
    interrupt: Option<Signal>,
    quit: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl Asked {
    /// From now on signals are told here.
    ///
    /// # Errors
    /// The system refused.
    pub(crate) fn new() -> Result<Self> {
        let on = |kind: SignalKind| {
            let ignored = cosm_sys::process::is_ignored(kind.as_raw_value());
            let heard = match ignored.map_err(std::io::Error::from) {
                Ok(true) => Ok(None),
                Ok(false) => signal(kind).map(Some),
                Err(error) => Err(error),
            };
            heard.map_err(crate::error::os("waiting for signals"))
        };
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            quit: on(SignalKind::quit())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Does something that makes or starts a sandbox, unless this program is told to end meanwhile: then nothing is left
    /// of what was begun when this returns.
    ///
    /// # Errors
    /// That of the work; [`CliError::Told`].
    pub(crate) async fn unless_told<T, E>(
        &mut self,
        host: &Host,
        work: impl Future<Output = std::result::Result<T, E>>,
    ) -> Result<T>
    where
        CliError: From<E>,
    {
        // The work is dropped when this is decided.
        let signal = tokio::select! {
            done = work => return Ok(done?),
            ask = self.next() => ask.signal(),
        };
        tokio::select! {
            () = host.given_up() => {}
            // Said again: it goes on without this program.
            _ = self.next() => {}
        }
        Err(CliError::Told(signal))
    }

    /// The next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Ask {
        tokio::select! {
            () = heard(&mut self.interrupt) => Ask::Interrupt(2),
            () = heard(&mut self.quit) => Ask::Interrupt(3),
            () = heard(&mut self.terminate) => Ask::Leave(15),
            () = heard(&mut self.hangup) => Ask::Leave(1),
        }
    }
}

/// Waits for this signal, for ever where it is ignored. Cancel-safe.
async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
