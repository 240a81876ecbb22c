//! Commands in the guest.

mod collect;
mod input;
mod output;
mod stdio;

pub use collect::{Collected, Collector};
pub use input::{ExecControl, ExecInput};
pub use output::{ExecEvent, ExecExit, ExecOutput, ExecPipes, ExecWait};

use std::time::Duration;

use cosm_proto::agent::{ExecOut, ExecStart, Request};
use tokio::time::Instant;

use crate::client::{hello, within};
use crate::{AgentClient, AgentError};

/// A command that runs in the guest.
///
/// Its life hangs on `output`: when that is dropped before it told of the end, the command and everything it started
/// are killed.
#[derive(Debug)]
pub struct ExecSession {
    /// The process's number in the guest.
    pub pid: i32,
    /// Its standard input, where the request's `stdio` has one. Dropping it is end of file.
    pub input: Option<ExecInput>,
    /// Signals and the terminal's size.
    pub control: ExecControl,
    /// What it writes, and its end.
    pub output: ExecOutput,
}

impl AgentClient {
    /// Starts a command and waits until it runs.
    ///
    /// With [`Stdio::Passed`](cosm_proto::agent::Stdio::Passed) its streams are pipes between it and this process: the
    /// agent never touches the bytes. Otherwise they are frames on the connection.
    ///
    /// # Errors
    /// [`AgentError::Spawn`] says why the guest could not start it; the others are those of every operation.
    pub async fn exec(&self, start: ExecStart) -> Result<ExecSession, AgentError> {
        let limit = start.timeout_ms;
        let (ours, theirs) = stdio::open(start.stdio)?;
        let (mut reader, writer) = self.open().await?;
        let request = hello(Request::Exec(start));
        let started = async {
            writer.message_with(&request, &theirs.borrowed()).await?;
            drop(theirs);
            match reader.message().await? {
                ExecOut::Started { pid } => Ok(pid),
                ExecOut::Failed(failure) => Err(AgentError::Spawn(failure)),
                _ => Err(AgentError::out_of_place()),
            }
        };
        let pid = within(self.deadlines().start, "a command was to start", started).await?;
        // The guest counts from here, too: it may have been booting until now.
        let end = limit.map(|ms| {
            Instant::now()
                + Duration::from_millis(ms)
                    .saturating_add(self.deadlines().after_timeout)
                    .min(FAR)
        });
        let (input, streams, credit) = ours.connect(&writer)?;
        let control = ExecControl::new(writer);
        Ok(ExecSession {
            pid,
            input,
            control,
            output: ExecOutput::new(reader, streams, credit, end),
        })
    }
}

/// Longer than this is for ever; keeps sums of times in range.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
