//! A sandbox's files. Paths are the guest's, and the guest resolves them; relative ones start at its working directory.

use std::path::{Path, PathBuf};

use cosm_agent_client::AgentClient;
use cosm_agent_client::files::{FileReader, FileWriter, Files, Watch};
pub use cosm_agent_client::files::{TreeLimits, TreeReport, WriteOptions};
use cosm_base::ByteString;
pub use cosm_proto::agent::{Change, ChangeKind, Entry as FsEntry, FileKind};

use crate::control::{Control, Hold};
use crate::error::Result;

/// What [`Fs::read`] reads at most: 256 MiB.
const READ_CAP: usize = 256 << 20;

/// The files of a running sandbox. Each operation counts as use of the sandbox while it lasts.
///
/// Errors of the guest's carry its error number, see [`Error::errno`](crate::Error::errno).
#[derive(Debug, Clone)]
pub struct Fs {
    files: Files,
    control: Control,
}

impl Fs {
    pub(crate) fn new(agent: &AgentClient, control: Control) -> Self {
        Self {
            files: agent.files(),
            control,
        }
    }

    /// As another user sees them: `name`, `id`, with `:group` after it.
    #[must_use]
    pub fn as_user(self, user: &str) -> Self {
        Self {
            files: self.files.as_user(user),
            ..self
        }
    }

    async fn hold(&self) -> Result<Hold> {
        self.control
            .hold()
            .await?
            .granted(crate::wire::ANSWER)
            .await
    }

    /// All of a file of at most 256 MiB; see [`read_stream`](Self::read_stream) for more.
    ///
    /// # Errors
    /// As the guest says, `EFBIG` for a larger file.
    pub async fn read(&self, path: impl Into<ByteString>) -> Result<Vec<u8>> {
        let _hold = self.hold().await?;
        Ok(self.files.read(path.into().as_path(), READ_CAP).await?)
    }

