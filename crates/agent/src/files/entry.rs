//! What is said of a file.

use alloc::vec::Vec;

use cosm_proto::agent::{Entry, FileKind};
use cosm_proto::files::Attributes;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Stat, readlinkat, statat};
use rustix::io::{Errno, Result};

/// The entry for a file that `stat` described; `path` is what it is called in the answer.
pub(super) fn describe(path: Vec<u8>, stat: &Stat, target: Option<Vec<u8>>) -> Entry {
    let told = Attributes {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size,
        blocks: stat.st_blocks,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
    };
    Entry::new(path, told, target)
}

pub(super) const fn kind(stat: &Stat) -> FileKind {
    FileKind::of_mode(stat.st_mode)
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
