//! What this program is asked by signals while a command runs.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Result;

/// What a signal asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Pass this signal on to the command.
    Interrupt(i32),
    /// End, and the command with this program.
    Leave(i32),
}

/// Waits for signals.
#[derive(Debug)]
pub(crate) struct Asked {
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Asked {
    /// From now on signals are told here.
    ///
    /// # Errors
    /// The system refused.
    pub(crate) fn new() -> Result<Self> {
        let on = |kind| signal(kind).map_err(crate::error::os("waiting for signals"));
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            quit: on(SignalKind::quit())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Ask {
        tokio::select! {
            _ = self.interrupt.recv() => Ask::Interrupt(2),
            _ = self.quit.recv() => Ask::Interrupt(3),
            _ = self.terminate.recv() => Ask::Leave(15),
            _ = self.hangup.recv() => Ask::Leave(1),
        }
    }
}
