//! Mounts and devices.

use cosm_base::ByteString;
use cosm_base::units::ByteSize;
use serde::{Deserialize, Serialize};

/// Something mounted in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where in the guest: absolute, without `..`.
    pub target: ByteString,
    /// What.
    pub source: MountSource,
    /// The guest can't write to it. The host enforces it.
    pub read_only: bool,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MountSource {
    /// A file or folder of the host (absolute).
    Bind(ByteString),
    /// Memory of at most this size (default 64 MiB), with these permissions (default 1777).
    Tmpfs {
        /// The most it holds.
        size: Option<ByteSize>,
        /// Permissions of its root.
        mode: Option<u32>,
    },
}

/// A device node of the host that the guest may open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The node on the host, below `/dev`.
    pub source: ByteString,
    /// The path in the guest, below `/dev`.
    pub target: ByteString,
}
