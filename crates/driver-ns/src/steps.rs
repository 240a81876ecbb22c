//! Carrying out one step of a [`Tree`](crate::tree::Tree). Nothing here allocates.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};

use cosm_sys::Errno;
use cosm_sys::mount::{self, Attributes, FsOption};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::process::{Gid, Uid};

use crate::child::{Mounts, folder};
use crate::tree::{Filesystem, Step};

pub(crate) fn take(step: &Step, mounts: &mut Mounts) -> Result<(), Errno> {
    match step {
        Step::Folder { path, mode } => folder(path, *mode),
        Step::Own { path, user, group } => rustix::fs::chownat(
            mount::here(),
            path,
            Some(Uid::from_raw(*user)),
            Some(Gid::from_raw(*group)),
            AtFlags::SYMLINK_NOFOLLOW,
        ),
        Step::File {
            path,
            mode,
            contents,
        } => write_file(path, *mode, contents),
        Step::Link { path, target } => match rustix::fs::symlink(target, path) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        },
        Step::Place { path, folder } => place(path.as_bytes_with_nul(), *folder),
        // Only what is optional is still missing here.
        Step::Attach { bind, path } => match mounts.get_mut(*bind).and_then(Option::take) {
            Some(fd) => mount::attach(fd.as_fd(), mount::here(), path),
            None => Ok(()),
        },
        Step::Switch { path, value } => switch(path, value),
        Step::Mask { path } => mask(path),
        Step::Cover { path, with } => cover(path, with),
        Step::Restrict { path, attributes } => restrict(path, *attributes),
    }
}

fn write_file(path: &CStr, mode: u32, contents: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => {
            rustix::fs::unlink(path)?;
            rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?
        }
        other => other?,
    };
    let mut rest = contents;
    while !rest.is_empty() {
        let done = rustix::io::write(&file, rest)?;
        rest = &rest[done..];
    }
    Ok(())
}

/// Makes each folder of `path` (NUL-terminated) that is missing, and at its end a folder or an empty file.
fn place(path: &[u8], last_is_folder: bool) -> Result<(), Errno> {
    let mut buffer = [0_u8; 4096];
    let room = buffer.get_mut(..path.len()).ok_or(Errno::NAMETOOLONG)?;
    room.copy_from_slice(path);
    for end in 1..path.len() {
        if path[end] != b'/' && path[end] != 0 {
            continue;
        }
        room[end] = 0;
        let prefix = CStr::from_bytes_with_nul(&room[..=end]).map_err(|_| Errno::INVAL)?;
        if path[end] == 0 && !last_is_folder {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::open(prefix, flags, Mode::from_raw_mode(0o644)) {
                Ok(_) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        } else {
            match rustix::fs::mkdir(prefix, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                // A read-only parent answers so also for what is there.
                Err(Errno::ROFS)
                    if rustix::fs::access(prefix, rustix::fs::Access::EXISTS).is_ok() => {}
                Err(error) => return Err(error),
            }
        }
        room[end] = path[end];
    }
    Ok(())
}

pub(crate) fn own(kind: &Filesystem, attributes: Attributes) -> Result<OwnedFd, Errno> {
    let (name, options): (&CStr, &[FsOption<'_>]) = match kind {
        Filesystem::Proc => (c"proc", &[]),
        Filesystem::Sys => (c"sysfs", &[]),
        Filesystem::Terminals => (
            c"devpts",
            &[
                FsOption::Flag(c"newinstance"),
                FsOption::Text(c"ptmxmode", c"0666"),
                FsOption::Text(c"mode", c"0620"),
            ],
        ),
        Filesystem::Memory { size, mode } => (
            c"tmpfs",
            &[FsOption::Text(c"size", size), FsOption::Text(c"mode", mode)],
        ),
    };
    mount::new_filesystem(name, c"cosm", options, attributes)
}

fn switch(path: &CStr, value: &CStr) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, value.to_bytes()).map(drop)
}

/// Lays `/dev/null` over a file and an empty read-only folder over a folder.
fn mask(path: &CStr) -> Result<(), Errno> {
    let found = match rustix::fs::statat(mount::here(), path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let cover = if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        c"/dev/.empty"
    } else {
        c"/dev/null"
    };
    let cover = mount::clone_tree(mount::here(), cover, false)?;
    mount::restrict(
        cover.as_fd(),
        Attributes {
            read_only: true,
            ..Attributes::default()
        },
        false,
    )?;
    mount::attach(cover.as_fd(), mount::here(), path)
}

fn cover(path: &CStr, with: &CStr) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)) {
        Ok(_) => {}
        Err(Errno::EXIST) => {
            let found = rustix::fs::statat(mount::here(), path, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
                return Ok(());
            }
        }
        // An image of owners that the guest does not have: its own file, or none, is what it gets.
        Err(Errno::ACCESS | Errno::ROFS) => return Ok(()),
        Err(error) => return Err(error),
    }
    let copy = mount::clone_tree(mount::here(), with, false)?;
    mount::attach(copy.as_fd(), mount::here(), path)
}

fn restrict(path: &CStr, attributes: Attributes) -> Result<(), Errno> {
    let copy = match mount::clone_tree(mount::here(), path, true) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    mount::restrict(copy.as_fd(), attributes, true)?;
    mount::attach(copy.as_fd(), mount::here(), path)
}

pub(crate) fn seal(path: &CStr, attributes: Attributes) -> Result<(), Errno> {
    let mount = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    mount::restrict(mount.as_fd(), attributes, false)
}
