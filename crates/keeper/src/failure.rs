//! Errors as they cross to another process.

use std::error::Error;
use std::io;

use cosm_agent_client::AgentError;
use cosm_base::ErrorKind;
use cosm_driver::{LaunchError, ReapError};
use cosm_proto::keeper::Failure;
use cosm_spec::StoredSpecError;
use cosm_state::StateError;

use crate::machine::Refusal;

/// A failure of this kind with this sentence.
pub(crate) fn plain(kind: ErrorKind, message: impl Into<String>) -> Failure {
    Failure {
        kind,
        phase: None,
        message: message.into(),
        hints: Vec::new(),
        log_tail: Vec::new(),
        spawn: None,
    }
}

/// An error of the system's while doing something.
pub(crate) fn os(doing: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| plain(kind_of(&error), format!("{doing}: {error}"))
}

pub(crate) fn state(error: StateError) -> Failure {
    plain(error.kind(), with_causes(&error))
}

pub(crate) fn stored_spec(error: StoredSpecError) -> Failure {
    plain(ErrorKind::State, with_causes(&error))
}

pub(crate) fn reap(error: ReapError) -> Failure {
    plain(kind_of(&error.source), with_causes(&error))
}

pub(crate) fn launch(error: LaunchError) -> Failure {
    let kind = match &error {
        LaunchError::Unsupported { .. } => ErrorKind::Unsupported,
        LaunchError::Invalid { .. } => ErrorKind::InvalidInput,
        LaunchError::Os { source, .. } => match kind_of(source) {
            ErrorKind::Os => ErrorKind::BootFailed,
            other => other,
        },
        LaunchError::Killed {
            out_of_memory: true,
            ..
        } => ErrorKind::ResourceExhausted,
        LaunchError::TooSlow { .. } => ErrorKind::TimedOut,
        _ => ErrorKind::BootFailed,
    };
    Failure {
        phase: Some(error.phase().as_str().to_owned()),
        hints: error.help().map(str::to_owned).into_iter().collect(),
        ..plain(kind, with_causes(&error))
    }
}

/// Something that went wrong in talking to the guest.
pub(crate) fn agent(error: AgentError) -> Failure {
    let kind = match &error {
        AgentError::Spawn(_) => ErrorKind::SpawnFailed,
        AgentError::File(_) => ErrorKind::Filesystem,
        AgentError::Silent { .. } => ErrorKind::TimedOut,
        AgentError::Protocol(_) => ErrorKind::Protocol,
        AgentError::Refused(_) => ErrorKind::ResourceExhausted,
        AgentError::Connect(_) | AgentError::Lost => ErrorKind::GuestDied,
        _ => ErrorKind::Os,
    };
    let mut failure = plain(kind, with_causes(&error));
    if let AgentError::Spawn(spawn) = error {
        failure.spawn = Some(Box::new(spawn));
    }
    failure
}

/// As [`agent`], while the guest was being started.
pub(crate) fn boot(phase: &str, error: AgentError) -> Failure {
    let failure = agent(error);
    let kind = match failure.kind {
        ErrorKind::SpawnFailed | ErrorKind::TimedOut => failure.kind,
        _ => ErrorKind::BootFailed,
    };
    Failure {
        kind,
        phase: Some(phase.to_owned()),
        ..failure
    }
}

/// A start's failure: with a phase, and with the end of what the keeper has written down about it.
pub(crate) fn at_boot(failure: Failure, log_tail: Vec<u8>) -> Failure {
    Failure {
        phase: Some(failure.phase.unwrap_or_else(|| "prepare".to_owned())),
        log_tail,
        ..failure
    }
}

pub(crate) fn refusal(refusal: Refusal) -> Failure {
    let message = match refusal {
        Refusal::Starting => "the sandbox is still being started",
        Refusal::Draining => "the sandbox is draining: it accepts nothing new",
        Refusal::Paused => "the sandbox is paused: resume it first",
        Refusal::Ending => "the sandbox is being stopped",
    };
    plain(ErrorKind::WrongState, message)
}

fn kind_of(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::PermissionDenied
        }
        io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded
        | io::ErrorKind::OutOfMemory
        | io::ErrorKind::WouldBlock => ErrorKind::ResourceExhausted,
        _ if matches!(
            error
                .raw_os_error()
                .map(rustix::io::Errno::from_raw_os_error),
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
        ) =>
        {
            ErrorKind::ResourceExhausted
        }
        _ => ErrorKind::Os,
    }
}

/// The sentence with the sentences of its causes.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
