//! What a keeper writes down of its sandbox while it keeps it: records in one file that grows.
//!
//! A record is a line that begins with its kind; the last one of a kind holds. A line without its end is still being
//! written, or was when the machine lost its power, and does not count. Files that are replaced as a whole would be as
//! safe, but each makes and removes a file, which many disks do slower than all else in a start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cosm_base::SandboxDir;

use crate::{StateError, replace_file};

/// A file that is longer than this is written anew, with the records that hold.
const LONG: u64 = 64 << 10;

/// What a line records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Phase = b'p',
    Run = b'r',
}

/// Adds a record: to the file of a passing sandbox if it has one, else to the one in the sandbox's folder.
pub(crate) fn add(dir: &SandboxDir, kind: Kind, record: &[u8]) -> Result<(), StateError> {
    debug_assert!(!record.contains(&b'\n'));
    let line = [&[kind as u8], record, b"\n"].concat();
    let open = |path: &Path, create| {
        OpenOptions::new()
            .read(true)
            .append(true)
            .create(create)
            .mode(0o600)
            .open(path)
    };
    let (path, opened) = match open(dir.passing(), false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let path = dir.records();
            let opened = open(&path, true);
            (path, opened)
        }
        opened => (dir.passing().to_owned(), opened),
    };
    let added = opened.and_then(|file| append(file, &line));
    let length = added.map_err(StateError::io("writing", &path))?;
    if length > LONG && path == dir.records() {
        shorten(&path)?;
    }
    Ok(())
}

/// Adds a line and answers the file's length before.
fn append(mut file: File, line: &[u8]) -> io::Result<u64> {
    let before = file.metadata()?.len();
    let mut end = [b'\n'];
    if let Some(last) = before.checked_sub(1) {
        file.read_exact_at(&mut end, last)?;
    }
    // What was being written when the machine lost its power ends here.
    let line = match end {
        [b'\n'] => line.to_vec(),
        _ => [b"\n", line].concat(),
    };
    match file.write_all(&line) {
        Ok(()) => Ok(before),
        // A full disk must not leave half a line for the next one to follow.
        Err(error) => Err(file.set_len(before).err().unwrap_or(error)),
    }
}

fn shorten(path: &Path) -> Result<(), StateError> {
    let text = text(path)?.unwrap_or_default();
    let mut short = Vec::new();
    for kind in [Kind::Run, Kind::Phase] {
        if let Some(record) = last_in(&text, kind) {
            short.extend_from_slice(&[&[kind as u8], record, b"\n"].concat());
        }
    }
    replace_file(path, &short)
}

/// The last record of a kind, with the file that it is in.
pub(crate) fn last(dir: &SandboxDir, kind: Kind) -> Result<Option<(PathBuf, Vec<u8>)>, StateError> {
    for path in [dir.passing().to_owned(), dir.records()] {
        if let Some(text) = text(&path)? {
            return Ok(last_in(&text, kind).map(|record| (path, record.to_vec())));
        }
    }
    Ok(None)
}

fn last_in(text: &[u8], kind: Kind) -> Option<&[u8]> {
    text.split_inclusive(|&b| b == b'\n')
        .filter_map(|line| line.strip_prefix(&[kind as u8])?.strip_suffix(b"\n"))
        .next_back()
}

/// A file's content; `None` where it is not there.
pub(crate) fn text(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StateError::io("reading", path)(error)),
    }
}

/// Writes down what is needed to end a run that its keeper left behind.
///
/// # Errors
/// [`StateError::Io`].
pub fn write_run(dir: &SandboxDir, record: &[u8]) -> Result<(), StateError> {
    add(dir, Kind::Run, record)
}

/// Writes down that nothing is left of the run.
///
/// # Errors
/// [`StateError::Io`].
pub fn clear_run(dir: &SandboxDir) -> Result<(), StateError> {
    match read_run(dir)? {
        Some(_) => add(dir, Kind::Run, b""),
        None => Ok(()),
    }
}

/// What [`write_run`] wrote down; `None` where no run was left behind.
///
/// # Errors
/// [`StateError::Io`].
pub fn read_run(dir: &SandboxDir) -> Result<Option<Vec<u8>>, StateError> {
    let record = last(dir, Kind::Run)?.map(|(_, record)| record);
    Ok(record.filter(|record| !record.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cosm_base::{Home, SandboxId};

    fn sandbox() -> (tempfile::TempDir, SandboxDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = Home::new(folder.path()).sandbox(SandboxId::from_random([1; 8]));
        fs::create_dir_all(dir.path()).expect("a folder");
        (folder, dir)
    }

    #[test]
    fn the_last_whole_line_of_a_kind_holds() {
        let (_folder, dir) = sandbox();
        assert_eq!(last(&dir, Kind::Phase).expect("reads"), None);
        add(&dir, Kind::Phase, b"one").expect("writes");
        add(&dir, Kind::Run, b"run").expect("writes");
        add(&dir, Kind::Phase, b"two").expect("writes");
        let mut file = OpenOptions::new()
            .append(true)
            .open(dir.records())
            .expect("opens");
        file.write_all(b"pthre").expect("writes");
        let phase = last(&dir, Kind::Phase).expect("reads").expect("is there");
        assert_eq!(
            phase.1, b"two",
            "a line that is being written does not count"
        );
        assert_eq!(read_run(&dir).expect("reads").as_deref(), Some(&b"run"[..]));
        drop(file);
        add(&dir, Kind::Phase, b"four").expect("writes");
        let phase = last(&dir, Kind::Phase).expect("reads").expect("is there");
        assert_eq!(phase.1, b"four", "nor does it swallow what comes after it");
        fs::write(dir.records(), b"").expect("writes");
        assert_eq!(
            last(&dir, Kind::Phase).expect("reads"),
            None,
            "after a power failure"
        );
    }

    #[test]
    fn a_run_that_is_over_is_none() {
        let (_folder, dir) = sandbox();
        clear_run(&dir).expect("nothing to clear");
        assert!(!dir.records().exists());
        write_run(&dir, b"run").expect("writes");
        clear_run(&dir).expect("writes");
        assert_eq!(read_run(&dir).expect("reads"), None);
    }

    #[test]
    fn the_file_stays_short() {
        let (_folder, dir) = sandbox();
        write_run(&dir, b"run").expect("writes");
        let record = [b'x'; 1000];
        for _ in 0..200 {
            add(&dir, Kind::Phase, &record).expect("writes");
        }
        let length = fs::metadata(dir.records()).expect("is there").len();
        assert!(length < LONG + 2000, "{length}");
        assert_eq!(read_run(&dir).expect("reads").as_deref(), Some(&b"run"[..]));
    }
}
