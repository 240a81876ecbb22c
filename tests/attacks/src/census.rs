//! What may be left behind, counted before and after.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::procs;

/// How long what is about to go may still be there.
const PATIENCE: Duration = Duration::from_secs(5);

/// The mounts and cgroups that were there before.
#[derive(Debug)]
pub struct Census {
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
}

impl Census {
    /// Counts.
    pub fn take() -> Self {
        Self {
            mounts: mounts(),
            cgroups: cgroups(),
        }
    }

    /// What is there now that was not there before: processes that descend from this one, mounts, network
    /// namespaces that something holds, cgroups, sockets, and sandboxes' folders below `folders`. What is on its way
    /// out gets a few seconds.
    pub fn left_behind(&self, folders: &[PathBuf]) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = self.look(folders);
            if left.is_empty() || Instant::now() >= end {
                return left;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn look(&self, folders: &[PathBuf]) -> Vec<String> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut left: Vec<String> = procs::descendants(own)
            .into_iter()
            .map(|process| {
                format!(
                    "process {} ({}): {}",
                    process.pid, process.name, process.command
                )
            })
            .collect();
        left.extend(
            mounts()
                .difference(&self.mounts)
                .map(|mount| format!("mount {mount}")),
        );
        // Other sandboxes of this machine come and go meanwhile; an empty cgroup is one that somebody forgot.
        let new = cgroups();
        left.extend(
            new.difference(&self.cgroups)
                .filter(|group| is_empty(group))
                .map(|group| format!("cgroup {}", group.display())),
        );
        for folder in folders {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                left.push(format!("folder {}", entry.path().display()));
            }
        }
        left
    }
}

/// Mounts of sandboxes, and namespaces that are kept by a mount.
fn mounts() -> BTreeSet<String> {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
        .filter(|line| line.contains("cosm") || line.contains(" - nsfs "))
        .map(|line| {
            line.split_whitespace()
                .skip(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

fn cgroups() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    collect(Path::new("/sys/fs/cgroup"), 0, &mut found);
    found
}

fn collect(folder: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
    if depth > 8 {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        if path
            .components()
            .any(|part| part.as_os_str().to_string_lossy().contains("cosm"))
        {
            found.insert(path.clone());
        }
        collect(&path, depth + 1, found);
    }
}

fn is_empty(group: &Path) -> bool {
    let Ok(members) = fs::read_to_string(group.join("cgroup.procs")) else {
        // It went away while it was looked at.
        return false;
    };
    members.trim().is_empty()
        && fs::read_dir(group)
            .into_iter()
            .flatten()
            .flatten()
            .all(|entry| {
                !entry.file_type().is_ok_and(|kind| kind.is_dir()) || is_empty(&entry.path())
            })
}
