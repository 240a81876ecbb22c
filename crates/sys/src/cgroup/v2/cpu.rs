//! Processors.

use std::io;
use std::path::Path;

use super::super::{keyed, set};

/// Microseconds in which a group may use its share.
const PERIOD: f64 = 100_000.0;

/// Bounds the processors that may be used at once, on average over a tenth of a second.
///
/// # Errors
/// The kernel's: less than a hundredth of a processor can't be had.
pub fn limit(group: &Path, cpus: f64) -> io::Result<()> {
    set(
        group,
        "cpu.max",
        &format!("{:.0} {PERIOD:.0}", (PERIOD * cpus).max(1000.0)),
    )
}

/// Processor time used, microseconds.
pub fn used(group: &Path) -> Option<u64> {
    keyed(group, "cpu.stat", "usage_usec")
}
