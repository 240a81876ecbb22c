//! The keys that leave a terminal without ending what runs in it.
//!
//! ```text
//!            first key            next key            last key
//! [nothing] ----------> [part] ------------> [part] ----------> detached
//!     ^                   |                    |
//!     +---- other byte: what was held back is delivered, and the match starts anew
//! ```

use std::fmt;
use std::str::FromStr;

use cosm_base::text::quoted;

/// A sequence of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys(Vec<u8>);

/// Why a text names no keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is not a key: write single characters or ctrl- with one of a to z, @, [, \\, ], ^, _, separated by commas",
    quoted(.0)
)]
pub(crate) struct KeysError(String);

impl FromStr for Keys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Self, KeysError> {
        text.split(',').map(key).collect::<Result<_, _>>().map(Self)
    }
}

fn key(text: &str) -> Result<u8, KeysError> {
    let bad = || KeysError(text.to_owned());
    let (name, control) = match text.strip_prefix("ctrl-") {
        Some(name) => (name, true),
        None => (text, false),
    };
    match name.as_bytes() {
        [byte]
            if control
                && matches!(byte, b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_') =>
        {
            Ok(byte & 0x1f)
        }
        [byte] if !control && byte.is_ascii_graphic() => Ok(*byte),
        _ => Err(bad()),
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match byte {
                0 => f.write_str("ctrl-@")?,
                1..=26 => write!(f, "ctrl-{}", char::from(byte | 0x60))?,
                27..=31 => write!(f, "ctrl-{}", char::from(byte | 0x40))?,
                _ => write!(f, "{}", char::from(*byte))?,
            }
        }
        Ok(())
    }
}

/// Looks for the keys in what is typed.
#[derive(Debug)]
pub(crate) struct Detector {
    keys: Vec<u8>,
    /// How many keys of the sequence were typed and are held back.
    matched: usize,
}

/// What came of some input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    /// What the command is to get.
    pub(crate) deliver: Vec<u8>,
    /// The sequence is complete; what was typed after it is dropped.
    pub(crate) detached: bool,
}

impl Detector {
    /// Nothing typed yet.
    pub(crate) fn new(keys: &Keys) -> Self {
        Self {
            keys: keys.0.clone(),
            matched: 0,
        }
    }

    /// Takes some input.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Typed {
        let mut deliver = Vec::with_capacity(input.len() + self.matched);
        for byte in input {
            // After a wrong key the longest end of what was held back that still begins the sequence stays held.
            while self.matched > 0 && self.keys[self.matched] != *byte {
                let kept = self.fallback(self.matched);
                deliver.extend_from_slice(&self.keys[..self.matched - kept]);
                self.matched = kept;
            }
            if self.keys[self.matched] == *byte {
                self.matched += 1;
                if self.matched == self.keys.len() {
                    return Typed {
                        deliver,
                        detached: true,
                    };
                }
            } else {
                deliver.push(*byte);
            }
        }
        Typed {
            deliver,
            detached: false,
        }
    }

    /// The length of the longest proper end of the first `length` keys that is also their beginning.
    fn fallback(&self, length: usize) -> usize {
        (0..length)
            .rev()
            .find(|n| self.keys[..*n] == self.keys[length - n..length])
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(text: &str) -> Keys {
        text.parse().expect("valid keys")
    }

    #[test]
    fn keys_are_read_and_written() {
        for text in ["ctrl-]", "ctrl-p,ctrl-q", "~,.", "ctrl-@", "ctrl-\\"] {
            assert_eq!(keys(text).to_string(), text);
        }
        assert_eq!(keys("ctrl-p,q").0, [16, b'q']);
        for bad in ["", "ctrl-", "ctrl-1", "ab", "ctrl-p,", "é"] {
            assert!(bad.parse::<Keys>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_part_of_the_sequence_is_delivered() {
        let mut detector = Detector::new(&keys("ctrl-p,ctrl-q"));
        assert_eq!(
            detector.feed(b"a\x10"),
            Typed {
                deliver: b"a".to_vec(),
                detached: false
            }
        );
        assert_eq!(
            detector.feed(b"b"),
            Typed {
                deliver: b"\x10b".to_vec(),
                detached: false
            }
        );
        assert_eq!(
            detector.feed(b"c\x10\x10"),
            Typed {
                deliver: b"c\x10".to_vec(),
                detached: false
            }
        );
        assert_eq!(
            detector.feed(b"\x11zzz"),
            Typed {
                deliver: vec![],
                detached: true
            }
        );
    }

    proptest! {
        /// However input is cut, what is delivered is what was typed up to the first occurrence of the sequence.
        #[test]
        fn nothing_is_lost(
            sequence in "[ab]{1,4}",
            input in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'c')], 0..40),
            cut in 1usize..5,
        ) {
            let keys = Keys(sequence.clone().into_bytes());
            let mut detector = Detector::new(&keys);
            let mut delivered = Vec::new();
            let mut detached = false;
            for part in input.chunks(cut) {
                let typed = detector.feed(part);
                delivered.extend(typed.deliver);
                if typed.detached {
                    detached = true;
                    break;
                }
            }
            let held = keys.0[..detector.matched].to_vec();
            match input.windows(sequence.len()).position(|w| w == sequence.as_bytes()) {
                Some(at) => {
                    prop_assert!(detached);
                    prop_assert_eq!(&delivered, &input[..at]);
                }
                None => {
                    prop_assert!(!detached);
                    delivered.extend(held);
                    prop_assert_eq!(delivered, input);
                }
            }
        }
    }
}
