//! The maps between a user namespace's ids and those outside.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use rustix::process::Pid;

/// `count` ids from `inside` on are those from `outside` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// A whole map of users or of groups, in no particular order. The kernel takes at most 340 extents.
pub type IdMap = Vec<Extent>;

/// The id inside that `outside` has, if it has one.
pub fn inside(map: &[Extent], outside: u32) -> Option<u32> {
    map.iter().find_map(|e| {
        outside
            .checked_sub(e.outside)
            .filter(|n| *n < e.count)
            .map(|n| e.inside + n)
    })
}

/// The id outside that `inside` has, if it has one.
pub fn outside(map: &[Extent], inside: u32) -> Option<u32> {
    map.iter().find_map(|e| {
        inside
            .checked_sub(e.inside)
            .filter(|n| *n < e.count)
            .map(|n| e.outside + n)
    })
}

/// The text that `/proc/<pid>/uid_map` takes.
pub fn render(map: &[Extent]) -> String {
    let mut text = String::with_capacity(map.len() * 24);
    for extent in map {
        // Writing to a String cannot fail.
        let written = writeln!(
            text,
            "{} {} {}",
            extent.inside, extent.outside, extent.count
        );
        debug_assert!(written.is_ok());
    }
    text
}

/// Which of a process's two maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Users,
    Groups,
}

impl Kind {
    const fn file(self) -> &'static str {
        match self {
            Self::Users => "uid_map",
            Self::Groups => "gid_map",
        }
    }
}

/// Writes a map of the user namespace that the process `pid` is in.
///
/// # Errors
/// `EPERM` where this process may not map these ids, or a map was written already.
pub fn write(pid: Pid, kind: Kind, map: &[Extent]) -> io::Result<()> {
    write_whole(
        &format!("/proc/{}/{}", pid.as_raw_nonzero(), kind.file()),
        render(map).as_bytes(),
    )
}

/// Forbids `setgroups` in the namespace of `pid`: the kernel asks for it before an ordinary user writes a group map.
///
/// # Errors
/// The group map was written already (`EPERM`).
pub fn deny_setgroups(pid: Pid) -> io::Result<()> {
    write_whole(
        &format!("/proc/{}/setgroups", pid.as_raw_nonzero()),
        b"deny",
    )
}

fn write_whole(path: &str, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    // The kernel takes a map in one write or not at all.
    match file.write(text)? {
        n if n == text.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Reads a file of `/etc/subuid`'s form for one user, by name or by number: the ranges that `newuidmap` lets it use.
pub fn subordinate_ranges(text: &str, name: &str, id: u32) -> Vec<(u32, u32)> {
    let number = id.to_string();
    text.lines()
        .filter_map(|line| {
            let mut parts = line.trim().split(':');
            let owner = parts.next()?;
            let start = parts.next()?.parse().ok()?;
            let count = parts.next()?.parse().ok()?;
            ((owner == name || owner == number) && count > 0).then_some((start, count))
        })
        .collect()
}

/// A descriptor of a new user namespace with these maps, made by a process that may write them directly.
///
/// It is what an id-mapped mount takes. The process that the namespace needed to be born has ended by then.
///
/// # Errors
/// No user namespace may be made, or the maps are refused.
pub fn namespace_with(users: &[Extent], groups: &[Extent]) -> io::Result<OwnedFd> {
    use crate::process::{CloneArgs, Namespaces, fork};
    let child = fork(
        &CloneArgs {
            namespaces: Namespaces::USER,
            cgroup: None,
        },
        || {
            // Killed by its maker, or with it.
            if crate::caps::die_with_parent().is_err() {
                return 1;
            }
            loop {
                rustix::event::pause();
            }
        },
    )?;
    let pid = child.pid();
    let made = write(pid, Kind::Users, users)
        .and_then(|()| write(pid, Kind::Groups, groups))
        .and_then(|()| {
            Ok(std::fs::File::open(format!("/proc/{}/ns/user", pid.as_raw_nonzero()))?.into())
        });
    let ended = child.kill_and_wait();
    let namespace = made?;
    ended?;
    Ok(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_go_both_ways() {
        let map = [
            Extent {
                inside: 0,
                outside: 1000,
                count: 1,
            },
            Extent {
                inside: 1,
                outside: 100_000,
                count: 65_535,
            },
        ];
        assert_eq!(inside(&map, 1000), Some(0));
        assert_eq!(inside(&map, 100_041), Some(42));
        assert_eq!(inside(&map, 1001), None);
        assert_eq!(outside(&map, 65_535), Some(165_534));
        assert_eq!(outside(&map, 65_536), None);
        assert_eq!(render(&map), "0 1000 1\n1 100000 65535\n");
    }

    #[test]
    fn subuid_lines() {
        let text = "# no\nann:100000:65536\n1001:200000:65536\nann:bad:1\nbob:1:0\nann:300000:10\n";
        assert_eq!(
            subordinate_ranges(text, "ann", 1000),
            [(100_000, 65_536), (300_000, 10)]
        );
        assert_eq!(subordinate_ranges(text, "x", 1001), [(200_000, 65_536)]);
        assert!(subordinate_ranges(text, "bob", 7).is_empty());
    }
}
