//! Whether a sandbox lives.

use std::io;

use cosm_base::{Home, SandboxId};
use cosm_proto::keeper::{EndReason, EndReport};
use cosm_sys::lock::LockFile;

use crate::StateError;
use crate::phase::{Phase, PhaseRecord};

/// How a sandbox is, as far as anybody can tell now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SandboxStatus {
    /// Made and never started.
    Created,
    /// Its guest is being started.
    Starting,
    /// Its guest runs.
    Running,
    /// It runs on until what runs in it has ended.
    Draining,
    /// All its processes are stopped, and can go on.
    Paused,
    /// It is being ended.
    Stopping,
    /// It has ended. `None` where it never started properly.
    Stopped(Option<EndReport>),
    /// Its keeper is gone without having said goodbye.
    Crashed {
        /// What is known about it, as a sentence.
        reason: String,
    },
}

impl SandboxStatus {
    /// The status's stable name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped(_) => "stopped",
            Self::Crashed { .. } => "crashed",
        }
    }

    /// Whether a keeper answers for it.
    pub const fn is_alive(&self) -> bool {
        matches!(
            self,
            Self::Starting | Self::Running | Self::Draining | Self::Paused | Self::Stopping
        )
    }

    fn of(record: Option<&PhaseRecord>, held: bool) -> Self {
        let Some(record) = record else {
            return if held {
                Self::Starting
            } else {
                crashed("its keeper was killed before the guest had started")
            };
        };
        match record.phase {
            Phase::Created => Self::Created,
            Phase::Stopped => match &record.end {
                Some(end) if end.reason == EndReason::KeeperLost => {
                    crashed("its keeper was killed, and what it left has been cleaned up")
                }
                end => Self::Stopped(end.clone()),
            },
            Phase::Starting if held => Self::Starting,
            Phase::Running if held => Self::Running,
            Phase::Draining if held => Self::Draining,
            Phase::Paused if held => Self::Paused,
            Phase::Stopping if held => Self::Stopping,
            Phase::Starting => crashed("its keeper was killed while the guest was starting"),
            Phase::Running | Phase::Draining | Phase::Paused => {
                crashed("its keeper was killed while the guest was running")
            }
            Phase::Stopping => crashed("its keeper was killed while the guest was being stopped"),
        }
    }
}

fn crashed(reason: &str) -> SandboxStatus {
    SandboxStatus::Crashed {
        reason: reason.to_owned(),
    }
}

/// Asks who lives. For processes that hold no sandbox's lock themselves: a keeper must not have one.
#[derive(Debug)]
pub struct Liveness {
    home: Home,
    locks: Option<LockFile>,
}

impl Liveness {
    /// Opens the lock file of a state folder only to ask. Where there is none, nobody lives.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn open(home: &Home) -> Result<Self, StateError> {
        let path = home.locks();
        let locks = match LockFile::open_read_only(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(StateError::io("opening", path)(error)),
        };
        Ok(Self {
            home: home.clone(),
            locks,
        })
    }

    /// Whether there is a lock file.
    pub(crate) const fn sees(&self) -> bool {
        self.locks.is_some()
    }

    /// The process that keeps a sandbox, `None` where nobody does. It is 0 for a keeper outside of this process's pid
    /// namespace.
    ///
    /// # Errors
    /// [`StateError::NoLocks`].
    pub fn keeper(&self, id: SandboxId) -> Result<Option<i32>, StateError> {
        let Some(locks) = &self.locks else {
            return Ok(None);
        };
        locks
            .holder(id.lock_offset())
            .map_err(|source| StateError::NoLocks {
                path: self.home.locks(),
                source,
            })
    }

    /// A sandbox's status together with the record that it was computed from.
    ///
    /// # Errors
    /// As [`Liveness::keeper`] and [`PhaseRecord::read`].
    pub fn status(
        &self,
        id: SandboxId,
    ) -> Result<(SandboxStatus, Option<PhaseRecord>), StateError> {
        let dir = self.home.sandbox(id);
        let mut before = None;
        loop {
            // In this order: a keeper writes its last record before it lets go, so a record that is read after the lock
            // was seen free is its last one, unless the next keeper has begun meanwhile.
            let held = self.keeper(id)?.is_some();
            let record = PhaseRecord::read(&dir)?;
            let status = SandboxStatus::of(record.as_ref(), held);
            if !matches!(status, SandboxStatus::Crashed { .. }) || before.as_ref() == Some(&record)
            {
                return Ok((status, record));
            }
            before = Some(record);
        }
    }
}
