//! Making a tree on the host from what a guest says.
//!
//! The guest is hostile: it chooses names, kinds, sizes and order. Every name is made relative to a folder that this
//! made or opened itself, one component at a time, without following links; sizes and counts are bounded; set-id bits,
//! owners, sockets and devices are never taken over; the host's umask holds.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use cosm_proto::agent::{Entry, FileKind};
use cosm_proto::files::split;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, fchmod, ftruncate,
    futimens, linkat, mkdirat, mknodat, openat, openat2, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::trees::{TreeLimits, TreeReport};
use crate::AgentError;
use crate::error::Violation;

/// What can go wrong with an entry.
#[derive(Debug)]
pub(super) enum Fault {
    /// The guest said something impossible.
    Hostile,
    /// A limit was passed.
    Limit(&'static str),
    /// The host's system said no.
    Host(io::Error),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Host(errno.into())
    }
}

/// Makes a tree in a folder of the host's, under one name.
pub(super) struct TreeWriter<'a> {
    into: BorrowedFd<'a>,
    name: &'a [u8],
    umask: u32,
    limits: TreeLimits,
    report: TreeReport,
    levels: Vec<Level>,
    file: Option<Open>,
    begun: bool,
}

struct Level {
    folder: OwnedFd,
    path: Vec<u8>,
    mode: u32,
    mtime: (i64, u32),
}

struct Open {
    file: OwnedFd,
    size: u64,
    end: u64,
    mode: u32,
    mtime: (i64, u32),
}

impl<'a> TreeWriter<'a> {
    pub(super) fn new(
        into: BorrowedFd<'a>,
        name: &'a [u8],
        umask: u32,
        limits: TreeLimits,
    ) -> Self {
        let report = TreeReport::default();
        Self {
            into,
            name,
            umask,
            limits,
            report,
            levels: Vec::new(),
            file: None,
            begun: false,
        }
    }

