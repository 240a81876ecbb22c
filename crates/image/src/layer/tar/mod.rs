//! A tar archive, entry by entry, in any of the dialects that layers are written in: ustar, GNU (long names, sparse
//! files), PAX (extended headers, its three ways of sparse files), and the old one without a magic.
//!
//! Nothing is believed: numbers are checked, names and extended headers are bounded, and what is not understood is an
//! error with the name of the entry before it. Two readers of the same tar that disagree on where an entry ends are an
//! attack of their own (CVE-2025-62518): where PAX and ustar both give a size, PAX's counts, as in every other reader.

mod header;
mod pax;
mod sparse;

use std::io::{self, Read};

pub use header::Kind;
use header::{BLOCK, Block};
use pax::Extended;
pub use sparse::Extent;

/// The most bytes of a name or of the target of a link. Linux takes 4,096 in one piece.
const MAX_NAME: usize = 4096;
/// The most bytes of an extended header: one extended attribute may have 64 KiB.
const MAX_EXTENDED: u64 = 1 << 20;

/// Why a tar can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// What it is read from failed, or ended early.
    #[error("it can't be read on")]
    Read(#[source] io::Error),
    /// A block is no header.
    #[error("its header's checksum is wrong")]
    Checksum,
    /// A number that is none.
    #[error("its {0} is not a number")]
    Number(&'static str),
    /// An extended header that is none.
    #[error("its extended header is damaged")]
    Extended,
    /// More than is sensible.
    #[error("its {what} is longer than {limit} bytes")]
    TooLong {
        /// The name, the target or the extended header.
        what: &'static str,
        /// The most.
        limit: u64,
    },
    /// A sparse file whose map does not fit it.
    #[error("its map of a sparse file is damaged")]
    Sparse,
    /// The kind of an entry that no layer has.
    #[error("it is of the kind {:?}, which can't be unpacked", char::from(*.0))]
    Kind(u8),
}

/// What an archive says of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path, as written.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permissions, with setuid, setgid and sticky.
    pub mode: u32,
    /// The owner.
    pub uid: u64,
    /// The group.
    pub gid: u64,
    /// When it was last changed: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// The length of the file in bytes, with its holes.
    pub size: u64,
    /// Where a link points.
    pub link: Vec<u8>,
    /// A device's major and minor number.
    pub device: (u32, u32),
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the data lie, of a sparse file; else all of it is data.
    pub sparse: Option<Vec<Extent>>,
}

/// Reads entries. After [`next`](Self::next), [`data`](Self::data) gives what is stored for the entry.
pub struct Reader<R> {
    source: R,
    /// Stored bytes of the current entry that are not read yet.
    left: u64,
    /// Bytes that fill its last block.
    padding: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// From the start of an archive.
    pub fn new(source: R) -> Self {
        Self {
            source,
            left: 0,
            padding: 0,
            ended: false,
        }
    }

    /// What it reads from.
    pub fn into_inner(self) -> R {
        self.source
    }

