//! The kinds of error that callers tell apart.

use serde::{Deserialize, Serialize};

/// What went wrong, as far as a caller would act on it. One match on it makes the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request itself is wrong: a name, a size, a combination.
    InvalidInput,
    /// The name is taken.
    AlreadyExists,
    /// No such sandbox, job or file.
    NotFound,
    /// The sandbox is in a state that does not allow this (running, stopped, draining).
    WrongState,
    /// This host can't do or enforce what was asked.
    Unsupported,
    /// The host refused (permissions).
    PermissionDenied,
    /// Memory, disk, processes or descriptors ran out.
    ResourceExhausted,
    /// The guest did not start.
    BootFailed,
    /// The guest or its keeper ended while it was needed.
    GuestDied,
    /// A deadline passed.
    TimedOut,
    /// The other side broke the protocol.
    Protocol,
    /// The command could not be started in the guest.
    SpawnFailed,
    /// A file operation failed in the guest.
    Filesystem,
    /// State on disk is damaged, or of a version this program does not know.
    State,
    /// The operation was cancelled.
    Cancelled,
    /// The operating system said no to something that should have worked.
    Os,
}

impl ErrorKind {
    /// The kind's stable name, for `--json` and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::AlreadyExists => "already_exists",
            Self::NotFound => "not_found",
            Self::WrongState => "wrong_state",
            Self::Unsupported => "unsupported",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::BootFailed => "boot_failed",
            Self::GuestDied => "guest_died",
            Self::TimedOut => "timed_out",
            Self::Protocol => "protocol",
            Self::SpawnFailed => "spawn_failed",
            Self::Filesystem => "filesystem",
            Self::State => "state",
            Self::Cancelled => "cancelled",
            Self::Os => "os",
        }
    }
}