    /// A file's bytes as they come.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn read_stream(&self, path: impl Into<ByteString>) -> Result<FsReadStream> {
        let hold = self.hold().await?;
        let reader = self
            .files
            .read_stream(path.into().as_path(), 0, u64::MAX)
            .await?;
        Ok(FsReadStream {
            reader,
            _hold: hold,
        })
    }

    /// Writes a whole file, with mode 0644 if it is new.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn write(
        &self,
        path: impl Into<ByteString>,
        content: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write_with(path, content, WriteOptions::default())
            .await
    }

    /// Writes a file.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn write_with(
        &self,
        path: impl Into<ByteString>,
        content: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self
            .files
            .write(path.into().as_path(), content.as_ref(), options)
            .await?)
    }

    /// Begins to write a file piece by piece.
    ///
    /// # Errors
    /// As the guest says; some only with the first piece or at the end.
    pub async fn write_stream(
        &self,
        path: impl Into<ByteString>,
        options: WriteOptions,
    ) -> Result<FsWriteSink> {
        let hold = self.hold().await?;
        let writer = self
            .files
            .write_stream(path.into().as_path(), options)
            .await?;
        Ok(FsWriteSink {
            writer,
            _hold: hold,
        })
    }

    /// What is in a folder, in no order; links are not followed.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn list(&self, path: impl Into<ByteString>) -> Result<Vec<FsEntry>> {
        let _hold = self.hold().await?;
        Ok(self.files.list(path.into().as_path()).await?)
    }

    /// Describes what a path leads to, through links.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn stat(&self, path: impl Into<ByteString>) -> Result<FsEntry> {
        let _hold = self.hold().await?;
        Ok(self.files.stat(path.into().as_path(), true).await?)
    }

    /// Describes what is at a path, a link itself if it is one.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn symlink_stat(&self, path: impl Into<ByteString>) -> Result<FsEntry> {
        let _hold = self.hold().await?;
        Ok(self.files.stat(path.into().as_path(), false).await?)
    }

    /// Whether something is at a path; a link counts, wherever it leads.
    ///
    /// # Errors
    /// As the guest says, but for what means no.
    pub async fn exists(&self, path: impl Into<ByteString>) -> Result<bool> {
        let _hold = self.hold().await?;
        Ok(self.files.exists(path.into().as_path()).await?)
    }

    /// Makes a folder and those above it; it is fine if they are there.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn mkdir(&self, path: impl Into<ByteString>) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self.files.mkdir(path.into().as_path(), None, true).await?)
    }

    /// Makes one folder with these permissions; it must be new.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn mkdir_new(&self, path: impl Into<ByteString>, mode: u32) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self
            .files
            .mkdir(path.into().as_path(), Some(mode), false)
            .await?)
    }

    /// Removes a file, a link or an empty folder.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn remove(&self, path: impl Into<ByteString>) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self.files.remove(path.into().as_path(), false).await?)
    }

    /// Removes a folder with all that is in it, or a file.
    ///
    /// # Errors
    /// As the guest says; `EINVAL` for a root.
    pub async fn remove_tree(&self, path: impl Into<ByteString>) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self.files.remove(path.into().as_path(), true).await?)
    }

    /// Copies a file or a tree within the guest, to exactly this name.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn copy(&self, from: impl Into<ByteString>, to: impl Into<ByteString>) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self
            .files
            .copy(from.into().as_path(), to.into().as_path(), true)
            .await?)
    }

    /// Renames within the guest, as `rename(2)` does.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn rename(
        &self,
        from: impl Into<ByteString>,
        to: impl Into<ByteString>,
    ) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self
            .files
            .rename(from.into().as_path(), to.into().as_path())
            .await?)
    }

    /// Makes a symbolic link at `path` that says `target`.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn symlink(
        &self,
        target: impl Into<ByteString>,
        path: impl Into<ByteString>,
    ) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self
            .files
            .symlink(target.into().as_path(), path.into().as_path())
            .await?)
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn readlink(&self, path: impl Into<ByteString>) -> Result<PathBuf> {
        let _hold = self.hold().await?;
        Ok(self.files.readlink(path.into().as_path()).await?)
    }

    /// Sets permissions: the low 12 bits of a mode.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn chmod(&self, path: impl Into<ByteString>, mode: u32) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self.files.chmod(path.into().as_path(), mode).await?)
    }

    /// Sets owners by their ids in the guest; `None` leaves one as it is.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn chown(
        &self,
        path: impl Into<ByteString>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        let _hold = self.hold().await?;
        Ok(self
            .files
            .chown(path.into().as_path(), uid, gid, false)
            .await?)
    }

    /// Watches a file, or the direct children of a folder. Counts as use of the sandbox for as long as it lives.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn watch(&self, path: impl Into<ByteString>) -> Result<FsWatch> {
        let hold = self.hold().await?;
        let watch = self.files.watch(path.into().as_path()).await?;
        Ok(FsWatch { watch, _hold: hold })
    }

    /// Copies a file or a tree of this host into the guest, to exactly this name, with modes and links.
    ///
    /// # Errors
    /// As the guest or this host says.
    pub async fn copy_from_host(
        &self,
        from: impl AsRef<Path>,
        to: impl Into<ByteString>,
    ) -> Result<TreeReport> {
        let _hold = self.hold().await?;
        Ok(self
            .files
            .copy_in(from.as_ref(), false, to.into().as_path())
            .await?)
    }

    /// Copies a file or a tree of the guest to this host, to exactly this name. The guest chooses neither where anything
    /// is written nor links that are followed.
    ///
    /// # Errors
    /// As the guest or this host says.
    pub async fn copy_to_host(
        &self,
        from: impl Into<ByteString>,
        to: impl AsRef<Path>,
    ) -> Result<TreeReport> {
        let limits = TreeLimits::default();
        let _hold = self.hold().await?;
        Ok(self
            .files
            .copy_out_to(from.into().as_path(), to.as_ref(), limits)
            .await?)
    }
}

/// A file's bytes as they come.
#[derive(Debug)]
pub struct FsReadStream {
    reader: FileReader,
    _hold: Hold,
}

impl FsReadStream {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.reader.next().await?)
    }
}

/// A file being written. Dropping it unfinished leaves what was written so far.
#[derive(Debug)]
pub struct FsWriteSink {
    writer: FileWriter,
    _hold: Hold,
}

impl FsWriteSink {
    /// Writes all of these bytes, as fast as the guest takes them.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.writer.write_all(bytes).await?)
    }

    /// Ends the file and waits until the guest has closed it.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn finish(self) -> Result<()> {
        Ok(self.writer.finish().await?)
    }
}

/// A watch on a file or a folder.
#[derive(Debug)]
pub struct FsWatch {
    watch: Watch,
    _hold: Hold,
}

impl FsWatch {
    /// The next change; waits for as long as it takes. Cancel-safe.
    ///
    /// # Errors
    /// The guest ended.
    pub async fn next(&mut self) -> Result<Change> {
        Ok(self.watch.next().await?)
    }
}
