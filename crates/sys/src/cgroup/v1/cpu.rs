//! Processors.

use std::io;
use std::path::Path;

use super::super::{number, set};

/// Microseconds in which a group may use its share.
const PERIOD: f64 = 100_000.0;

/// Bounds the processors that may be used at once, on average over a tenth of a second.
///
/// # Errors
/// The kernel's: less than a hundredth of a processor can't be had.
pub fn limit(group: &Path, cpus: f64) -> io::Result<()> {
    set(group, "cpu.cfs_period_us", &format!("{PERIOD:.0}"))?;
    set(
        group,
        "cpu.cfs_quota_us",
        &format!("{:.0}", (PERIOD * cpus).max(1000.0)),
    )
}

/// Processor time used, microseconds. Of the `cpuacct` hierarchy.
pub fn used(group: &Path) -> Option<u64> {
    number(group, "cpuacct.usage").map(|nanoseconds| nanoseconds / 1000)
}
