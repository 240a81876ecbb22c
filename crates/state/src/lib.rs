//! What sandboxes should exist, and whether they live.
//!
//! Two kinds of truth, kept apart:
//!
//! * The **catalogue** (SQLite) says what *should* exist: names, specs, labels, history. Only keeper processes write
//!   to it, each only about the sandbox whose lock it holds.
//!   Sandboxes that end with their creator and have no name of their own never get that far: their folder says it.
//! * **Liveness** is asked, never stored: a keeper holds one byte of the lock file for as long as it lives
//!   ([`Liveness`]), and the phase record beside it ([`PhaseRecord`]) says how far it has come. [`SandboxStatus`] is
//!   computed from the two whenever somebody looks.
//!
//! Looking ([`Reader`]) creates and changes nothing, not even on a machine where nothing was ever created.

mod catalogue;
mod error;
mod folders;
pub mod joblog;
mod lookup;
mod passing;
mod phase;
mod reader;
mod records;
mod schema;
mod slots;
mod status;

pub use catalogue::{Catalogue, NewSandbox, Reserved};
pub use error::StateError;
pub use folders::{make_private, prepare_home, prepare_runtime, replace_file};
pub use lookup::{Filter, Found, Page, RunRow, SandboxRow};
pub use passing::{enter_passing, is_passing, is_passing_dir, take_passing_slot};
pub use phase::{PHASE_VERSION, Phase, PhaseRecord};
pub use reader::Reader;
pub use records::{clear_run, read_run, write_run};
pub use slots::{SLOT_SIZE, first_id};
pub use status::{Liveness, SandboxStatus, UnknownStatus, crash_reason};
