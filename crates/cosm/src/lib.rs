//! Sandboxes for code nobody trusts.
//!
//! ```no_run
//! # async fn example() -> cosm::Result<()> {
//! use cosm::{Host, HostConfig, Sandbox};
//!
//! let host = Host::open(HostConfig {
//!     home: "/home/me/.local/share/cosm".into(),
//!     runtime_dir: "/run/user/1000/cosm".into(),
//!     program: "/usr/local/bin/cosm".into(),
//!     ids: None,
//!     spare: None,
//! })?;
//! let sandbox = Sandbox::builder(&host, "box").memory("512m").create().await?;
//! let output = sandbox.exec("uname", ["-a"]).await?;
//! println!("{}", output.stdout_text());
//! # Ok(())
//! # }
//! ```
//!
//! There is no daemon and no ambient state: a [`Host`] is a state folder, a folder for sockets and the `cosm` program,
//! which is started as the keeper of each sandbox. A sandbox ends with the value that created it, or with the process;
//! [`SandboxBuilder::persistent`] lets it live on. Everything needs a tokio runtime with I/O and time enabled.
//!
//! What this crate may use of `cosm-sys` is what starts keepers: `spawn`, `process`, `memfd` and `scm`.

mod builder;
mod catalogue;
mod control;
mod error;
mod exec;
mod files;
mod host;
mod jobs;
mod launch;
mod list;
mod logs;
mod look;
mod removal;
mod sandbox;
mod spare;
mod status;
mod wire;

pub use builder::SandboxBuilder;
pub use cosm_agent_client::AgentError;
pub use cosm_base::{ByteString, SandboxId, SandboxName};
pub use cosm_proto::agent::{SpawnFailure, SpawnReason};
pub use cosm_proto::keeper::{
    EndReason, EndReport, GuestUsage, IdSlots, ReadyReport, StatusReport,
};
pub use cosm_spec as spec;
pub use cosm_spec::{Rlimit, RlimitName, SandboxSpec};
pub use cosm_state::{SandboxStatus, UnknownStatus};
pub use error::{BootFailure, Error, ErrorKind, Fault, Result};
pub use exec::{
    DEFAULT_CAP, ExecEnd, ExecEvent, ExecHandle, ExecOptions, ExecOutput, ExecPipes, ExecSignals,
    ExecStatus, ExecStdin, ExitReport, ExitStatus, Usage, UsageSource,
};
pub use files::{
    Change, ChangeKind, FileKind, Fs, FsEntry, FsReadStream, FsWatch, FsWriteSink, TreeLimits,
    TreeReport, WriteOptions,
};
pub use host::{Host, HostConfig};
pub use jobs::{AttachOptions, JobEvent, JobInput, JobOutput, JobReport, JobView, Jobs, MAIN_JOB};
pub use list::{Filter, Page};
pub use logs::{LogOptions, LogPiece, LogStream, Logs};
pub use sandbox::{EndWatch, Sandbox};
pub use spare::SpareKeeper;
pub use status::SandboxHandle;
