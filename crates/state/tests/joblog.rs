//! Logs: what is written reads back, whatever happens in between.

use cosm_base::{Home, SandboxDir, SandboxId};
use cosm_state::joblog::{LogReader, LogRecord, LogWriter, Since, Stream, is_job_id};
use proptest::prelude::*;

fn dir() -> (tempfile::TempDir, SandboxDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = Home::new(folder.path()).sandbox(SandboxId::from_random([1; 8]));
    std::fs::create_dir_all(dir.logs()).expect("a folder");
    (folder, dir)
}

fn all(dir: &SandboxDir, since: Since) -> Vec<LogRecord> {
    let mut reader = LogReader::open(dir, "j", since).expect("an id");
    std::iter::from_fn(|| reader.next().expect("a whole log")).collect()
}

fn text(records: &[LogRecord]) -> String {
    let bytes: Vec<u8> = records.iter().flat_map(|r| r.bytes.clone()).collect();
    String::from_utf8(bytes).expect("text")
}

/// The format, byte by byte.
#[test]
fn the_bytes_are_these() {
    let (_folder, dir) = dir();
    let mut log = LogWriter::open(&dir, "j", None).expect("open");
    log.write(Stream::Mark, 1, b"0123456789abc").expect("write");
    log.write(Stream::Stdout, 0x0102_0304_0506, b"hi\n")
        .expect("write");
    log.write(Stream::Stderr, 3, b"\xff\0").expect("write");
    let bytes = std::fs::read(dir.logs().join("j.log")).expect("the log");
    let golden = include_bytes!("joblog-1.bin");
    assert_eq!(bytes, golden, "{}", bytes.escape_ascii());
}

#[test]
fn a_torn_record_is_cut_away() {
    let (_folder, dir) = dir();
    let path = dir.logs().join("j.log");
    let mut log = LogWriter::open(&dir, "j", None).expect("open");
    log.write(Stream::Stdout, 1, b"whole").expect("write");
    log.write(Stream::Stdout, 2, b"torn").expect("write");
    drop(log);
    let length = std::fs::metadata(&path).expect("the log").len();
    for cut in 1..17 {
        let copy = std::fs::read(&path).expect("the log");
        std::fs::write(&path, &copy[..(length - cut) as usize]).expect("cut");
        assert_eq!(text(&all(&dir, Since::Start)), "whole", "cut by {cut}");
        let mut log = LogWriter::open(&dir, "j", None).expect("open");
        log.write(Stream::Stdout, 3, b"+").expect("write");
        assert_eq!(text(&all(&dir, Since::Start)), "whole+", "cut by {cut}");
        std::fs::write(&path, &copy).expect("restored");
    }
}

