//! The one room with unsafe: namespaces, mounts, processes, cgroups, seccomp, Landlock.
//!
//! Safe functions over system calls, for the rooms above. Functions that are meant for a child between `clone3` and
//! `exec` take `&CStr` and descriptors and do not allocate.

pub mod caps;
pub mod cgroup;
pub mod idmap;
pub mod inherit;
pub mod landlock;
pub mod lock;
pub mod loopback;
pub mod memfd;
pub mod mount;
pub mod net;
pub mod process;
pub mod procfs;
pub mod pty;
mod raw;
pub mod scm;
pub mod seccomp;
pub mod spawn;

pub use rustix::io::Errno;
