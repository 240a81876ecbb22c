//! The first version: a hierarchy for each controller or for a few.

pub mod block;
pub mod cpu;
pub mod freezer;
pub mod memory;
pub mod pids;
