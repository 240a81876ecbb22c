//! Reading a log, also while it is written.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use cosm_base::SandboxDir;

use super::LogRecord;
use super::record::{self, FILE_HEADER, HEADER, Stream};

/// From where a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// From the oldest piece that is kept.
    Start,
    /// From the first piece at or after this time, milliseconds since 1970.
    Time(u64),
}

/// Reads one job's log from the oldest piece on.
#[derive(Debug)]
pub struct LogReader {
    current: PathBuf,
    old: PathBuf,
    open: Option<Segment>,
    skipped_to: Since,
    pending: VecDeque<LogRecord>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    number: u64,
    offset: u64,
}

impl LogReader {
    /// A reader of a job's log, which need not be there yet.
    ///
    /// # Errors
    /// `InvalidInput` for what can't be a job's id.
    pub fn open(dir: &SandboxDir, job: &str, since: Since) -> io::Result<Self> {
        let (current, old) = record::paths(dir, job).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self {
            current,
            old,
            open: None,
            skipped_to: since,
            pending: VecDeque::new(),
        })
    }

    /// Whether anything was ever logged for this job.
    pub fn exists(&self) -> bool {
        self.current.exists() || self.old.exists()
    }

    /// Skips to the last `lines` lines of what is there now, of the streams for which `wanted` says so. What is skipped
    /// is not kept in memory.
    ///
    /// # Errors
    /// As [`LogReader::next`].
    pub fn tail(&mut self, lines: usize, wanted: impl Fn(Stream) -> bool) -> io::Result<()> {
        let mut kept: VecDeque<LogRecord> = VecDeque::new();
        let mut ends = 0_usize;
        while let Some(piece) = self.next()? {
            if !wanted(piece.stream) || piece.stream == Stream::Mark {
                continue;
            }
            ends += newlines(&piece.bytes);
            kept.push_back(piece);
            // A line that has not ended yet counts as one, so one end more may be there than lines are wanted.
            while let Some(first) = kept.front() {
                let in_first = newlines(&first.bytes);
                if ends - in_first <= lines {
                    break;
                }
                ends -= in_first;
                kept.pop_front();
            }
        }
        cut_to_lines(&mut kept, lines);
        self.pending = kept;
        Ok(())
    }

    /// The next piece; `None` where there is no more now, and perhaps later. Pieces that were thrown away while this
    /// reader was slow are left out.
    ///
    /// # Errors
    /// What the system said; `InvalidData` where the file is damaged.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator is over at its first None, this is not"
    )]
    pub fn next(&mut self) -> io::Result<Option<LogRecord>> {
        if let Some(piece) = self.pending.pop_front() {
            return Ok(Some(piece));
        }
        loop {
            let Some(segment) = &mut self.open else {
                match self.first_segment()? {
                    Some(segment) => self.open = Some(segment),
                    None => return Ok(None),
                }
                continue;
            };
            if let Some(piece) = segment.read()? {
                if is_reached(&mut self.skipped_to, &piece) {
                    return Ok(Some(piece));
                }
                continue;
            }
            match self.segment_after()? {
                // Something may have been added to the old one between the look at its end and the look for its successor.
                Some(next) => {
                    let rest = segment_rest(&mut self.open)?;
                    self.open = Some(next);
                    let skipped_to = &mut self.skipped_to;
                    let rest = rest.into_iter().flatten();
                    self.pending
                        .extend(rest.filter(|piece| is_reached(skipped_to, piece)));
                    if let Some(piece) = self.pending.pop_front() {
                        return Ok(Some(piece));
                    }
                }
                None => {
                    // What is written from now on is younger than all that was asked for, whatever its time says: the
                    // clock may be set back under a reader that follows.
                    self.skipped_to = Since::Start;
                    return Ok(None);
                }
            }
        }
    }

    fn first_segment(&self) -> io::Result<Option<Segment>> {
        match Segment::open(&self.old)? {
            Some(old) => Ok(Some(old)),
            None => Segment::open(&self.current),
        }
    }

    /// The segment that follows the open one, or the oldest that is still there if that is gone.
    fn segment_after(&self) -> io::Result<Option<Segment>> {
        let Some(number) = self.open.as_ref().map(|s| s.number) else {
            return Ok(None);
        };
        let old = Segment::open(&self.old)?.filter(|s| s.number > number);
        if old.is_some() {
            return Ok(old);
        }
        let current = Segment::open(&self.current)?.filter(|s| s.number > number);
        if current.as_ref().is_some_and(|s| s.number > number + 1) {
            // It became the old one between the two looks, unless it is gone already.
            return Ok(Segment::open(&self.old)?
                .filter(|s| s.number > number)
                .or(current));
        }
        Ok(current)
    }
}

/// Whether this piece is the first that is wanted or follows it. Later ones are wanted although a clock that was set
/// back gives them an earlier time.
fn is_reached(skipped_to: &mut Since, piece: &LogRecord) -> bool {
    if let Since::Time(from) = *skipped_to
        && piece.time_ms < from
    {
        return false;
    }
    *skipped_to = Since::Start;
    true
}

fn segment_rest(open: &mut Option<Segment>) -> io::Result<Option<Vec<LogRecord>>> {
    let Some(segment) = open else {
        return Ok(None);
    };
    let mut rest = Vec::new();
    while let Some(piece) = segment.read()? {
        rest.push(piece);
    }
    Ok(Some(rest))
}

impl Segment {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut header = [0; FILE_HEADER];
        match file.read_exact_at(&mut header, 0) {
            Ok(()) => {}
            // It has just been made.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let number = record::parse_file_header(&header).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Self {
            file,
            number,
            offset: FILE_HEADER as u64,
        }))
    }

    /// The next whole record.
    fn read(&mut self) -> io::Result<Option<LogRecord>> {
        let mut header = [0; HEADER];
        if !self.fill(&mut header, self.offset)? {
            return Ok(None);
        }
        let (stream, length, time_ms) =
            record::parse_header(&header).ok_or(io::ErrorKind::InvalidData)?;
        let mut bytes = vec![0; length];
        if !self.fill(&mut bytes, self.offset + HEADER as u64)? {
            return Ok(None);
        }
        self.offset += (HEADER + length) as u64;
        Ok(Some(LogRecord {
            time_ms,
            stream,
            bytes,
        }))
    }

    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        match self.file.read_exact_at(buffer, offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b == b'\n').count()
}

/// Cuts what comes before the last lines off the first pieces.
fn cut_to_lines(kept: &mut VecDeque<LogRecord>, lines: usize) {
    let open_line = kept.back().is_some_and(|p| p.bytes.last() != Some(&b'\n'));
    let ends: usize = kept.iter().map(|p| newlines(&p.bytes)).sum();
    let mut surplus = (ends + usize::from(open_line)).saturating_sub(lines);
    while surplus > 0 {
        let Some(first) = kept.front_mut() else {
            return;
        };
        match first.bytes.iter().position(|b| *b == b'\n') {
            Some(end) => {
                first.bytes.drain(..=end);
                surplus -= 1;
                if first.bytes.is_empty() {
                    kept.pop_front();
                }
            }
            None => {
                let last = kept.len() == 1;
                kept.pop_front();
                if last {
                    return;
                }
            }
        }
    }
}
