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

    /// The end of what was written since then, milliseconds since 1970.
    pub(crate) fn tail(&self, since: Option<u64>) -> Vec<u8> {
        let mut tail = Vec::new();
        if let Ok(mut file) = File::open(&self.path) {
            let length = file.metadata().map_or(0, |m| m.len());
            let read = file
                .seek(SeekFrom::Start(length.saturating_sub(TAIL)))
                .and_then(|_| file.take(TAIL).read_to_end(&mut tail));
            drop(read);
        }
        newer(&tail, since.unwrap_or(0)).to_vec()
    }
}

/// From the first line on that was written since then. A cut first line has no time of its own.
fn newer(log: &[u8], since: u64) -> &[u8] {
    let mut at = 0;
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        let time = line.split(|byte| *byte == b' ').next();
        let time = time.and_then(|digits| str::from_utf8(digits).ok()?.parse::<u64>().ok());
        if time.is_some_and(|time| time >= since) {
            break;
        }
        at += line.len();
    }
    &log[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_of_one_run() {
        let log = b"77 cut\n1000 before\n2000 at\nmore of it\n3000 after\n";
        assert_eq!(newer(log, 2000), &log[19..]);
        assert_eq!(newer(log, 3001), b"");
        assert_eq!(newer(b"", 0), b"");
    }

    #[test]
    fn nothing_written_is_no_tail() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::new(folder.path().join("keeper.log"));
        assert_eq!(journal.tail(None), b"");
        let before = clock::now_ms();
        journal.line("a complaint");
        let tail = journal.tail(Some(before));
        assert!(tail.ends_with(b" a complaint\n"), "{tail:?}");
        assert_eq!(journal.tail(Some(u64::MAX)), b"");
    }
}
