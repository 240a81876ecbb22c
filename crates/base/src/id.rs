//! Ids of sandboxes and of their runs: 64 random bits, written as 13 lowercase base32 characters.
//!
//! Short enough for a socket path (a Unix socket's path holds 107 bytes), safe in any file name, and equal to
//! nothing a user can choose.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Crockford's alphabet: no `i`, `l`, `o`, `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 13;

/// Why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id is 13 characters of 0-9 and a-z without i, l, o and u")]
pub struct IdError;

fn encode(bits: u64) -> [u8; LENGTH] {
    let mut out = [b'0'; LENGTH];
    for (place, byte) in out.iter_mut().rev().enumerate() {
        let five = (u128::from(bits) >> (5 * place)) & 31;
        *byte = ALPHABET[five as usize];
    }
    out
}

fn decode(text: &str) -> Result<u64, IdError> {
    if text.len() != LENGTH {
        return Err(IdError);
    }
    let mut bits: u128 = 0;
    for byte in text.bytes() {
        let five = ALPHABET.iter().position(|&c| c == byte).ok_or(IdError)?;
        bits = bits << 5 | five as u128;
    }
    u64::try_from(bits).map_err(|_| IdError)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u64);

        impl $name {
            /// Makes an id of 8 random bytes.
            pub const fn from_random(bytes: [u8; 8]) -> Self {
                Self(u64::from_le_bytes(bytes))
            }

            /// The id's bits.
            pub const fn bits(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text = encode(self.0);
                f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                decode(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id! {
    /// A sandbox, for as long as it exists. Its folder and its sockets are named by it.
    SandboxId
}
id! {
    /// One start of a sandbox (an incarnation). Its cgroups are named by it.
    RunId
}

impl SandboxId {
    /// The byte of the lock file that belongs to this sandbox: 62 bits, so that it is a valid `off_t` with room
    /// for the length.
    pub const fn lock_offset(self) -> i64 {
        (self.0 >> 2) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes: [u8; 8]) {
            let id = SandboxId::from_random(bytes);
            let text = id.to_string();
            prop_assert_eq!(text.len(), 13);
            prop_assert_eq!(text.parse::<SandboxId>(), Ok(id));
            prop_assert!(id.lock_offset() >= 0);
        }

        #[test]
        fn no_text_panics(text: String) {
            if let Ok(id) = text.parse::<RunId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }

    #[test]
    fn more_than_64_bits_are_refused() {
        assert_eq!("zzzzzzzzzzzzz".parse::<SandboxId>(), Err(IdError));
        assert_eq!("../../etc/pas".parse::<SandboxId>(), Err(IdError));
    }
}
