//! A cgroup (v2) for each command, where the guest was given a folder to make them in.
//!
//! The command is born in it: moving a process between cgroups waits for the whole machine and costs milliseconds. Where
//! that can't be (`clone3` is filtered, the folder is not writable) the command runs without one, and its usage is what
//! `wait4` tells.

use alloc::vec::Vec;

use cosm_proto::agent::{Usage, UsageSource};
use cosm_sys_guest::{self as sys, Fork};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, open, openat, unlinkat};
use rustix::io::{Errno, Result};
use rustix::process::getpid;

use crate::procs;
use crate::text::digits;

/// A command's own cgroup. It is removed with this, once it is empty.
#[derive(Debug)]
pub(super) struct Cgroup {
    folder: OwnedFd,
    path: Vec<u8>,
}

impl Cgroup {
    /// One below `base`, named by this handler's number, which nobody else living has.
    fn make(base: &[u8]) -> Result<Self> {
        let mut path = base.to_vec();
        path.extend_from_slice(b"/exec-");
        path.extend_from_slice(&digits(getpid().as_raw_nonzero().get() as u32));
        match mkdirat(CWD, &path, Mode::from_raw_mode(0o755)) {
            // A handler that was killed left it behind.
            Err(Errno::EXIST) => {
                unlinkat(CWD, &path, AtFlags::REMOVEDIR)?;
                mkdirat(CWD, &path, Mode::from_raw_mode(0o755))?;
            }
            other => other?,
        }
        let folder = open(
            &path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self { folder, path })
    }

    /// Kills all that is in it.
    pub(super) fn kill(&self) {
        // An old kernel has no such file; the walk through /proc follows in any case.
        let file = openat(
            &self.folder,
            c"cgroup.kill",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        file.and_then(|file| rustix::io::write(&file, b"1"))
            .unwrap_or_default();
    }

    /// What all in it used so far.
    pub(super) fn usage(&self, wall_us: u64) -> Usage {
        let cpu = self.read(b"cpu.stat");
        let io = self.read(b"io.stat");
        Usage {
            source: UsageSource::Cgroup,
            user_us: field(&cpu, b"user_usec"),
            system_us: field(&cpu, b"system_usec"),
            peak_memory: line(&self.read(b"memory.peak")),
            read_bytes: io.as_deref().map(|io| sum(io, b"rbytes=")),
            write_bytes: io.as_deref().map(|io| sum(io, b"wbytes=")),
            wall_us,
        }
    }

    /// Whether the kernel killed somebody in it for want of memory.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        field(&self.read(b"memory.events"), b"oom_kill").is_some_and(|kills| kills > 0)
    }

    fn read(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = openat(
            &self.folder,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        procs::read_open(&file, &mut bytes).ok()?;
        Some(bytes)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // One that is still in use, or was renamed by the guest, stays.
        unlinkat(CWD, &self.path, AtFlags::REMOVEDIR).unwrap_or_default();
    }
}

/// Forks into a new cgroup below `base`, or, where that can't be, without one.
pub(super) fn fork(base: Option<&[u8]>) -> Result<(Fork, Option<Cgroup>)> {
    if let Some(Ok(cgroup)) = base.map(Cgroup::make) {
        match sys::fork_into_cgroup(cgroup.folder.as_fd()) {
            // The child must not remove what it lives in.
            Ok(Fork::Child) => {
                core::mem::forget(cgroup);
                return Ok((Fork::Child, None));
            }
            Ok(parent) => return Ok((parent, Some(cgroup))),
            Err(errno @ (Errno::AGAIN | Errno::NOMEM)) => return Err(errno),
            Err(_) => {}
        }
    }
    sys::fork().map(|fork| (fork, None))
}

/// The number after this word at a line's start.
fn field(text: &Option<Vec<u8>>, name: &[u8]) -> Option<u64> {
    let lines = text.as_deref()?.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(b" "))
        .find_map(procs::big)
}

/// The number that is all there is.
fn line(text: &Option<Vec<u8>>) -> Option<u64> {
    procs::big(text.as_deref()?.trim_ascii())
}

/// The sum of the numbers after this word, wherever it is.
fn sum(text: &[u8], name: &[u8]) -> u64 {
    let words = text.split(|byte| byte.is_ascii_whitespace());
    words
        .filter_map(|word| procs::big(word.strip_prefix(name)?))
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let text = Some(b"usage_usec 30\nuser_usec 10\nuser_usec_x 1\nsystem_usec 20\n".to_vec());
        assert_eq!(
            (field(&text, b"user_usec"), field(&text, b"system_usec")),
            (Some(10), Some(20))
        );
        assert_eq!(field(&text, b"usec"), None);
        assert_eq!(field(&None, b"user_usec"), None);
        assert_eq!(line(&Some(b"4096\n".to_vec())), Some(4096));
        assert_eq!(line(&Some(b"max\n".to_vec())), None);
        let io = b"8:0 rbytes=100 wbytes=7 rios=1\n8:16 rbytes=11 wbytes=0\n";
        assert_eq!((sum(io, b"rbytes="), sum(io, b"wbytes=")), (111, 7));
    }
}
