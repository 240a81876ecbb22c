//! PAX extended headers (POSIX.1-2001): records `LENGTH KEY=VALUE\n` for the entry that follows.

use super::sparse::Extent;
use super::{MAX_NAME, TarError};

/// The most extents of one sparse file in an extended header, which bounds them anyway.
const MAX_EXTENTS: usize = 1 << 16;

/// A sparse file's extents and its length. The extents are `None` where they are at the head of the data.
type Map = (Option<Vec<Extent>>, u64);

/// What was said for one entry.
#[derive(Debug, Default)]
pub(super) struct Extended {
    path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    pub mtime: Option<(i64, u32)>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: Sparse,
}

/// GNU's three ways of sparse files in PAX.
#[derive(Debug, Default)]
struct Sparse {
    major: Option<u64>,
    minor: Option<u64>,
    /// The name of the file; that of the entry is for readers who do not know of sparse files.
    name: Option<Vec<u8>>,
    size: Option<u64>,
    real_size: Option<u64>,
    /// Of 0.1.
    map: Option<Vec<u8>>,
    /// Of 0.0: offsets and lengths, as they came.
    pairs: Vec<u64>,
    blocks: Option<u64>,
}

impl Extended {
    /// Adds the records of one extended header. A later record of the same key counts.
    pub(super) fn read(&mut self, mut text: &[u8]) -> Result<(), TarError> {
        // Some writers fill the header's last block up.
        while let Some(first) = text.first().filter(|b| **b != 0) {
            if !first.is_ascii_digit() {
                return Err(TarError::Extended);
            }
            let space = text
                .iter()
                .take(20)
                .position(|b| *b == b' ')
                .ok_or(TarError::Extended)?;
            let length = decimal(&text[..space]).ok_or(TarError::Extended)?;
            let length = usize::try_from(length).map_err(|_| TarError::Extended)?;
            let record = text
                .get(space + 1..length)
                .and_then(|record| record.strip_suffix(b"\n"))
                .ok_or(TarError::Extended)?;
            let equals = record
                .iter()
                .position(|b| *b == b'=')
                .ok_or(TarError::Extended)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            self.record(key, value)?;
            text = &text[length..];
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarError> {
        let name = |value: &[u8]| {
            if value.contains(&0) {
                return Err(TarError::Extended);
            }
            if value.len() > MAX_NAME {
                return Err(TarError::TooLong {
                    what: "name",
                    limit: MAX_NAME as u64,
                });
            }
            Ok(Some(value.to_vec()))
        };
        let number = |value: &[u8]| decimal(value).map(Some).ok_or(TarError::Extended);
        match key {
            // An empty value takes back what an earlier header said.
            b"path" => self.path = if value.is_empty() { None } else { name(value)? },
            b"linkpath" => self.link = if value.is_empty() { None } else { name(value)? },
            b"size" => self.size = number(value)?,
            b"uid" => self.uid = number(value)?,
            b"gid" => self.gid = number(value)?,
            b"mtime" => self.mtime = Some(time(value).ok_or(TarError::Extended)?),
            b"GNU.sparse.major" => self.sparse.major = number(value)?,
            b"GNU.sparse.minor" => self.sparse.minor = number(value)?,
            b"GNU.sparse.name" => self.sparse.name = name(value)?,
            b"GNU.sparse.size" => self.sparse.size = number(value)?,
            b"GNU.sparse.realsize" => self.sparse.real_size = number(value)?,
            b"GNU.sparse.map" => self.sparse.map = Some(value.to_vec()),
            b"GNU.sparse.numblocks" => self.sparse.blocks = number(value)?,
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                // They come in pairs, an offset first.
                let is_offset = key == b"GNU.sparse.offset";
                if is_offset != self.sparse.pairs.len().is_multiple_of(2)
                    || self.sparse.pairs.len() >= 2 * MAX_EXTENTS
                {
                    return Err(TarError::Sparse);
                }
                let value = decimal(value).ok_or(TarError::Sparse)?;
                self.sparse.pairs.push(value);
            }
            _ => {
                if let Some(attribute) = key.strip_prefix(b"SCHILY.xattr.") {
                    if attribute.is_empty() || attribute.len() > 255 || attribute.contains(&0) {
                        return Err(TarError::Extended);
                    }
                    self.xattrs.retain(|(known, _)| known != attribute);
                    self.xattrs.push((attribute.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }

    /// The entry's name, where it is here.
    pub(super) fn path(&self) -> Option<Vec<u8>> {
        self.sparse.name.clone().or_else(|| self.path.clone())
    }

    /// Of a sparse file its map.
    pub(super) fn sparse(&self) -> Result<Option<Map>, TarError> {
        let sparse = &self.sparse;
        let size = sparse.real_size.or(sparse.size);
        let version = (sparse.major, sparse.minor);
        if version == (Some(1), Some(0)) {
            let size = size.ok_or(TarError::Sparse)?;
            return Ok(Some((None, size)));
        }
        let pairs = match &sparse.map {
            Some(map) if map.is_empty() => Vec::new(),
            Some(map) => map
                .split(|b| *b == b',')
                .map(|part| decimal(part).ok_or(TarError::Sparse))
                .collect::<Result<_, _>>()?,
            None if !sparse.pairs.is_empty() => sparse.pairs.clone(),
            // Without a map it is a file like any other.
            None if sparse.blocks.is_none_or(|n| n == 0) && size.is_none() => return Ok(None),
            None => Vec::new(),
        };
        let size = size.ok_or(TarError::Sparse)?;
        if pairs.len() % 2 != 0 || pairs.len() > 2 * MAX_EXTENTS {
            return Err(TarError::Sparse);
        }
        let map = pairs
            .chunks_exact(2)
            .map(|pair| Extent {
                offset: pair[0],
                length: pair[1],
            })
            .collect();
        Ok(Some((Some(map), size)))
    }
}

pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds since 1970, perhaps negative, perhaps with a fraction: to seconds, rounded down, and nanoseconds.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let point = text.iter().position(|b| *b == b'.').unwrap_or(text.len());
    let seconds = i64::try_from(decimal(&text[..point])?).ok()?;
    let mut nanoseconds = 0;
    let fraction = text.get(point + 1..).unwrap_or_default();
    for at in 0..9 {
        let digit = fraction.get(at).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        nanoseconds = nanoseconds * 10 + u32::from(digit - b'0');
    }
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(match (negative, nanoseconds) {
        (false, _) => (seconds, nanoseconds),
        (true, 0) => (-seconds, 0),
        (true, _) => (-seconds - 1, 1_000_000_000 - nanoseconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, value) in [
            ("0", Some((0, 0))),
            ("1.5", Some((1, 500_000_000))),
            ("1.123456789123", Some((1, 123_456_789))),
            ("-1.5", Some((-2, 500_000_000))),
            ("-1", Some((-1, 0))),
            ("1.", Some((1, 0))),
            (".5", None),
            ("1.x", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(time(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn records_that_lie_about_their_length() {
        for bad in [
            "0 a=b\n",
            "6 a=b",
            "99 a=b\n",
            "6 ab\n\n",
            "x a=b\n",
            "6a=b\n",
            "-6 a=b\n",
            "18446744073709551615 a=b\n",
        ] {
            assert!(Extended::default().read(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let mut good = Extended::default();
        good.read(b"10 path=a\n6 a=b\n\0\0").expect("records");
        assert_eq!(good.path(), Some(b"a".to_vec()));
    }
}
