//! The guest's process 1.
//!
//! It accepts connections and does nothing else: each gets a process of its own, the *handler*, which reads the
//! request, does it and ends. The kernel reaps handlers. A handler that runs a command is the command's only parent:
//! it takes in orphans, holds the time-out, and ends the whole tree when that is over or the host goes away.
//!
//! The agent is assumed taken by the guest's root, so nothing here protects the guest from itself. It protects the
//! guest's owner from surprises: no request, however broken, ends process 1.
//!
//! The program has neither std nor libc and one thread per process. It starts with a listening socket as descriptor 3
//! and its [boot message](cosm_proto::agent::AgentBoot) as descriptor 4.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod boot;
mod clock;
mod exec;
mod files;
mod handler;
mod link;
mod procs;
mod server;
mod system;
mod text;

/// The program: serves until the guest ends. Answers an exit code if it can't begin.
pub fn main() -> i32 {
    match boot::Guest::inherit() {
        Ok((guest, listener)) => server::serve(&guest, listener),
        Err(errno) => errno.raw_os_error(),
    }
}
