//! The bytes of a log.

use std::path::PathBuf;

use cosm_base::SandboxDir;

pub(super) const MAGIC: [u8; 8] = *b"cosmlog\x01";
/// Bytes before the first record.
pub(super) const FILE_HEADER: usize = 16;
/// Bytes of a record before its own.
pub(super) const HEADER: usize = 13;
/// The most bytes in one record; more in a file is damage.
pub(super) const MAX_RECORD: usize = 1 << 20;

/// Where a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    /// Not output: a run begins, and the bytes are its id.
    Mark = 0,
    /// Standard output, or the terminal.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
}

impl Stream {
    pub(super) const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Mark,
            1 => Self::Stdout,
            2 => Self::Stderr,
            _ => return None,
        })
    }
}

/// Whether a text can be a job's id: letters, digits, `.`, `_` and `-`, at most 64, starting with a letter or a digit. A
/// job's log is named by it.
pub fn is_job_id(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// The job's current and older file; `None` for what can't be a job's id.
pub(super) fn paths(dir: &SandboxDir, job: &str) -> Option<(PathBuf, PathBuf)> {
    is_job_id(job).then(|| {
        let logs = dir.logs();
        (
            logs.join(format!("{job}.log")),
            logs.join(format!("{job}.log.old")),
        )
    })
}

pub(super) fn file_header(number: u64) -> [u8; FILE_HEADER] {
    let mut out = [0; FILE_HEADER];
    out[..8].copy_from_slice(&MAGIC);
    out[8..].copy_from_slice(&number.to_le_bytes());
    out
}

/// The number of the file, if it is a log.
pub(super) fn parse_file_header(bytes: &[u8; FILE_HEADER]) -> Option<u64> {
    let (magic, number) = bytes.split_first_chunk::<8>()?;
    (*magic == MAGIC).then_some(u64::from_le_bytes(number.try_into().ok()?))
}

pub(super) fn header(stream: Stream, length: u32, time_ms: u64) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[0] = stream as u8;
    out[1..5].copy_from_slice(&length.to_le_bytes());
    out[5..].copy_from_slice(&time_ms.to_le_bytes());
    out
}

/// A record's stream, length and time; `None` if no record starts like that.
pub(super) fn parse_header(bytes: &[u8; HEADER]) -> Option<(Stream, usize, u64)> {
    let stream = Stream::from_byte(bytes[0])?;
    let length = u32::from_le_bytes(bytes[1..5].try_into().ok()?) as usize;
    let time = u64::from_le_bytes(bytes[5..].try_into().ok()?);
    (length <= MAX_RECORD).then_some((stream, length, time))
}
