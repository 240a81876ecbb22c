//! The guest's processes, as `/proc` has them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawDir, open};
use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::text::{digits, number, proc_path};

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) zombie: bool,
    /// It was forked and has not executed a program since.
    pub(crate) forked_only: bool,
    /// User and system time, clock ticks.
    pub(crate) ticks: u64,
    /// Resident pages.
    pub(crate) pages: u64,
}

impl Stat {
    const FORKED_ONLY: u64 = 0x40;

    /// Reads a `stat` line. The second field is the program's name in parentheses, which may hold anything.
    fn parse(pid: u32, line: &[u8]) -> Option<Self> {
        let after = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = line[after + 1..]
            .split(|byte| byte.is_ascii_whitespace())
            .filter(|field| !field.is_empty());
        let state = fields.next()?;
        let rest: Vec<&[u8]> = fields.take(21).collect();
        // rest[0] is field 4.
        let large = |field: usize| rest.get(field - 4).and_then(|text| big(text));
        Some(Self {
            pid,
            parent: large(4)? as u32,
            zombie: matches!(state, b"Z" | b"X"),
            forked_only: large(9)? & Self::FORKED_ONLY != 0,
            ticks: large(14)?.saturating_add(large(15)?),
            pages: large(24)?,
        })
    }
}

pub(crate) fn big(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// How often the kernel killed a process for want of memory: in all of this machine, which is as much as it tells here.
pub(crate) fn oom_kills() -> Option<u64> {
    let mut text = Vec::new();
    read(b"/proc/vmstat", &mut text).ok()?;
    let line = text
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"oom_kill "))?;
    big(line)
}

/// Every process that can be seen.
pub(crate) fn all() -> Result<Vec<Stat>> {
    let mut found = Vec::new();
    let mut line = Vec::new();
    each_number(b"/proc", |pid| {
        if read(&proc_path(&[&digits(pid), b"stat"]), &mut line).is_ok()
            && let Some(stat) = Stat::parse(pid, &line)
        {
            found.push(stat);
        }
    })?;
    Ok(found)
}

/// Every living descendant of a process, itself not counted.
pub(crate) fn descendants(root: Pid) -> Result<Vec<Pid>> {
    let root = root.as_raw_nonzero().get() as u32;
    let found = match by_children(root) {
        Err(Errno::NOENT) => by_parents(root)?,
        other => other?,
    };
    Ok(found
        .into_iter()
        .filter_map(|pid| Pid::from_raw(pid as i32))
        .collect())
}

/// Down the `children` files, which cost only as much as the tree is large. Not every kernel has them.
fn by_children(root: u32) -> Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    children(root, &mut Vec::new())?;
    let mut open = Vec::from([root]);
    let mut line = Vec::new();
    while let Some(parent) = open.pop() {
        line.clear();
        match children(parent, &mut line) {
            // It ended meanwhile.
            Err(Errno::NOENT | Errno::SRCH) => continue,
            other => other?,
        }
        for pid in line.split(|byte| *byte == b' ').filter_map(number) {
            if found.insert(pid) {
                open.push(pid);
            }
        }
    }
    Ok(found)
}

fn children(parent: u32, line: &mut Vec<u8>) -> Result<()> {
    let parent = digits(parent);
    let mut failure = Ok(());
    let mut part = Vec::new();
    each_number(&proc_path(&[&parent, b"task"]), |thread| {
        match read(
            &proc_path(&[&parent, b"task", &digits(thread), b"children"]),
            &mut part,
        ) {
            Ok(()) => {
                line.push(b' ');
                line.extend_from_slice(&part);
            }
            Err(errno) => failure = Err(errno),
        }
    })?;
    failure
}

fn by_parents(root: u32) -> Result<BTreeSet<u32>> {
    Ok(tree_of(root, &all()?))
}

/// Who of these descends from `root`.
pub(crate) fn tree_of(root: u32, all: &[Stat]) -> BTreeSet<u32> {
    let mut pairs: Vec<(u32, u32)> = all.iter().map(|stat| (stat.parent, stat.pid)).collect();
    pairs.sort_unstable();
    let mut found = BTreeSet::new();
    let mut open = Vec::from([root]);
    while let Some(parent) = open.pop() {
        let first = pairs.partition_point(|pair| pair.0 < parent);
        for (_, pid) in pairs[first..].iter().take_while(|pair| pair.0 == parent) {
            if found.insert(*pid) {
                open.push(*pid);
            }
        }
    }
    found
}

/// Calls `visit` for each entry of a folder whose name is a number.
fn each_number(folder: &[u8], mut visit: impl FnMut(u32)) -> Result<()> {
    let folder = open(
        folder,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(folder, &mut space);
    while let Some(entry) = entries.next() {
        if let Some(number) = number(entry?.file_name().to_bytes()) {
            visit(number);
        }
    }
    Ok(())
}

/// Reads a whole small file into `bytes`.
pub(crate) fn read(path: &[u8], bytes: &mut Vec<u8>) -> Result<()> {
    let file: OwnedFd = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    read_open(&file, bytes)
}

/// Reads a small open file to its end into `bytes`.
pub(crate) fn read_open(file: &OwnedFd, bytes: &mut Vec<u8>) -> Result<()> {
    bytes.clear();
    loop {
        bytes.reserve(1024);
        if rustix::io::read(file, rustix::buffer::spare_capacity(bytes))? == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_trouble() {
        let line =
            b"42 (a) S 1 (b) Z 7 42 42 0 -1 4194368 1 2 3 4 50 60 7 8 20 0 1 0 99 1000 321 rest\n";
        let stat = Stat::parse(42, line).expect("it is a stat line");
        assert_eq!(
            stat,
            Stat {
                pid: 42,
                parent: 7,
                zombie: true,
                forked_only: true,
                ticks: 110,
                pages: 321
            }
        );
    }

    #[test]
    fn half_a_line_is_nothing() {
        assert_eq!(Stat::parse(1, b"1 (init) S 0 1 1"), None);
        assert_eq!(Stat::parse(1, b""), None);
    }

    #[test]
    fn both_ways_see_the_same_tree() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & (sleep 30 & wait) & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        std::io::Read::read(child.stdout.as_mut().expect("piped"), &mut [0]).expect("a line");
        let mut count = 0;
        // The inner shell may still be on its way to its own child.
        for _ in 0..200 {
            count = by_parents(child.id()).expect("/proc").len();
            if count == 3 {
                break;
            }
            std::thread::sleep(core::time::Duration::from_millis(10));
        }
        assert_eq!(count, 3);
        match by_children(child.id()) {
            Ok(found) => assert_eq!(found, by_parents(child.id()).expect("/proc")),
            Err(errno) => {
                std::eprintln!("skipped one half: this kernel has no `children` files ({errno})")
            }
        }
        for pid in by_parents(child.id()).expect("/proc") {
            let pid = Pid::from_raw(pid as i32).expect("not zero");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
        }
        child.wait().expect("wait");
    }
}
