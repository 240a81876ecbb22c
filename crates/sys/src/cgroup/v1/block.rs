//! Block devices.

use std::path::Path;

use super::super::{BlockUsage, get};

/// What was moved, as far as the kernel counts it (v1 misses what is written back later).
pub fn usage(group: &Path) -> BlockUsage {
    let Ok(text) = get(group, "blkio.throttle.io_service_bytes") else {
        return BlockUsage::default();
    };
    let sum = |kind: &str| {
        let values = text.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            (fields.next() == Some(kind)).then(|| fields.next()?.parse::<u64>().ok())?
        });
        Some(values.sum())
    };
    BlockUsage {
        read: sum("Read"),
        written: sum("Write"),
    }
}
