//! The spec of one sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use cosm_base::{ByteString, SandboxName};
use serde::{Deserialize, Serialize};

use crate::mount::{Device, Mount};
use crate::resources::{Resources, Rlimit};

/// The version of a stored spec.
pub const SPEC_VERSION: u32 = 1;

/// Everything a user may ask of a sandbox. [`Default`] is a leased, unnamed sandbox of the host's own programs
/// without a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSpec {
    /// The stored format's version, [`SPEC_VERSION`].
    pub version: u32,
    /// The name; `None` gets one made up.
    pub name: Option<SandboxName>,
    /// Where the root file system comes from.
    pub image: ImageSource,
    /// The main command, which runs as the job `main`; `None` is a sandbox that only waits for commands.
    pub command: Option<Vec<ByteString>>,
    /// Whether the main command gets a terminal.
    pub tty: bool,
    /// Added to the guest's environment, in order; a later one wins.
    pub env: Vec<(ByteString, ByteString)>,
    /// Scripts by name; each is an executable file in a read-only folder that comes first on the guest's PATH.
    pub scripts: BTreeMap<String, String>,
    /// The working directory in the guest; `None` is `/`.
    pub workdir: Option<ByteString>,
    /// The user in the guest, `name|id[:group|:id]`, resolved in the guest's own files; `None` is root.
    pub user: Option<String>,
    /// The guest's host name; `None` is the sandbox's id.
    pub hostname: Option<String>,
    /// The shell that runs scripts; `None` is `/bin/sh`.
    pub shell: Option<ByteString>,
    /// Mounts, in any order: parents are mounted first.
    pub mounts: Vec<Mount>,
    /// Device nodes of the host that the guest may open.
    pub devices: Vec<Device>,
    /// Labels, which select sandboxes in lists.
    pub labels: BTreeMap<String, String>,
    /// What the guest may use.
    pub resources: Resources,
    /// POSIX limits of every command.
    pub rlimits: Vec<Rlimit>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The signal that asks the main command to end; `None` is TERM (15).
    pub stop_signal: Option<i32>,
    /// What the sandbox's life hangs on.
    pub lifetime: Lifetime,
    /// Remove the sandbox once it has stopped.
    pub remove_on_exit: bool,
    /// How the guest is kept apart from the host.
    pub isolation: Isolation,
    /// What of a network the guest gets.
    pub net: NetMode,
    /// How much the guest's root may do.
    pub profile: Profile,
    /// How many ids the guest has.
    pub ids: IdMode,
    /// Allow `io_uring`, which gets around system call filters and is refused unless asked for.
    pub io_uring: bool,
    /// Prefixes of the host mounted read-only at their own place with their `bin` on the guest's PATH.
    pub prefixes: Vec<ByteString>,
}

impl Default for SandboxSpec {
    fn default() -> Self {
        Self {
            version: SPEC_VERSION,
            name: None,
            image: ImageSource::Host,
            command: None,
            tty: false,
            env: Vec::new(),
            scripts: BTreeMap::new(),
            workdir: None,
            user: None,
            hostname: None,
            shell: None,
            mounts: Vec::new(),
            devices: Vec::new(),
            labels: BTreeMap::new(),
            resources: Resources::default(),
            rlimits: Vec::new(),
            timeouts: Timeouts::default(),
            stop_signal: None,
            lifetime: Lifetime::Leased,
            remove_on_exit: false,
            isolation: Isolation::Auto,
            net: NetMode::None,
            profile: Profile::Default,
            ids: IdMode::Auto,
            io_uring: false,
            prefixes: Vec::new(),
        }
    }
}

/// Why a stored spec can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoredSpecError {
    /// A newer program wrote it.
    #[error(
        "this sandbox's spec has format {found}, and this program knows up to {SPEC_VERSION}: use the newer cosm"
    )]
    Newer {
        /// The version found.
        found: u32,
    },
    /// It is damaged.
    #[error("this sandbox's stored spec can't be read")]
    Damaged(#[source] serde_json::Error),
}

impl SandboxSpec {
    /// The stored form.
    pub fn to_stored(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a spec holds nothing that JSON can't")
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`StoredSpecError`] when a newer program wrote it, or it is damaged.
    pub fn from_stored(bytes: &[u8]) -> Result<Self, StoredSpecError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } =
            serde_json::from_slice(bytes).map_err(StoredSpecError::Damaged)?;
        if version > SPEC_VERSION {
            return Err(StoredSpecError::Newer { found: version });
        }
        serde_json::from_slice(bytes).map_err(StoredSpecError::Damaged)
    }
}

/// Where a root file system comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImageSource {
    /// The host's own programs, read-only, and nothing of its users' files.
    #[default]
    Host,
    /// A folder on the host (absolute), copied on write and never changed.
    Folder(ByteString),
}

/// What a sandbox's life hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// It ends with the process that created it.
    #[default]
    Leased,
    /// It lives until it is stopped.
    Persistent,
}

/// How the guest is kept apart from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// The strongest that works here.
    #[default]
    Auto,
    /// Linux namespaces.
    Namespaces,
}

/// What of a network the guest gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetMode {
    /// A loopback interface of its own.
    #[default]
    None,
    /// The host's network, unfiltered.
    Host,
}

/// How much the guest's root may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// What a container's root commonly may: install packages into an image, ping, trace its own.
    #[default]
    Default,
    /// No capabilities at all, no setuid, a read-only root.
    Restricted,
}

/// How many ids the guest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdMode {
    /// A range where it is needed and there is one, else one.
    #[default]
    Auto,
    /// Just one.
    Single,
    /// A range; an error where there is none.
    Range,
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// From start to the agent's answer. Default 30 s.
    pub boot: Duration,
    /// Between asking the guest to stop and killing it. Default 10 s; 0 kills at once.
    pub stop: Duration,
    /// The longest a run may last. Default: no limit.
    pub max_duration: Option<Duration>,
    /// Stop after this long without an open command, job or transfer. Default: never.
    pub idle: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(30),
            stop: Duration::from_secs(10),
            max_duration: None,
            idle: None,
        }
    }
}