#[test]
fn a_reader_follows_through_turn_overs() {
    let (_folder, dir) = dir();
    let mut log = LogWriter::open(&dir, "j", Some(2000)).expect("open");
    let mut reader = LogReader::open(&dir, "j", Since::Start).expect("an id");
    let mut seen = Vec::new();
    for n in 0..500_u32 {
        log.write(Stream::Stdout, u64::from(n), &n.to_le_bytes())
            .expect("write");
        while let Some(piece) = reader.next().expect("a whole log") {
            seen.extend(piece.bytes);
        }
    }
    let wanted: Vec<u8> = (0..500_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(seen, wanted);
    let size: u64 = std::fs::read_dir(dir.logs())
        .expect("logs")
        .map(|e| e.expect("a log").metadata().expect("its size").len())
        .sum();
    assert!(size <= 2000, "{size}");
}

#[test]
fn since_and_tail() {
    let (_folder, dir) = dir();
    let mut log = LogWriter::open(&dir, "j", None).expect("open");
    for n in 0..10_u64 {
        log.write(Stream::Stdout, n, format!("line {n}\n").as_bytes())
            .expect("write");
        log.write(Stream::Stderr, n, b"e\n").expect("write");
    }
    log.write(Stream::Stdout, 11, b"open").expect("write");
    assert_eq!(all(&dir, Since::Time(9)).len(), 3);
    let tail = |lines| {
        let mut reader = LogReader::open(&dir, "j", Since::Start).expect("an id");
        reader
            .tail(lines, |s| s == Stream::Stdout)
            .expect("a whole log");
        let pieces: Vec<_> = std::iter::from_fn(|| reader.next().expect("whole")).collect();
        text(&pieces)
    };
    assert_eq!(tail(0), "");
    assert_eq!(tail(1), "open");
    assert_eq!(tail(3), "line 8\nline 9\nopen");
    assert_eq!(tail(100).lines().count(), 11);
}

#[test]
fn ids_that_would_leave_the_folder_are_refused() {
    let (_folder, dir) = dir();
    for bad in ["", ".", "..", "../x", "a/b", "-x", "a b", "a\0", "é"] {
        assert!(!is_job_id(bad), "{bad:?}");
        assert!(LogWriter::open(&dir, bad, None).is_err(), "{bad:?}");
        assert!(LogReader::open(&dir, bad, Since::Start).is_err(), "{bad:?}");
    }
    assert!(is_job_id("main") && is_job_id("1") && is_job_id("a.b_c-d"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_break_a_reader(bytes: Vec<u8>, header in any::<bool>()) {
        let (_folder, dir) = dir();
        let mut content = if header { b"cosmlog\x01\0\0\0\0\0\0\0\0".to_vec() } else { Vec::new() };
        content.extend(bytes);
        std::fs::write(dir.logs().join("j.log"), &content).expect("written");
        let mut reader = LogReader::open(&dir, "j", Since::Start).expect("an id");
        let mut total = 0;
        while let Ok(Some(piece)) = reader.next() {
            total += piece.bytes.len();
        }
        prop_assert!(total <= content.len());
        // Whatever is there, a writer goes on.
        let mut log = LogWriter::open(&dir, "j", None).expect("open");
        log.write(Stream::Stdout, 1, b"end").expect("write");
        drop(log);
        let mut reader = LogReader::open(&dir, "j", Since::Start).expect("an id");
        let mut last = Vec::new();
        while let Some(piece) = reader.next().expect("a whole log") {
            last = piece.bytes;
        }
        prop_assert_eq!(last, b"end");
    }

    #[test]
    fn pieces_of_any_size_come_back(pieces: Vec<(bool, Vec<u8>)>, limit in 100..5000_u64) {
        let (_folder, dir) = dir();
        let mut log = LogWriter::open(&dir, "j", Some(limit)).expect("open");
        let mut reader = LogReader::open(&dir, "j", Since::Start).expect("an id");
        for (n, (err, bytes)) in pieces.iter().enumerate() {
            let stream = if *err { Stream::Stderr } else { Stream::Stdout };
            log.write(stream, n as u64, bytes).expect("write");
            let mut seen = Vec::new();
            while let Some(piece) = reader.next().expect("a whole log") {
                prop_assert_eq!(piece.stream, stream);
                seen.extend(piece.bytes);
            }
            // A piece over half of the limit may have pushed its own beginning out.
            prop_assert!(bytes.ends_with(&seen));
            prop_assert!(seen.len() == bytes.len() || bytes.len() as u64 > limit / 4);
        }
    }
}

/// `logs -f --since` goes on under a clock that is set back.
#[test]
fn what_follows_the_first_that_is_young_enough_is_read_whatever_its_time() {
    let (_folder, dir) = dir();
    let mut log = LogWriter::open(&dir, "j", None).expect("open");
    let mut write = |time, piece: &[u8]| log.write(Stream::Stdout, time, piece).expect("write");
    write(100, b"old ");
    write(200, b"young ");
    write(50, b"after ");
    assert_eq!(text(&all(&dir, Since::Time(150))), "young after ");
    let mut reader = LogReader::open(&dir, "j", Since::Time(300)).expect("an id");
    assert_eq!(reader.next().expect("a whole log"), None);
    write(60, b"later");
    let later = reader.next().expect("a whole log").map(|piece| piece.bytes);
    assert_eq!(later.as_deref(), Some(b"later".as_slice()));
}
