//! What a driver can do on this host.

use serde::{Deserialize, Serialize};

/// What works here and what doesn't. `doctor` shows it, `auto` chooses by it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// How strongly a guest is kept apart.
    pub level: Level,
    /// Whether guests can be started at all.
    pub launch: Support,
    /// A hard memory limit.
    pub memory: Support,
    /// A limit on processors.
    pub cpus: Support,
    /// A limit on processes.
    pub pids: Support,
    /// A limit on disk.
    pub disk: Support,
    /// Stopping and resuming.
    pub freeze: Support,
    /// More than one id in the guest.
    pub id_range: Support,
    /// An overlay whose upper folder lies on disk.
    pub overlay: Support,
    /// What else was found, in the order in which it should be read.
    pub findings: Vec<Finding>,
}

/// How strongly a guest is kept apart, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It shares the host's kernel.
    Namespaces,
    /// It has a kernel of its own.
    Kernel,
}

/// Whether something works here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// It does, by this means.
    Yes {
        /// The means: `cgroup v2`, `RLIMIT_NPROC`, `loop`, …
        by: String,
    },
    /// It does not.
    No {
        /// Why, in a sentence.
        why: String,
        /// What would help, as a command or a setting, where something would.
        help: Option<String>,
    },
}

impl Support {
    /// Whether it works.
    pub const fn works(&self) -> bool {
        matches!(self, Self::Yes { .. })
    }
}

/// Something about this host that is worth knowing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at: `user namespaces`, `landlock`, `linger`, …
    pub subject: String,
    /// What was found.
    pub support: Support,
}
