//! What a driver is asked to start.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use cosm_base::{RunId, SandboxId};
use cosm_spec::SandboxSpec;
use serde::{Deserialize, Serialize};

use crate::record::RunRecord;

/// A guest to start. Everything has been checked and resolved but for what only the host's kernel can say.
pub struct LaunchPlan {
    /// The sandbox.
    pub id: SandboxId,
    /// This start of it.
    pub run: RunId,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// The agent: a static program for this machine.
    pub agent: &'static [u8],
    /// The listening Unix socket that the agent inherits as descriptor 3.
    pub listener: OwnedFd,
    /// The folder for what the guest writes and keeps (exists, private to the user). `None`: nothing is kept, so
    /// memory will do.
    pub data: Option<PathBuf>,
    /// The folder of the sandbox's scripts, mounted read-only and put first on PATH; `None` without scripts.
    pub scripts: Option<PathBuf>,
    /// The range of the host's ids for this sandbox, when the caller is root and has reserved one.
    pub id_range: Option<IdRange>,
    /// Called with all that is needed to find this run again, after its parts have names and before any of the
    /// guest's code runs. An error from it stops the launch.
    pub record: Recorder,
}

/// Writes a run's record where it outlives the keeper.
pub type Recorder = Box<dyn FnMut(&RunRecord) -> std::io::Result<()>>;

/// A range of the host's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// The first id, of users and of groups alike.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// What a guest's writable layer lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Upper {
    /// An overlay's upper folder on disk.
    Overlay,
    /// An overlay's upper folder in memory.
    OverlayTmpfs,
    /// A copy of the image on disk: this host can't stack file systems here.
    Copy,
    /// A copy of the image in memory.
    CopyTmpfs,
    /// `host`: private folders on disk.
    Folders,
    /// `host`: private folders in memory.
    FoldersTmpfs,
}
