//! A guest that runs.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

pub use cosm_proto::keeper::GuestUsage;
use serde::{Deserialize, Serialize};

use crate::record::IdMap;

/// A running guest, as its keeper holds it.
pub trait Guest {
    /// Ends it now. Idempotent.
    ///
    /// # Errors
    /// What the system said, when the guest may still be there.
    fn kill(&mut self) -> std::io::Result<()>;

    /// Waits for its end and removes what the run had outside the sandbox's folder. Cancel-safe.
    fn wait(&mut self) -> impl Future<Output = GuestExit>;

    /// What it uses and has used, as the host counts.
    fn usage(&self) -> GuestUsage;

    /// Stops or resumes all its processes.
    ///
    /// # Errors
    /// `Unsupported` where the capabilities say so.
    fn freeze(&mut self, frozen: bool) -> std::io::Result<()>;

    /// Counts how much of the disk its own files take: what lies in `folder`, to which guests of this map write, and what
    /// it has removed but still open. For no longer than about `time`. The future may be dropped at any time.
    fn measure(
        &self,
        folder: PathBuf,
        ids: Option<IdMap>,
        time: Duration,
    ) -> impl Future<Output = std::io::Result<Measured>> + 'static;
}

/// How much of the disk something takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// What was found, bytes.
    pub bytes: u64,
    /// That is all of it: nothing was closed, moved meanwhile, or left when the time was over.
    pub whole: bool,
}

/// How a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestExit {
    /// Process 1's code, if it returned.
    pub code: Option<i32>,
    /// The signal that ended process 1.
    pub signal: Option<i32>,
    /// The kernel killed in it for want of memory.
    pub oom: bool,
    /// What it used.
    pub usage: GuestUsage,
}
