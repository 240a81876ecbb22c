//! Telling of changes.

use core::mem::MaybeUninit;

use cosm_proto::agent::{Change, ChangeKind, FileReply};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

use super::{About as _, Outcome};
use crate::link::Link;

/// Until the host closes the connection.
pub(super) fn watch(link: &mut Link, path: &[u8]) -> Outcome<()> {
    let changes = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).about(path)?;
    let wanted = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVE_SELF;
    add_watch(&changes, path, wanted).about(path)?;
    link.send(&FileReply::Done)?;
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(&changes, &mut space);
    loop {
        match events.next() {
            Ok(event) => {
                if let Some(kind) = kind(event.events()) {
                    let name = event
                        .file_name()
                        .map(|name| name.to_bytes().to_vec())
                        .unwrap_or_default();
                    link.send(&FileReply::Changed(Change { kind, name }))?;
                }
            }
            Err(Errno::AGAIN) => wait(link, &changes)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).about(path),
        }
    }
}

/// For a change, or for the host to close.
fn wait(link: &mut Link, changes: &rustix::fd::OwnedFd) -> Outcome<()> {
    let mut wanted = [
        PollFd::new(&*link, PollFlags::IN),
        PollFd::new(changes, PollFlags::IN),
    ];
    match poll(&mut wanted, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno).about(b""),
    }
    if !wanted[0].revents().is_empty() {
        link.fill()?;
    }
    Ok(())
}

fn kind(events: ReadFlags) -> Option<ChangeKind> {
    let kinds = [
        (ReadFlags::CREATE, ChangeKind::Created),
        (ReadFlags::MODIFY, ChangeKind::Modified),
        (ReadFlags::ATTRIB, ChangeKind::Attributes),
        (ReadFlags::DELETE, ChangeKind::Removed),
        (ReadFlags::DELETE_SELF, ChangeKind::Removed),
        (ReadFlags::MOVED_FROM, ChangeKind::MovedFrom),
        (ReadFlags::MOVE_SELF, ChangeKind::MovedFrom),
        (ReadFlags::MOVED_TO, ChangeKind::MovedTo),
        (ReadFlags::QUEUE_OVERFLOW, ChangeKind::Overflow),
    ];
    kinds
        .into_iter()
        .find(|(flag, _)| events.contains(*flag))
        .map(|(_, kind)| kind)
}
