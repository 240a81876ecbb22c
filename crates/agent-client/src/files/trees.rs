//! Copying trees between host and guest.
//!
//! The host's half of this is file system work, so it runs on a thread of its own, over the same kind of connection.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cosm_proto::agent::{FileOp, FileReply, Hello, TreeItem};
use cosm_proto::files::is_name;
use cosm_proto::frame::{self, DATA_CHUNK, HEADER, Kind};
use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;

use super::write_tree::TreeWriter;
use super::{Files, bytes, refused, walk};
use crate::connect::connect;
use crate::{AgentError, wire};

/// What a guest may make of a copy to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// Bytes of content. Default: no limit but the disk's.
    pub bytes: u64,
    /// Files, folders, links. Default 10 million.
    pub entries: u64,
    /// Folders in folders; each takes a descriptor. Default 512.
    pub depth: usize,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self {
            bytes: u64::MAX,
            entries: 10_000_000,
            depth: 512,
        }
    }
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeReport {
    /// Files, folders, links, and what was left out.
    pub entries: u64,
    /// Bytes of content; holes are not counted, and not copied.
    pub bytes: u64,
    /// Sockets and devices, which are left out.
    pub skipped: u64,
}

impl Files {
    /// Copies a file or a tree from the guest to the host: to the name `name` in the folder `into`, which the caller
    /// holds open. What has that name is replaced, folders are merged. Modes (without set-id bits, under the umask),
    /// times, holes and links are kept; everything belongs to the caller.
    ///
    /// # Errors
    /// [`AgentError::File`] for the guest's side, [`AgentError::Host`] for the host's, [`AgentError::TreeLimit`], and
    /// those of every operation. What was copied until then stays.
    pub async fn copy_out(
        &self,
        from: impl AsRef<Path>,
        follow: bool,
        into: OwnedFd,
        name: &OsStr,
        limits: TreeLimits,
    ) -> Result<TreeReport, AgentError> {
        let name = name.as_bytes().to_vec();
        if !is_name(&name) {
            return Err(AgentError::Host {
                path: to_path(&name),
                source: io::ErrorKind::InvalidInput.into(),
            });
        }
        let hello = self.request(FileOp::SendTree {
            path: bytes(from),
            follow,
        });
        self.on_thread(hello, move |link| receive(link, into, &name, limits))
            .await
    }

    /// [`Files::copy_out`] to a path on the host. Its parent is the caller's to name, by way of links too.
    ///
    /// # Errors
    /// As [`Files::copy_out`].
    pub async fn copy_out_to(
        &self,
        from: impl AsRef<Path>,
        to: &Path,
        limits: TreeLimits,
    ) -> Result<TreeReport, AgentError> {
        let host = |source: io::Error| AgentError::Host {
            path: to.to_owned(),
            source,
        };
        let name = to
            .file_name()
            .ok_or_else(|| host(io::ErrorKind::InvalidInput.into()))?;
        let parent = to
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let into = open(parent, flags, Mode::empty()).map_err(|errno| host(errno.into()))?;
        let copied = self.copy_out(from, false, into, name, limits).await;
        copied.map_err(|error| match error {
            AgentError::Host { path, source } => AgentError::Host {
                path: to.with_file_name("").join(path),
                source,
            },
            other => other,
        })
    }

    /// Copies a file or a tree from the host to exactly this name in the guest. What has that name is replaced, folders
    /// are merged. Modes, times, holes and links are kept; everything belongs to the user that acts.
    ///
    /// # Errors
    /// As [`Files::copy_out`].
    pub async fn copy_in(
        &self,
        from: impl Into<PathBuf>,
        follow: bool,
        to: impl AsRef<Path>,
    ) -> Result<TreeReport, AgentError> {
        let from = from.into();
        let hello = self.request(FileOp::ReceiveTree { path: bytes(to) });
        self.on_thread(hello, move |link| send(link, &from, follow))
            .await
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        hello: Hello,
        work: impl FnOnce(&mut Link) -> Result<T, AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        let deadlines = *self.client.deadlines();
        let stream = connect(self.client.socket(), deadlines.connect).await?;
        let stream = stream.into_std().map_err(AgentError::Io)?;
        let guard = Abandon(stream.try_clone().map_err(AgentError::Io)?);
        let done = tokio::task::spawn_blocking(move || {
            let mut link = Link::new(stream, deadlines.answer)?;
            link.queue(&hello)?;
            link.flush()?;
            work(&mut link)
        });
        let result = done
            .await
            .unwrap_or_else(|error| Err(AgentError::Io(io::Error::other(error))));
        drop(guard);
        result
    }
}

