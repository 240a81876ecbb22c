//! What `/proc` says of processes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The fields of `/proc/<pid>/stat` that are asked for here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    /// `R`, `S`, `D`, `Z` (ended but not reaped), `T`, ...
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// Clock ticks after boot at which it started: with the pid, a process's name for as long as the machine runs.
    pub start_time: u64,
    /// Clock ticks of processor time, its own and that of children that were waited for.
    pub cpu_ticks: u64,
    pub threads: u64,
    /// Pages in memory.
    pub resident_pages: u64,
}

/// Reads a file of `/proc` or `/sys`. Its length is not known before, and each read makes the kernel write it anew: with
/// room from the start one is enough.
///
/// # Errors
/// It can't be read, or is not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::with_capacity(4096);
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// What a process and its descendants use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeUsage {
    /// Processor time, microseconds.
    pub cpu_us: u64,
    /// Memory, bytes; what several share is counted for each.
    pub resident: u64,
    pub threads: u64,
}

/// The descendants of a process, as far as they are there while this looks.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut left = vec![pid];
    while let Some(pid) = left.pop() {
        // Each thread has the children that it made itself.
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let text = read_text(thread.path().join("children")).unwrap_or_default();
            let children = text
                .split_ascii_whitespace()
                .filter_map(|n| n.parse::<i32>().ok());
            left.extend(children.clone());
            found.extend(children);
        }
    }
    found
}

/// Sums up a process and its descendants.
///
/// # Errors
/// There is no such process.
pub fn tree(pid: i32) -> io::Result<TreeUsage> {
    let first = stat(pid)?;
    // A descendant that ended meanwhile is in its parent's account.
    let below = descendants(pid)
        .into_iter()
        .filter_map(|pid| stat(pid).ok());
    let (mut ticks, mut pages, mut threads) = (0, 0, 0);
    for found in std::iter::once(first).chain(below) {
        ticks += found.cpu_ticks;
        pages += found.resident_pages;
        threads += found.threads;
    }
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(TreeUsage {
        cpu_us: ticks * 1_000_000 / per_second,
        resident: pages * rustix::param::page_size() as u64,
        threads,
    })
}

/// Reads the text of a `stat` file. The program's name in it may hold any byte, also `)` and newlines.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let pid = std::str::from_utf8(text.get(..open)?)
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse().ok();
    let wide = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start_time: wide(19)?,
        cpu_ticks: (11..15).map(wide).sum::<Option<u64>>()?,
        threads: wide(17)?,
        resident_pages: wide(21)?,
    })
}

/// What `/proc` says of a process.
///
/// # Errors
/// There is no such process (`ENOENT`, `ESRCH`).
pub fn stat(pid: i32) -> io::Result<Stat> {
    let mut text = Vec::with_capacity(1024);
    File::open(format!("/proc/{pid}/stat"))?.read_to_end(&mut text)?;
    parse_stat(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The inode number that names a namespace of a process: `kind` is `pid`, `user`, `mnt`, ...
///
/// # Errors
/// There is no such process or namespace, or it may not be looked at.
pub fn namespace(pid: i32, kind: &str) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(format!("/proc/{pid}/ns/{kind}"))?.ino())
}

/// The pids of all processes that `/proc` shows.
///
/// # Errors
/// `/proc` cannot be read.
pub fn pids() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        if let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            pids.push(pid);
        }
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_fields() {
        let mut text = b"42 (x) S 1 (\n) R 7 8 9".to_vec();
        for n in 0..60 {
            text.extend_from_slice(format!(" {n}").as_bytes());
        }
        let stat = parse_stat(&text).expect("a stat line");
        assert_eq!(
            (stat.pid, stat.state, stat.parent, stat.group, stat.session),
            (42, b'R', 7, 8, 9)
        );
        assert_eq!(stat.start_time, 15);
        assert_eq!(parse_stat(b"42 (x"), None);
        assert_eq!(parse_stat(b")("), None);
    }

    #[test]
    fn this_process() {
        let me = std::process::id() as i32;
        let stat = stat(me).expect("stat");
        assert_eq!(stat.pid, me);
        assert!(stat.start_time > 0);
        let tree = tree(me).expect("tree");
        assert!(tree.threads > 0 && tree.resident > 0);
        assert!(namespace(me, "pid").expect("namespace") > 0);
        assert!(pids().expect("pids").contains(&me));
    }
}
