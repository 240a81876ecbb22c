//! What the keeper tells its starter.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use cosm_proto::frame;
use cosm_proto::keeper::{Event, Failure, ReadyReport};

/// The way to the starter, until the task is done.
#[derive(Debug)]
pub(crate) struct Report {
    stream: UnixStream,
}

impl Report {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { stream: fd.into() }
    }

    /// Says that something takes its time.
    pub(crate) fn phase(&mut self, name: &str) {
        self.say(&Event::Phase(name.to_owned()));
    }

    /// False if nobody heard it.
    pub(crate) fn ready(mut self, report: ReadyReport) -> bool {
        self.say(&Event::Ready(report))
    }

    pub(crate) fn failed(mut self, failure: Failure) {
        self.say(&Event::Failed(failure));
    }

    fn say(&mut self, event: &Event) -> bool {
        frame::message(event)
            .map_err(io::Error::other)
            .and_then(|bytes| self.stream.write_all(&bytes))
            .is_ok()
    }
}
