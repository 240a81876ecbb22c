//! Processes, as /proc shows them.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions};

/// A process, at the time it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number here.
    pub pid: i32,
    /// Its parent's number.
    pub parent: i32,
    /// `R`, `S`, `Z`, ….
    pub state: char,
    /// Its short name.
    pub name: String,
    /// Its arguments, with spaces between them.
    pub command: String,
    /// Its number in each process namespace that it is seen from, from ours inwards.
    pub inner: Vec<i32>,
}

impl Process {
    /// Whether it keeps a sandbox.
    pub fn is_keeper(&self) -> bool {
        self.command.contains("__keeper")
    }

    /// Whether it is the first process of a process namespace below ours.
    pub fn is_agent(&self) -> bool {
        self.inner.len() > 1 && self.inner.last() == Some(&1)
    }

    /// Whether it only waits to be reaped.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

fn read(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let mut fields = tail.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let name = head.split_once('(')?.1.to_owned();
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .map(|numbers| {
            numbers
                .split_whitespace()
                .filter_map(|number| number.parse().ok())
                .collect()
        })
        .unwrap_or_default();
    Some(Process {
        pid,
        parent,
        state,
        name,
        command: String::from_utf8_lossy(&command)
            .replace('\0', " ")
            .trim()
            .to_owned(),
        inner,
    })
}

/// All living processes below a process. What has ended and was reaped by nobody is reaped first where it is ours.
pub fn descendants(root: i32) -> Vec<Process> {
    if root == rustix::process::getpid().as_raw_nonzero().get() {
        reap_strays();
    }
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(read)
        {
            all.push(process);
        }
    }
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in &all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if seen.insert(child.pid) {
                next.push(child.pid);
                found.push((*child).clone());
            }
        }
    }
    found.retain(|process| !process.is_dead());
    found
}

/// Reaps orphans that became our children. Children that a [`std::process::Child`] stands for are left to it.
fn reap_strays() {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let known = crate::house::started();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(read)
        else {
            continue;
        };
        if process.parent == own
            && process.is_dead()
            && !known.contains(&process.pid)
            && let Some(pid) = Pid::from_raw(process.pid)
        {
            // Somebody else may have been faster, which is as good.
            rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok();
        }
    }
}

/// Whether a process runs: one that ended and waits to be reaped does not.
pub fn alive(pid: i32) -> bool {
    read(pid).is_some_and(|process| !process.is_dead())
}

/// Kills a process. Returns whether there was one.
pub fn kill(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::kill_process(pid, Signal::KILL).is_ok())
}

/// What of a process lies in memory, in KiB.
pub fn resident_kib(pid: i32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|size| size.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
