//! What a guest may use.

use std::str::FromStr;

use cosm_base::text::quoted;
use cosm_base::units::ByteSize;
use serde::{Deserialize, Serialize};

/// A limit that can be left to the default, taken off, or set.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit<T> {
    /// The documented default, where this host can enforce it.
    #[default]
    Default,
    /// None. Nothing is set up for it.
    Unlimited,
    /// This much; an error where this host can't enforce it.
    At(T),
}

impl<T: Copy> Limit<T> {
    /// The value to enforce, `None` for no limit.
    pub fn or(self, default: T) -> Option<T> {
        match self {
            Self::Default => Some(default),
            Self::Unlimited => None,
            Self::At(value) => Some(value),
        }
    }
    /// True when the user set a value, so that not enforcing it is an error.
    pub const fn was_asked(self) -> bool {
        matches!(self, Self::At(_))
    }
}

/// The limits of a whole sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Memory, without swap.
    pub memory: Limit<ByteSize>,
    /// Processors, as a number that may have a fraction. The default is all of the host's.
    pub cpus: Limit<f64>,
    /// Processes and threads.
    pub pids: Limit<u64>,
    /// What the guest's own files may take: the upper layer, or the private folders of a `host` guest. The default of what
    /// is kept is watched rather than enforced by a file system.
    pub disk: Limit<ByteSize>,
    /// What the logs of one job may take; the oldest part goes first.
    pub log: Limit<ByteSize>,
}

/// The documented defaults.
pub struct Defaults;

impl Defaults {
    /// Memory, where a cgroup can bound it.
    pub const MEMORY: ByteSize = ByteSize::gib(4);
    /// Processes and threads.
    pub const PIDS: u64 = 4096;
    /// The guest's own files.
    pub const DISK: ByteSize = ByteSize::gib(8);
    /// One job's log.
    pub const LOG: ByteSize = ByteSize::mib(16);
    /// A tmpfs mount without a size.
    pub const TMPFS: ByteSize = ByteSize::mib(64);
}

/// A POSIX limit by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rlimit {
    /// Which.
    pub name: RlimitName,
    /// What commands are held to; `u64::MAX` is no limit.
    pub soft: u64,
    /// How far they may raise it themselves.
    pub hard: u64,
}

/// The 16 POSIX limits of Linux, in the order of their numbers (x86-64 and AArch64).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are setrlimit(2)'s own")]
pub enum RlimitName {
    Cpu,
    Fsize,
    Data,
    Stack,
    Core,
    Rss,
    Nproc,
    Nofile,
    Memlock,
    As,
    Locks,
    Sigpending,
    Msgqueue,
    Nice,
    Rtprio,
    Rttime,
}

impl RlimitName {
    /// All 16, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Cpu,
        Self::Fsize,
        Self::Data,
        Self::Stack,
        Self::Core,
        Self::Rss,
        Self::Nproc,
        Self::Nofile,
        Self::Memlock,
        Self::As,
        Self::Locks,
        Self::Sigpending,
        Self::Msgqueue,
        Self::Nice,
        Self::Rtprio,
        Self::Rttime,
    ];

    /// The name as `ulimit`-like tools write it.
    pub const fn as_str(self) -> &'static str {
        [
            "cpu",
            "fsize",
            "data",
            "stack",
            "core",
            "rss",
            "nproc",
            "nofile",
            "memlock",
            "as",
            "locks",
            "sigpending",
            "msgqueue",
            "nice",
            "rtprio",
            "rttime",
        ][self as usize]
    }
}

/// No such limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is not a resource limit: the names are cpu, fsize, data, stack, core, rss, nproc, nofile, memlock, as, \
         locks, sigpending, msgqueue, nice, rtprio and rttime",
    quoted(.0)
)]
pub struct UnknownRlimit(pub String);

impl FromStr for RlimitName {
    type Err = UnknownRlimit;
    fn from_str(text: &str) -> Result<Self, UnknownRlimit> {
        Self::ALL
            .into_iter()
            .find(|n| n.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownRlimit(text.to_owned()))
    }
}
