//! Reaching the agent.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::AgentError;

/// The first and the longest pause between two attempts while the agent's queue is full.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));

/// Connects, waiting while more connections arrive at once than the socket's queue holds.
pub(crate) async fn connect(socket: &Path, deadline: Duration) -> Result<UnixStream, AgentError> {
    let end = Instant::now() + deadline;
    let mut pause = PAUSES.0;
    loop {
        match timeout_at(end, UnixStream::connect(socket)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(Err(error)) => return Err(AgentError::Connect(error)),
            Err(_) => {
                return Err(AgentError::Silent {
                    waiting_for: "connecting",
                    after: deadline,
                });
            }
        }
        if Instant::now() + pause >= end {
            return Err(AgentError::Silent {
                waiting_for: "connecting",
                after: deadline,
            });
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}
