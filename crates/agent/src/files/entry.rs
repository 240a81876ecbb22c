//! What is said of a file.

use alloc::vec::Vec;

use cosm_proto::agent::{Entry, FileKind};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, FileType, Stat, readlinkat, statat};
use rustix::io::{Errno, Result};

/// The low 12 bits of a mode: permissions, set-id bits, sticky.
pub(super) const PERMISSIONS: u32 = 0o7777;

/// The entry for a file that `stat` described; `path` is what it is called in the answer.
pub(super) fn describe(path: Vec<u8>, stat: &Stat, target: Option<Vec<u8>>) -> Entry {
    Entry {
        path,
        kind: kind(stat),
        mode: stat.st_mode & PERMISSIONS,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        allocated: u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512),
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        target,
        hard_link: None,
    }
}

pub(super) fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => FileKind::File,
    }
}

/// Looks at a name in a folder, without following it, and reads it if it is a link.
pub(super) fn look(folder: BorrowedFd<'_>, name: &[u8]) -> Result<(Stat, Option<Vec<u8>>)> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let target = match kind(&stat) {
        FileKind::Symlink => match readlinkat(folder, name, Vec::new()) {
            Ok(target) => Some(target.into_bytes()),
            // It is something else by now.
            Err(Errno::INVAL) => None,
            Err(errno) => return Err(errno),
        },
        _ => None,
    };
    Ok((stat, target))
}
