//! Carrying out one step of a [`Tree`](crate::tree::Tree). Nothing here allocates.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use cosm_sys::Errno;
use cosm_sys::mount::{self, Attributes, FsOption};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::process::{Gid, Uid};

use crate::child::{Mounts, folder_in};
use crate::inside::Inside;
use crate::tree::{Filesystem, Step};

/// A file that must not be there yet.
const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

pub(crate) fn take<'t>(
    step: &'t Step,
    mounts: &mut Mounts,
    inside: &mut Inside<'t>,
) -> Result<(), Errno> {
    match step {
        Step::Folder { path, mode } => {
            let (parent, name) = inside.folder_of(path)?;
            folder_in(parent, name, *mode)
        }
        Step::Own { path, user, group } => {
            let (parent, name) = inside.folder_of(path)?;
            let (user, group) = (Uid::from_raw(*user), Gid::from_raw(*group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(parent, name, Some(user), Some(group), flags)
        }
        Step::File {
            path,
            mode,
            contents,
        } => {
            let (parent, name) = inside.folder_of(path)?;
            write_file(parent, name, *mode, contents)
        }
        Step::Link { path, target } => {
            let (parent, name) = inside.folder_of(path)?;
            match rustix::fs::symlinkat(target, parent, name) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error),
            }
        }
        Step::Place { path, folder } => {
            inside.make_folders_of(path)?;
            let (parent, name) = inside.folder_of(path)?;
            place(parent, name, *folder)
        }
        // Only what is optional is still missing here.
        Step::Attach { bind, path } => match mounts.get_mut(*bind).and_then(Option::take) {
            Some(mount) => attach(mount.as_fd(), path, inside),
            None => Ok(()),
        },
        Step::Switch { path, value } => {
            let file = inside.open(path, OFlags::WRONLY)?;
            rustix::io::write(&file, value.to_bytes()).map(drop)
        }
        Step::Mask { path } => mask(path, inside),
        Step::Cover { path, with } => cover(path, with, inside),
        Step::Restrict { path, attributes } => restrict(path, *attributes, inside),
    }
}

fn write_file(
    parent: BorrowedFd<'_>,
    name: &CStr,
    mode: u32,
    contents: &[u8],
) -> Result<(), Errno> {
    let file = match rustix::fs::openat(parent, name, NEW, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            rustix::fs::openat(parent, name, NEW, Mode::from_raw_mode(mode))?
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

/// Makes a folder or an empty file, unless something is there.
fn place(parent: BorrowedFd<'_>, name: &CStr, folder: bool) -> Result<(), Errno> {
    let made = if folder {
        folder_in(parent, name, 0o755)
    } else {
        rustix::fs::openat(parent, name, NEW, Mode::from_raw_mode(0o644)).map(drop)
    };
    match made {
        Err(Errno::EXIST) => Ok(()),
        // A read-only parent answers so also for what is there.
        Err(Errno::ROFS) => rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(drop)
            .map_err(|_| Errno::ROFS),
        other => other,
    }
}

/// Mounts over what is at `path`, or over what a link there leads to.
fn attach<'t>(mount: BorrowedFd<'_>, path: &'t CStr, inside: &mut Inside<'t>) -> Result<(), Errno> {
    let (parent, name) = inside.folder_of(path)?;
    match mount::attach(mount, parent, name) {
        // A folder can't lie over a link.
        Err(Errno::NOTDIR | Errno::INVAL) => {
            let place = inside.open(path, OFlags::PATH)?;
            mount::attach(mount, place.as_fd(), c"")
                .map_err(|error| mismatch(mount, &place, error))?;
        }
        other => other?,
    }
    inside.covered(path);
    Ok(())
}

/// What the kernel's refusal to mount one over the other means: it says the same of much.
fn mismatch(mount: BorrowedFd<'_>, place: &OwnedFd, error: Errno) -> Errno {
    let is_folder =
        |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let mounted = rustix::fs::fstat(mount).map(is_folder);
    match (mounted, rustix::fs::fstat(place).map(is_folder)) {
        (Ok(true), Ok(false)) => Errno::NOTDIR,
        (Ok(false), Ok(true)) => Errno::ISDIR,
        _ => error,
    }
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

/// Lays `/dev/null` over a file and an empty read-only folder over a folder.
fn mask<'t>(path: &'t CStr, inside: &mut Inside<'t>) -> Result<(), Errno> {
    let (parent, name) = inside.folder_of(path)?;
    let found = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let cover = if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        c"/dev/.empty"
    } else {
        c"/dev/null"
    };
    let cover = copy_of(cover, false, inside)?;
    let attributes = Attributes {
        read_only: true,
        ..Attributes::default()
    };
    mount::restrict(cover.as_fd(), attributes, false)?;
    let (parent, name) = inside.folder_of(path)?;
    mount::attach(cover.as_fd(), parent, name)?;
    inside.covered(path);
    Ok(())
}

/// A detached copy of the mount at `path`.
fn copy_of(path: &CStr, recursive: bool, inside: &Inside<'_>) -> Result<OwnedFd, Errno> {
    let place = inside.open(path, OFlags::PATH)?;
    mount::clone_tree(place.as_fd(), c"", recursive)
}

fn cover<'t>(path: &'t CStr, with: &CStr, inside: &mut Inside<'t>) -> Result<(), Errno> {
    let (parent, name) = inside.folder_of(path)?;
    match rustix::fs::openat(parent, name, NEW, Mode::from_raw_mode(0o644)) {
        Ok(_) => {}
        Err(Errno::EXIST) => {
            let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
                return Ok(());
            }
        }
        // An image of owners that the guest does not have: its own file, or none, is what it gets.
        Err(Errno::ACCESS | Errno::ROFS) => return Ok(()),
        Err(error) => return Err(error),
    }
    let copy = copy_of(with, false, inside)?;
    let (parent, name) = inside.folder_of(path)?;
    mount::attach(copy.as_fd(), parent, name)?;
    inside.covered(path);
    Ok(())
}

fn restrict(path: &CStr, attributes: Attributes, inside: &mut Inside<'_>) -> Result<(), Errno> {
    let place = match inside.open(path, OFlags::PATH) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let copy = mount::clone_tree(place.as_fd(), c"", true)?;
    mount::restrict(copy.as_fd(), attributes, true)?;
    mount::attach(copy.as_fd(), place.as_fd(), c"")?;
    inside.covered(path);
    Ok(())
}

pub(crate) fn seal(path: &CStr, attributes: Attributes, inside: &Inside<'_>) -> Result<(), Errno> {
    let mount = inside.open(path, OFlags::PATH)?;
    mount::restrict(mount.as_fd(), attributes, false)
}
