//! A sandbox's name, as a user writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::printable;

/// The longest name, in bytes.
pub const MAX_LENGTH: usize = 128;

/// A checked name: `[A-Za-z0-9][A-Za-z0-9._-]*`, at most 128 bytes.
///
/// A name finds a row in the catalogue and is shown to people. It never becomes a path, a host name or an id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxName(String);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a sandbox's name can't be empty")]
    Empty,
    #[error("a sandbox's name has at most {MAX_LENGTH} bytes, this one has {0}")]
    TooLong(usize),
    #[error("a sandbox's name starts with a letter or a digit, not with '{}'", printable(.0.to_string().as_bytes()))]
    Start(char),
    #[error("a sandbox's name holds letters, digits, '.', '_' and '-', not '{}'", printable(.0.to_string().as_bytes()))]
    Character(char),
}

impl SandboxName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() > MAX_LENGTH {
            return Err(NameError::TooLong(text.len()));
        }
        let first = text.chars().next().ok_or(NameError::Empty)?;
        if !first.is_ascii_alphanumeric() {
            return Err(NameError::Start(first));
        }
        match text
            .chars()
            .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
        {
            Some(other) => Err(NameError::Character(other)),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl TryFrom<String> for SandboxName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<SandboxName> for String {
    fn from(name: SandboxName) -> Self {
        name.0
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_folder_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "-x",
            "_x",
            "a b",
            "a\n",
            "é",
            "a\0",
            "a'b",
            "\u{1b}[31m",
        ] {
            assert!(bad.parse::<SandboxName>().is_err(), "{bad:?}");
        }
        for good in ["a", "A.b_c-9", "0", "a..b"] {
            assert_eq!(good.parse::<SandboxName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn the_longest_name_has_128_bytes() {
        assert!("x".repeat(128).parse::<SandboxName>().is_ok());
        assert_eq!(
            "x".repeat(129).parse::<SandboxName>(),
            Err(NameError::TooLong(129))
        );
    }
}
