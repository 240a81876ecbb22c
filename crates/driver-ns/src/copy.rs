//! Copying an image where this host can't stack file systems: slow, but the same to the guest.
//!
//! For an ordinary user the guest's first process does it, which has the guest's ids; it allocates, which is sound since
//! the keeper it was cloned from has one thread. Root does it beforehand and gives each owner the id that is the guest's.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use cosm_driver::IdRange;
use cosm_sys::Errno;

use crate::child::{Mounts, attach_in_base, open_folder};

/// Says that a copy is whole: the next start goes on with it instead of copying again.
const DONE: &str = ".complete";

/// In the guest's first process: makes the copy the root, and makes it first where `lower` is given.
pub(crate) fn copied_root(
    mounts: &Mounts,
    lower: Option<usize>,
    into: Option<usize>,
) -> Result<OwnedFd, Errno> {
    crate::child::folder(c"copy", 0o755)?;
    if let Some(bind) = into {
        attach_over(mounts, bind)?;
    }
    if let Some(bind) = lower {
        attach_in_base(mounts, bind, c"lower")?;
        once(Path::new("lower"), Path::new("copy"), None)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    }
    // A root has to be a mount of its own.
    let root = cosm_sys::mount::clone_tree(cosm_sys::mount::here(), c"copy/root", false)?;
    crate::child::folder(c"root", 0o755)?;
    cosm_sys::mount::attach(
        rustix::fd::AsFd::as_fd(&root),
        cosm_sys::mount::here(),
        c"root",
    )?;
    open_folder(c"root")
}

fn attach_over(mounts: &Mounts, bind: usize) -> Result<(), Errno> {
    let mount = mounts
        .get(bind)
        .and_then(Option::as_ref)
        .ok_or(Errno::BADF)?;
    cosm_sys::mount::attach(
        rustix::fd::AsFd::as_fd(mount),
        cosm_sys::mount::here(),
        c"copy",
    )
}

/// Copies the folder `from` to `root` in the folder `to`, unless that was done already. With `shift`, an owner n becomes
/// n above the first id of the range, or that first id where it is not in the range.
pub(crate) fn once(from: &Path, to: &Path, shift: Option<IdRange>) -> io::Result<()> {
    let root = to.join("root");
    if to.join(DONE).exists() {
        return Ok(());
    }
    if root.exists() {
        // Left by a start that was cut short.
        crate::remove::tree(&root)?;
    }
    let mut copier = Copier {
        links: HashMap::new(),
        shift,
    };
    copier.folder(from, &root)?;
    fs::write(to.join(DONE), b"")
}

struct Copier {
    /// Where a file with several names was copied to first, by device and inode.
    links: HashMap<(u64, u64), PathBuf>,
    shift: Option<IdRange>,
}

impl Copier {
    fn folder(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(from)?;
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            self.entry(&from.join(&name), &to.join(&name))?;
        }
        self.finish(to, &found)
    }

    fn entry(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(from)?;
        let kind = found.file_type();
        if kind.is_dir() {
            return self.folder(from, to);
        }
        if found.nlink() > 1 {
            if let Some(first) = self.links.get(&(found.dev(), found.ino())) {
                return fs::hard_link(first, to);
            }
            self.links.insert((found.dev(), found.ino()), to.to_owned());
        }
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
            return self.own(to, &found);
        }
        if kind.is_fifo() {
            rustix::fs::mkfifoat(rustix::fs::CWD, to, rustix::fs::Mode::from_raw_mode(0o600))?;
        } else if kind.is_file() {
            fs::copy(from, to)?;
        } else {
            // Devices can't be used in a guest, and a socket without its server is nothing.
            return Ok(());
        }
        self.finish(to, &found)
    }

    /// Owner first: changing it clears the set-user-id bit.
    fn finish(&self, to: &Path, found: &fs::Metadata) -> io::Result<()> {
        self.own(to, found)?;
        fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o7777))?;
        let time = |seconds: i64, nanos: i64| rustix::fs::Timespec {
            tv_sec: seconds,
            tv_nsec: nanos,
        };
        let times = rustix::fs::Timestamps {
            last_access: time(found.atime(), found.atime_nsec()),
            last_modification: time(found.mtime(), found.mtime_nsec()),
        };
        Ok(rustix::fs::utimensat(
            rustix::fs::CWD,
            OsStr::from_bytes(to.as_os_str().as_bytes()),
            &times,
            rustix::fs::AtFlags::empty(),
        )?)
    }

    /// An owner that the guest does not have stays the guest's root.
    fn own(&self, to: &Path, found: &fs::Metadata) -> io::Result<()> {
        let shifted = |id: u32| match self.shift {
            Some(range) => range.first + if id < range.count { id } else { 0 },
            None => id,
        };
        match std::os::unix::fs::lchown(to, Some(shifted(found.uid())), Some(shifted(found.gid())))
        {
            Err(e) if matches!(e.raw_os_error(), Some(1 | 22)) => Ok(()),
            other => other,
        }
    }
}
