//! The phase record: how far a sandbox's keeper has come.

use cosm_base::{RunId, SandboxDir};
use cosm_proto::keeper::{EndReport, Failure};
use serde::{Deserialize, Serialize};

use crate::StateError;
use crate::records::{self, Kind};

/// The version of the phase record.
pub const PHASE_VERSION: u32 = 1;

/// How far a sandbox has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Made and never started.
    Created,
    /// The guest is being started.
    Starting,
    /// The guest runs.
    Running,
    /// It runs on until what runs in it has ended.
    Draining,
    /// All its processes are stopped, and can go on.
    Paused,
    /// It is being ended.
    Stopping,
    /// It has ended.
    Stopped,
}

impl Phase {
    /// The phase's stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }

    /// Whether a keeper must be there for this to be true.
    pub const fn needs_keeper(self) -> bool {
        !matches!(self, Self::Created | Self::Stopped)
    }
}

/// What a keeper writes down about how far it has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// [`PHASE_VERSION`].
    pub version: u32,
    /// How far.
    pub phase: Phase,
    /// The sandbox is only being made: if this run does not come to run, nothing of the sandbox stays.
    #[serde(default)]
    pub fresh: bool,
    /// The latest run.
    pub run: Option<RunId>,
    /// When that run was started, milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// When it ended, milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// How it ended.
    pub end: Option<EndReport>,
    /// Why its guest did not start.
    pub failure: Option<Failure>,
    /// How the guest was started, as the driver says it.
    pub facts: serde_json::Value,
}

impl PhaseRecord {
    /// The record of a sandbox that was never started.
    pub const fn created() -> Self {
        Self {
            version: PHASE_VERSION,
            phase: Phase::Created,
            fresh: false,
            run: None,
            started_ms: None,
            ended_ms: None,
            end: None,
            failure: None,
            facts: serde_json::Value::Null,
        }
    }

    /// The record of a run that begins.
    pub fn starting(run: RunId, at_ms: u64, fresh: bool) -> Self {
        Self {
            phase: Phase::Starting,
            fresh,
            run: Some(run),
            started_ms: Some(at_ms),
            ..Self::created()
        }
    }

    /// Reads a sandbox's record; `None` where there is none (yet).
    ///
    /// # Errors
    /// [`StateError::Io`], [`StateError::DamagedRecord`], [`StateError::NewerRecord`].
    pub fn read(dir: &SandboxDir) -> Result<Option<Self>, StateError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Some((path, text)) = records::last(dir, Kind::Phase)? else {
            return Ok(None);
        };
        if let Ok(record) = serde_json::from_slice::<Self>(&text)
            && record.version == PHASE_VERSION
        {
            return Ok(Some(record));
        }
        match serde_json::from_slice(&text) {
            Ok(Version { version }) if version > PHASE_VERSION => Err(StateError::NewerRecord {
                path,
                found: version,
                known: PHASE_VERSION,
            }),
            _ => Err(StateError::DamagedRecord { path }),
        }
    }

    /// Writes it down: from now on it is this one that holds.
    ///
    /// # Errors
    /// [`StateError::Io`].
    pub fn write(&self, dir: &SandboxDir) -> Result<(), StateError> {
        let text = serde_json::to_vec(self).expect("a record holds nothing that JSON can't");
        records::add(dir, Kind::Phase, &text)
    }
}
