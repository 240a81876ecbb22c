//! Files with holes: where their data lie.

use std::io::Read;

use super::header::{BLOCK, Block, positive};
use super::pax::decimal;
use super::{Reader, TarError};

/// The most extents of one file.
const MAX_EXTENTS: usize = 1 << 20;

/// A run of data in a sparse file. The stored data are all runs, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// Extents are in order, within the file, and as long together as what is stored.
pub(super) fn checked(map: Vec<Extent>, size: u64, stored: u64) -> Result<Vec<Extent>, TarError> {
    let mut end = 0;
    let mut total = 0_u64;
    for extent in &map {
        if extent.offset < end {
            return Err(TarError::Sparse);
        }
        end = extent
            .offset
            .checked_add(extent.length)
            .filter(|end| *end <= size)
            .ok_or(TarError::Sparse)?;
        total += extent.length;
    }
    if total != stored {
        return Err(TarError::Sparse);
    }
    Ok(map)
}

/// GNU's old way: four extents in the header, 21 in each block behind it, as long as each says that there are more.
pub(super) fn gnu(
    header: &Block,
    mut more: impl FnMut() -> Result<Block, TarError>,
) -> Result<(Vec<Extent>, u64), TarError> {
    let size = positive(&header.bytes()[483..495], "size")?;
    let mut map = Vec::new();
    take(&header.bytes()[386..482], &mut map)?;
    let mut extended = header.bytes()[482] != 0;
    while extended {
        let block = more()?;
        take(&block.bytes()[..504], &mut map)?;
        extended = block.bytes()[504] != 0;
        if map.len() > MAX_EXTENTS {
            return Err(TarError::Sparse);
        }
    }
    Ok((map, size))
}

fn take(fields: &[u8], map: &mut Vec<Extent>) -> Result<(), TarError> {
    for pair in fields.chunks_exact(24) {
        // The unused ones at the end are empty.
        if pair[0] == 0 {
            break;
        }
        map.push(Extent {
            offset: positive(&pair[..12], "offset")?,
            length: positive(&pair[12..], "length")?,
        });
    }
    Ok(())
}

/// PAX 1.0: decimal numbers, a line each, at the head of the data and filled up to a whole block: how many extents, then
/// offset and length of each.
pub(super) fn in_data<R: Read>(reader: &mut Reader<R>) -> Result<Vec<Extent>, TarError> {
    let mut lines = Lines {
        reader,
        block: [0; BLOCK],
        at: BLOCK,
    };
    let count = lines.next()?;
    if count > MAX_EXTENTS as u64 {
        return Err(TarError::Sparse);
    }
    (0..count)
        .map(|_| {
            Ok(Extent {
                offset: lines.next()?,
                length: lines.next()?,
            })
        })
        .collect()
}

struct Lines<'a, R> {
    reader: &'a mut Reader<R>,
    block: [u8; BLOCK],
    at: usize,
}

impl<R: Read> Lines<'_, R> {
    fn next(&mut self) -> Result<u64, TarError> {
        let mut digits = Vec::new();
        loop {
            if self.at == BLOCK {
                let mut filled = 0;
                while filled < BLOCK {
                    match self.reader.data(&mut self.block[filled..])? {
                        0 => return Err(TarError::Sparse),
                        n => filled += n,
                    }
                }
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            if byte == b'\n' {
                return decimal(&digits).ok_or(TarError::Sparse);
            }
            if digits.len() >= 20 {
                return Err(TarError::Sparse);
            }
            digits.push(byte);
        }
    }
}
