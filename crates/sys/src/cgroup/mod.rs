//! Control groups: where they are on this machine, and their folders. One file per controller, v1 and v2 as twins.
//!
//! All layouts are met: v2 alone, v1 alone, and v1 with a v2 hierarchy beside it that has only some controllers (hybrid).

mod layout;
pub mod v1;
pub mod v2;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use layout::{Hierarchy, Layout, Version};

/// What a group's memory controller tells. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUsage {
    pub now: Option<u64>,
    pub peak: Option<u64>,
    /// Processes killed since the group was made because it was out of memory.
    pub oom_kills: Option<u64>,
}

/// What a group's processes moved from and to block devices. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockUsage {
    pub read: Option<u64>,
    pub written: Option<u64>,
}

/// Writes a value to a group's file, in one write.
///
/// # Errors
/// The kernel's, with the file's path.
pub fn set(group: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = group.join(file);
    let write = || {
        fs::OpenOptions::new()
            .write(true)
            .open(&path)?
            .write_all(value.as_bytes())
    };
    write().map_err(|e: io::Error| named(&path, e))
}

/// Reads a group's file.
///
/// # Errors
/// The kernel's, with the file's path.
pub fn get(group: &Path, file: &str) -> io::Result<String> {
    let path = group.join(file);
    fs::read_to_string(&path).map_err(|e| named(&path, e))
}

/// Keeps the error's kind and number visible to callers by its kind; the path is what a reader needs.
fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A number in a file; `max` is none.
fn number(group: &Path, file: &str) -> Option<u64> {
    get(group, file).ok()?.trim().parse().ok()
}

/// The number behind a key in a file of `key value` lines.
fn keyed(group: &Path, file: &str, key: &str) -> Option<u64> {
    find_key(&get(group, file).ok()?, key)
}

fn find_key(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

/// Moves a process into a group.
///
/// # Errors
/// `EBUSY` in v2 where the group has controllers for groups below it; `EACCES` without the right over both groups.
pub fn add(group: &Path, pid: i32) -> io::Result<()> {
    set(group, "cgroup.procs", &pid.to_string())
}

/// The processes in a group itself.
///
/// # Errors
/// The group is gone.
pub fn members(group: &Path) -> io::Result<Vec<i32>> {
    Ok(get(group, "cgroup.procs")?
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect())
}

/// How long the kernel may take to let go of a group whose processes have ended.
const PATIENCE: [u64; 12] = [0, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Removes a group and those below it. One that is not there is no error.
///
/// The kernel counts processes that have been reaped as members for a moment; that is waited for, up to a second.
///
/// # Errors
/// `EBUSY` where processes still live in it.
pub fn remove(group: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for pause in PATIENCE {
        if pause > 0 {
            std::thread::sleep(Duration::from_millis(pause));
        }
        last = remove_now(group);
        match &last {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            _ => break,
        }
    }
    last
}

/// As [`remove`], without waiting.
///
/// # Errors
/// As for [`remove`].
pub fn remove_now(group: &Path) -> io::Result<()> {
    for below in folders(group) {
        remove_now(&below)?;
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(named(group, error)),
        Ok(()) => Ok(()),
    }
}

/// The groups right below one.
fn folders(group: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(group) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.path())
        .collect()
}

/// Kills all processes in a group and below, also those that are being forked meanwhile.
///
/// # Errors
/// The groups can't be read.
pub fn kill(group: &Path) -> io::Result<()> {
    if group.join("cgroup.kill").exists() {
        return set(group, "cgroup.kill", "1");
    }
    // Each round kills what the one before had not seen; a fork in flight is in the next.
    for _ in 0..64 {
        let found = all_members(group)?;
        if found.is_empty() {
            break;
        }
        for pid in found.into_iter().filter_map(rustix::process::Pid::from_raw) {
            match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn all_members(group: &Path) -> io::Result<Vec<i32>> {
    let mut found = match members(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    for below in folders(group) {
        found.extend(all_members(&below)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_whole_words() {
        let text = "oom 1\noom_kill 3\noom_group_kill 0\n";
        assert_eq!(find_key(text, "oom_kill"), Some(3));
        assert_eq!(find_key(text, "oom"), Some(1));
        assert_eq!(find_key(text, "o"), None);
    }
}
