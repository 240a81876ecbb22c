//! What can go wrong in this program, and the exit codes for it.

use std::io;

use cosm::ErrorKind;
use cosm::SpawnReason;
use cosm_base::exit;

use crate::hints;
use crate::settings::SettingsError;

/// What the functions here return.
pub(crate) type Result<T> = std::result::Result<T, CliError>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The library says so.
    #[error(transparent)]
    Sdk(#[from] cosm::Error),
    /// The same, for one of several sandboxes.
    #[error("{name}")]
    Of {
        name: String,
        #[source]
        source: cosm::Error,
    },
    /// The settings can't be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A command's end was not seen.
    #[error("the sandbox ended while the command ran")]
    NoEnd,
    /// The system said no.
    #[error("{doing}")]
    Os {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    /// Neither or both of the two are in a sandbox.
    #[error("one of the two paths is NAME:PATH, in a sandbox, and the other is on this host")]
    CopyEnds,
    /// All there was to copy was of a kind that is left out.
    #[error("sockets and devices can't be copied")]
    CopyNothing,
    /// Several sandboxes were named and not all could be dealt with; each was reported.
    #[error("{failed} of {all} failed")]
    Some { failed: usize, all: usize },
    /// This program was told to end by this signal, before anything came of it.
    #[error("signal {0}")]
    Told(i32),
    /// No sandbox can be started on this host.
    #[error("no sandbox can be started on this host")]
    Unfit,
}

/// Makes a [`CliError::Os`].
pub(crate) fn os(doing: &'static str) -> impl FnOnce(io::Error) -> CliError {
    move |source| CliError::Os { doing, source }
}

impl CliError {
    /// The library's error in it.
    pub(crate) fn sdk(&self) -> Option<&cosm::Error> {
        match self {
            Self::Sdk(error) | Self::Of { source: error, .. } => Some(error),
            _ => None,
        }
    }

    /// What would help.
    pub(crate) fn hints(&self) -> Vec<String> {
        match self {
            Self::Settings(error) => error.hints(),
            _ => self.sdk().map(sdk_hints).unwrap_or_default(),
        }
    }

    /// The program's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        if let Self::Told(signal) = self {
            return exit::of_signal(*signal);
        }
        let Some(error) = self.sdk() else {
            return exit::COSM_FAILED;
        };
        match error.spawn_failure().map(|failure| failure.reason) {
            Some(SpawnReason::NotFound) => exit::NOT_FOUND,
            Some(SpawnReason::PermissionDenied | SpawnReason::NotExecutable) => {
                exit::NOT_EXECUTABLE
            }
            Some(_) => exit::COSM_FAILED,
            None if error.kind() == ErrorKind::SpawnFailed => exit::NOT_EXECUTABLE,
            None => exit::COSM_FAILED,
        }
    }

    /// Whether a command could not be started.
    pub(crate) fn is_spawn_failure(&self) -> bool {
        self.sdk()
            .is_some_and(|error| error.spawn_failure().is_some())
    }

    /// Whether it only says that nobody reads the output any more.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Os { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn sdk_hints(error: &cosm::Error) -> Vec<String> {
    let outside = error.spawn_failure().and_then(hints::for_spawn);
    error.hints().iter().cloned().chain(outside).collect()
}
