//! How much of the disk a guest's files take, counted from outside while the guest may be changing them.
//!
//! A child process counts: it is in a user namespace with the guest's ids where they are not the caller's, it can be killed
//! when its time is over, and a file system that hangs holds nobody else up.

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cosm_driver::{IdMap, Measured};
use cosm_sys::idmap::{self, Kind};
use cosm_sys::process::{self, Child, CloneArgs, Namespaces, fork};
use cosm_sys::procfs;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;

/// What a file without contents takes: its inode.
const INODE: u64 = 512;
/// Room for the names of folders that are still to be looked into. Where there are more, some are left out.
const NAMES: usize = 64 << 20;
/// The counting child's descriptors: from where it hears that its ids are mapped, and where its answer goes.
const GO: i32 = 3;
const ANSWER: i32 = 4;
const PARKED: i32 = 16;

/// Counts the files in a folder, and those that the guest has removed but still open. Each part may take so long.
pub(crate) async fn files(
    init: i32,
    folder: PathBuf,
    ids: Option<IdMap>,
    time: Duration,
) -> io::Result<Measured> {
    let ids = ids.filter(|_| !rustix::process::geteuid().is_root());
    let kept = by_child(ids.as_ref(), time, || tree(&folder, Instant::now() + time)).await?;
    // Looking into the guest's processes takes the rights of who made them.
    let removed = by_child(None, time, || removed(init, Instant::now() + time)).await?;
    Ok(Measured {
        bytes: kept.bytes.saturating_add(removed.bytes),
        whole: kept.whole && removed.whole,
    })
}

async fn by_child(
    ids: Option<&IdMap>,
    time: Duration,
    work: impl FnOnce() -> io::Result<Measured>,
) -> io::Result<Measured> {
    let (go_reader, go_writer) = io::pipe()?;
    let (answer_reader, answer_writer) = io::pipe()?;
    let go = process::duplicate_above(go_reader.as_fd(), PARKED)?;
    let answer = process::duplicate_above(answer_writer.as_fd(), PARKED)?;
    let args = CloneArgs {
        namespaces: match ids {
            Some(_) => Namespaces::USER,
            None => Namespaces::default(),
        },
        cgroup: None,
    };
    let child = Counting(fork(&args, || {
        i32::from(count(work, &go, &answer).is_err())
    })?);
    drop((go, answer, go_reader, answer_writer));
    if let Some(ids) = ids {
        map(&child.0, ids)?;
    }
    rustix::io::write(&go_writer, b"1")?;
    let ended = crate::watch::until_ended(child.0.as_fd().try_clone_to_owned()?);
    match tokio::time::timeout(time + time / 4, ended).await {
        Ok(ended) => ended?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    }
    let mut bytes = [0_u8; 9];
    match rustix::io::read(&answer_reader, &mut bytes)? {
        9 => {
            let [whole, count @ ..] = bytes;
            Ok(Measured {
                bytes: u64::from_le_bytes(count),
                whole: whole == 1,
            })
        }
        _ => Err(io::Error::other("the files could not be counted")),
    }
}

/// A child that ends with whoever waits for it.
struct Counting(Child);

impl Drop for Counting {
    fn drop(&mut self) {
        // It has usually ended; nobody else reaps it.
        self.0.kill_and_wait().map(drop).unwrap_or_default();
    }
}

fn map(child: &Child, ids: &IdMap) -> io::Result<()> {
    let (users, groups) = (
        crate::remove::extents(&ids.users),
        crate::remove::extents(&ids.groups),
    );
    if ids.helper {
        return crate::maps::write_maps_with_helpers(child.pid(), &users, &groups);
    }
    idmap::deny_setgroups(child.pid())?;
    idmap::write(child.pid(), Kind::Users, &users)?;
    idmap::write(child.pid(), Kind::Groups, &groups)
}

fn count(
    work: impl FnOnce() -> io::Result<Measured>,
    go: &OwnedFd,
    answer: &OwnedFd,
) -> io::Result<()> {
    cosm_sys::caps::die_with_parent()?;
    process::place_fd(go.as_fd(), GO)?;
    process::place_fd(answer.as_fd(), ANSWER)?;
    // The keeper's connections must not stay open for as long as this takes.
    process::close_from(5)?;
    let (go, answer) = (
        cosm_sys::inherit::take(GO)?,
        cosm_sys::inherit::take(ANSWER)?,
    );
    let mut byte = [0_u8];
    if rustix::io::read(&go, &mut byte)? != 1 {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // Whoever works goes first; what can't be made to wait counts all the same.
    rustix::process::nice(10).unwrap_or_default();
    let measured = work()?;
    let mut bytes = [u8::from(measured.whole), 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[1..].copy_from_slice(&measured.bytes.to_le_bytes());
    rustix::io::write(&answer, &bytes)?;
    Ok(())
}

/// Counts the files on the guest's root that have no name any more and that its processes have open.
fn removed(init: i32, until: Instant) -> io::Result<Measured> {
    let wanted = StatxFlags::MNT_ID | StatxFlags::BASIC_STATS;
    let stat = |path: &str| rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), wanted);
    let mount = stat(&format!("/proc/{init}/root/."))?.stx_mnt_id;
    let (mut bytes, mut seen) = (0_u64, HashSet::new());
    let processes = procfs::descendants(init).into_iter().chain([init]);
    for pid in processes {
        // One that has ended has nothing open.
        let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for fd in open.flatten() {
            if Instant::now() > until {
                return Ok(Measured {
                    bytes,
                    whole: false,
                });
            }
            let Ok(found) = stat(&fd.path().to_string_lossy()) else {
                continue;
            };
            if found.stx_mnt_id == mount && found.stx_nlink == 0 && seen.insert(found.stx_ino) {
                bytes = bytes.saturating_add(found.stx_blocks * 512);
            }
        }
    }
    Ok(Measured { bytes, whole: true })
}

