//! Making a tree from entries.
//!
//! Every name is made relative to a folder that this made or opened itself, one component at a time and without
//! following links, so nothing is ever written outside the root, whatever anybody else does to the tree meanwhile.

use alloc::vec::Vec;

use cosm_proto::agent::{Entry, FileKind};
use cosm_proto::files::{PERMISSIONS, split};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, ftruncate, futimens,
    linkat, mkdirat, mknodat, openat, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, Result};

/// Makes a tree below a root.
pub(super) struct TreeWriter {
    root: Vec<u8>,
    /// The folders from the root to the last entry.
    levels: Vec<Level>,
    file: Option<Open>,
}

struct Level {
    folder: OwnedFd,
    path: Vec<u8>,
    mode: u32,
    mtime: (i64, u32),
}

struct Open {
    file: OwnedFd,
    size: u64,
    end: u64,
    mode: u32,
    mtime: (i64, u32),
}

impl TreeWriter {
    pub(super) const fn new(root: Vec<u8>) -> Self {
        Self {
            root,
            levels: Vec::new(),
            file: None,
        }
    }

    /// Where the root is, once it is made and a folder.
    pub(super) fn root_folder(&self) -> Option<BorrowedFd<'_>> {
        self.levels.first().map(|level| level.folder.as_fd())
    }

    /// Makes the next file. Sockets and devices are left out.
    pub(super) fn entry(&mut self, entry: &Entry) -> Result<()> {
        self.close_file()?;
        let (parent, name) = split(&entry.path).ok_or(Errno::INVAL)?;
        let is_root = name.is_empty();
        while !is_root && self.levels.last().is_some_and(|level| level.path != parent) {
            self.close_level()?;
        }
        let root = self.root.clone();
        let (folder, name) = match self.levels.last() {
            None if is_root => (CWD, root.as_slice()),
            Some(level) if !is_root => (level.folder.as_fd(), name),
            // A second root, or a file whose folder did not come before it.
            _ => return Err(Errno::INVAL),
        };
        match (entry.kind, &entry.hard_link) {
            (FileKind::Directory, _) => {
                let folder = make_folder(folder, name, is_root)?;
                let (path, mode, mtime) = (entry.path.clone(), entry.mode, entry.mtime);
                self.levels.push(Level {
                    folder,
                    path,
                    mode,
                    mtime,
                });
            }
            (FileKind::File, None) => {
                replace(folder, name)?;
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let file = openat(folder, name, flags, Mode::from_raw_mode(0o600))?;
                let (size, mode, mtime) = (entry.size, entry.mode, entry.mtime);
                self.file = Some(Open {
                    file,
                    size,
                    end: 0,
                    mode,
                    mtime,
                });
            }
            (FileKind::File, Some(earlier)) => {
                let (parent, earlier) = self.open_parent(earlier)?;
                replace(folder, name)?;
                linkat(&parent, earlier.as_slice(), folder, name, AtFlags::empty())?;
            }
            (FileKind::Symlink, _) => {
                replace(folder, name)?;
                symlinkat(entry.target.as_deref().ok_or(Errno::INVAL)?, folder, name)?;
                utimensat(folder, name, &times(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            (FileKind::Fifo, _) => {
                replace(folder, name)?;
                mknodat(
                    folder,
                    name,
                    FileType::Fifo,
                    Mode::from_raw_mode(entry.mode & 0o777),
                    0,
                )?;
            }
            (FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice, _) => {}
        }
        Ok(())
    }

    /// Writes a part of the last entry.
    pub(super) fn part(&mut self, offset: u64, mut bytes: &[u8]) -> Result<()> {
        let open = self.file.as_mut().ok_or(Errno::INVAL)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::INVAL)?;
        if offset < open.end || end > open.size {
            return Err(Errno::INVAL);
        }
        open.end = end;
        let mut at = offset;
        while !bytes.is_empty() {
            match rustix::io::pwrite(&open.file, bytes, at)? {
                0 => return Err(Errno::IO),
                count => {
                    bytes = &bytes[count..];
                    at += count as u64;
                }
            }
        }
        Ok(())
    }

    /// Finishes what is open.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.close_file()?;
        while !self.levels.is_empty() {
            self.close_level()?;
        }
        Ok(())
    }

    fn close_file(&mut self) -> Result<()> {
        let Some(open) = self.file.take() else {
            return Ok(());
        };
        if open.end < open.size {
            ftruncate(&open.file, open.size)?;
        }
        fchmod(&open.file, Mode::from_raw_mode(open.mode & PERMISSIONS))?;
        futimens(&open.file, &times(open.mtime))?;
        cosm_sys_guest::close(open.file)
    }

    /// Only now, since making files in a folder needs its permissions and changes its time.
    fn close_level(&mut self) -> Result<()> {
        let Some(level) = self.levels.pop() else {
            return Ok(());
        };
        fchmod(&level.folder, Mode::from_raw_mode(level.mode & PERMISSIONS))?;
        futimens(&level.folder, &times(level.mtime))
    }

    /// The folder of an earlier entry, and that entry's name in it.
    fn open_parent(&self, path: &[u8]) -> Result<(OwnedFd, Vec<u8>)> {
        let (parent, name) = split(path)
            .filter(|(_, name)| !name.is_empty())
            .ok_or(Errno::INVAL)?;
        let root = self.root_folder().ok_or(Errno::INVAL)?;
        let mut folder = rustix::io::fcntl_dupfd_cloexec(root, 3)?;
        for step in parent
            .split(|byte| *byte == b'/')
            .filter(|step| !step.is_empty())
        {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            folder = openat(&folder, step, flags, Mode::empty())?;
        }
        Ok((folder, name.to_vec()))
    }
}

fn make_folder(above: BorrowedFd<'_>, name: &[u8], is_root: bool) -> Result<OwnedFd> {
    match mkdirat(above, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The root is the caller's to name, by way of a link too.
    if !is_root {
        flags |= OFlags::NOFOLLOW;
    }
    openat(above, name, flags, Mode::empty())
}

/// Makes way for a file. A folder in the way is an error.
fn replace(folder: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

fn times(mtime: (i64, u32)) -> Timestamps {
    let time = Timespec {
        tv_sec: mtime.0,
        tv_nsec: i64::from(mtime.1.min(999_999_999)),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_below_the_root_are_names() {
        assert_eq!(split(b""), Some((&b""[..], &b""[..])));
        assert_eq!(split(b"a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(split(b"a/b/\xff"), Some((&b"a/b"[..], &b"\xff"[..])));
        for wrong in [
            &b"/a"[..],
            b"a/",
            b"a//b",
            b"..",
            b"a/../b",
            b"./a",
            b"a/.",
            b"a\0b",
        ] {
            assert_eq!(split(wrong), None, "{wrong:?}");
        }
    }
}
