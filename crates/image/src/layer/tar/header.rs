//! One block of 512 bytes that begins an entry.

use super::TarError;

/// Tar's unit.
pub(super) const BLOCK: usize = 512;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file with data.
    File,
    /// A file with holes, in GNU's old way; [`Reader`](super::Reader) gives it as a [`File`](Self::File) with extents.
    GnuSparse,
    /// Another name of a file before it.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A folder.
    Directory,
    /// A pipe with a name.
    Fifo,
}

/// A header, or a sparse file's further extents.
pub(super) struct Block([u8; BLOCK]);

impl Default for Block {
    fn default() -> Self {
        Self([0; BLOCK])
    }
}

impl Block {
    pub(super) fn bytes_mut(&mut self) -> &mut [u8; BLOCK] {
        &mut self.0
    }

    pub(super) fn bytes(&self) -> &[u8; BLOCK] {
        &self.0
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|b| *b == 0)
    }

    /// The sum of all bytes, its own taken for spaces; some old writers added signed ones.
    pub(super) fn check(&self) -> Result<(), TarError> {
        let said = number(&self.0[148..156]).ok_or(TarError::Checksum)?;
        let bytes = self
            .0
            .iter()
            .enumerate()
            .map(|(at, b)| if (148..156).contains(&at) { b' ' } else { *b });
        let unsigned: i64 = bytes.clone().map(i64::from).sum();
        let signed: i64 = bytes.map(|b| i64::from(b.cast_signed())).sum();
        if said == unsigned || said == signed {
            Ok(())
        } else {
            Err(TarError::Checksum)
        }
    }

    pub(super) fn type_flag(&self) -> u8 {
        self.0[156]
    }

    pub(super) fn kind(&self) -> Result<Kind, TarError> {
        Ok(match self.type_flag() {
            // In the old dialect a folder is a file whose name ends with a slash.
            0 if self.path().ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::CharDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            b'S' => Kind::GnuSparse,
            other => return Err(TarError::Kind(other)),
        })
    }

    fn is_ustar(&self) -> bool {
        &self.0[257..263] == b"ustar\0"
    }

    pub(super) fn path(&self) -> Vec<u8> {
        let name = text(&self.0[..100]);
        let prefix = text(&self.0[345..500]);
        if self.is_ustar() && !prefix.is_empty() {
            return [prefix, b"/", name].concat();
        }
        name.to_vec()
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.0[157..257]).to_vec()
    }

    pub(super) fn mode(&self) -> Result<u32, TarError> {
        // Some writers put the kind of file there as well.
        Ok((number(&self.0[100..108]).ok_or(TarError::Number("mode"))? & 0o7777) as u32)
    }

    pub(super) fn uid(&self) -> Result<u64, TarError> {
        positive(&self.0[108..116], "owner")
    }

    pub(super) fn gid(&self) -> Result<u64, TarError> {
        positive(&self.0[116..124], "group")
    }

    pub(super) fn size(&self) -> Result<u64, TarError> {
        positive(&self.0[124..136], "size")
    }

    pub(super) fn mtime(&self) -> Result<i64, TarError> {
        number(&self.0[136..148]).ok_or(TarError::Number("time"))
    }

    pub(super) fn device(&self) -> Result<(u32, u32), TarError> {
        let part = |bytes: &[u8]| {
            u32::try_from(positive(bytes, "device number")?)
                .map_err(|_| TarError::Number("device number"))
        };
        Ok((part(&self.0[329..337])?, part(&self.0[337..345])?))
    }
}

/// Up to the first zero.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    &field[..end]
}

pub(super) fn positive(field: &[u8], what: &'static str) -> Result<u64, TarError> {
    number(field)
        .and_then(|n| u64::try_from(n).ok())
        .ok_or(TarError::Number(what))
}

/// Octal digits, or GNU's big-endian binary, which has its first bit set and is signed. An empty field is 0.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let first = *field.first()?;
    if first & 0x80 != 0 {
        // The sign is the bit below the mark.
        let negative = first & 0x40 != 0;
        let mut value: i64 = if negative { -1 } else { 0 };
        for (at, byte) in field.iter().enumerate() {
            let byte = if at == 0 {
                if negative { byte | 0x80 } else { byte & 0x3f }
            } else {
                *byte
            };
            let wide = (i128::from(value) << 8) | i128::from(byte);
            value = i64::try_from(wide).ok()?;
        }
        return Some(value);
    }
    let digits = text(field).trim_ascii();
    let mut value: i64 = 0;
    for digit in digits {
        if !(b'0'..=b'7').contains(digit) {
            return None;
        }
        value = value.checked_mul(8)?.checked_add(i64::from(digit - b'0'))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b" 644   \0", Some(0o644)),
            (b"\0\0\0\0", Some(0)),
            (b"77777777777\0", Some((8 << 30) - 1)),
            (b"\x80\0\0\0\0\0\0\x02\0\0\0\0", Some(8 << 30)),
            (
                b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                Some(-1),
            ),
            (b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"12x\0", None),
            (b"-1\0", None),
            (b"", None),
        ] {
            assert_eq!(number(field), value, "{field:?}");
        }
    }
}
