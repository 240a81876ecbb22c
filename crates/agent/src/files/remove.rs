//! Removing files and trees.

use alloc::vec::Vec;
use core::mem::MaybeUninit;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, openat, seek, statat, unlinkat,
};
use rustix::io::{Errno, Result};

use super::{About as _, Outcome};

/// A folder that is being emptied, and its name in the one above.
struct Level {
    folder: OwnedFd,
    name: Vec<u8>,
}

pub(super) fn remove(path: &[u8], recursive: bool) -> Outcome<()> {
    let name = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(&[][..], |end| &path[..=end]);
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // A root, or a way back up: whoever writes this does not mean it.
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::INVAL).about(path);
    }
    remove_at(path, recursive).about(path)
}

fn remove_at(path: &[u8], recursive: bool) -> Result<()> {
    if !is_folder(CWD, path)? {
        return unlinkat(CWD, path, AtFlags::empty());
    }
    if recursive {
        empty(path)?;
    }
    unlinkat(CWD, path, AtFlags::REMOVEDIR)
}

fn is_folder(folder: BorrowedFd<'_>, name: &[u8]) -> Result<bool> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Depth first, one descriptor a level, no link followed. Names are read in parcels, so a large folder costs no memory.
fn empty(path: &[u8]) -> Result<()> {
    let mut levels = Vec::from([Level {
        folder: enter(CWD, path)?,
        name: Vec::new(),
    }]);
    while let Some(level) = levels.last() {
        match clear_files(level)? {
            Some(Some(below)) => levels.push(below),
            Some(None) => {}
            None => {
                let done = levels.pop();
                if let (Some(done), Some(above)) = (done, levels.last()) {
                    gone(unlinkat(
                        above.folder.as_fd(),
                        done.name.as_slice(),
                        AtFlags::REMOVEDIR,
                    ))?;
                }
            }
        }
    }
    Ok(())
}

fn enter(folder: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    openat(
        folder,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Removes files from the start of a folder until it meets a folder, which it enters. `None` when it is empty;
/// `Some(None)` asks to look once more, since names move as others go.
fn clear_files(level: &Level) -> Result<Option<Option<Level>>> {
    seek(&level.folder, SeekFrom::Start(0))?;
    let folder = level.folder.as_fd();
    let mut space = [MaybeUninit::uninit(); 8192];
    let mut names = RawDir::new(folder, &mut space);
    let mut any = false;
    while let Some(entry) = names.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        any = true;
        match unlinkat(folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) if is_folder(folder, name)? => {
                return Ok(Some(Some(Level {
                    folder: enter(folder, name)?,
                    name: name.to_vec(),
                })));
            }
            other => gone(other)?,
        }
    }
    Ok(any.then_some(None))
}

/// Who removes what is gone already has done it.
fn gone(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
