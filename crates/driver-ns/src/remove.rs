//! Removing what guests left, whoever owns it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use cosm_driver::IdMap;
use cosm_sys::idmap::Extent;
use cosm_sys::process::{CloneArgs, Namespaces, fork};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::host::Caller;

/// Folders this far below the one to remove are moved up into it first: a guest nests as deep as it likes, and each level
/// takes a descriptor and some stack.
const DEPTH: u32 = 64;

/// Removes a folder and all below it, never following a link, never going into something that is mounted there, and
/// opening what its owner had closed. One that is not there is no error.
pub(crate) fn tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match rustix::fs::open(parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let mut raised = Raised::default();
    loop {
        let before = raised.count;
        match entry(parent.as_fd(), name.as_encoded_bytes(), 0, &mut raised) {
            // What was moved up after its place in the listing had been passed.
            Err(Errno::NOTEMPTY | Errno::EXIST) if raised.count > before => {}
            other => return Ok(other?),
        }
    }
}

/// Where deep folders go.
#[derive(Default)]
struct Raised {
    top: Option<OwnedFd>,
    count: u64,
}

impl Raised {
    fn raise(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        // It gets another parent, which only who may write to it may give it.
        drop(open(dir, name)?);
        let top = self.top.as_ref().ok_or(Errno::INVAL)?;
        loop {
            self.count += 1;
            let name_there = format!(".deep-{}", self.count);
            match rustix::fs::renameat_with(
                dir,
                name,
                top,
                name_there.as_str(),
                rustix::fs::RenameFlags::NOREPLACE,
            ) {
                Err(Errno::EXIST) => {}
                other => return other,
            }
        }
    }
}

fn entry(dir: BorrowedFd<'_>, name: &[u8], depth: u32, raised: &mut Raised) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // A folder, or something that is mounted over one.
        Err(Errno::ISDIR | Errno::PERM | Errno::ACCESS | Errno::BUSY) => {}
        Err(error) => return Err(error),
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => {}
        Err(Errno::NOENT) => return Ok(()),
        other => return other,
    }
    if depth > DEPTH {
        return raised.raise(dir, name);
    }
    let folder = open(dir, name)?;
    if depth == 0 {
        raised.top = Some(rustix::io::fcntl_dupfd_cloexec(&folder, 3)?);
    }
    contents(&folder, depth, raised)?;
    drop(folder);
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let all = Mode::RUSR | Mode::WUSR | Mode::XUSR;
    match open_here(dir, name, flags) {
        Err(Errno::ACCESS) => {
            let place = open_here(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
            open_up(&place, dir, name, all)?;
            open_here(dir, name, flags)
        }
        Ok(folder) => {
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode);
            if !mode.contains(all) {
                // Not the owner's: what is in it may still be removable.
                match rustix::fs::fchmod(&folder, all) {
                    Ok(()) | Err(Errno::PERM) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(folder)
        }
        other => other,
    }
}

/// Opens what lies in a folder itself: what is mounted there is somebody else's, and gives `EXDEV`.
fn open_here(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
        // A kernel before Linux 5.6.
        Err(Errno::NOSYS) => rustix::fs::openat(dir, name, flags, Mode::empty()),
        other => other,
    }
}

/// `chmod` of a name follows links, so that it is checked to be a folder first; only its owner could change it meanwhile,
/// and no guest runs any more.
fn open_up(place: &OwnedFd, dir: BorrowedFd<'_>, name: &[u8], mode: Mode) -> Result<(), Errno> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode);
    if kind != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    rustix::fs::chmodat(dir, name, mode, AtFlags::empty())
}

fn contents(folder: &OwnedFd, depth: u32, raised: &mut Raised) -> Result<(), Errno> {
    for found in Dir::read_from(folder)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if name != b"." && name != b".." {
            entry(folder.as_fd(), name, depth + 1, raised)?;
        }
    }
    Ok(())
}

