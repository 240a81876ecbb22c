//! What is known of a sandbox without asking its guest.

use std::fmt;
use std::str::FromStr;

use cosm_base::{RunId, SandboxId};
use cosm_proto::keeper::{EndReport, Failure, ReadyReport};
use cosm_spec::SandboxSpec;
use cosm_state::PhaseRecord;

use crate::host::Host;
use crate::sandbox::Sandbox;

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
    "{0:?} is not a state: they are created, starting, running, draining, paused, stopping, stopped and crashed"
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

/// A sandbox that the catalogue knows, perhaps not running: what was seen at one moment.
#[derive(Debug, Clone)]
pub struct SandboxHandle {
    pub(crate) host: Host,
    pub(crate) place: i64,
    pub(crate) id: SandboxId,
    pub(crate) name: String,
    pub(crate) spec: SandboxSpec,
    pub(crate) created_ms: u64,
    pub(crate) status: SandboxStatus,
    pub(crate) reason: Option<String>,
    pub(crate) keeper_pid: Option<i32>,
    pub(crate) record: PhaseRecord,
}

impl SandboxHandle {
    /// Its id.
    pub fn id(&self) -> SandboxId {
        self.id
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// What it was asked to be.
    pub fn spec(&self) -> &SandboxSpec {
        &self.spec
    }
    /// When it was created, milliseconds since 1970.
    pub fn created_ms(&self) -> u64 {
        self.created_ms
    }
    /// How it was.
    pub fn status(&self) -> SandboxStatus {
        self.status
    }
    /// What is known about a crash.
    pub fn crash_reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
    /// Its last start.
    pub fn run(&self) -> Option<RunId> {
        self.record.run
    }
    /// Its keeper's process, while it has one.
    pub fn keeper_pid(&self) -> Option<i32> {
        self.keeper_pid
    }
    /// When it last began to start, milliseconds since 1970.
    pub fn started_ms(&self) -> Option<u64> {
        self.record.started_ms
    }
    /// When it last ended, milliseconds since 1970.
    pub fn ended_ms(&self) -> Option<u64> {
        self.record.ended_ms
    }
    /// How its last run ended.
    pub fn end(&self) -> Option<&EndReport> {
        self.record.end.as_ref()
    }
    /// Why its last start failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.record.failure.as_ref()
    }
    /// How the guest was started, as the driver tells.
    pub fn facts(&self) -> &serde_json::Value {
        &self.record.facts
    }
    /// Its place in lists, for [`Filter::after`](crate::Filter::after).
    pub fn place(&self) -> i64 {
        self.place
    }
    /// The sandbox, to do something with it.
    pub fn into_sandbox(self) -> Sandbox {
        Sandbox::new(
            &self.host,
            self.id,
            self.name,
            self.spec,
            None,
            ReadyReport::default(),
        )
    }
}
