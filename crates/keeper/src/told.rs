//! What a keeper is told by signals: to end, which it does as when it is asked to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears signals from the moment it is made, also while nobody waits.
#[derive(Debug)]
pub(crate) struct Told {
    terminate: Signal,
    interrupt: Signal,
}

impl Told {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits until it is told to end. Cancel-safe.
    pub(crate) async fn until_told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
