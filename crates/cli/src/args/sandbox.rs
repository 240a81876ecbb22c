//! Arguments that say what a sandbox is; `run` and `create` share them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cosm_base::units::ByteSize;
use cosm_base::{ByteString, SandboxName};
use cosm_spec::{Device, IdMode, Isolation, Limit, Mount, NetMode, Profile, Rlimit};

use super::parse;

/// What a sandbox is.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Its name: letters, digits, '.', '_' and '-'. Default: one is made up.
    #[arg(long, value_name = "NAME", value_parser = parse::name)]
    pub(crate) name: Option<SandboxName>,
    /// If the name is taken, put this sandbox in its place; the old one has GRACE to end (default 10s).
    #[arg(long, value_name = "GRACE", num_args = 0..=1, require_equals = true, default_missing_value = "10s",
        value_parser = parse::duration)]
    pub(crate) replace: Option<Duration>,
    /// A file with settings (YAML); what is given here wins over it.
    #[arg(long, value_name = "FILE")]
    pub(crate) conf: Option<PathBuf>,
    /// A label, KEY=VALUE.
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = parse::label)]
    pub(crate) label: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) mounts: MountArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Host name in the sandbox.
    #[arg(long, value_name = "NAME", help_heading = "Guest")]
    pub(crate) hostname: Option<String>,
    /// The shell that runs scripts. Default /bin/sh.
    #[arg(long, value_name = "PATH", help_heading = "Guest")]
    pub(crate) shell: Option<OsString>,
    /// An executable on PATH in the sandbox, from a file here.
    #[arg(long, value_name = "NAME=FILE", help_heading = "Guest", value_parser = parse::os(parse::script))]
    pub(crate) script: Vec<(String, PathBuf)>,
    /// Network: none (loopback only, the default) or host (the host's own, unfiltered).
    #[arg(long, value_enum, help_heading = "Isolation")]
    pub(crate) net: Option<NetArg>,
    /// What root in the sandbox may do: default, or restricted (no capabilities, no setuid, read-only root).
    #[arg(long, value_enum, help_heading = "Isolation")]
    pub(crate) profile: Option<ProfileArg>,
    /// How it is kept apart: auto (the strongest that works here) or namespaces.
    #[arg(long, value_enum, help_heading = "Isolation")]
    pub(crate) isolation: Option<IsolationArg>,
    /// How many user ids it has: auto, single or range.
    #[arg(long, value_enum, help_heading = "Isolation")]
    pub(crate) ids: Option<IdsArg>,
    /// Allow io_uring, which gets around the system call filter.
    #[arg(long, help_heading = "Isolation")]
    pub(crate) io_uring: bool,
}

/// What a process is run with; `exec` has these too.
#[derive(Debug, Args)]
pub(crate) struct ProcessArgs {
    /// An environment variable: NAME=VALUE, or NAME to pass on this program's.
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = parse::os(parse::env))]
    pub(crate) env: Vec<(ByteString, Option<ByteString>)>,
    /// A file of NAME=VALUE lines; '#' begins a comment.
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Working directory.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) workdir: Option<OsString>,
    /// User: name, id, name:group or id:id. Default: root.
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// A POSIX limit, NAME=SOFT or NAME=SOFT:HARD, where NAME is cpu, fsize, data, stack, core, rss, nproc, nofile, memlock, as, locks,
    /// sigpending, msgqueue, nice, rtprio or rttime; `unlimited` is a value.
    #[arg(long, value_name = "NAME=SOFT[:HARD]", value_parser = parse::rlimit)]
    pub(crate) rlimit: Vec<Rlimit>,
}

