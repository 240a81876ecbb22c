//! Trees between here, there and the host.

use alloc::vec::Vec;

use cosm_proto::agent::{Entry, FileKind, FileReply, TreeItem};
use cosm_proto::frame::{DATA_CHUNK, Kind};
use rustix::fs::fstat;
use rustix::io::Errno;

use super::tree::{Sink, walk};
use super::write_tree::TreeWriter;
use super::{About as _, Outcome, Stop};
use crate::link::{Link, message};

/// Sends a walk's findings to the host.
pub(super) struct ToHost<'a>(&'a mut Link);

impl<'a> ToHost<'a> {
    pub(super) fn new(link: &'a mut Link) -> Self {
        Self(link)
    }

    fn flush(&mut self) -> Outcome<()> {
        if self.0.queued() >= DATA_CHUNK {
            self.0.flush_all()?;
        }
        Ok(())
    }
}

impl Sink for ToHost<'_> {
    fn entry(&mut self, entry: &Entry) -> Outcome<()> {
        self.0.queue(&FileReply::Entry(entry.clone()))?;
        self.flush()
    }

    fn part(&mut self, offset: u64, bytes: &[u8]) -> Outcome<()> {
        self.0.queue(&FileReply::Chunk { offset })?;
        self.0.queue_raw(Kind::Data, bytes);
        self.flush()
    }
}

/// Makes a copy of a walk's findings in the guest.
struct ToGuest {
    to: Vec<u8>,
    writer: TreeWriter,
    recursive: bool,
    /// The copy's own place, which must not be copied into itself.
    own: Option<(u64, u64)>,
}

impl Sink for ToGuest {
    fn entry(&mut self, entry: &Entry) -> Outcome<()> {
        if entry.kind == FileKind::Directory && !self.recursive {
            return Err(Errno::ISDIR).about_below(&self.to, &entry.path);
        }
        self.writer
            .entry(entry)
            .about_below(&self.to, &entry.path)?;
        if self.own.is_none() {
            let root = self.writer.root_folder().and_then(|root| fstat(root).ok());
            self.own = root.map(|stat| (stat.st_dev, stat.st_ino));
        }
        Ok(())
    }

    fn part(&mut self, offset: u64, bytes: &[u8]) -> Outcome<()> {
        self.writer.part(offset, bytes).about(&self.to)
    }

    fn skips(&self, place: (u64, u64)) -> bool {
        self.own == Some(place)
    }
}

/// Copies within the guest. What has the target's name is replaced; folders are merged.
pub(super) fn copy(from: &[u8], to: &[u8], recursive: bool) -> Outcome<()> {
    if is_same(from, to) {
        return Err(Errno::INVAL).about(to);
    }
    let writer = TreeWriter::new(to.to_vec());
    let mut sink = ToGuest {
        to: to.to_vec(),
        writer,
        recursive,
        own: None,
    };
    walk(from, !recursive, &mut sink)?;
    sink.writer.finish().about(to)
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    let place = |path: &[u8]| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((place(one), place(other)), (Ok(one), Ok(other)) if one == other)
}

/// Makes what the host sends.
pub(super) fn receive(link: &mut Link, path: &[u8]) -> Outcome<()> {
    let mut writer = TreeWriter::new(path.to_vec());
    let mut last = Vec::new();
    loop {
        let (kind, payload) = link.wait_next()?;
        match message::<TreeItem>(kind, payload)? {
            TreeItem::End => break,
            TreeItem::Entry(entry) => {
                writer.entry(&entry).about_below(path, &entry.path)?;
                last = entry.path;
            }
            TreeItem::Chunk { offset } => {
                let (Kind::Data, bytes) = link.wait_next()? else {
                    return Err(Stop::Link);
                };
                writer.part(offset, bytes).about_below(path, &last)?;
            }
        }
    }
    writer.finish().about(path)
}