/// A folder on the way down.
struct Level {
    id: (u64, u64),
    /// Where the names of its folders that are still to be looked into begin.
    start: usize,
}

struct Walk {
    measured: Measured,
    /// Names of folders, each with a NUL at its end, those of the deepest level last.
    names: Vec<u8>,
    until: Instant,
}

/// Counts without following links. One descriptor and no stack for a level: guests nest as deep as they like.
fn tree(top: &Path, until: Instant) -> io::Result<Measured> {
    let mut walk = Walk {
        measured: Measured {
            bytes: 0,
            whole: true,
        },
        names: Vec::new(),
        until,
    };
    let mut here = rustix::fs::open(top, FOLDER, Mode::empty())?;
    let mut levels = vec![walk.list(&here)?];
    while let Some(level) = levels.last() {
        if Instant::now() > until {
            walk.measured.whole = false;
            break;
        }
        match walk.next_below(level.start) {
            Some(name) => {
                let name = CStr::from_bytes_with_nul(&name).map_err(io::Error::other)?;
                match rustix::fs::openat(&here, name, FOLDER, Mode::empty()) {
                    Ok(folder) => {
                        here = folder;
                        levels.push(walk.list(&here)?);
                    }
                    // It was removed or replaced meanwhile.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(_) => walk.measured.whole = false,
                }
            }
            None => {
                levels.pop();
                let Some(parent) = levels.last() else { break };
                here = rustix::fs::openat(&here, c"..", FOLDER, Mode::empty())?;
                if id(&rustix::fs::fstat(&here)?) != parent.id {
                    // It was moved; what is above it now is not what was being counted.
                    walk.measured.whole = false;
                    break;
                }
            }
        }
    }
    Ok(walk.measured)
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

const fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// A number whose width is another on each processor.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

impl Walk {
    /// Counts what is in a folder and notes the folders among it.
    fn list(&mut self, folder: &OwnedFd) -> io::Result<Level> {
        let level = Level {
            id: id(&rustix::fs::fstat(folder)?),
            start: self.names.len(),
        };
        for (index, found) in Dir::read_from(folder)?.enumerate() {
            let found = found?;
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if index % 256 == 0 && Instant::now() > self.until {
                self.measured.whole = false;
                break;
            }
            let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.add(&stat);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                if self.names.len() < NAMES {
                    self.names.extend_from_slice(name.to_bytes_with_nul());
                } else {
                    self.measured.whole = false;
                }
            }
        }
        Ok(level)
    }

    /// A file of several names is counted once: in parts, at each of them.
    fn add(&mut self, stat: &Stat) {
        let taken = u64::try_from(stat.st_blocks).unwrap_or(0) * 512 + INODE;
        let names = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => 1,
            _ => wide(stat.st_nlink).max(1),
        };
        self.measured.bytes = self.measured.bytes.saturating_add(taken / names);
    }

    fn next_below(&mut self, start: usize) -> Option<Vec<u8>> {
        let last = self
            .names
            .len()
            .checked_sub(1)
            .filter(|last| *last >= start)?;
        let begin = self.names[start..last]
            .iter()
            .rposition(|byte| *byte == 0)
            .map_or(start, |at| start + at + 1);
        Some(self.names.split_off(begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn all_is_counted_once() {
        let outer = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(outer.path().join("outside"), vec![1; 8 << 20]).expect("write");
        let top = outer.path().join("top");
        std::fs::create_dir_all(top.join("a/b")).expect("mkdir");
        std::fs::create_dir_all(top.join("c")).expect("mkdir");
        let empty = tree(&top, soon()).expect("counted");
        assert!(empty.whole && empty.bytes < 64 << 10, "{empty:?}");
        std::fs::write(top.join("a/b/one"), vec![1; 1 << 20]).expect("write");
        std::fs::write(top.join("c/two"), vec![1; 2 << 20]).expect("write");
        for name in ["c/same", "a/same"] {
            std::fs::hard_link(top.join("c/two"), top.join(name)).expect("link");
        }
        symlink(outer.path(), top.join("up")).expect("link");
        symlink(outer.path().join("outside"), top.join("a/out")).expect("link");
        let full = tree(&top, soon()).expect("counted");
        let grown = full.bytes - empty.bytes;
        assert!(
            full.whole && (3 << 20..(3 << 20) + (64 << 10)).contains(&grown),
            "{grown}"
        );
        let late = tree(&top, Instant::now()).expect("counted");
        assert!(!late.whole, "there was no time for it");
        assert!(tree(&top.join("none"), soon()).is_err());
    }

    #[test]
    fn depth_is_no_hiding_place() {
        let outer = tempfile::tempdir().expect("a temporary folder");
        let root = outer.path().join("root");
        std::fs::create_dir(&root).expect("mkdir");
        let mut at = rustix::fs::open(&root, FOLDER, Mode::empty()).expect("open");
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).expect("mkdir");
            at = rustix::fs::openat(&at, "d", FOLDER, Mode::empty()).expect("open");
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&at, "f", flags, Mode::RUSR).expect("create");
        rustix::io::write(&file, &[1; 1 << 20]).expect("write");
        drop(file);
        let found = tree(&root, soon()).expect("counted");
        assert!(found.whole && found.bytes > 1 << 20, "{found:?}");
        crate::remove::tree(&root).expect("removed");
    }
}