/// What of the host a sandbox sees.
#[derive(Debug, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct MountArgs {
    /// Mount the current folder at its own path and work there: read-only, or writable with --here=rw.
    #[arg(long, value_enum, value_name = "ro|rw", num_args = 0..=1, require_equals = true, default_missing_value = "ro")]
    pub(crate) here: Option<AccessArg>,
    /// Mount a file or folder: PATH, SRC:DST or SRC:DST:rw. Read-only unless rw is said.
    #[arg(short = 'v', long = "mount", visible_alias = "volume", value_name = "SRC[:DST[:ro|rw]]",
        value_parser = parse::os(parse::mount))]
    pub(crate) mount: Vec<MountArg>,
    /// Mount memory: PATH or PATH:SIZE, 64m by default.
    #[arg(long, value_name = "PATH[:SIZE]", value_parser = parse::os(parse::tmpfs))]
    pub(crate) tmpfs: Vec<Mount>,
    /// Mount a prefix such as ~/.pyenv/versions/3.12 read-only at its own place, with its bin on PATH.
    #[arg(long, value_name = "PATH")]
    pub(crate) mount_prefix: Vec<PathBuf>,
    /// Let it open a device: /dev/SRC[:/dev/DST].
    #[arg(long, value_name = "SRC[:DST]", value_parser = parse::os(parse::device))]
    pub(crate) device: Vec<Device>,
}

/// What a sandbox may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory, without swap: 512m, 2g, unlimited. Default 4g where the host can bound it.
    #[arg(long, value_name = "SIZE", value_parser = parse::size_limit)]
    pub(crate) memory: Option<Limit<ByteSize>>,
    /// Processors: 2, 0.5, unlimited (the default).
    #[arg(long, value_name = "N", value_parser = parse::cpu_limit)]
    pub(crate) cpus: Option<Limit<f64>>,
    /// Processes and threads: a number or unlimited. Default 4096.
    #[arg(long, value_name = "N", value_parser = parse::count_limit)]
    pub(crate) pids: Option<Limit<u64>>,
    /// Disk for the sandbox's own files: 2g, unlimited. Default 8g where the host can bound it.
    #[arg(long, value_name = "SIZE", value_parser = parse::size_limit)]
    pub(crate) disk: Option<Limit<ByteSize>>,
    /// Log kept of each job: 64m, unlimited. Default 16m.
    #[arg(long, value_name = "SIZE", value_parser = parse::size_limit)]
    pub(crate) log_size: Option<Limit<ByteSize>>,
    /// Stop the sandbox after this long.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) max_duration: Option<Duration>,
    /// Stop it after this long without a command, job or transfer.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Between asking it to stop and killing it. Default 10s; 0 kills at once.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) stop_timeout: Option<Duration>,
}

/// A mount as written: source and target still relative to where the program was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountArg {
    /// On the host.
    pub(crate) source: PathBuf,
    /// In the guest; `None` is the source's own place.
    pub(crate) target: Option<ByteString>,
    /// The guest can't write.
    pub(crate) read_only: bool,
}

/// Whether something may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessArg {
    Ro,
    Rw,
}

/// See [`NetMode`].
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum NetArg {
    None,
    Host,
}

impl From<NetArg> for NetMode {
    fn from(net: NetArg) -> Self {
        match net {
            NetArg::None => Self::None,
            NetArg::Host => Self::Host,
        }
    }
}

/// See [`Profile`].
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ProfileArg {
    Default,
    Restricted,
}

impl From<ProfileArg> for Profile {
    fn from(profile: ProfileArg) -> Self {
        match profile {
            ProfileArg::Default => Self::Default,
            ProfileArg::Restricted => Self::Restricted,
        }
    }
}

/// See [`Isolation`].
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum IsolationArg {
    Auto,
    Namespaces,
}

impl From<IsolationArg> for Isolation {
    fn from(isolation: IsolationArg) -> Self {
        match isolation {
            IsolationArg::Auto => Self::Auto,
            IsolationArg::Namespaces => Self::Namespaces,
        }
    }
}

/// See [`IdMode`].
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum IdsArg {
    Auto,
    Single,
    Range,
}

impl From<IdsArg> for IdMode {
    fn from(ids: IdsArg) -> Self {
        match ids {
            IdsArg::Auto => Self::Auto,
            IdsArg::Single => Self::Single,
            IdsArg::Range => Self::Range,
        }
    }
}
