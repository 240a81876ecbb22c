//! Paths in the guest's root, whose folders and links are an image's: not ours.
//!
//! The process that builds the root still holds descriptors of the host's, which only its `exec` closes. A link of the
//! image into `/proc/self/fd` would lead set-up through them, so that no such link is followed: each path's folders are
//! opened with `openat2`, and what is made is made in them by its last name alone. Nothing here allocates.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use cosm_sys::Errno;
use cosm_sys::mount;
use rustix::fs::OFlags;

/// The guest's root, and the folder in it that was used last: most of what is made one after the other lies together.
#[derive(Debug)]
pub(crate) struct Inside<'t> {
    root: OwnedFd,
    last: Option<(&'t [u8], OwnedFd)>,
}

impl<'t> Inside<'t> {
    /// Of the process's own root folder, which must be the guest's.
    pub(crate) fn enter() -> Result<Self, Errno> {
        Ok(Self {
            root: mount::open_place(mount::here(), c"/")?,
            last: None,
        })
    }

    /// The folder that `path` lies in, and its name there.
    pub(crate) fn folder_of(
        &mut self,
        path: &'t CStr,
    ) -> Result<(BorrowedFd<'_>, &'t CStr), Errno> {
        let (parent, name) = split(path)?;
        Ok((self.folder(parent)?, name))
    }

    /// Opens what is at `path`, links followed.
    pub(crate) fn open(&self, path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        mount::open_in(self.root.as_fd(), path, flags)
    }

    /// Makes the folders that `path` lies in, as far as they are missing.
    pub(crate) fn make_folders_of(&mut self, path: &'t CStr) -> Result<(), Errno> {
        let (parent, _) = split(path)?;
        match self.folder(parent) {
            Err(Errno::NOENT) => {}
            other => return other.map(drop),
        }
        for end in (1..=parent.len()).filter(|at| *at == parent.len() || parent[*at] == b'/') {
            let part = &parent[..end];
            let start = part.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
            let (above, name) = (&part[..start.saturating_sub(1)], &part[start..]);
            let above = self.folder(above)?;
            with_nul(name, |name| crate::child::folder_in(above, name, 0o755))?;
        }
        self.folder(parent).map(drop)
    }

    /// To be told of what was mounted: a folder that is known by its path may be below it now.
    pub(crate) fn covered(&mut self, path: &CStr) {
        let beside = split(path).is_ok_and(|(parent, _)| {
            self.last
                .as_ref()
                .is_some_and(|(known, _)| *known == parent)
        });
        if !beside {
            self.last = None;
        }
    }

    fn folder(&mut self, path: &'t [u8]) -> Result<BorrowedFd<'_>, Errno> {
        if path.is_empty() {
            return Ok(self.root.as_fd());
        }
        if !matches!(&self.last, Some((known, _)) if *known == path) {
            let root = self.root.as_fd();
            let folder = with_nul(path, |path| mount::open_in(root, path, OFlags::PATH))?;
            self.last = Some((path, folder));
        }
        self.last
            .as_ref()
            .map(|(_, folder)| folder.as_fd())
            .ok_or(Errno::BADF)
    }
}

/// The folders' part of an absolute path, without the slash at its end, and the last name.
fn split(path: &CStr) -> Result<(&[u8], &CStr), Errno> {
    let bytes = path.to_bytes_with_nul();
    let slash = bytes.iter().rposition(|b| *b == b'/').ok_or(Errno::INVAL)?;
    let name = CStr::from_bytes_with_nul(&bytes[slash + 1..]).map_err(|_| Errno::INVAL)?;
    // The root itself, which is nowhere.
    if name.is_empty() {
        return Err(Errno::BUSY);
    }
    Ok((&bytes[..slash], name))
}

/// A part of a path as the kernel wants it.
fn with_nul<T>(part: &[u8], then: impl FnOnce(&CStr) -> Result<T, Errno>) -> Result<T, Errno> {
    let mut buffer = [0_u8; 4096];
    buffer
        .get_mut(..part.len())
        .ok_or(Errno::NAMETOOLONG)?
        .copy_from_slice(part);
    let text = buffer
        .get(..=part.len())
        .ok_or(Errno::NAMETOOLONG)
        .and_then(|bytes| CStr::from_bytes_with_nul(bytes).map_err(|_| Errno::INVAL))?;
    then(text)
}
