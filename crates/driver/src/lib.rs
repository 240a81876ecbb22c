//! The contract every driver meets.
//!
//! A driver starts and ends a guest; it never talks to it. What runs in the guest, which files it reads and what it
//! prints goes over the agent's socket, by the same code for every driver.

mod capabilities;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod guest;
mod plan;
mod record;

pub use capabilities::{Capabilities, Finding, Level, Support};
pub use error::{LaunchError, LaunchPhase, ReapError};
pub use guest::{Guest, GuestExit, GuestUsage, Measured};
pub use plan::{IdRange, LaunchPlan, Recorder, Upper};
pub use record::{IdMap, ProcessRecord, RunRecord};

use std::future::Future;

use serde::{Deserialize, Serialize};

/// Which driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DriverKind {
    /// Linux namespaces.
    Namespaces,
}

impl DriverKind {
    /// The kind's stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
        }
    }
}

/// Starts and ends guests of one kind.
pub trait Driver {
    /// The guest it starts.
    type Guest: Guest;

    /// Which driver this is.
    fn kind(&self) -> DriverKind;

    /// What works on this host, and why the rest does not. Probed at the first call.
    fn capabilities(&self) -> &Capabilities;

    /// Starts a guest whose process 1 is the agent. On an error nothing is left behind.
    ///
    /// The caller has one thread (the guest's first process is cloned from it) and keeps the calling thread alive as
    /// long as the guest: the kernel ties the guest's life to it.
    fn launch(
        &self,
        plan: LaunchPlan,
    ) -> impl Future<Output = Result<Launched<Self::Guest>, LaunchError>>;

    /// Ends what a run left behind and removes its traces outside the sandbox's folder. Idempotent: it is fine if
    /// nothing is there.
    fn reap(&self, record: &RunRecord) -> impl Future<Output = Result<(), ReapError>>;

    /// Removes a folder that guests of this map wrote to, whoever owns what is in it. Idempotent.
    fn remove_tree(
        &self,
        path: &std::path::Path,
        ids: Option<&IdMap>,
    ) -> impl Future<Output = Result<(), ReapError>>;
}

/// What holds a guest's own files to their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskBound {
    /// A file system in memory of that size: a write beyond it fails.
    Memory,
    /// A file system in a file of that size: a write beyond it fails.
    File,
    /// The keeper looks now and then and ends a guest that is over.
    Watched,
}

/// A guest that runs.
#[derive(Debug)]
pub struct Launched<G> {
    /// The guest.
    pub guest: G,
    /// What can be said about how it runs (`inspect` shows it).
    pub facts: LaunchFacts,
}

/// How a guest was started: what the host could do, said honestly.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LaunchFacts {
    /// What the guest's writable layer lies on.
    pub upper: Option<Upper>,
    /// The map of the guest's ids.
    pub ids: Option<IdMap>,
    /// Which cgroup layout bounds it: `v1`, `v2`, `hybrid`, `systemd`, `none`.
    pub cgroup: Option<String>,
    /// The memory limit in force, bytes.
    pub memory: Option<u64>,
    /// The process limit in force.
    pub pids: Option<u64>,
    /// The processor limit in force.
    pub cpus: Option<f64>,
    /// The disk limit in force, bytes.
    pub disk: Option<u64>,
    /// What keeps it.
    pub disk_by: Option<DiskBound>,
    /// The Landlock ABI in force.
    pub landlock: Option<u32>,
    /// Defaults that this host could not enforce, one sentence each.
    pub notes: Vec<String>,
    /// Where the time went, in order: a name and microseconds.
    pub timings: Vec<(String, u64)>,
}
