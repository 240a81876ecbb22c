//! Walking a tree.
//!
//! The walk holds one descriptor a level and follows no link below its root. Files are opened without blocking and
//! looked at again once open: what was a file may be a pipe by then.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::MaybeUninit;

use cosm_proto::agent::{Entry, FileKind};
use cosm_proto::frame::DATA_CHUNK;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, Stat, fstat, openat, seek, statat};
use rustix::io::{Errno, Result};

use super::entry::{describe, kind, look};
use super::{About as _, Outcome};

/// Where a walk's findings go. Folders come before what is in them, and all that is in one comes together.
pub(super) trait Sink {
    /// The next file.
    fn entry(&mut self, entry: &Entry) -> Outcome<()>;
    /// A part of the last entry's content. Parts come in rising order; between them are holes.
    fn part(&mut self, offset: u64, bytes: &[u8]) -> Outcome<()>;
    /// Whether to leave this folder out, by its device and inode.
    fn skips(&self, _place: (u64, u64)) -> bool {
        false
    }
}

/// A folder being walked: what is left of its names.
struct Level {
    folder: OwnedFd,
    names: Vec<Vec<u8>>,
    path: Vec<u8>,
}

struct Walk<'a, S> {
    root: &'a [u8],
    sink: &'a mut S,
    /// Files with several names that came already, by device and inode.
    seen: BTreeMap<(u64, u64), Vec<u8>>,
    chunk: Vec<u8>,
}

/// Walks what `root` names; entries' paths are relative to it, its own is empty.
pub(super) fn walk<S: Sink>(root: &[u8], follow: bool, sink: &mut S) -> Outcome<()> {
    let mut walk = Walk {
        root,
        sink,
        seen: BTreeMap::new(),
        chunk: Vec::new(),
    };
    let (stat, target) = if follow {
        (statat(CWD, root, AtFlags::empty()).about(root)?, None)
    } else {
        look(CWD, root).about(root)?
    };
    let mut levels = Vec::new();
    levels.extend(walk.visit(CWD, root, Vec::new(), &stat, target, follow)?);
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
        let (stat, target) = match look(level.folder.as_fd(), &name) {
            // Removed since its name was read.
            Err(Errno::NOENT) => continue,
            other => other.about_below(root, &path)?,
        };
        let below = walk.visit(level.folder.as_fd(), &name, path, &stat, target, false)?;
        levels.extend(below);
    }
    Ok(())
}

impl<S: Sink> Walk<'_, S> {
    /// Tells of one file; answers the level below, if it is a folder.
    fn visit(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        path: Vec<u8>,
        stat: &Stat,
        target: Option<Vec<u8>>,
        follow: bool,
    ) -> Outcome<Option<Level>> {
        let place = (stat.st_dev, stat.st_ino);
        let mut entry = describe(path.clone(), stat, target);
        match kind(stat) {
            FileKind::Directory if self.sink.skips(place) => Ok(None),
            FileKind::Directory => {
                let below =
                    open(folder, name, OFlags::DIRECTORY, follow).about_below(self.root, &path)?;
                self.sink.entry(&entry)?;
                let names = names(below.as_fd()).about_below(self.root, &path)?;
                Ok(Some(Level {
                    folder: below,
                    names,
                    path,
                }))
            }
            FileKind::File => {
                if stat.st_nlink > 1 {
                    entry.hard_link = self.seen.get(&place).cloned();
                    self.seen.entry(place).or_insert_with(|| path.clone());
                }
                if entry.hard_link.is_some() {
                    self.sink.entry(&entry)?;
                } else {
                    self.file(folder, name, entry, follow)?;
                }
                Ok(None)
            }
            _ => self.sink.entry(&entry).map(|()| None),
        }
    }

    fn file(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        mut entry: Entry,
        follow: bool,
    ) -> Outcome<()> {
        let path = entry.path.clone();
        let file = open(folder, name, OFlags::NONBLOCK, follow).about_below(self.root, &path)?;
        let stat = fstat(&file).about_below(self.root, &path)?;
        if kind(&stat) != FileKind::File {
            return Err(Errno::AGAIN).about_below(self.root, &path);
        }
        entry.size = u64::try_from(stat.st_size).unwrap_or(0);
        self.sink.entry(&entry)?;
        self.chunk.resize(DATA_CHUNK, 0);
        let mut at = 0;
        while let Some((start, end)) =
            next_data(&file, at, entry.size).about_below(self.root, &path)?
        {
            at = start;
            while at < end {
                let most = usize::try_from(end - at)
                    .unwrap_or(DATA_CHUNK)
                    .min(DATA_CHUNK);
                let count = rustix::io::pread(&file, &mut self.chunk[..most], at)
                    .about_below(self.root, &path)?;
                if count == 0 {
                    // It was cut meanwhile.
                    return Ok(());
                }
                self.sink.part(at, &self.chunk[..count])?;
                at += count as u64;
            }
        }
        Ok(())
    }
}

/// The next stretch of data at or after `from`, up to `size`.
fn next_data(file: &OwnedFd, from: u64, size: u64) -> Result<Option<(u64, u64)>> {
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

fn open(folder: BorrowedFd<'_>, name: &[u8], extra: OFlags, follow: bool) -> Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | extra;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    openat(folder, name, flags, Mode::empty())
}

/// A folder's names, last one first, so that `pop` gives them in order.
fn names(folder: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>> {
    let mut space = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(folder, &mut space);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            found.push(name.to_vec());
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}
