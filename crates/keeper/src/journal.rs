//! What a keeper has to say when nobody listens: one line each in the sandbox's `keeper.log`.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use crate::clock;

/// The most that is quoted from the end of a log in an error.
const TAIL: u64 = 4096;
/// A journal does not grow beyond this.
const MAX: u64 = 256 << 10;

/// The journal of one sandbox. The file is made with the first line.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
}

impl Journal {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Adds a line. A journal that can't be written is no reason to stop.
    pub(crate) fn line(&self, text: &str) {
        // A passing sandbox has no folder until something has to be in it.
        if let Some(folder) = self.path.parent() {
            let made = DirBuilder::new().mode(0o700).create(folder);
            drop(made);
        }
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path);
        if let Ok(mut file) = opened
            && file.metadata().is_ok_and(|m| m.len() < MAX)
        {
            writeln!(file, "{} {text}", clock::now_ms()).unwrap_or_default();
        }
    }

    /// The end of it.
    pub(crate) fn tail(&self) -> Vec<u8> {
        let mut tail = Vec::new();
        if let Ok(mut file) = File::open(&self.path) {
            let length = file.metadata().map_or(0, |m| m.len());
            let read = file
                .seek(SeekFrom::Start(length.saturating_sub(TAIL)))
                .and_then(|_| file.take(TAIL).read_to_end(&mut tail));
            drop(read);
        }
        tail
    }
}
