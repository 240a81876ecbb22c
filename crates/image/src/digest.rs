//! Names of content.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use cosm_base::text::quoted;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The SHA-256 of some content, written `sha256:<64 lower-case hex digits>`.
///
/// Parsing is the only way to get one from outside, so that what names a file has been checked. OCI allows other
/// algorithms; no registry is known that names anything by one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Why a text is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not a digest: it is written sha256: and 64 hexadecimal digits", quoted(.0))]
pub struct DigestError(String);

impl Digest {
    /// The digest of bytes at hand.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The hexadecimal part, which names files.
    pub fn hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0
            .iter()
            .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
            .map(char::from)
            .collect()
    }

    /// Twelve digits, for people.
    pub fn short(&self) -> String {
        let mut hex = self.hex();
        hex.truncate(12);
        hex
    }

    /// Reads the hexadecimal part alone.
    ///
    /// # Errors
    /// [`DigestError`] when it is anything but 64 lower-case hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, DigestError> {
        let bad = || DigestError(text.to_owned());
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(bad());
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(bad()),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        text.strip_prefix("sha256:")
            .and_then(|hex| Self::from_hex(hex).ok())
            .ok_or_else(|| DigestError(text.to_owned()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("sha256:{}", self.hex()))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Makes a digest of what passes by.
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    /// Takes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// The digest of all bytes so far.
    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Digest(bytes)
    }
}

/// A reader or writer that makes a digest of what passes through it, and counts it.
pub struct Hashing<T> {
    inner: T,
    hasher: Hasher,
    count: u64,
}

impl<T> Hashing<T> {
    /// Around another.
    pub fn new(inner: T) -> Self {
        Self {
            inner,
            hasher: Hasher::default(),
            count: 0,
        }
    }
    /// Bytes so far.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// The other one again, and the digest and the number of bytes that passed.
    pub fn finish(self) -> (T, Digest, u64) {
        (self.inner, self.hasher.finish(), self.count)
    }
    fn passed(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.count += bytes.len() as u64;
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.passed(&buffer[..n]);
        Ok(n)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buffer)?;
        self.passed(&buffer[..n]);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_file_has_been_checked() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
        assert_eq!(Digest::of(b"").short(), "e3b0c44298fc");
        for bad in [
            "",
            "sha256:",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
            "sha256:../../../../../../../../../../../../../../../../../../../../../etc/x",
            "sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
