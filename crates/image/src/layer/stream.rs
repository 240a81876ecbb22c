//! A layer's bytes: compressed as they come, and what they are the tar of.

use std::io::{self, BufReader, Read};

use crate::digest::{Digest, Hashing};

/// How a layer is compressed. Its first bytes say so; media types are often wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, perhaps of several members.
    Gzip,
    /// Zstandard, perhaps of several frames.
    Zstd,
}

impl Compression {
    /// What these first bytes begin.
    pub fn of(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A skippable frame may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// The most memory that a Zstandard frame may ask for, as a power of two: what `zstd --long` makes by default, and far
/// above what layers use.
const ZSTD_WINDOW_LOG: u32 = 27;
const BUFFER: usize = 128 << 10;

/// What was looked at comes first.
type Source<R> = BufReader<io::Chain<io::Cursor<Vec<u8>>, R>>;

enum Decoder<R: Read> {
    Plain(Source<R>),
    Gzip(Box<flate2::bufread::MultiGzDecoder<Source<R>>>),
    Zstd(zstd::stream::read::Decoder<'static, Source<R>>),
}

/// Reads a tar out of whatever it is compressed with, and makes the digest of the tar: the layer's diff id.
pub struct LayerStream<R: Read>(Hashing<Decoder<R>>);

impl<R: Read> LayerStream<R> {
    /// Looks at the first bytes.
    ///
    /// # Errors
    /// What reading gives.
    pub fn new(mut source: R) -> io::Result<Self> {
        let first = first_bytes(&mut source)?;
        let compression = Compression::of(&first);
        let source = BufReader::with_capacity(BUFFER, io::Cursor::new(first).chain(source));
        let decoder = match compression {
            Compression::None => Decoder::Plain(source),
            Compression::Gzip => {
                Decoder::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(source)))
            }
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Decoder::Zstd(decoder)
            }
        };
        Ok(Self(Hashing::new(decoder)))
    }

    /// Bytes of the tar so far.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Reads to the end of the tar and of what carried it, at most `limit` bytes more, and gives the tar's digest and
    /// length.
    ///
    /// # Errors
    /// What reading gives; also when more bytes follow than `limit`.
    pub fn finish(mut self, limit: u64) -> io::Result<(Digest, u64)> {
        let mut rest = (&mut self.0).take(limit.saturating_add(1));
        let rest = io::copy(&mut rest, &mut io::sink())?;
        if rest > limit {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more bytes than are allowed follow the end of the archive",
            ));
        }
        let (decoder, digest, count) = self.0.finish();
        let mut source = match decoder {
            Decoder::Plain(source) => source,
            Decoder::Gzip(decoder) => decoder.into_inner(),
            Decoder::Zstd(decoder) => decoder.finish(),
        };
        // Who sends it makes a digest of all of it, too.
        io::copy(&mut source, &mut io::sink())?;
        Ok((digest, count))
    }
}

/// Up to four bytes, fewer only at the end: one read may give less.
fn first_bytes(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(4);
    source.take(4).read_to_end(&mut first)?;
    Ok(first)
}

impl<R: Read> Read for LayerStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Gives a byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(1);
            self.0.read(&mut buffer[..most])
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("write");
        encoder.finish().expect("finish")
    }

    #[test]
    fn whatever_it_is_compressed_with_the_digest_is_the_tars() {
        let content = b"not really a tar, but nobody looks here".repeat(1000);
        let zstd = zstd::encode_all(&content[..], 1).expect("zstd");
        let (first, second) = content.split_at(777);
        for carried in [
            content.clone(),
            gzip(&content),
            [gzip(first), gzip(second)].concat(),
            zstd,
        ] {
            let mut stream = LayerStream::new(Slow(&carried)).expect("a stream");
            let mut read = vec![0; 1000];
            stream.read_exact(&mut read).expect("read");
            assert_eq!(read, content[..1000]);
            assert_eq!(
                stream.finish(1 << 20).expect("the rest"),
                (Digest::of(&content), content.len() as u64)
            );
        }
    }

    #[test]
    fn damage_and_bombs_are_errors() {
        let carried = gzip(&vec![0; 1 << 20]);
        assert!(
            LayerStream::new(&carried[..])
                .expect("a stream")
                .finish(1 << 10)
                .is_err()
        );
        assert!(
            LayerStream::new(&carried[..])
                .expect("a stream")
                .finish(1 << 20)
                .is_ok()
        );
        let cut = &carried[..carried.len() - 4];
        assert!(
            LayerStream::new(cut)
                .expect("a stream")
                .finish(1 << 21)
                .is_err()
        );
    }
}
