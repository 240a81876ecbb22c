//! The second version: one hierarchy for all.

pub mod block;
pub mod cpu;
pub mod freezer;
pub mod memory;
pub mod pids;

use std::io;
use std::path::Path;

/// The controllers that bound and measure a guest.
pub const CONTROLLERS: [&str; 4] = ["cpu", "io", "memory", "pids"];

/// Makes controllers available to the groups below one, as many of [`CONTROLLERS`] as there are.
///
/// # Errors
/// `EBUSY` where the group has processes of its own, `EACCES` without the right.
pub fn delegate_controllers(group: &Path) -> io::Result<()> {
    let there = super::get(group, "cgroup.controllers")?;
    let wanted = CONTROLLERS
        .iter()
        .filter(|c| there.split_ascii_whitespace().any(|t| t == **c));
    let line: Vec<String> = wanted.map(|c| format!("+{c}")).collect();
    if line.is_empty() {
        Ok(())
    } else {
        super::set(group, "cgroup.subtree_control", &line.join(" "))
    }
}

/// Whether a controller works in a group.
pub fn has(group: &Path, controller: &str) -> bool {
    super::get(group, "cgroup.controllers")
        .is_ok_and(|text| text.split_ascii_whitespace().any(|c| c == controller))
}
