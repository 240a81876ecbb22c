//! Ids, names, units, redaction, error kinds, exit codes and the layout of the state folder.
//!
//! Everything here is a value or a pure function: this room reads no file, no clock and no environment.

pub mod bytes;
pub mod exit;
pub mod id;
pub mod kind;
pub mod layout;
pub mod name;
pub mod text;
pub mod units;

pub use bytes::ByteString;
pub use id::{RunId, SandboxId};
pub use kind::ErrorKind;
pub use layout::{Home, RuntimeDir, SandboxDir};
pub use name::SandboxName;
