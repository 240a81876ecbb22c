//! Reading and writing what is in a file.

use cosm_proto::files::PERMISSIONS;
use cosm_proto::frame::{DATA_CHUNK, Kind};
use rustix::fs::{Mode, OFlags, SeekFrom, fchmod, open, seek};
use rustix::io::Errno;

use super::{About as _, Outcome, Stop};
use crate::link::Link;

pub(super) fn read(link: &mut Link, path: &[u8], offset: u64, length: u64) -> Outcome<()> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).about(path)?;
    if offset > 0 {
        seek(&file, SeekFrom::Start(offset)).about(path)?;
    }
    let mut left = length;
    let mut chunk = alloc::vec![0; DATA_CHUNK];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(DATA_CHUNK).min(DATA_CHUNK);
        match rustix::io::read(&file, &mut chunk[..most]) {
            Ok(0) => break,
            Ok(count) => {
                link.queue_raw(Kind::Data, &chunk[..count]);
                link.flush_all()?;
                left -= count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).about(path),
        }
    }
    Ok(())
}

pub(super) fn write(
    link: &mut Link,
    path: &[u8],
    mode: Option<u32>,
    append: bool,
    create_new: bool,
) -> Outcome<()> {
    let mut flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    flags |= if append {
        OFlags::APPEND
    } else {
        OFlags::TRUNC
    };
    if create_new {
        flags |= OFlags::EXCL;
    }
    let existed = !create_new && rustix::fs::stat(path).is_ok();
    let file = open(path, flags, Mode::from_raw_mode(0o644)).about(path)?;
    let mode = mode
        .filter(|_| !existed)
        .map(|mode| Mode::from_raw_mode(mode & PERMISSIONS));
    if let Some(mode) = mode {
        fchmod(&file, mode).about(path)?;
    }
    loop {
        let (kind, bytes) = link.wait_next()?;
        if kind != Kind::Data {
            return Err(Stop::Link);
        }
        if bytes.is_empty() {
            break;
        }
        write_all(&file, bytes).about(path)?;
    }
    // What anybody but root writes takes the set-id bits away.
    if let Some(mode) = mode.filter(|mode| mode.intersects(Mode::SUID | Mode::SGID)) {
        fchmod(&file, mode).about(path)?;
    }
    // A full disk may be told only here.
    cosm_sys_guest::close(file).about(path)
}

fn write_all(file: &rustix::fd::OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
