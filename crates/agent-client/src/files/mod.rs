//! Files in the guest.
//!
//! Paths here are the guest's, resolved by the guest; relative ones start at the sandbox's working directory.

mod stream;
mod trees;
mod walk;
mod watch;
mod write_tree;

pub use stream::{FileReader, FileWriter, WriteOptions};
pub use trees::{TreeLimits, TreeReport};
pub use watch::Watch;

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cosm_proto::agent::{Bytes, Entry, FileOp, FileReply, FileRequest, Request};
use cosm_proto::files::is_name;

use crate::client::hello;
use crate::error::Violation;
use crate::wire::{Reader, Writer};
use crate::{AgentClient, AgentError};

/// A listing longer than this is refused: it would not fit in memory, or is a hostile guest's.
const MAX_LISTING: usize = 4 << 20;

/// The guest's files, as one of its users sees them.
#[derive(Debug, Clone)]
pub struct Files {
    client: AgentClient,
    user: Option<Bytes>,
}

impl AgentClient {
    /// The guest's files, as the sandbox's user sees them.
    pub fn files(&self) -> Files {
        Files {
            client: self.clone(),
            user: None,
        }
    }
}

fn bytes(path: impl AsRef<Path>) -> Bytes {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

impl Files {
    /// As another user sees them: `name`, `id`, with `:group` after it.
    #[must_use]
    pub fn as_user(mut self, user: impl Into<Bytes>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// All of a file, if it is not larger than `cap` bytes.
    ///
    /// # Errors
    /// Like all operations here: [`AgentError::File`] with the guest's error number and path, and those of every
    /// operation. `File` with `EFBIG` if the file is larger than the cap.
    pub async fn read(&self, path: impl AsRef<Path>, cap: usize) -> Result<Vec<u8>, AgentError> {
        let path = bytes(path);
        let mut reader = self.open_read(&path, 0, cap as u64 + 1).await?;
        let mut all = Vec::new();
        while let Some(part) = reader.next().await? {
            all.extend_from_slice(&part);
            if all.len() > cap {
                return Err(AgentError::File(cosm_proto::agent::FileFailure {
                    errno: rustix::io::Errno::FBIG.raw_os_error(),
                    path,
                }));
            }
        }
        Ok(all)
    }

    /// A file's bytes from `offset` on, at most `length` of them, as a stream.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn read_stream(
        &self,
        path: impl AsRef<Path>,
        offset: u64,
        length: u64,
    ) -> Result<FileReader, AgentError> {
        self.open_read(&bytes(path), offset, length).await
    }

    async fn open_read(
        &self,
        path: &[u8],
        offset: u64,
        length: u64,
    ) -> Result<FileReader, AgentError> {
        let (reader, _) = self
            .begin(FileOp::Read {
                path: path.to_vec(),
                offset,
                length,
            })
            .await?;
        Ok(FileReader::new(self.client.clone(), reader, length))
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn write(
        &self,
        path: impl AsRef<Path>,
        content: &[u8],
        options: WriteOptions,
    ) -> Result<(), AgentError> {
        let mut writer = self.write_stream(path, options).await?;
        writer.write_all(content).await?;
        writer.finish().await
    }

    /// Begins to write a file. What was written is there for sure once [`FileWriter::finish`] says so.
    ///
    /// # Errors
    /// As [`Files::read`], though those of the guest may come only with the first or last write.
    pub async fn write_stream(
        &self,
        path: impl AsRef<Path>,
        options: WriteOptions,
    ) -> Result<FileWriter, AgentError> {
        let WriteOptions {
            mode,
            append,
            create_new,
        } = options;
        let op = FileOp::Write {
            path: bytes(path),
            mode,
            append,
            create_new,
        };
        let (reader, writer) = self.begin(op).await?;
        Ok(FileWriter::new(self.client.clone(), reader, writer))
    }

    /// What is in a folder, in no order, links not followed.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn list(&self, path: impl AsRef<Path>) -> Result<Vec<Entry>, AgentError> {
        let (mut reader, _writer) = self.begin(FileOp::List { path: bytes(path) }).await?;
        let mut found = Vec::new();
        loop {
            match self.client.answered(reader.message()).await? {
                FileReply::Entry(entry) if is_name(&entry.path) && found.len() < MAX_LISTING => {
                    found.push(entry)
                }
                FileReply::Entry(_) => return Err(AgentError::Protocol(Violation::BadEntry)),
                FileReply::Done => return Ok(found),
                other => return Err(refused(other)),
            }
        }
    }

    /// Describes a file; with `follow`, what a link points to.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn stat(&self, path: impl AsRef<Path>, follow: bool) -> Result<Entry, AgentError> {
        let answers = self
            .ask(FileOp::Stat {
                path: bytes(path),
                follow,
            })
            .await?;
        match answers {
            Some(FileReply::Entry(entry)) => Ok(entry),
            _ => Err(AgentError::out_of_place()),
        }
    }

    /// Whether there is such a file (a link counts, wherever it points).
    ///
    /// # Errors
    /// As [`Files::read`], but for `ENOENT` and `ENOTDIR`, which mean no.
    pub async fn exists(&self, path: impl AsRef<Path>) -> Result<bool, AgentError> {
        use rustix::io::Errno;
        match self.stat(path, false).await {
            Ok(_) => Ok(true),
            Err(AgentError::File(failure))
                if [Errno::NOENT, Errno::NOTDIR]
                    .iter()
                    .any(|e| e.raw_os_error() == failure.errno) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a folder; with `parents` also those above it, and none of them need be new. Default mode 0755.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn mkdir(
        &self,
        path: impl AsRef<Path>,
        mode: Option<u32>,
        parents: bool,
    ) -> Result<(), AgentError> {
        self.tell(FileOp::Mkdir {
            path: bytes(path),
            mode,
            parents,
        })
        .await
    }

    /// Removes a file, a link or an empty folder; with `recursive` a folder with all that is in it.
    ///
    /// # Errors
    /// As [`Files::read`]; `EINVAL` for a root, `.` and `..`.
    pub async fn remove(&self, path: impl AsRef<Path>, recursive: bool) -> Result<(), AgentError> {
        self.tell(FileOp::Remove {
            path: bytes(path),
            recursive,
        })
        .await
    }

    /// Copies within the guest, to exactly this name. A folder needs `recursive`, and is merged into one that is there.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn copy(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        recursive: bool,
    ) -> Result<(), AgentError> {
        self.tell(FileOp::Copy {
            from: bytes(from),
            to: bytes(to),
            recursive,
        })
        .await
    }

    /// Renames within the guest, as `rename(2)` does.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn rename(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<(), AgentError> {
        self.tell(FileOp::Rename {
            from: bytes(from),
            to: bytes(to),
        })
        .await
    }

    /// Makes a symbolic link at `path` that says `target`.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn symlink(
        &self,
        target: impl AsRef<Path>,
        path: impl AsRef<Path>,
    ) -> Result<(), AgentError> {
        self.tell(FileOp::Symlink {
            target: bytes(target),
            path: bytes(path),
        })
        .await
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn readlink(&self, path: impl AsRef<Path>) -> Result<PathBuf, AgentError> {
        use std::os::unix::ffi::OsStringExt as _;
        match self.ask(FileOp::Readlink { path: bytes(path) }).await? {
            Some(FileReply::Link(target)) => Ok(std::ffi::OsString::from_vec(target).into()),
            _ => Err(AgentError::out_of_place()),
        }
    }

    /// Sets the low 12 bits of a file's mode.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> Result<(), AgentError> {
        self.tell(FileOp::Chmod {
            path: bytes(path),
            mode,
        })
        .await
    }

    /// Sets a file's owner and group by their ids in the guest; `None` leaves one. With `link`, of the link itself.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn chown(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
        link: bool,
    ) -> Result<(), AgentError> {
        self.tell(FileOp::Chown {
            path: bytes(path),
            uid,
            gid,
            link,
        })
        .await
    }

    /// Watches a file, or the direct children of a folder.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn watch(&self, path: impl AsRef<Path>) -> Result<Watch, AgentError> {
        let (mut reader, writer) = self.begin(FileOp::Watch { path: bytes(path) }).await?;
        match self.client.answered(reader.message()).await? {
            FileReply::Done => Ok(Watch::new(reader, writer)),
            other => Err(refused(other)),
        }
    }

    async fn begin(&self, op: FileOp) -> Result<(Reader, Writer), AgentError> {
        let (reader, writer) = self.client.open().await?;
        self.client
            .answered(writer.message(&self.request(op)))
            .await?;
        Ok((reader, writer))
    }

    fn request(&self, op: FileOp) -> cosm_proto::agent::Hello {
        hello(Request::File(FileRequest {
            user: self.user.clone(),
            op,
        }))
    }

    /// An operation whose answer is `Done`, with at most one thing before it.
    async fn ask(&self, op: FileOp) -> Result<Option<FileReply>, AgentError> {
        let (mut reader, _writer) = self.begin(op).await?;
        let mut answer = None;
        loop {
            match self.client.answered(reader.message()).await? {
                FileReply::Done => return Ok(answer),
                reply @ (FileReply::Entry(_) | FileReply::Link(_)) if answer.is_none() => {
                    answer = Some(reply)
                }
                other => return Err(refused(other)),
            }
        }
    }

    async fn tell(&self, op: FileOp) -> Result<(), AgentError> {
        match self.ask(op).await? {
            None => Ok(()),
            Some(_) => Err(AgentError::out_of_place()),
        }
    }
}

/// The error in a reply that is not what was waited for.
fn refused(reply: FileReply) -> AgentError {
    match reply {
        FileReply::Failed(failure) => AgentError::File(failure),
        _ => AgentError::out_of_place(),
    }
}
