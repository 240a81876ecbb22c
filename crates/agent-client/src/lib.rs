//! The host end of the agent's protocol: the only place that reads the guest's frames.
//!
//! The guest is assumed hostile. Every byte from it is checked before it is used, silence is bounded by
//! [`Deadlines`], a command that is not seen to end is an error and never code 0, and no descriptor is ever taken from
//! it: whatever it attaches is closed by the kernel unseen.
//!
//! One operation is one connection. Dropping the value that stands for it closes the connection, which kills a
//! command that still runs.

mod client;
mod connect;
mod error;
pub mod exec;
pub mod files;
pub mod wire;

pub use client::{AgentClient, Deadlines};
pub use error::{AgentError, Violation};
pub use exec::{
    Collected, Collector, ExecControl, ExecEvent, ExecExit, ExecInput, ExecOutput, ExecPipes,
    ExecSession, ExecWait,
};
pub use files::{FileReader, FileWriter, Files, TreeLimits, TreeReport, Watch, WriteOptions};
