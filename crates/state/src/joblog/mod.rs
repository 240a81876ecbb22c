//! The logs of jobs: what a command printed, when, and on which stream.
//!
//! A job's log is one or two files in the sandbox's folder of logs: `<job>.log`, and `<job>.log.old` which was it before
//! it had grown to half of what the log may take. The older half is replaced, so the newest part is always kept.
//!
//! ```text
//! file    "cosmlog" 0x01, u64 number of this file in the order of the job's files, then records
//! record  u8 stream (0 mark, 1 standard output, 2 standard error), u32 length, u64 milliseconds since 1970, bytes
//! ```
//!
//! Numbers are little endian. A mark's bytes are the id of the run that begins there. A record that was cut off by a crash
//! is the end for a reader, and is cut away by the next writer.

mod reader;
mod record;
mod writer;

pub use reader::{LogReader, Since};
pub use record::{Stream, is_job_id};
pub use writer::LogWriter;

/// One piece of output, or a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// When it was read from the job, milliseconds since 1970.
    pub time_ms: u64,
    /// Where it came from.
    pub stream: Stream,
    /// The bytes. Pieces are cut anywhere, also inside of lines and characters.
    pub bytes: Vec<u8>,
}
