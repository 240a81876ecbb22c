//! What can go wrong with the state on disk.

use std::io;
use std::path::PathBuf;

use cosm_base::text::{printable_path, quoted};
use cosm_base::{ErrorKind, SandboxId};

/// What went wrong with the state on disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The system refused something about a file or folder.
    #[error("{doing} {}", printable_path(path))]
    Io {
        /// What was tried: `creating`, `reading`, …
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A folder that must be this user's own is not.
    #[error("{} is used for private state, but {why}", printable_path(path))]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The file system has no record locks, without which nobody could tell whether a sandbox lives.
    #[error(
        "the file system of {} has no file locks, so cosm can't tell which sandboxes live: choose another folder for the state (COSM_HOME)",
        printable_path(path)
    )]
    NoLocks {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A newer program has changed the catalogue in a way that this one does not know.
    #[error(
        "the catalogue has schema {found}, and this program knows up to {known}: use the newer cosm"
    )]
    Newer {
        /// The schema found.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// The catalogue is no database, or a damaged one.
    #[error(
        "the catalogue {} is damaged: move it away to start anew (the sandboxes' folders stay)",
        printable_path(path)
    )]
    Damaged {
        /// The catalogue.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// A record beside the catalogue can't be read.
    #[error("the record {} is damaged", printable_path(path))]
    DamagedRecord {
        /// The record.
        path: PathBuf,
    },
    /// A newer program wrote a record.
    #[error(
        "the record {} has format {found}, and this program knows up to {known}: use the newer cosm",
        printable_path(path)
    )]
    NewerRecord {
        /// The record.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest known here.
        known: u32,
    },
    /// The name is taken.
    #[error("a sandbox named {name} already exists")]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        holder: SandboxId,
    },
    /// Several ids start like that.
    #[error("several sandboxes' ids start with {}", quoted(prefix))]
    Ambiguous {
        /// What was given.
        prefix: String,
    },
    /// Every range of ids is taken.
    #[error(
        "all {count} ranges of ids for sandboxes are taken: remove sandboxes, or widen the range in the configuration"
    )]
    NoSlots {
        /// How many there are.
        count: u32,
    },
    /// SQLite could not do it: another program holds the catalogue for too long, the disk is full, …
    #[error("the catalogue: {doing}")]
    Database {
        /// What was tried.
        doing: &'static str,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
}

impl StateError {
    /// The kind, as callers tell errors apart.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => io_kind(source),
            Self::NotPrivate { .. } => ErrorKind::PermissionDenied,
            Self::NoLocks { .. } => ErrorKind::Unsupported,
            Self::Newer { .. }
            | Self::Damaged { .. }
            | Self::DamagedRecord { .. }
            | Self::NewerRecord { .. } => ErrorKind::State,
            Self::NameTaken { .. } => ErrorKind::AlreadyExists,
            Self::Ambiguous { .. } => ErrorKind::InvalidInput,
            Self::NoSlots { .. } => ErrorKind::ResourceExhausted,
            Self::Database { source, .. } => match source.sqlite_error_code() {
                Some(rusqlite::ErrorCode::DiskFull) => ErrorKind::ResourceExhausted,
                Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::PermissionDenied) => {
                    ErrorKind::PermissionDenied
                }
                Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                    ErrorKind::TimedOut
                }
                _ => ErrorKind::State,
            },
        }
    }

    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }
}

fn io_kind(source: &io::Error) -> ErrorKind {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::PermissionDenied
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::OutOfMemory => {
            ErrorKind::ResourceExhausted
        }
        _ => ErrorKind::Os,
    }
}
