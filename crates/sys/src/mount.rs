//! Mounts, by descriptor: what is mounted where never depends on a path that somebody else may change meanwhile.

use std::ffi::CStr;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};

use crate::raw::syscall;

/// What a mount does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    pub read_only: bool,
    pub no_suid: bool,
    pub no_devices: bool,
    pub no_exec: bool,
}

impl Attributes {
    const fn bits(self) -> u64 {
        let mut bits = 0;
        if self.read_only {
            bits |= libc::MOUNT_ATTR_RDONLY;
        }
        if self.no_suid {
            bits |= libc::MOUNT_ATTR_NOSUID;
        }
        if self.no_devices {
            bits |= libc::MOUNT_ATTR_NODEV;
        }
        if self.no_exec {
            bits |= libc::MOUNT_ATTR_NOEXEC;
        }
        bits
    }
}

/// Keeps all mounts of this mount namespace from spreading to others, and those of others from coming in.
///
/// # Errors
/// `EPERM` without the right to mount.
pub fn make_all_private() -> Result<()> {
    rustix::mount::mount_change(
        c"/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
}

/// A detached copy of the mount at `path` below `dir`, with everything mounted below it where `recursive`.
/// The last component of `path` may be a symbolic link, which is followed.
///
/// # Errors
/// There is nothing (`ENOENT`), or no right to mount (`EPERM`). `EINVAL` in a user namespace for a mount that is not
/// copied recursively though others below it are locked.
pub fn clone_tree(dir: BorrowedFd<'_>, path: &CStr, recursive: bool) -> Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if path.is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(dir, path, flags)
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

fn mount_setattr(mount: BorrowedFd<'_>, recursive: bool, attr: &MountAttr) -> Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `attr` is a valid `mount_attr` of the size given, the path an empty string.
    unsafe {
        syscall(
            libc::SYS_mount_setattr,
            [
                mount.as_raw_fd() as usize,
                c"".as_ptr() as usize,
                flags as usize,
                std::ptr::from_ref(attr) as usize,
                size_of::<MountAttr>(),
                0,
            ],
        )
    }
    .map(drop)
}

/// Forbids things on a mount, and on all below it where `recursive`; what was forbidden already stays so. No mount made
/// on it or on what it was copied from shows up in the other any more.
///
/// # Errors
/// The descriptor is not of a mount's root (`EINVAL`), or no right to mount (`EPERM`).
pub fn restrict(mount: BorrowedFd<'_>, attributes: Attributes, recursive: bool) -> Result<()> {
    let attr = MountAttr {
        set: attributes.bits(),
        clear: 0,
        propagation: libc::MS_PRIVATE,
        userns: 0,
    };
    mount_setattr(mount, recursive, &attr)
}

/// Makes a detached mount translate owners through the maps of a user namespace.
///
/// # Errors
/// `EINVAL` where the file system cannot, `EPERM` without rights over the file system's own user namespace.
pub fn map_ids(mount: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> Result<()> {
    let attr = MountAttr {
        set: libc::MOUNT_ATTR_IDMAP,
        clear: 0,
        propagation: 0,
        userns: userns.as_raw_fd() as u64,
    };
    mount_setattr(mount, false, &attr)
}

/// Attaches a detached mount at `path` below `dir`; `path` may be empty to mean `dir` itself.
///
/// # Errors
/// `ENOENT` or `ENOTDIR` where the mount point is missing or of the other kind (folder or file).
pub fn attach(mount: BorrowedFd<'_>, dir: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    rustix::mount::move_mount(mount, c"", dir, path, flags)
}

/// One option of a file system that is going to be mounted.
#[derive(Debug, Clone, Copy)]
pub enum FsOption<'a> {
    Flag(&'a CStr),
    Text(&'a CStr, &'a CStr),
}

/// Makes a file system of its own and a detached mount of it.
///
/// # Errors
/// The file system's own: an unknown option is `EINVAL`, a forbidden mount `EPERM`.
pub fn new_filesystem(
    kind: &CStr,
    source: &CStr,
    options: &[FsOption<'_>],
    attributes: Attributes,
) -> Result<OwnedFd> {
    let fs = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&fs, c"source", source)?;
    for option in options {
        match option {
            FsOption::Flag(key) => rustix::mount::fsconfig_set_flag(&fs, *key)?,
            FsOption::Text(key, value) => rustix::mount::fsconfig_set_string(&fs, *key, *value)?,
        }
    }
    rustix::mount::fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::from_bits_retain(attributes.bits() as u32);
    rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Makes the folder `root`, which must be a mount, the root of this mount namespace, and lets go of the old one.
///
/// # Errors
/// `EINVAL` where `root` is not a mount of this namespace or its parent's mounts spread. `EXDEV` where something of the
/// old root would still be there: what lay on the old root's own folder is all that is let go of then.
pub fn become_root(root: BorrowedFd<'_>) -> Result<()> {
    rustix::process::fchdir(root)?;
    // The old root comes to lie on top of the new one, and is taken off from there.
    rustix::process::pivot_root(c".", c".")?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")?;
    // `..` of a root is what lies on top of it.
    if mount_at(c"/..")? == mount_at(c"/")? {
        Ok(())
    } else {
        Err(Errno::XDEV)
    }
}

/// The number of the mount that a path leads to, and of the file in it.
fn mount_at(path: &CStr) -> Result<(u64, u64)> {
    let wanted = StatxFlags::MNT_ID | StatxFlags::INO;
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), wanted)?;
    Ok((found.stx_mnt_id, found.stx_ino))
}

/// Mounts over the folder or file at `path` the old way, for file systems without the new calls.
///
/// # Errors
/// `mount`'s.
pub fn mount(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    options: &CStr,
    attributes: Attributes,
) -> Result<()> {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, attributes.read_only);
    flags.set(MountFlags::NOSUID, attributes.no_suid);
    flags.set(MountFlags::NODEV, attributes.no_devices);
    flags.set(MountFlags::NOEXEC, attributes.no_exec);
    rustix::mount::mount(source, target, kind, flags, options)
}

/// Takes off what is mounted at `path`, now or when nobody uses it any more. Links are not followed.
///
/// # Errors
/// Nothing is mounted there (`EINVAL`).
pub fn detach(path: &CStr) -> Result<()> {
    rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Opens a folder or file only as a place (`O_PATH`), without following a link at its end.
///
/// # Errors
/// `ENOENT` and the like.
pub fn open_place(dir: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd> {
    rustix::fs::openat(
        dir,
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Opens what is at `path` below `root` as a process with `root` as its root folder would: no link or `..` leads out of
/// it. Links of `/proc` that lead to something open (`/proc/self/fd/3`) are not followed at all.
///
/// # Errors
/// `ELOOP` for such a link, and for links in a circle. `ENOSYS` before Linux 5.6. Otherwise `open`'s.
pub fn open_in(root: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Result<OwnedFd> {
    loop {
        let opened = rustix::fs::openat2(
            root,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        );
        match opened {
            // A `..` on the way, and meanwhile something was mounted or renamed, anywhere: the kernel can't be sure.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

/// The folder that relative paths start from.
pub const fn here() -> BorrowedFd<'static> {
    CWD
}

/// Whether this descriptor's file lies on an overlay.
///
/// # Errors
/// `fstatfs`'s.
pub fn on_overlay(fd: impl AsFd) -> Result<bool> {
    const OVERLAYFS_SUPER_MAGIC: i64 = 0x794c_7630;
    Ok(rustix::fs::fstatfs(fd)?.f_type as i64 == OVERLAYFS_SUPER_MAGIC)
}
