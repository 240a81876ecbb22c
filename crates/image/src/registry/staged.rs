//! Changing a file that others read and change at the same time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// The next content of a file, in a file beside it. Who holds it is the only one who changes the file: what was read
/// since then is what is replaced.
///
/// Its name is always the same. One that a killed process left behind is taken over by the next, so that secrets do not
/// lie about in several; its lock has gone with the process.
pub(crate) struct Staged {
    /// What is changed: where a link leads, since many keep such files in a repository of their own.
    path: PathBuf,
    beside: PathBuf,
    file: File,
    is_in_place: bool,
}

impl Staged {
    /// Waits until nobody else changes the file. Its folder is made if it is missing.
    pub(crate) fn claim(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let mut beside = path.clone().into_os_string();
        beside.push(".cosm-new");
        let beside = PathBuf::from(beside);
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                .open(&beside)?;
            match flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => continue,
                // Without locks, two changes at the same time may lose one of them.
                Ok(()) | Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
            // Whoever held it before has put it in place, or removed it.
            let is_there = fs::symlink_metadata(&beside).is_ok_and(|there| {
                file.metadata()
                    .is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
            });
            if is_there {
                return Ok(Self {
                    path,
                    beside,
                    file,
                    is_in_place: false,
                });
            }
        }
    }

    /// Puts the content in place, for this user alone. Who reads the file meanwhile sees the old one or the new one.
    pub(crate) fn replace(mut self, text: &[u8]) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(0o600))?;
        self.file.set_len(0)?;
        self.file.write_all(text)?;
        self.file.sync_all()?;
        fs::rename(&self.beside, &self.path)?;
        self.is_in_place = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // The lock is still held: it is this one's.
        if !self.is_in_place
            && let Err(error) = fs::remove_file(&self.beside)
        {
            tracing::debug!(%error, "removing what was begun");
        }
    }
}
