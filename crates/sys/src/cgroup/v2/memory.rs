//! Memory.

use std::io;
use std::path::Path;

use super::super::{MemoryUsage, keyed, number, set};

/// Bounds memory, without swap: what does not fit kills.
///
/// # Errors
/// The kernel's.
pub fn limit(group: &Path, bytes: u64) -> io::Result<()> {
    set(group, "memory.max", &bytes.to_string())?;
    if group.join("memory.swap.max").exists() {
        set(group, "memory.swap.max", "0")?;
    }
    Ok(())
}

/// What it uses.
pub fn usage(group: &Path) -> MemoryUsage {
    MemoryUsage {
        now: number(group, "memory.current"),
        peak: number(group, "memory.peak"),
        oom_kills: keyed(group, "memory.events", "oom_kill"),
    }
}