    pub(super) fn entry(&mut self, entry: &Entry) -> Result<(), Fault> {
        self.close_file()?;
        self.report.entries += 1;
        if self.report.entries > self.limits.entries {
            return Err(Fault::Limit("too many files"));
        }
        let (parent, name) = split(&entry.path).ok_or(Fault::Hostile)?;
        let is_root = name.is_empty();
        if is_root == self.begun {
            return Err(Fault::Hostile);
        }
        self.begun = true;
        while !is_root && self.levels.last().is_some_and(|level| level.path != parent) {
            self.close_level()?;
        }
        let (folder, name) = match self.levels.last() {
            None if is_root => (self.into, self.name),
            Some(level) if !is_root => (level.folder.as_fd(), name),
            _ => return Err(Fault::Hostile),
        };
        match (entry.kind, &entry.hard_link) {
            (FileKind::Directory, _) => {
                if self.levels.len() >= self.limits.depth {
                    return Err(Fault::Limit("too deep"));
                }
                let folder = make_folder(folder, name)?;
                let (path, mode, mtime) = (entry.path.clone(), entry.mode, entry.mtime);
                self.levels.push(Level {
                    folder,
                    path,
                    mode,
                    mtime,
                });
            }
            (FileKind::File, None) => {
                replace(folder, name)?;
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let file = openat(folder, name, flags, Mode::from_raw_mode(0o600))?;
                let (size, mode, mtime) = (entry.size, entry.mode, entry.mtime);
                self.file = Some(Open {
                    file,
                    size,
                    end: 0,
                    mode,
                    mtime,
                });
            }
            (FileKind::File, Some(earlier)) => {
                let (parent, earlier) = self.open_parent(earlier)?;
                replace(folder, name)?;
                linkat(&parent, earlier.as_slice(), folder, name, AtFlags::empty())?;
            }
            (FileKind::Symlink, _) => {
                replace(folder, name)?;
                let target = entry
                    .target
                    .as_deref()
                    .filter(|target| !target.contains(&0))
                    .ok_or(Fault::Hostile)?;
                symlinkat(target, folder, name)?;
                utimensat(folder, name, &times(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            (FileKind::Fifo, _) => {
                replace(folder, name)?;
                mknodat(
                    folder,
                    name,
                    FileType::Fifo,
                    Mode::from_raw_mode(entry.mode & 0o777),
                    0,
                )?;
            }
            (FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice, _) => {
                self.report.skipped += 1
            }
        }
        Ok(())
    }

    pub(super) fn part(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let open = self.file.as_mut().ok_or(Fault::Hostile)?;
        let end = offset
            .checked_add(bytes.len() as u64)
            .ok_or(Fault::Hostile)?;
        if offset < open.end || end > open.size || bytes.is_empty() {
            return Err(Fault::Hostile);
        }
        open.end = end;
        self.report.bytes += bytes.len() as u64;
        if self.report.bytes > self.limits.bytes {
            return Err(Fault::Limit("too many bytes"));
        }
        let (mut bytes, mut at) = (bytes, offset);
        while !bytes.is_empty() {
            let count = rustix::io::pwrite(&open.file, bytes, at)?;
            bytes = &bytes[count..];
            at += count as u64;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<TreeReport, Fault> {
        self.close_file()?;
        while !self.levels.is_empty() {
            self.close_level()?;
        }
        if self.begun {
            Ok(self.report)
        } else {
            Err(Fault::Hostile)
        }
    }

    /// What of a guest's mode a file on the host gets.
    fn mode(&self, mode: u32) -> Mode {
        Mode::from_raw_mode(mode & 0o777 & !self.umask)
    }

    fn close_file(&mut self) -> Result<(), Fault> {
        let Some(open) = self.file.take() else {
            return Ok(());
        };
        if open.end < open.size {
            ftruncate(&open.file, open.size)?;
        }
        fchmod(&open.file, self.mode(open.mode))?;
        Ok(futimens(&open.file, &times(open.mtime))?)
    }

    fn close_level(&mut self) -> Result<(), Fault> {
        let Some(level) = self.levels.pop() else {
            return Ok(());
        };
        fchmod(&level.folder, self.mode(level.mode))?;
        Ok(futimens(&level.folder, &times(level.mtime))?)
    }

    /// The folder of an earlier entry, below the root and by way of no link.
    fn open_parent(&self, path: &[u8]) -> Result<(OwnedFd, Vec<u8>), Fault> {
        let (parent, name) = split(path)
            .filter(|(_, name)| !name.is_empty())
            .ok_or(Fault::Hostile)?;
        let root = self.levels.first().ok_or(Fault::Hostile)?.folder.as_fd();
        let parent = if parent.is_empty() { &b"."[..] } else { parent };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok((
            openat2(root, parent, flags, Mode::empty(), resolve)?,
            name.to_vec(),
        ))
    }
}

impl Fault {
    /// As an error about this path on the host.
    pub(super) fn about(self, path: &std::path::Path) -> AgentError {
        match self {
            Self::Hostile => AgentError::Protocol(Violation::BadEntry),
            Self::Limit(what) => AgentError::TreeLimit(what),
            Self::Host(source) => AgentError::Host {
                path: path.to_owned(),
                source,
            },
        }
    }
}

fn make_folder(above: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Fault> {
    match mkdirat(above, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(above, name, flags, Mode::empty())?)
}

/// Makes way for a file. A folder in the way is an error.
fn replace(folder: BorrowedFd<'_>, name: &[u8]) -> Result<(), Fault> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn times(mtime: (i64, u32)) -> Timestamps {
    let time = Timespec {
        tv_sec: mtime.0,
        tv_nsec: i64::from(mtime.1.min(999_999_999)),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(path: &[u8]) -> Entry {
        Entry {
            path: path.to_vec(),
            kind: FileKind::File,
            mode: 0o6777,
            uid: 0,
            gid: 0,
            size: 4,
            allocated: 0,
            mtime: (1, 2),
            target: None,
            hard_link: None,
        }
    }

    fn folder(path: &[u8]) -> Entry {
        Entry {
            kind: FileKind::Directory,
            ..file(path)
        }
    }

    fn writer<'a>(into: &'a OwnedFd) -> TreeWriter<'a> {
        TreeWriter::new(into.as_fd(), b"out", 0o022, TreeLimits::default())
    }

    fn temporary() -> (tempfile::TempDir, OwnedFd) {
        let place = tempfile::tempdir().expect("a temporary folder");
        let held = std::fs::File::open(place.path()).expect("open");
        (place, held.into())
    }

    #[test]
    fn set_id_bits_stay_behind_and_the_umask_holds() {
        use std::os::unix::fs::PermissionsExt as _;
        let (place, into) = temporary();
        let mut tree = writer(&into);
        tree.entry(&file(b"")).expect("a file");
        tree.part(0, b"abcd").expect("its content");
        assert_eq!(tree.finish().expect("done").bytes, 4);
        let made = std::fs::metadata(place.path().join("out")).expect("it is there");
        assert_eq!(made.permissions().mode() & 0o7777, 0o755);
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let (_place, into) = temporary();
        let bad = |entries: &[Entry]| {
            let mut tree = writer(&into);
            entries
                .iter()
                .try_for_each(|entry| tree.entry(entry))
                .is_err()
        };
        for path in [
            &b"/etc/x"[..],
            b"..",
            b"../x",
            b"a/../../x",
            b"a//b",
            b"a/",
            b".",
            b"a\0b",
        ] {
            assert!(bad(&[folder(b""), file(path)]), "{path:?}");
        }
        assert!(bad(&[file(b"a")]), "a child without a root");
        assert!(bad(&[folder(b""), folder(b"")]), "two roots");
        assert!(
            bad(&[folder(b""), file(b"a/b")]),
            "a child without its folder"
        );
        assert!(
            bad(&[folder(b""), file(b"a"), file(b"a/b")]),
            "a child of a file"
        );
        let link = Entry {
            hard_link: Some(b"../../etc/passwd".to_vec()),
            ..file(b"x")
        };
        assert!(bad(&[folder(b""), link]), "a hard link out of the tree");
    }

    #[test]
    fn a_link_is_never_walked_through() {
        let (place, into) = temporary();
        std::fs::create_dir(place.path().join("outside")).expect("mkdir");
        let link = Entry {
            kind: FileKind::Symlink,
            target: Some(b"../outside".to_vec()),
            ..file(b"l")
        };
        let mut tree = writer(&into);
        tree.entry(&folder(b""))
            .and_then(|()| tree.entry(&link))
            .expect("a link is fine");
        assert!(
            tree.entry(&folder(b"l")).is_err(),
            "a folder in a link's place"
        );
        let mut tree = writer(&into);
        tree.entry(&folder(b"")).expect("again");
        let hard = Entry {
            hard_link: Some(b"l/x".to_vec()),
            ..file(b"h")
        };
        std::fs::write(place.path().join("outside/x"), "secret").expect("write");
        assert!(tree.entry(&hard).is_err(), "a hard link by way of a link");
        assert_eq!(
            std::fs::read_dir(place.path().join("outside"))
                .expect("list")
                .count(),
            1
        );
    }

    #[test]
    fn content_stays_within_its_size_and_limits() {
        let (_place, into) = temporary();
        let mut tree = writer(&into);
        tree.entry(&file(b"")).expect("a file");
        assert!(tree.part(2, b"abc").is_err(), "over its size");
        assert!(tree.part(u64::MAX, b"a").is_err(), "over all sizes");
        tree.part(2, b"ab").expect("the end");
        assert!(tree.part(0, b"a").is_err(), "backwards");
        let limits = TreeLimits {
            bytes: 3,
            ..TreeLimits::default()
        };
        let mut tree = TreeWriter::new(into.as_fd(), b"out", 0, limits);
        tree.entry(&file(b"")).expect("a file");
        assert!(matches!(tree.part(0, b"abcd"), Err(Fault::Limit(_))));
    }

    proptest! {
        /// Whatever names a guest thinks of, everything lands below the root.
        #[test]
        fn nothing_lands_outside(paths in proptest::collection::vec("(\\.\\.|\\.|a|b|/|//|\0){1,6}", 1..20)) {
            let (place, into) = temporary();
            let mut tree = writer(&into);
            for path in &paths {
                for entry in [folder(b""), folder(path.as_bytes()), file(path.as_bytes())] {
                    if tree.entry(&entry).is_err() { break; }
                }
            }
            drop(tree);
            let names: Vec<_> = std::fs::read_dir(place.path()).expect("list").map(|e| e.expect("entry").file_name()).collect();
            prop_assert!(names.iter().all(|name| name == "out"), "{:?}", names);
        }
    }
}
