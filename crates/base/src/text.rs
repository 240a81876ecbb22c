//! Text that came from somewhere else, made safe to show.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Escapes what is not printable: control characters (a terminal would obey them), Unicode's direction marks and
/// bytes that are not UTF-8.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let moves_text = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if c.is_control() || moves_text {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").expect("writing to a string can't fail");
        }
    }
    out
}

/// A path, [`printable`].
pub fn printable_path(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// A text somebody gave, [`printable`] and in quotes: where it begins and ends would not be clear without.
pub fn quoted(text: impl AsRef<[u8]>) -> String {
    format!("\"{}\"", printable(text.as_ref()))
}

/// What stands where a value must not be shown.
pub const REDACTED: &str = "[redacted]";

/// True for environment names whose values are not shown by default (`inspect`, logs, errors).
pub fn looks_secret(name: &[u8]) -> bool {
    let upper = String::from_utf8_lossy(name).to_ascii_uppercase();
    [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "API_KEY",
        "APIKEY",
        "PRIVATE_KEY",
        "CREDENTIAL",
    ]
    .iter()
    .any(|word| upper.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_is_printed() {
        assert_eq!(printable(b"\x1b[2Jok\xff"), "\\u{1b}[2Jok\\xff");
        assert_eq!(printable("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(printable("naïve".as_bytes()), "naïve");
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        assert!(looks_secret(b"GITHUB_TOKEN") && looks_secret(b"db_password"));
        assert!(!looks_secret(b"PATH"));
    }
}