    /// The next entry; `None` at the end of the archive.
    ///
    /// # Errors
    /// [`TarError`] when there is no sense in what comes.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's items could not be followed by their data"
    )]
    pub fn next(&mut self) -> Result<Option<Entry>, TarError> {
        if self.ended {
            return Ok(None);
        }
        self.skip()?;
        let mut extended = Extended::default();
        let mut long_name = None;
        let mut long_link = None;
        loop {
            let Some(block) = self.block()? else {
                self.ended = true;
                return Ok(None);
            };
            match block.type_flag() {
                b'L' => long_name = Some(self.long(&block, "name")?),
                b'K' => long_link = Some(self.long(&block, "link target")?),
                b'x' => {
                    let text = self.extra(&block)?;
                    extended.read(&text)?;
                }
                // Docker does not apply what is said for all entries to come; layers hold comments of git there.
                b'g' => drop(self.extra(&block)?),
                // A volume's label, in GNU's multi-volume archives: no file.
                b'V' => {
                    self.begin(block.size()?);
                    self.skip()?;
                }
                _ => {
                    return self.entry(&block, extended, long_name, long_link).map(Some);
                }
            }
        }
    }

    fn entry(
        &mut self,
        block: &Block,
        extended: Extended,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Entry, TarError> {
        let kind = block.kind()?;
        let stored = match extended.size {
            Some(size) => size,
            None => block.size()?,
        };
        // Only files have data. Some writers give a hard link the size of its target, and none stores that again.
        let stored = match kind {
            Kind::File | Kind::GnuSparse => stored,
            _ => 0,
        };
        self.begin(stored);
        let path = extended
            .path()
            .or(long_name)
            .unwrap_or_else(|| block.path());
        let link = extended
            .link
            .clone()
            .or(long_link)
            .unwrap_or_else(|| block.link());
        let mut entry = Entry {
            path: checked(path, "name")?,
            kind,
            mode: block.mode()?,
            uid: match extended.uid {
                Some(uid) => uid,
                None => block.uid()?,
            },
            gid: match extended.gid {
                Some(gid) => gid,
                None => block.gid()?,
            },
            mtime: match extended.mtime {
                Some(mtime) => mtime,
                None => (block.mtime()?, 0),
            },
            size: stored,
            link: checked(link, "link target")?,
            device: match kind {
                Kind::CharDevice | Kind::BlockDevice => block.device()?,
                _ => (0, 0),
            },
            xattrs: extended.xattrs.clone(),
            sparse: None,
        };
        if kind == Kind::GnuSparse {
            entry.kind = Kind::File;
            let (map, size) = sparse::gnu(block, || {
                let mut more = Block::default();
                self.exactly(more.bytes_mut())?;
                Ok(more)
            })?;
            entry.sparse = Some(sparse::checked(map, size, stored)?);
            entry.size = size;
        } else if let (Kind::File, Some((map, size))) = (kind, extended.sparse()?) {
            let map = match map {
                Some(map) => map,
                // Version 1.0: the map is at the head of the data.
                None => sparse::in_data(self)?,
            };
            entry.sparse = Some(sparse::checked(map, size, self.left)?);
            entry.size = size;
        }
        Ok(entry)
    }

    /// Reads stored bytes of the current entry; 0 at their end.
    ///
    /// # Errors
    /// What reading gives, and when the archive ends before the entry does.
    pub fn data(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        let most = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        match self.some(&mut buffer[..most])? {
            0 => Err(TarError::Read(io::ErrorKind::UnexpectedEof.into())),
            n => {
                self.left -= n as u64;
                Ok(n)
            }
        }
    }

    fn begin(&mut self, stored: u64) {
        self.left = stored;
        self.padding = stored.wrapping_neg() % BLOCK as u64;
    }

    /// To the next header.
    fn skip(&mut self) -> Result<(), TarError> {
        let mut waste = [0; 8192];
        while self.data(&mut waste)? > 0 {}
        let padding = self.padding as usize;
        self.padding = 0;
        self.exactly(&mut waste[..padding])
    }

    /// One read, which a signal does not end.
    fn some(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        loop {
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map_err(TarError::Read),
            }
        }
    }

    fn exactly(&mut self, buffer: &mut [u8]) -> Result<(), TarError> {
        self.source.read_exact(buffer).map_err(TarError::Read)
    }

    /// The next header, or `None` at the end: a block of zeros, or of nothing. Some writers leave one or both zero blocks
    /// out.
    fn block(&mut self) -> Result<Option<Block>, TarError> {
        let mut block = Block::default();
        let mut filled = 0;
        while filled < BLOCK {
            match self.some(&mut block.bytes_mut()[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(TarError::Read(io::ErrorKind::UnexpectedEof.into())),
                n => filled += n,
            }
        }
        if block.is_zero() {
            return Ok(None);
        }
        block.check()?;
        Ok(Some(block))
    }

    /// What a GNU long name's entry holds.
    fn long(&mut self, block: &Block, what: &'static str) -> Result<Vec<u8>, TarError> {
        let mut bytes = self.whole(block, MAX_NAME as u64 + 1, what)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        Ok(bytes)
    }

    fn extra(&mut self, block: &Block) -> Result<Vec<u8>, TarError> {
        self.whole(block, MAX_EXTENDED, "extended header")
    }

    fn whole(
        &mut self,
        block: &Block,
        limit: u64,
        what: &'static str,
    ) -> Result<Vec<u8>, TarError> {
        let size = block.size()?;
        if size > limit {
            return Err(TarError::TooLong { what, limit });
        }
        let mut bytes = vec![0; size as usize];
        self.begin(0);
        self.exactly(&mut bytes)?;
        self.padding = size.wrapping_neg() % BLOCK as u64;
        self.skip()?;
        Ok(bytes)
    }
}

fn checked(name: Vec<u8>, what: &'static str) -> Result<Vec<u8>, TarError> {
    if name.len() > MAX_NAME {
        return Err(TarError::TooLong {
            what,
            limit: MAX_NAME as u64,
        });
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
