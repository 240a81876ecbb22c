//! Memory, as /proc tells it.

use std::collections::HashMap;
use std::fs;

/// The processes below a process, with their names.
pub(crate) fn below(root: u32) -> Vec<(u32, String)> {
    let mut children: HashMap<u32, Vec<(u32, String)>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let Some((head, tail)) = stat.rsplit_once(')') else {
            continue;
        };
        let name = head
            .split_once('(')
            .map(|(_, name)| name.to_owned())
            .unwrap_or_default();
        let mut fields = tail.split_whitespace();
        // Keepers that have ended become this program's to reap, and use nothing.
        if fields.next() == Some("Z") {
            continue;
        }
        if let Some(parent) = fields.next().and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push((pid, name));
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for child in children.remove(&pid).into_iter().flatten() {
            next.push(child.0);
            found.push(child);
        }
    }
    found
}

/// A process's proportional share of memory, in KiB.
pub(crate) fn pss_kib(pid: u32) -> Option<u64> {
    field(
        &fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?,
        "Pss:",
    )
}

/// The most memory that a process ever had, in KiB.
pub(crate) fn peak_kib(pid: u32) -> Option<u64> {
    field(
        &fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        "VmHWM:",
    )
}

/// A line of /proc/meminfo, in KiB.
pub(crate) fn meminfo_kib(name: &str) -> u64 {
    fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| field(&text, name))
        .unwrap_or(0)
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
}
