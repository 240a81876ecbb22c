//! A guest that runs.

use std::future::Future;

pub use cosm_proto::keeper::GuestUsage;
use serde::{Deserialize, Serialize};

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
