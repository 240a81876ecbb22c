//! The one error of this crate's public functions.

use std::fmt;
use std::io;
use std::path::PathBuf;

use cosm_agent_client::AgentError;
pub use cosm_base::ErrorKind;
use cosm_base::name::NameError;
use cosm_base::text::{printable, printable_path, quoted};
use cosm_proto::agent::SpawnFailure;
use cosm_proto::frame::FrameError;
use cosm_proto::keeper::Failure;
use cosm_spec::{Problems, StoredSpecError};

/// What the functions here return.
pub type Result<T> = std::result::Result<T, Error>;

/// Something failed. [`kind`](Error::kind) is what a caller would act on, [`is_retry_safe`](Error::is_retry_safe)
/// whether doing the same again can do harm, [`hints`](Error::hints) what would help; the causes are its
/// [`source`](std::error::Error::source)s.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    retry_safe: bool,
    hints: Vec<String>,
    fault: Fault,
}

/// The fact behind an [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A name is not one.
    #[error("{} can't name a sandbox", quoted(text))]
    Name {
        /// What was given.
        text: String,
        /// Why not.
        #[source]
        source: NameError,
    },
    /// The spec is not legal.
    #[error("the sandbox's spec is not legal")]
    Spec(#[source] Problems),
    /// A builder was given values that can't be read.
    #[error("{field}: {} is not valid", quoted(text))]
    Value {
        /// The setting.
        field: &'static str,
        /// What was given.
        text: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The name is taken.
    #[error("a sandbox named {name} already exists")]
    AlreadyExists {
        /// The name.
        name: String,
    },
    /// No such sandbox.
    #[error("there is no sandbox named {name}")]
    NoSandbox {
        /// The name that was asked for.
        name: String,
    },
    /// The sandbox is in a state that does not allow this.
    #[error("sandbox {name} is {state}")]
    State {
        /// The sandbox.
        name: String,
        /// Its state.
        state: &'static str,
    },
    /// The sandbox's keeper did not see its end.
    #[error("sandbox {name} has crashed: {reason}")]
    Crashed {
        /// The sandbox.
        name: String,
        /// What is known.
        reason: String,
    },
    /// The guest did not start.
    #[error("{}", printable(.0.message.as_bytes()))]
    Boot(BootFailure),
    /// The keeper refused or failed.
    #[error("{}", printable(.message.as_bytes()))]
    Refused {
        /// The keeper's sentence.
        message: String,
    },
    /// The keeper ended without a word.
    #[error("the keeper of sandbox {name} ended without an answer")]
    KeeperLost {
        /// The sandbox.
        name: String,
    },
    /// No answer in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    NoAnswer(std::time::Duration),
    /// A path on the host can't be used.
    #[error("{what} {}", printable_path(path))]
    HostPath {
        /// What was tried.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A folder for sockets or state is not private to this user.
    #[error("{} {why}", printable_path(path))]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The other side broke the protocol.
    #[error("{peer} said something that can't be read")]
    Protocol {
        /// Who.
        peer: &'static str,
        /// What is wrong with it.
        #[source]
        source: FrameError,
    },
    /// The other side said something that does not belong here.
    #[error("{peer} gave an answer that does not belong to the question")]
    OutOfTurn {
        /// Who.
        peer: &'static str,
    },
    /// What a stored spec or record says can't be used.
    #[error("the stored spec of sandbox {name} can't be used")]
    Stored {
        /// The sandbox.
        name: String,
        /// Why.
        #[source]
        source: StoredSpecError,
    },
    /// The state on disk can't be read.
    #[error(transparent)]
    Catalogue(cosm_state::StateError),
    /// Something in the guest: a command could not be started, a file operation failed, the agent was silent.
    #[error(transparent)]
    Guest(AgentError),
    /// Nothing was logged for this job.
    #[error("there is no log of a job {}", quoted(job))]
    NoLog {
        /// The job.
        job: String,
    },
    /// The work was given up because its runtime ended.
    #[error("cancelled")]
    Cancelled,
    /// The system said no.
    #[error("{what}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Why a guest did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFailure {
    /// The phase that failed: `prepare`, `namespaces`, `rootfs`, …
    pub phase: String,
    /// The sentence, with its causes.
    pub message: String,
    /// The end of what the keeper wrote down about this start; empty where it had nothing to say. Foreign bytes: escape before showing.
    pub log_tail: Vec<u8>,
    /// Where it was its main command that could not be started: why.
    pub spawn: Option<SpawnFailure>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, fault: Fault) -> Self {
        Self(Box::new(Inner {
            kind,
            retry_safe: false,
            hints: Vec::new(),
            fault,
        }))
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn retry_safe(mut self) -> Self {
        self.0.retry_safe = true;
        self
    }

    pub(crate) fn os(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::new(kind_of(&source), Fault::Os { what, source })
    }

    pub(crate) fn no_sandbox(name: &str) -> Self {
        let name = printable(name.as_bytes());
        Self::new(ErrorKind::NotFound, Fault::NoSandbox { name })
            .hint("`cosm ls` shows the sandboxes there are")
    }

    pub(crate) fn already_exists(name: &str) -> Self {
        let fault = Fault::AlreadyExists { name: name.into() };
        Self::new(ErrorKind::AlreadyExists, fault).hint(format!(
            "remove it (`cosm rm {name}`), start it (`cosm start {name}`), or replace it (`--replace`)"
        ))
    }

    pub(crate) fn state(name: &str, state: &'static str) -> Self {
        let fault = Fault::State {
            name: name.into(),
            state,
        };
        Self::new(ErrorKind::WrongState, fault)
    }

    pub(crate) fn crashed(name: &str, reason: &str) -> Self {
        let fault = Fault::Crashed {
            name: name.into(),
            reason: reason.into(),
        };
        Self::new(ErrorKind::WrongState, fault).hint(format!("start it again: cosm start {name}"))
    }

    pub(crate) fn keeper_lost(name: &str) -> Self {
        Self::new(
            ErrorKind::GuestDied,
            Fault::KeeperLost { name: name.into() },
        )
    }

    pub(crate) fn out_of_turn(peer: &'static str) -> Self {
        Self::new(ErrorKind::Protocol, Fault::OutOfTurn { peer })
    }

    pub(crate) fn host_path(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::new(kind_of(&source), Fault::HostPath { what, path, source })
    }

    /// What a keeper reported. A failed boot is typed, whatever made it fail.
    pub(crate) fn from_keeper(failure: Failure) -> Self {
        let Failure {
            kind,
            phase,
            message,
            hints,
            log_tail,
            spawn,
        } = failure;
        let fault = match (phase, spawn) {
            (Some(phase), spawn) => Fault::Boot(BootFailure {
                phase,
                message,
                log_tail,
                spawn: spawn.map(|spawn| *spawn),
            }),
            (None, Some(spawn)) => return AgentError::Spawn(*spawn).into(),
            (None, None) => Fault::Refused { message },
        };
        let mut error = Self::new(kind, fault);
        error.0.hints = hints;
        error
    }

    /// What a caller would act on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether nothing was done, so that doing the same again does no harm.
    pub fn is_retry_safe(&self) -> bool {
        self.0.retry_safe
    }

    /// What would help, a sentence each.
    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }

    /// The fact.
    pub fn fault(&self) -> &Fault {
        &self.0.fault
    }

    /// Why the guest did not start, if that is what failed.
    pub fn boot_failure(&self) -> Option<&BootFailure> {
        match &self.0.fault {
            Fault::Boot(failure) => Some(failure),
            _ => None,
        }
    }

    /// Why the command could not be started, if that is what failed.
    pub fn spawn_failure(&self) -> Option<&SpawnFailure> {
        match &self.0.fault {
            Fault::Guest(AgentError::Spawn(failure)) => Some(failure),
            Fault::Boot(failure) => failure.spawn.as_ref(),
            _ => None,
        }
    }

    /// The system's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match &self.0.fault {
            Fault::Guest(error) => error.errno(),
            Fault::Boot(failure) => {
                let errno = failure.spawn.as_ref()?.errno;
                (errno != 0).then_some(errno)
            }
            Fault::Os { source, .. } | Fault::HostPath { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("retry_safe", &self.0.retry_safe)
            .field("hints", &self.0.hints)
            .field("fault", &self.0.fault)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fault.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.fault.source()
    }
}

impl From<AgentError> for Error {
    fn from(error: AgentError) -> Self {
        let kind = match &error {
            AgentError::Connect(_) | AgentError::Lost => ErrorKind::GuestDied,
            AgentError::Refused(_) => ErrorKind::ResourceExhausted,
            AgentError::Spawn(_) => ErrorKind::SpawnFailed,
            AgentError::File(failure) => match io::Error::from_raw_os_error(failure.errno).kind() {
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Filesystem,
            },
            AgentError::Silent { .. } => ErrorKind::TimedOut,
            AgentError::Protocol(_) => ErrorKind::Protocol,
            AgentError::Io(source) | AgentError::Host { source, .. } => kind_of(source),
            _ => ErrorKind::Os,
        };
        let retry_safe = matches!(error, AgentError::Connect(_) | AgentError::Refused(_));
        let error = Self::new(kind, Fault::Guest(error));
        if retry_safe {
            error.retry_safe()
        } else {
            error
        }
    }
}

impl From<Problems> for Error {
    fn from(problems: Problems) -> Self {
        Self::new(ErrorKind::InvalidInput, Fault::Spec(problems)).retry_safe()
    }
}

pub(crate) fn kind_of(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ErrorKind::ResourceExhausted
        }
        io::ErrorKind::TimedOut => ErrorKind::TimedOut,
        io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
        _ => ErrorKind::Os,
    }
}
