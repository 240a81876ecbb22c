//! Block devices.

use std::path::Path;

use super::super::{BlockUsage, get};

/// What was moved.
pub fn usage(group: &Path) -> BlockUsage {
    let Ok(text) = get(group, "io.stat") else {
        return BlockUsage::default();
    };
    let sum = |key: &str| {
        Some(
            text.split_ascii_whitespace()
                .filter_map(|f| f.strip_prefix(key)?.parse::<u64>().ok())
                .sum(),
        )
    };
    BlockUsage {
        read: sum("rbytes="),
        written: sum("wbytes="),
    }
}
