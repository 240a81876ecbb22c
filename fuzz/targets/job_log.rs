//! Two files of a job's log, damaged as they may be after a crash: reading them ends, finds no record that is not
//! there, and a writer that goes on behind them is read.
//!
//! The first two bytes say how long the older file is; the rest is the current one.

#![no_main]

use std::fs;
use std::path::Path;

use cosm_base::{Home, SandboxId};
use cosm_state::joblog::{LogReader, LogWriter, Since, Stream};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((length, files)) = input.split_first_chunk::<2>() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(files.len());
    let (old, current) = files.split_at(length);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = Home::new(folder.path()).sandbox(SandboxId::from_random([1; 8]));
    fs::create_dir_all(dir.logs()).expect("a folder");
    let put = |name: &Path, bytes: &[u8]| {
        if !bytes.is_empty() {
            fs::write(dir.logs().join(name), bytes).expect("a file");
        }
    };
    put(Path::new("j.log.old"), old);
    put(Path::new("j.log"), current);

    let read = |since, tail| {
        let mut log = LogReader::open(&dir, "j", since).expect("an id");
        if tail && log.tail(2, |_| true).is_err() {
            return None;
        }
        let mut bytes = 0;
        let mut last = None;
        // A damaged file is an error, and the end of it.
        while let Ok(Some(piece)) = log.next() {
            bytes += piece.bytes.len();
            last = Some(piece.bytes);
        }
        assert!(bytes <= files.len(), "more than there is");
        last
    };
    for since in [Since::Start, Since::Time(1 << 40)] {
        read(since, false);
        read(since, true);
    }
    let Ok(mut log) = LogWriter::open(&dir, "j", None) else {
        return;
    };
    log.write(Stream::Stdout, u64::MAX, b"").expect("room");
    log.write(Stream::Stdout, u64::MAX, b"new").expect("room");
    let mut log = LogReader::open(&dir, "j", Since::Time(u64::MAX)).expect("an id");
    let mut found = false;
    while let Ok(Some(piece)) = log.next() {
        found |= piece.bytes == b"new";
    }
    // What follows damage in the older file is not reached.
    assert!(found || !old.is_empty(), "a new record is lost");
});
