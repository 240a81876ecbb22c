//! What is written down about a run so that it can be found and ended without its keeper.

use cosm_base::{RunId, SandboxId};
use serde::{Deserialize, Serialize};

use crate::DriverKind;

/// Everything that a run made outside its sandbox's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The sandbox.
    pub id: SandboxId,
    /// The run.
    pub run: RunId,
    /// Who started it.
    pub driver: DriverKind,
    /// The guest's process 1; when it dies, the kernel ends the others.
    pub init: Option<ProcessRecord>,
    /// The guest's ids.
    pub ids: Option<IdMap>,
    /// Folders in the cgroup file systems (absolute paths on the host).
    pub cgroups: Vec<String>,
    /// A systemd unit of the user's manager.
    pub unit: Option<String>,
    /// Mounts outside the guest's mount namespace, and loop devices.
    pub mounts: Vec<String>,
}

/// A process, told apart from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Its number on the host.
    pub pid: i32,
    /// Its start in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
    /// The inode of its pid namespace.
    pub pid_namespace: u64,
    /// The inode of its user namespace.
    pub user_namespace: u64,
    /// The kernel's boot id, since numbers start anew with each boot.
    pub boot: u128,
}

/// How a guest's ids are the host's. Users and groups are mapped alike but for a single id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap {
    /// (in the guest, on the host, how many) of users.
    pub users: Vec<(u32, u32, u32)>,
    /// (in the guest, on the host, how many) of groups.
    pub groups: Vec<(u32, u32, u32)>,
    /// Written by `newuidmap` and `newgidmap` rather than by the process itself.
    pub helper: bool,
}
