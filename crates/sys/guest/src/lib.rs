//! The guest side of the system room: what the agent needs from the kernel and rustix does not give.
//!
//! The agent is a program without std and without libc, so that it runs in any root file system and builds where no
//! static libc is installed. With the feature `start` this crate also brings what such a program starts from.
//!
//! Every function here is for a process with one thread.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod fd;
mod kernel;
mod process;
mod signal;
#[cfg(any(feature = "start", test))]
mod start;

pub use fd::{close, close_from, inherited, place};
pub use process::{CString, Fork, Reaped, Usage, execve, exit, fork, wait};
pub use signal::{
    block_all, default_all, ignore_child_exits, notice_child_exits, send, signalfd, unblock_all,
};

/// Numbers of signals that the agent speaks of.
pub mod signals {
    /// Ends a process, whatever it says.
    pub const KILL: i32 = 9;
    /// Stops a process, whatever it says.
    pub const STOP: i32 = 19;
    /// Tells a parent that a child ended.
    pub const CHILD: i32 = 17;
}
