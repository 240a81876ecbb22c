//! Why a guest did not start, or could not be ended.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The part of a launch that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LaunchPhase {
    /// Looking at the request and at this host.
    Prepare,
    /// Setting limits.
    Limits,
    /// Making namespaces.
    Namespaces,
    /// Mapping ids.
    Ids,
    /// Building the root file system.
    Rootfs,
    /// The user's mounts.
    Mounts,
    /// Devices, `/proc`, `/dev`.
    Devices,
    /// The network.
    Network,
    /// Dropping rights.
    Confine,
    /// Starting the agent.
    Exec,
}

impl LaunchPhase {
    /// The phase's stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Limits => "limits",
            Self::Namespaces => "namespaces",
            Self::Ids => "ids",
            Self::Rootfs => "rootfs",
            Self::Mounts => "mounts",
            Self::Devices => "devices",
            Self::Network => "network",
            Self::Confine => "confine",
            Self::Exec => "exec",
        }
    }
}

/// Why a guest did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// This host can't do what was asked, or can't enforce it.
    #[error("{what}: {why}")]
    Unsupported {
        /// What was asked.
        what: String,
        /// Why it can't be had here.
        why: String,
        /// What would help.
        help: Option<String>,
    },
    /// Something that was named is not usable: a folder, a device, a mount's source.
    #[error("{what}")]
    Invalid {
        /// The fact, with the path.
        what: String,
        /// What would help.
        help: Option<String>,
    },
    /// The system said no.
    #[error("{what} ({})", phase.as_str())]
    Os {
        /// Where.
        phase: LaunchPhase,
        /// What was tried, with the path.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
        /// What would help.
        help: Option<String>,
    },
    /// Something else ended the guest's first process before it could say why.
    #[error("the guest's first process was killed while it built the root{}", if *.out_of_memory { ": memory ran out" } else { "" })]
    Killed {
        /// Its memory ran out, as far as its limits tell.
        out_of_memory: bool,
        /// What would help.
        help: Option<String>,
    },
    /// The time for a start was over.
    #[error("the guest's root was not built within {} s", .limit.as_secs_f64())]
    TooSlow {
        /// How long it might take.
        limit: Duration,
    },
}

impl LaunchError {
    /// The hint, where there is one.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Unsupported { help, .. }
            | Self::Invalid { help, .. }
            | Self::Os { help, .. }
            | Self::Killed { help, .. } => help.as_deref(),
            Self::TooSlow { .. } => None,
        }
    }

    /// The phase that failed.
    pub const fn phase(&self) -> LaunchPhase {
        match self {
            Self::Os { phase, .. } => *phase,
            Self::Unsupported { .. } | Self::Invalid { .. } => LaunchPhase::Prepare,
            Self::Killed { .. } | Self::TooSlow { .. } => LaunchPhase::Rootfs,
        }
    }
}

/// Why something of a run may be left behind.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct ReapError {
    /// What could not be removed, with the path.
    pub what: String,
    /// What the system said.
    #[source]
    pub source: io::Error,
}
