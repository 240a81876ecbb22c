//! What is known of a sandbox without asking its guest.

use cosm_base::{RunId, SandboxId};
use cosm_proto::keeper::{EndReport, Failure, ReadyReport};
use cosm_spec::SandboxSpec;
use cosm_state::{PhaseRecord, SandboxStatus, crash_reason};

use crate::error::Error;
use crate::host::Host;
use crate::sandbox::Sandbox;

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
    /// What it left could not be cleaned up.
    pub(crate) fn is_uncleaned(&mut self, why: &Error) {
        self.status = SandboxStatus::Crashed;
        let known = self.reason.take().unwrap_or_else(|| crash_reason(None));
        let why = why.to_string();
        self.reason = Some(match known.contains(&why) {
            true => known,
            false => format!("{known}, and what it left could not be cleaned up: {why}"),
        });
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
        .seen_crashed(self.reason)
    }
}
