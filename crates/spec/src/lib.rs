//! What a user may ask of a sandbox, and [`check`](SandboxSpec::check), which finds illegal combinations before
//! anything starts.
//!
//! A spec is data: it is stored with the sandbox, and a stopped sandbox starts again from it.

mod check;
mod mount;
mod resources;
mod sandbox;

pub use check::{Problem, Problems};
pub use mount::{Device, Mount, MountSource};
pub use resources::{Defaults, Limit, Resources, Rlimit, RlimitName, UnknownRlimit};
pub use sandbox::{
    IdMode, ImageSource, Isolation, Lifetime, NetMode, Profile, SPEC_VERSION, SandboxSpec,
    StoredSpecError, Timeouts,
};
