//! Patterns of paths, matched in a time that is the product of both lengths whatever they are.

use super::error::PatternError;

/// A pattern with `*`, `?` and `[..]`, as Go's `path/filepath.Match` has them, on bytes. None of them matches a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wildcard {
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`
    Any,
    /// `*`
    Star,
    /// `[..]`
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// A `**` at the end: whatever follows.
    Rest,
    /// A `**/`: nothing, or whole folders. It is entered at one token and left after the next.
    Folders,
    InFolders,
}

impl Wildcard {
    /// Reads a pattern in which `**` is no more than `*`: those of `COPY`'s sources
    /// (<https://docs.docker.com/reference/dockerfile/#copy>, <https://pkg.go.dev/path/filepath#Match>).
    ///
    /// # Errors
    /// [`PatternError`] when a bracket is not closed, a range has no end or nothing follows the last backslash.
    pub fn new(pattern: impl AsRef<[u8]>) -> Result<Self, PatternError> {
        Self::parse(pattern.as_ref(), false)
    }

    /// Reads a pattern in which `**` stands for any number of folders: those of `.dockerignore`, and of sources with
    /// `--parents`.
    ///
    /// # Errors
    /// As [`Wildcard::new`].
    pub fn recursive(pattern: impl AsRef<[u8]>) -> Result<Self, PatternError> {
        Self::parse(pattern.as_ref(), true)
    }

    fn parse(pattern: &[u8], recursive: bool) -> Result<Self, PatternError> {
        let mut tokens = Vec::new();
        let mut rest = pattern;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'*' if recursive && rest.first() == Some(&b'*') => {
                    rest = &rest[1..];
                    rest = rest.strip_prefix(b"/").unwrap_or(rest);
                    if rest.is_empty() {
                        tokens.push(Token::Rest);
                    } else {
                        tokens.extend([Token::Folders, Token::InFolders]);
                    }
                }
                b'*' => {
                    if tokens.last() != Some(&Token::Star) {
                        tokens.push(Token::Star);
                    }
                }
                b'?' => tokens.push(Token::Any),
                b'[' => {
                    let (class, after) = class(rest).ok_or_else(|| {
                        PatternError::new(
                            pattern,
                            "a [ has no ] after it that closes a set of characters",
                        )
                    })?;
                    tokens.push(class);
                    rest = after;
                }
                b'\\' => {
                    let (&byte, after) = rest
                        .split_first()
                        .ok_or_else(|| PatternError::new(pattern, "it ends with a backslash"))?;
                    tokens.push(Token::Byte(byte));
                    rest = after;
                }
                byte => tokens.push(Token::Byte(byte)),
            }
        }
        Ok(Self { tokens })
    }

    /// Whether a whole path matches.
    pub fn matches(&self, path: impl AsRef<[u8]>) -> bool {
        let mut now = vec![false; self.tokens.len() + 1];
        self.enter(&mut now, 0);
        for piece in path.as_ref().utf8_chunks() {
            for c in piece.valid().chars() {
                let mut bytes = [0; 4];
                let bytes = c.encode_utf8(&mut bytes).as_bytes();
                now = self.step(&now, bytes, Some(c));
            }
            for byte in piece.invalid() {
                now = self.step(&now, &[*byte], None);
            }
        }
        now[self.tokens.len()]
    }

    /// Whether it is a plain path, which exactly one path matches.
    pub fn is_literal(&self) -> bool {
        self.tokens.iter().all(|t| matches!(t, Token::Byte(_)))
    }

    /// Marks a token as one that the next character may match, and those behind it that may match nothing.
    fn enter(&self, now: &mut [bool], mut at: usize) {
        loop {
            now[at] = true;
            at += match self.tokens.get(at) {
                Some(Token::Star | Token::Rest) => 1,
                Some(Token::Folders) => {
                    now[at + 1] = true;
                    2
                }
                _ => return,
            };
        }
    }

    /// The tokens that may come next after one more character. One that is no ASCII is several bytes, of which the
    /// pattern has each as a token.
    fn step(&self, now: &[bool], bytes: &[u8], c: Option<char>) -> Vec<bool> {
        let mut next = vec![false; now.len()];
        let is_slash = bytes == b"/";
        for (at, token) in self.tokens.iter().enumerate().filter(|(at, _)| now[*at]) {
            match token {
                Token::Byte(_) => {
                    let literal = self.tokens.get(at..at + bytes.len());
                    if literal
                        .is_some_and(|l| l.iter().zip(bytes).all(|(t, b)| *t == Token::Byte(*b)))
                    {
                        self.enter(&mut next, at + bytes.len());
                    }
                }
                Token::Any if !is_slash => self.enter(&mut next, at + 1),
                Token::Class { negated, ranges } if !is_slash => {
                    let inside = c.is_some_and(|c| {
                        ranges.iter().any(|(low, high)| (*low..=*high).contains(&c))
                    });
                    if inside != *negated {
                        self.enter(&mut next, at + 1);
                    }
                }
                Token::Star if !is_slash => self.enter(&mut next, at),
                Token::Rest => self.enter(&mut next, at),
                Token::InFolders => {
                    next[at] = true;
                    if is_slash {
                        self.enter(&mut next, at + 1);
                    }
                }
                Token::Any | Token::Class { .. } | Token::Star | Token::Folders => {}
            }
        }
        next
    }
}

/// Reads a set of characters after its `[`.
fn class(pattern: &[u8]) -> Option<(Token, &[u8])> {
    let (negated, mut rest) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut ranges = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(b"]")
            && !ranges.is_empty()
        {
            return Some((Token::Class { negated, ranges }, after));
        }
        let (low, after) = class_char(rest)?;
        (rest, ranges) = match after.strip_prefix(b"-") {
            Some(after) => {
                let (high, after) = class_char(after)?;
                ranges.push((low, high));
                (after, ranges)
            }
            None => {
                ranges.push((low, low));
                (after, ranges)
            }
        };
    }
}

fn class_char(pattern: &[u8]) -> Option<(char, &[u8])> {
    let pattern = match pattern.first()? {
        b'-' | b']' => return None,
        b'\\' => &pattern[1..],
        _ => pattern,
    };
    let c = pattern.utf8_chunks().next()?.valid().chars().next()?;
    Some((c, &pattern[c.len_utf8()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wildcards_match_as_gos_do() {
        for (pattern, path, expected) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "a", true),
            ("a*", "ab/c", false),
            ("a*/b", "abc/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/f", true),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^b-d]", "abe", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a☺b", true),
            ("a[^a]b", "a☺b", true),
            ("a???b", "a☺b", false),
            ("[a-ζ]*", "α", true),
            ("☺x", "☺x", true),
            ("a?b", "a/b", false),
            ("a*b", "a/b", false),
            ("a[^x]b", "a/b", false),
            ("[\\]a]", "]", true),
            ("[\\-x]", "-", true),
            ("", "", true),
            ("", "a", false),
            ("a**b", "axxb", true),
            ("**/b", "a/b", true),
            ("**/b", "a/c/b", false),
        ] {
            let wildcard = Wildcard::new(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(wildcard.matches(path), expected, "{pattern} {path}");
        }
        for bad in [
            "[", "[a", "[]", "[]a]", "[-]", "[x-]", "[-x]", "[^", "[a-", "[\\", "a\\", "[",
        ] {
            assert!(Wildcard::new(bad).is_err(), "{bad}");
        }
        assert!(Wildcard::new("a\\*b").expect("it is one").is_literal());
        assert!(!Wildcard::new("a*b").expect("it is one").is_literal());
        assert!(Wildcard::new("a?").expect("it is one").matches(b"a\xff"));
    }

    #[test]
    fn two_stars_are_any_number_of_folders() {
        for (pattern, path, expected) in [
            ("**", "a/b/c", true),
            ("**/", "a", true),
            ("**/a", "a", true),
            ("**/a", "x/y/a", true),
            ("**/a", "xa", false),
            ("a/**", "a/b/c", true),
            ("a/**", "b", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "a/xb", false),
            ("**/*.go", "x/y.go", true),
            ("**/*.go", "y.go", true),
            ("a**/b", "a/b", true),
            ("a**/b", "ax/b", true),
            ("**file", "file", true),
            ("**file", "dir/file", true),
            ("**/**/x", "x", true),
            ("**/**/x", "a/x", true),
        ] {
            let wildcard = Wildcard::recursive(pattern).expect(pattern);
            assert_eq!(wildcard.matches(path), expected, "{pattern} {path}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(pattern in "[a*?\\[\\]^/\\\\☺-]{0,12}", path in "[a/☺b-]{0,12}") {
            for wildcard in [Wildcard::new(&pattern), Wildcard::recursive(&pattern)].into_iter().flatten() {
                wildcard.matches(&path);
            }
        }

        #[test]
        fn a_path_matches_itself(path in "[a-z☺/]{0,12}") {
            prop_assert!(Wildcard::new(&path).expect("it has no wildcards").matches(&path));
        }
    }
}
