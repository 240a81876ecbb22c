//! Processes.

use std::io;
use std::path::Path;

use super::super::{number, set};

/// Bounds processes and threads.
///
/// # Errors
/// The kernel's.
pub fn limit(group: &Path, count: u64) -> io::Result<()> {
    set(group, "pids.max", &count.to_string())
}

/// How many there are.
pub fn count(group: &Path) -> Option<u64> {
    number(group, "pids.current")
}
