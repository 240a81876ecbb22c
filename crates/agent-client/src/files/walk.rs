//! Walking a tree on the host.
//!
//! The tree may be shared with a guest that changes it meanwhile (a writable mount): below its root no link is followed,
//! every name is looked at relative to an open folder, and what was a file is looked at again once it is open.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cosm_proto::agent::{Entry, FileKind, TreeItem};
use cosm_proto::files::Attributes;
use cosm_proto::frame::DATA_CHUNK;
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, Stat, fstat, openat, readlinkat, seek, statat,
};
use rustix::io::Errno;

use super::trees::{Link, TreeReport};
use crate::AgentError;

struct Level {
    folder: OwnedFd,
    names: Vec<Vec<u8>>,
    path: Vec<u8>,
}

struct Walk<'a> {
    root: &'a Path,
    link: &'a mut Link,
    report: TreeReport,
    /// Files with several names that came already.
    seen: HashMap<(u64, u64), Vec<u8>>,
    chunk: Vec<u8>,
}

pub(super) fn walk(root: &Path, follow: bool, link: &mut Link) -> Result<TreeReport, AgentError> {
    let mut walk = Walk {
        root,
        link,
        report: TreeReport::default(),
        seen: HashMap::new(),
        chunk: vec![0; DATA_CHUNK],
    };
    let root = root.as_os_str().as_bytes();
    let mut levels: Vec<Level> = Vec::new();
    levels.extend(walk.visit(CWD, root, Vec::new(), follow)?);
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            levels.pop();
            continue;
        };
        let mut path = level.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let below = walk.visit(level.folder.as_fd(), &name, path, false)?;
        levels.extend(below);
    }
    Ok(walk.report)
}

impl Walk<'_> {
    fn visit(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        path: Vec<u8>,
        follow: bool,
    ) -> Result<Option<Level>, AgentError> {
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        let stat = match statat(folder, name, flags) {
            // Removed since its name was read.
            Err(Errno::NOENT) if !path.is_empty() => return Ok(None),
            other => self.about(&path, other)?,
        };
        self.report.entries += 1;
        match FileKind::of_mode(stat.st_mode) {
            FileKind::Directory => {
                let below = self.about(&path, enter(folder, name, OFlags::DIRECTORY, follow))?;
                self.tell(describe(&path, &stat))?;
                let names = self.about(&path, names(&below))?;
                Ok(Some(Level {
                    folder: below,
                    names,
                    path,
                }))
            }
            FileKind::File => self.file(folder, name, &path, &stat, follow).map(|()| None),
            FileKind::Symlink => {
                let target = self.about(&path, readlinkat(folder, name, Vec::new()))?;
                let entry = describe(&path, &stat);
                self.tell(Entry {
                    target: Some(target.into_bytes()),
                    ..entry
                })
                .map(|()| None)
            }
            FileKind::Fifo => self.tell(describe(&path, &stat)).map(|()| None),
            _ => {
                self.report.skipped += 1;
                Ok(None)
            }
        }
    }

    fn file(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
        follow: bool,
    ) -> Result<(), AgentError> {
        let place = (stat.st_dev, stat.st_ino);
        if stat.st_nlink > 1 {
            if let Some(earlier) = self.seen.get(&place) {
                let entry = Entry {
                    hard_link: Some(earlier.clone()),
                    ..describe(path, stat)
                };
                return self.tell(entry);
            }
            self.seen.insert(place, path.to_vec());
        }
        let file = self.about(path, enter(folder, name, OFlags::NONBLOCK, follow))?;
        let stat = self.about(path, fstat(&file))?;
        if FileKind::of_mode(stat.st_mode) != FileKind::File {
            return self.about(path, Err(Errno::AGAIN));
        }
        let entry = describe(path, &stat);
        let size = entry.size;
        self.tell(entry)?;
        self.content(&file, path, size)
    }

    fn content(&mut self, file: &OwnedFd, path: &[u8], size: u64) -> Result<(), AgentError> {
        let mut at = 0;
        while let Some((start, end)) = self.about(path, next_data(file, at, size))? {
            at = start;
            while at < end {
                let most = usize::try_from(end - at)
                    .unwrap_or(DATA_CHUNK)
                    .min(DATA_CHUNK);
                let read = rustix::io::pread(file, &mut self.chunk[..most], at);
                let count = self.about(path, read)?;
                if count == 0 {
                    // It was cut meanwhile.
                    return Ok(());
                }
                self.link.queue(&TreeItem::Chunk { offset: at })?;
                self.link.queue_data(&self.chunk[..count])?;
                self.report.bytes += count as u64;
                at += count as u64;
            }
        }
        Ok(())
    }

    fn tell(&mut self, entry: Entry) -> Result<(), AgentError> {
        self.link.queue(&TreeItem::Entry(entry))
    }

    fn about<T>(&self, path: &[u8], result: rustix::io::Result<T>) -> Result<T, AgentError> {
        result.map_err(|errno| {
            let below = Path::new(std::ffi::OsStr::from_bytes(path));
            let path = if path.is_empty() {
                PathBuf::from(self.root)
            } else {
                self.root.join(below)
            };
            AgentError::Host {
                path,
                source: io::Error::from(errno),
            }
        })
    }
}

fn describe(path: &[u8], stat: &Stat) -> Entry {
    let told = Attributes {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size,
        blocks: stat.st_blocks,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
    };
    Entry::new(path.to_vec(), told, None)
}

fn enter(
    folder: BorrowedFd<'_>,
    name: &[u8],
    extra: OFlags,
    follow: bool,
) -> rustix::io::Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | extra;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    openat(folder, name, flags, Mode::empty())
}

/// A folder's names, last one first, so that `pop` gives them in order.
fn names(folder: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            found.push(name.to_vec());
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The next stretch of data at or after `from`, up to `size`.
fn next_data(file: &OwnedFd, from: u64, size: u64) -> rustix::io::Result<Option<(u64, u64)>> {
    if from >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that knows no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((from, size))),
        Err(errno) => return Err(errno),
    };
    let end = seek(file, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some((start, end)))
}