/// Ends the connection when the caller no longer waits, and so the thread that works on it.
struct Abandon(UnixStream);

impl Drop for Abandon {
    fn drop(&mut self) {
        rustix::net::shutdown(self.0.as_fd(), rustix::net::Shutdown::Both).unwrap_or_default();
    }
}

fn receive(
    link: &mut Link,
    into: OwnedFd,
    name: &[u8],
    limits: TreeLimits,
) -> Result<TreeReport, AgentError> {
    let mut tree = TreeWriter::new(into.as_fd(), name, umask(), limits);
    let mut last = to_path(name);
    loop {
        match link.message()? {
            FileReply::Entry(entry) => {
                last = to_path(name);
                if !entry.path.is_empty() {
                    last.push(to_path(&entry.path));
                }
                tree.entry(&entry).map_err(|fault| fault.about(&last))?;
            }
            FileReply::Chunk { offset } => {
                let (Kind::Data, bytes) = link.next()? else {
                    return Err(AgentError::out_of_place());
                };
                tree.part(offset, bytes)
                    .map_err(|fault| fault.about(&last))?;
            }
            FileReply::Done => return tree.finish().map_err(|fault| fault.about(&last)),
            other => return Err(refused(other)),
        }
    }
}

fn send(link: &mut Link, from: &Path, follow: bool) -> Result<TreeReport, AgentError> {
    let sent = walk::walk(from, follow, link).and_then(|report| {
        link.queue(&TreeItem::End)?;
        link.flush()?;
        Ok(report)
    });
    // A guest that gave up closes; what it said before tells why.
    let report = match sent {
        Ok(report) => Ok(report),
        Err(AgentError::Lost) => Err(AgentError::Lost),
        Err(error) => return Err(error),
    };
    match link.message()? {
        FileReply::Done => report,
        other => Err(refused(other)),
    }
}

fn to_path(name: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name))
}

/// The process's umask, read without changing it: other threads make files too.
fn umask() -> u32 {
    const CAREFUL: u32 = 0o077;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok())
        .unwrap_or(CAREFUL)
}

/// The connection of a thread that may wait.
pub(super) struct Link {
    stream: UnixStream,
    patience: Duration,
    input: Vec<u8>,
    start: usize,
    output: Vec<u8>,
}

impl Link {
    fn new(stream: UnixStream, patience: Duration) -> Result<Self, AgentError> {
        stream.set_nonblocking(false).map_err(AgentError::Io)?;
        stream
            .set_read_timeout(Some(patience))
            .map_err(AgentError::Io)?;
        stream
            .set_write_timeout(Some(patience))
            .map_err(AgentError::Io)?;
        Ok(Self {
            stream,
            patience,
            input: Vec::new(),
            start: 0,
            output: Vec::new(),
        })
    }

    fn next(&mut self) -> Result<(Kind, &[u8]), AgentError> {
        let (kind, length) = loop {
            let waiting = &self.input[self.start..];
            if let Some(header) = waiting.first_chunk::<HEADER>() {
                let (kind, length) = frame::parse_header(*header)?;
                if waiting.len() >= HEADER + length {
                    break (kind, length);
                }
            }
            self.fill()?;
        };
        let from = self.start + HEADER;
        self.start = from + length;
        Ok((kind, &self.input[from..from + length]))
    }

    fn message(&mut self) -> Result<FileReply, AgentError> {
        let (kind, payload) = self.next()?;
        wire::Frame { kind, payload }.message()
    }

    fn fill(&mut self) -> Result<(), AgentError> {
        self.input.drain(..self.start);
        self.start = 0;
        let mut chunk = [0; DATA_CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(AgentError::Lost),
            Ok(count) => {
                self.input.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    pub(super) fn queue<T: Serialize>(&mut self, value: &T) -> Result<(), AgentError> {
        self.output.extend_from_slice(&frame::message(value)?);
        self.relieve()
    }

    pub(super) fn queue_data(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        self.output
            .extend_from_slice(&frame::header(Kind::Data, bytes.len() as u32));
        self.output.extend_from_slice(bytes);
        self.relieve()
    }

    fn relieve(&mut self) -> Result<(), AgentError> {
        if self.output.len() >= DATA_CHUNK {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), AgentError> {
        let sent = self.stream.write_all(&self.output);
        self.output.clear();
        sent.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> AgentError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AgentError::Silent {
                waiting_for: "copying files",
                after: self.patience,
            },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AgentError::Lost,
            _ => AgentError::Io(error),
        }
    }
}
