//! Stopping and resuming.

use std::io;
use std::path::Path;

use super::super::set;

/// Stops or resumes all processes of a group. Stopping is asked for; it is done a little later.
///
/// # Errors
/// The kernel's.
pub fn freeze(group: &Path, frozen: bool) -> io::Result<()> {
    set(group, "cgroup.freeze", if frozen { "1" } else { "0" })
}
