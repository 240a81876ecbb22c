//! Why an operation in the guest did not work.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cosm_base::text::{printable, printable_path};
use cosm_proto::agent::{FileFailure, SpawnFailure, SpawnReason};
use cosm_proto::frame::FrameError;

/// Why an operation in the guest did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// No connection to the agent: the guest is not there, or not there any more.
    #[error("no connection to the sandbox's agent")]
    Connect(#[source] io::Error),
    /// The guest had no process, memory or descriptor left to serve this.
    #[error("the sandbox could not take the request")]
    Refused(#[source] io::Error),
    /// The command could not be started.
    #[error("{}", spawn_text(.0))]
    Spawn(SpawnFailure),
    /// The file operation failed in the guest.
    #[error("{} in the sandbox: {}", printable(&.0.path), io::Error::from_raw_os_error(.0.errno))]
    File(FileFailure),
    /// The guest was silent for too long.
    #[error("the sandbox's agent said nothing for {} s while {waiting_for}", .after.as_secs_f64())]
    Silent {
        /// What was waited for.
        waiting_for: &'static str,
        /// How long.
        after: Duration,
    },
    /// The connection ended before the operation did: the guest, its agent or this operation's part of it was killed.
    #[error("the connection to the sandbox ended before the operation did")]
    Lost,
    /// The guest's bytes are not the agent's protocol.
    #[error("the sandbox's agent does not keep to its protocol: {0}")]
    Protocol(Violation),
    /// The command no longer reads its input: what was written last may not have reached it.
    #[error("the command no longer reads its input")]
    InputClosed,
    /// Talking to the agent failed on this side.
    #[error("talking to the sandbox's agent failed")]
    Io(#[source] io::Error),
    /// A tree from the guest is larger than allowed.
    #[error("the copy from the sandbox was stopped: {0}")]
    TreeLimit(&'static str),
    /// A file on the host could not be read or written.
    #[error("{} on this host", printable_path(path))]
    Host {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// How the guest broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A frame is malformed.
    #[error("{0}")]
    Frame(FrameError),
    /// A frame came that has no place there.
    #[error("a frame out of place")]
    OutOfPlace,
    /// A file's name, size or kind can't be.
    #[error("an impossible file")]
    BadEntry,
}

impl From<FrameError> for AgentError {
    fn from(error: FrameError) -> Self {
        Self::Protocol(Violation::Frame(error))
    }
}

impl AgentError {
    pub(crate) const fn out_of_place() -> Self {
        Self::Protocol(Violation::OutOfPlace)
    }

    /// The system's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Connect(e) | Self::Refused(e) | Self::Io(e) | Self::Host { source: e, .. } => {
                e.raw_os_error()
            }
            Self::Spawn(failure) => (failure.errno != 0).then_some(failure.errno),
            Self::File(failure) => Some(failure.errno),
            Self::Silent { .. }
            | Self::Lost
            | Self::Protocol(_)
            | Self::InputClosed
            | Self::TreeLimit(_) => None,
        }
    }
}

fn spawn_text(failure: &SpawnFailure) -> String {
    let subject = printable(&failure.subject);
    let said = || match failure.errno {
        0 => String::new(),
        errno => format!(": {}", io::Error::from_raw_os_error(errno)),
    };
    match failure.reason {
        SpawnReason::NotFound => format!("{subject}: command not found in the sandbox"),
        SpawnReason::PermissionDenied => format!("{subject}: permission denied"),
        SpawnReason::NotExecutable => {
            format!(
                "{subject}: not a program that can be executed here, or its interpreter is missing{}",
                said()
            )
        }
        SpawnReason::BadCwd => format!("{subject}: no such working directory{}", said()),
        SpawnReason::BadUser => {
            format!("{subject}: no such user or group in the sandbox{}", said())
        }
        SpawnReason::ResourceLimit => {
            format!("{subject}: a resource limit stands in the way{}", said())
        }
        SpawnReason::ArgumentsTooLong => {
            format!("{subject}: the arguments and the environment are too long")
        }
        SpawnReason::BadRequest => format!("{subject}: not a command that can be asked for"),
        SpawnReason::Other => format!("{subject}: could not be started{}", said()),
    }
}
