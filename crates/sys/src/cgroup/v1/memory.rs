//! Memory.

use std::io;
use std::path::Path;

use super::super::{MemoryUsage, keyed, number, set};

/// Bounds memory, swap included: what does not fit is not swapped out, it kills.
///
/// # Errors
/// The kernel's. Where it does not count swap, only swapping out is asked off, which it may still do in need.
pub fn limit(group: &Path, bytes: u64) -> io::Result<()> {
    let value = bytes.to_string();
    set(group, "memory.limit_in_bytes", &value)?;
    if group.join("memory.memsw.limit_in_bytes").exists() {
        set(group, "memory.memsw.limit_in_bytes", &value)?;
    }
    set(group, "memory.swappiness", "0")
}

/// What it uses.
pub fn usage(group: &Path) -> MemoryUsage {
    MemoryUsage {
        now: number(group, "memory.usage_in_bytes"),
        peak: number(group, "memory.max_usage_in_bytes"),
        oom_kills: keyed(group, "memory.oom_control", "oom_kill"),
    }
}
