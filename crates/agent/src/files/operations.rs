//! The operations that are hardly more than a system call.

use alloc::vec::Vec;
use core::mem::MaybeUninit;

use cosm_proto::agent::FileReply;
use cosm_proto::files::PERMISSIONS;
use rustix::fd::AsFd as _;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RawDir, Uid, chmod as set_mode, chownat, mkdir as make, open,
    statat,
};
use rustix::io::Errno;

use super::entry::{describe, look};
use super::{About as _, Outcome};
use crate::link::Link;

/// Answers are sent in parcels of about this many bytes.
const PARCEL: usize = 32 << 10;

pub(super) fn list(link: &mut Link, path: &[u8]) -> Outcome<()> {
    let folder = open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .about(path)?;
    let mut space = [MaybeUninit::uninit(); 8192];
    let mut names = RawDir::new(folder.as_fd(), &mut space);
    while let Some(name) = names.next() {
        let name = name.about(path)?.file_name().to_bytes().to_vec();
        if matches!(name.as_slice(), b"." | b"..") {
            continue;
        }
        let (stat, target) = match look(folder.as_fd(), &name) {
            // Removed since.
            Err(Errno::NOENT) => continue,
            other => other.about(path)?,
        };
        link.queue(&FileReply::Entry(describe(name, &stat, target)))?;
        if link.queued() > PARCEL {
            link.flush_all()?;
        }
    }
    Ok(())
}

pub(super) fn stat(link: &mut Link, path: &[u8], follow: bool) -> Outcome<()> {
    let (stat, target) = if follow {
        (statat(CWD, path, AtFlags::empty()).about(path)?, None)
    } else {
        look(CWD, path).about(path)?
    };
    link.queue(&FileReply::Entry(describe(path.to_vec(), &stat, target)))?;
    Ok(())
}

pub(super) fn readlink(link: &mut Link, path: &[u8]) -> Outcome<()> {
    let target = rustix::fs::readlink(path, Vec::new()).about(path)?;
    link.queue(&FileReply::Link(target.into_bytes()))?;
    Ok(())
}

pub(super) fn mkdir(path: &[u8], mode: Option<u32>, parents: bool) -> Outcome<()> {
    if parents {
        for end in parent_ends(path) {
            make_if_missing(&path[..end])?;
        }
    }
    match make(path, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) if parents => is_folder(path)?,
        other => other.about(path)?,
    }
    // What the umask took away.
    mode.map_or(Ok(()), |mode| chmod(path, mode))
}

/// Where the proper prefixes of a path end, that name a folder each.
fn parent_ends(path: &[u8]) -> impl Iterator<Item = usize> {
    let ends = 1..path.len();
    ends.filter(move |end| {
        path[*end] == b'/'
            && path[*end - 1] != b'/'
            && path[*end..].iter().any(|byte| *byte != b'/')
    })
}

fn make_if_missing(path: &[u8]) -> Outcome<()> {
    match make(path, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => is_folder(path),
        // A file system that is read-only says so even of what is there.
        Err(Errno::ROFS) if is_folder(path).is_ok() => Ok(()),
        other => other.about(path),
    }
}

fn is_folder(path: &[u8]) -> Outcome<()> {
    let stat = statat(CWD, path, AtFlags::empty()).about(path)?;
    let folder = super::entry::kind(&stat) == cosm_proto::agent::FileKind::Directory;
    if folder {
        Ok(())
    } else {
        Err(Errno::NOTDIR).about(path)
    }
}

pub(super) fn chmod(path: &[u8], mode: u32) -> Outcome<()> {
    set_mode(path, Mode::from_raw_mode(mode & PERMISSIONS)).about(path)
}

pub(super) fn chown(path: &[u8], uid: Option<u32>, gid: Option<u32>, link: bool) -> Outcome<()> {
    if [uid, gid].contains(&Some(u32::MAX)) {
        return Err(Errno::INVAL).about(path);
    }
    let flags = if link {
        AtFlags::SYMLINK_NOFOLLOW
    } else {
        AtFlags::empty()
    };
    chownat(
        CWD,
        path,
        uid.map(Uid::from_raw),
        gid.map(Gid::from_raw),
        flags,
    )
    .about(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_what_lies_before_the_last_name() {
        let of = |path: &'static str| {
            parent_ends(path.as_bytes())
                .map(|end| &path[..end])
                .collect::<Vec<_>>()
        };
        assert_eq!(of("/a/b/c"), ["/a", "/a/b"]);
        assert_eq!(of("a//b/"), ["a"]);
        assert_eq!(of("/a"), [""; 0]);
        assert_eq!(of("/"), [""; 0]);
        assert_eq!(of(""), [""; 0]);
    }
}
