//! Whether a sandbox lives.

use std::fmt;
use std::io;
use std::str::FromStr;

use cosm_base::text::quoted;
use cosm_base::{Home, SandboxId};
use cosm_proto::keeper::EndReason;
use cosm_sys::lock::LockFile;

use crate::StateError;
use crate::phase::{Phase, PhaseRecord};

/// The states of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SandboxStatus {
    /// It was made and has never been started.
    Created,
    /// Its keeper is making the guest.
    Starting,
    /// Its guest runs.
    Running,
    /// It finishes what runs and accepts nothing new.
    Draining,
    /// Its processes are stopped and can be resumed.
    Paused,
    /// It is being ended.
    Stopping,
    /// It has ended.
    Stopped,
    /// It ended and nobody saw how: its keeper was killed.
    Crashed,
}

impl SandboxStatus {
    /// All, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Starting,
        Self::Running,
        Self::Draining,
        Self::Paused,
        Self::Stopping,
        Self::Stopped,
        Self::Crashed,
    ];

    /// The state's stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Crashed => "crashed",
        }
    }

    /// Whether a keeper is at it.
    pub const fn is_live(self) -> bool {
        matches!(
            self,
            Self::Starting | Self::Running | Self::Draining | Self::Paused | Self::Stopping
        )
    }
}

impl fmt::Display for SandboxStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// No such state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is not a state: they are created, starting, running, draining, paused, stopping, stopped and crashed",
    quoted(.0)
)]
pub struct UnknownStatus(pub String);

impl FromStr for SandboxStatus {
    type Err = UnknownStatus;
    fn from_str(text: &str) -> Result<Self, UnknownStatus> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| UnknownStatus(text.to_owned()))
    }
}

impl SandboxStatus {
    fn of(record: Option<&PhaseRecord>, held: bool) -> Self {
        let Some(record) = record else {
            return if held { Self::Starting } else { Self::Crashed };
        };
        match record.phase {
            Phase::Created => Self::Created,
            // What is still to be removed did not end as it should.
            Phase::Stopped if record.fresh && !held => Self::Crashed,
            Phase::Stopped => match &record.end {
                Some(end) if end.reason == EndReason::KeeperLost => Self::Crashed,
                _ => Self::Stopped,
            },
            _ if !held => Self::Crashed,
            Phase::Starting => Self::Starting,
            Phase::Running => Self::Running,
            Phase::Draining => Self::Draining,
            Phase::Paused => Self::Paused,
            Phase::Stopping => Self::Stopping,
        }
    }
}

/// What is known about a crash, as a sentence, by the record that was left.
pub fn crash_reason(record: Option<&PhaseRecord>) -> String {
    let Some(record) = record else {
        return "its keeper was killed before the guest had started".to_owned();
    };
    let sentence = match record.phase {
        Phase::Stopped if record.fresh => match &record.failure {
            Some(failure) => return format!("it could not be removed: {}", failure.message),
            None => "its keeper was killed while it was being removed",
        },
        Phase::Created | Phase::Stopped => {
            "its keeper was killed, and what it left has been cleaned up"
        }
        Phase::Starting => "its keeper was killed while the guest was starting",
        Phase::Running | Phase::Draining | Phase::Paused => {
            "its keeper was killed while the guest was running"
        }
        Phase::Stopping => "its keeper was killed while the guest was being stopped",
    };
    sentence.to_owned()
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
            if status != SandboxStatus::Crashed || before.as_ref() == Some(&record) {
                return Ok((status, record));
            }
            before = Some(record);
        }
    }
}
