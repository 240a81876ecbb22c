//! Writing a log.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, IoSlice, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use cosm_base::SandboxDir;

use super::record::{self, FILE_HEADER, HEADER, MAX_RECORD, Stream};

/// Writes one job's log. Each piece is in the file when `write` returns; it is not forced to the disk.
#[derive(Debug)]
pub struct LogWriter {
    file: File,
    current: PathBuf,
    old: PathBuf,
    number: u64,
    size: u64,
    /// A file that would grow over this gives way to a new one.
    half: u64,
}

impl LogWriter {
    /// Opens a job's log to add to it. `limit` is what its files may take together, in bytes; `None` is no limit.
    ///
    /// # Errors
    /// What the system said; `InvalidInput` for what can't be a job's id.
    pub fn open(dir: &SandboxDir, job: &str, limit: Option<u64>) -> io::Result<Self> {
        let (current, old) = record::paths(dir, job).ok_or(io::ErrorKind::InvalidInput)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&current)?;
        let (number, size) = match whole_part(&file)? {
            Some(found) => found,
            None => {
                file.set_len(0)?;
                file.seek(SeekFrom::Start(0))?;
                file.write_all(&record::file_header(0))?;
                (0, FILE_HEADER as u64)
            }
        };
        file.set_len(size)?;
        file.seek(SeekFrom::Start(size))?;
        let half = limit.map_or(u64::MAX, |limit| (limit / 2).max(64));
        Ok(Self {
            file,
            current,
            old,
            number,
            size,
            half,
        })
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// What the system said. Nothing or a part is in the file then; a reader takes a part for the end.
    pub fn write(&mut self, stream: Stream, time_ms: u64, bytes: &[u8]) -> io::Result<()> {
        // A piece has to fit into half of the limit.
        let room = self.half.saturating_sub((FILE_HEADER + HEADER) as u64);
        let most = usize::try_from(room)
            .unwrap_or(usize::MAX)
            .clamp(1, MAX_RECORD);
        if bytes.is_empty() && stream == Stream::Mark {
            return Ok(());
        }
        bytes
            .chunks(most)
            .try_for_each(|piece| self.write_piece(stream, time_ms, piece))
    }

    fn write_piece(&mut self, stream: Stream, time_ms: u64, piece: &[u8]) -> io::Result<()> {
        let length = (HEADER + piece.len()) as u64;
        if self.size + length > self.half && self.size > FILE_HEADER as u64 {
            self.turn_over()?;
        }
        let header = record::header(stream, piece.len() as u32, time_ms);
        let written = write_both(&mut self.file, &header, piece);
        match written {
            Ok(()) => {
                self.size += length;
                Ok(())
            }
            Err(error) => {
                // What comes later must not be hidden behind a part of this.
                self.file.set_len(self.size)?;
                self.file.seek(SeekFrom::Start(self.size))?;
                Err(error)
            }
        }
    }

    fn turn_over(&mut self) -> io::Result<()> {
        std::fs::rename(&self.current, &self.old)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.current)?;
        file.write_all(&record::file_header(self.number + 1))?;
        self.number += 1;
        self.size = FILE_HEADER as u64;
        self.file = file;
        Ok(())
    }
}

fn write_both(file: &mut File, header: &[u8], piece: &[u8]) -> io::Result<()> {
    let total = header.len() + piece.len();
    let mut done = file.write_vectored(&[IoSlice::new(header), IoSlice::new(piece)])?;
    while done < total {
        let rest = match done.checked_sub(header.len()) {
            Some(of_piece) => &piece[of_piece..],
            None => &header[done..],
        };
        match file.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// A log file's number and the length of its whole records; `None` if it is no log.
fn whole_part(file: &File) -> io::Result<Option<(u64, u64)>> {
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    let mut first = [0; FILE_HEADER];
    if length < FILE_HEADER as u64 {
        return Ok(None);
    }
    reader.read_exact(&mut first)?;
    let Some(number) = record::parse_file_header(&first) else {
        return Ok(None);
    };
    let mut whole = FILE_HEADER as u64;
    let mut header = [0; HEADER];
    while whole + HEADER as u64 <= length {
        reader.read_exact(&mut header)?;
        let Some((_, bytes, _)) = record::parse_header(&header) else {
            break;
        };
        let end = whole + (HEADER + bytes) as u64;
        if end > length {
            break;
        }
        reader.seek_relative(bytes as i64)?;
        whole = end;
    }
    Ok(Some((number, whole)))
}
