//! Jobs: commands that the keeper runs as a client of the agent, so that they outlive whoever started them.
//!
//! A job's output goes to its log, to a ring of its last 256 KiB, and to its viewers. Viewers come and go.

mod feed;
mod run;
mod table;
mod viewer;

pub(crate) use table::{Jobs, MAIN};
pub(crate) use viewer::{Wish, run, view};

use std::rc::Rc;

/// A piece of output, shared by all who show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) stderr: bool,
    pub(crate) bytes: Rc<[u8]>,
}