/// As [`tree`], with the ids of the guest that wrote there: in a user namespace with its map, where everything it made
/// belongs to somebody that this process may act for.
pub(crate) fn with_ids(path: &Path, ids: Option<&IdMap>, caller: &Caller) -> io::Result<()> {
    let first = match tree(path) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let Some(ids) = ids.filter(|ids| ids.helper && *caller != Caller::Root) else {
        return Err(first);
    };
    let (go_reader, go_writer) = io::pipe()?;
    let (answer_reader, answer_writer) = io::pipe()?;
    let child = fork(
        &CloneArgs {
            namespaces: Namespaces::USER,
            cgroup: None,
        },
        || {
            let mut byte = [0_u8];
            if cosm_sys::caps::die_with_parent().is_err()
                || rustix::io::read(&go_reader, &mut byte) != Ok(1)
            {
                return 1;
            }
            let removed = cosm_sys::caps::become_user(0, 0, true)
                .map_err(io::Error::from)
                .and_then(|()| tree(path));
            let code = removed.err().and_then(|e| e.raw_os_error()).unwrap_or(0);
            i32::from(rustix::io::write(&answer_writer, &code.to_le_bytes()).is_err())
        },
    )?;
    drop(answer_writer);
    let mapped = crate::maps::write_maps_with_helpers(
        child.pid(),
        &extents(&ids.users),
        &extents(&ids.groups),
    )
    .and_then(|()| Ok(rustix::io::write(&go_writer, b"1")?));
    drop(go_writer);
    if let Err(error) = mapped {
        child.kill_and_wait()?;
        return Err(error);
    }
    let mut code = [0_u8; 4];
    let answered = rustix::io::read(&answer_reader, &mut code);
    child.wait()?;
    match (answered, i32::from_le_bytes(code)) {
        (Ok(4), 0) => tree(path),
        (Ok(4), code) => Err(io::Error::from_raw_os_error(code)),
        (Ok(_), _) => Err(first),
        (Err(error), _) => Err(error.into()),
    }
}

pub(crate) fn extents(map: &[(u32, u32, u32)]) -> Vec<Extent> {
    map.iter()
        .map(|(inside, outside, count)| Extent {
            inside: *inside,
            outside: *outside,
            count: *count,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_tree_deeper_than_there_are_descriptors_is_removed() {
        let outer = tempfile::tempdir().expect("a temporary folder");
        let root = outer.path().join("root");
        std::fs::create_dir(&root).expect("mkdir");
        let mut at = std::fs::File::open(&root).map(OwnedFd::from).expect("open");
        // More than the usual 1,024 descriptors, and than a stack holds of frames.
        for level in 0..30_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).expect("mkdir");
            if level % 1_000 == 0 {
                rustix::fs::mkdirat(&at, ".deep-1", Mode::RWXU).expect("mkdir");
            }
            at = open(at.as_fd(), b"d").expect("open");
        }
        drop(at);
        tree(&root).expect("removed");
        assert!(!root.exists());
    }

    #[test]
    fn closed_folders_and_links_are_no_obstacle() {
        let outer = tempfile::tempdir().expect("a temporary folder");
        let kept = outer.path().join("kept");
        std::fs::write(&kept, b"x").expect("write");
        let top = outer.path().join("top");
        std::fs::create_dir_all(top.join("a/b/c")).expect("folders");
        std::fs::write(top.join("a/b/file"), b"x").expect("write");
        symlink(&kept, top.join("a/link")).expect("link");
        symlink(outer.path(), top.join("up")).expect("link");
        for closed in ["a/b/c", "a/b", "a"] {
            std::fs::set_permissions(top.join(closed), std::fs::Permissions::from_mode(0o000))
                .expect("chmod");
        }
        tree(&top).expect("removed");
        assert!(!top.exists());
        assert!(kept.exists(), "a link's target is not what is removed");
        tree(&top).expect("nothing there is fine");
    }
}
