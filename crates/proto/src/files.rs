//! What both ends of a copy have to say of a file in the same way: how what a system tells becomes an [`Entry`], and which
//! paths an entry may have.

use crate::agent::{Bytes, Entry, FileKind};

/// The low 12 bits of a mode: permissions, set-id bits, sticky.
pub const PERMISSIONS: u32 = 0o7777;

/// What a system tells of a file (`struct stat`).
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// Kind and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: i64,
    /// Blocks of 512 bytes.
    pub blocks: i64,
    /// Last change, seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
}

impl Entry {
    /// The entry of a file that is told of as `path`.
    pub fn new(path: Bytes, told: Attributes, target: Option<Bytes>) -> Self {
        Self {
            path,
            kind: FileKind::of_mode(told.mode),
            mode: told.mode & PERMISSIONS,
            uid: told.uid,
            gid: told.gid,
            size: u64::try_from(told.size).unwrap_or(0),
            allocated: u64::try_from(told.blocks).unwrap_or(0).saturating_mul(512),
            mtime: told.mtime,
            target,
            hard_link: None,
        }
    }
}

impl FileKind {
    /// The kind in a mode, by the numbers that all Linux has. What is none of them counts as a file.
    pub const fn of_mode(mode: u32) -> Self {
        match mode & 0o170_000 {
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => Self::File,
        }
    }
}

/// Whether this is one name, and not a way out of its folder.
pub fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// The folder and the name of an entry's path; both are empty for the root's. `None` if any part of it is not a name.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return Some((b"", b""));
    }
    if !path.split(|byte| *byte == b'/').all(is_name) {
        return None;
    }
    let at = path.iter().rposition(|byte| *byte == b'/');
    Some(at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_or_refused() {
        assert_eq!(split(b""), Some((&b""[..], &b""[..])));
        assert_eq!(split(b"a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(split(b"a/b/..c"), Some((&b"a/b"[..], &b"..c"[..])));
        for bad in [
            &b"/"[..],
            b"/a",
            b"a/",
            b"a//b",
            b"..",
            b"a/../b",
            b"a/.",
            b"a\0b",
            b"./a",
        ] {
            assert_eq!(split(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn what_no_system_says_does_no_harm() {
        let told = Attributes {
            mode: u32::MAX,
            uid: 0,
            gid: 0,
            size: -1,
            blocks: i64::MAX,
            mtime: (i64::MIN, u32::MAX),
        };
        let entry = Entry::new(b"x".to_vec(), told, None);
        assert_eq!((entry.kind, entry.mode), (FileKind::File, PERMISSIONS));
        assert_eq!((entry.size, entry.allocated), (0, u64::MAX));
    }

    /// Against what this system says of its own.
    #[test]
    #[cfg(feature = "std")]
    fn kinds_are_those_of_the_system() {
        use std::os::unix::fs::MetadataExt as _;
        for (path, kind) in [
            ("/", FileKind::Directory),
            ("/proc/self", FileKind::Symlink),
            ("/proc/self/status", FileKind::File),
            ("/dev/null", FileKind::CharDevice),
        ] {
            let told = std::fs::symlink_metadata(path).expect(path);
            assert_eq!(FileKind::of_mode(told.mode()), kind, "{path}");
        }
    }
}
