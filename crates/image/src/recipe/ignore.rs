//! What a `.dockerignore` leaves out of the folder that is built
//! (<https://docs.docker.com/build/concepts/context/#dockerignore-files>).

use super::error::PatternError;
use super::glob::Wildcard;

/// Patterns of what is left out, and (with `!`) of what is not left out all the same. Of all that match, the last one
/// counts. A pattern that matches a folder matches all that is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignore {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    keeps: bool,
    pattern: Wildcard,
    /// The pattern's parts, to tell what could be below a folder.
    parts: Vec<Vec<u8>>,
}

impl Ignore {
    /// Reads a file. A line that starts with `#` is a comment.
    ///
    /// # Errors
    /// [`PatternError`], which names the line.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, PatternError> {
        let text = text.as_ref();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let lines = text.split(|b| *b == b'\n').zip(1..);
        Self::of(lines.filter(|(line, _)| !line.starts_with(b"#")))
    }

    /// Patterns from elsewhere (`--exclude`).
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new<P: AsRef<[u8]>>(
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<Self, PatternError> {
        let mut all = Self::default();
        for pattern in patterns {
            all.rules.extend(Rule::parse(pattern.as_ref())?);
        }
        Ok(all)
    }

    fn of<'a>(lines: impl Iterator<Item = (&'a [u8], u32)>) -> Result<Self, PatternError> {
        let mut all = Self::default();
        for (line, number) in lines {
            let rule = Rule::parse(line).map_err(|error| error.at(number))?;
            all.rules.extend(rule);
        }
        Ok(all)
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a path, seen from the folder that is built and without a slash at its start or end, is left out.
    pub fn excludes(&self, path: impl AsRef<[u8]>) -> bool {
        let path = path.as_ref();
        let mut excluded = false;
        for rule in &self.rules {
            if rule.keeps == excluded && rule.matches(path) {
                excluded = !rule.keeps;
            }
        }
        excluded
    }

    /// Whether something below a folder may be in: the folder is not left out, or a pattern with `!` could match
    /// something in it. Nobody needs to look into other folders.
    pub fn enters(&self, folder: impl AsRef<[u8]>) -> bool {
        let folder = folder.as_ref();
        !self.excludes(folder)
            || self
                .rules
                .iter()
                .any(|rule| rule.keeps && rule.could_match_below(folder))
    }
}

impl Rule {
    fn parse(line: &[u8]) -> Result<Option<Self>, PatternError> {
        let line = line.trim_ascii();
        let (keeps, pattern) = match line.strip_prefix(b"!") {
            Some(pattern) => (true, pattern.trim_ascii()),
            None => (false, line),
        };
        if pattern.is_empty() {
            return if keeps {
                Err(PatternError::new(line, "a path comes after the !"))
            } else {
                Ok(None)
            };
        }
        let cleaned = clean(pattern);
        Ok(Some(Self {
            keeps,
            pattern: Wildcard::recursive(&cleaned)?,
            parts: cleaned.split(|b| *b == b'/').map(<[u8]>::to_vec).collect(),
        }))
    }

    /// Whether it matches the path or a folder that the path is in.
    fn matches(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        self.pattern.matches(path)
            || ends
                .into_iter()
                .any(|(end, _)| self.pattern.matches(&path[..end]))
    }

    fn could_match_below(&self, folder: &[u8]) -> bool {
        let mut parts = self.parts.iter();
        for name in folder.split(|b| *b == b'/') {
            match parts.next() {
                // It matches a folder that this one is in, so `excludes` has taken it into account.
                None => return false,
                Some(part) if part.windows(2).any(|two| two == b"**") => return true,
                Some(part) => match Wildcard::new(part) {
                    Ok(wildcard) if !wildcard.matches(name) => return false,
                    // A part of a set of characters with a slash in it says nothing.
                    _ => {}
                },
            }
        }
        parts.next().is_some()
    }
}

/// A pattern without `.`, `..` where something goes before it, and slashes at its start and end.
fn clean(pattern: &[u8]) -> Vec<u8> {
    let rooted = pattern.starts_with(b"/");
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in pattern.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => {
                parts.pop();
            }
            b".." if rooted => {}
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return if rooted { b"/" } else { b"." }.to_vec();
    }
    parts.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_leave_out_what_dockers_do() {
        for (text, path, expected) in [
            ("", "a", false),
            ("# a\na", "a", true),
            (" # a", "# a", true),
            ("a", "a/b/c", true),
            ("a", "x/a", false),
            ("/a/", "a/b", true),
            ("./a", "a", true),
            ("a/../b", "b", true),
            ("*/temp*", "x/temporary", true),
            ("*/temp*", "x/y/temp", false),
            ("*/*/temp*", "x/y/temp/z", true),
            ("temp?", "tempa", true),
            ("temp?", "temp", false),
            ("**/*.go", "a/b.go", true),
            ("**/*.go", "b.go", true),
            ("*.md\n!README.md", "README.md", false),
            ("*.md\n!README.md", "a.md", true),
            (
                "*.md\n!README*.md\nREADME-secret.md",
                "README-secret.md",
                true,
            ),
            (
                "*.md\nREADME-secret.md\n!README*.md",
                "README-secret.md",
                false,
            ),
            ("*\n!src", "src/a", false),
            ("*\n!src/a", "src/b", true),
            ("*\n!src/a", "src/a", false),
            ("**\n!a/b", "a/b/c", false),
            ("docs\n!docs/README.md", "docs/README.md", false),
            ("docs\n!docs/README.md\ndocs", "docs/README.md", true),
            ("! a\n", "a", false),
            ("node_modules\r\n.git\r\n", ".git/x", true),
            ("[a-c]x", "bx", true),
            ("\\#a", "#a", true),
            ("\u{feff}a", "a", true),
            (".", "a", false),
            ("/", "a", false),
            ("**/.git", "x/.git/config", true),
        ] {
            let ignore = Ignore::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(ignore.excludes(path), expected, "{text:?} {path}");
        }
    }

    #[test]
    fn bad_patterns_say_where_they_are() {
        for (text, line) in [("a\n[", "line 2: "), ("!", "line 1: "), ("x\\", "line 1: ")] {
            let error = Ignore::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(line), "{error}");
        }
    }

    #[test]
    fn folders_are_entered_for_the_exceptions_in_them() {
        for (text, folder, expected) in [
            ("a", "b", true),
            ("a", "a", false),
            ("a\n!a/b/c", "a", true),
            ("a\n!a/b/c", "a/b", true),
            ("a\n!a/b/c", "a/x", false),
            ("*\n!**/*.go", "x/y", true),
            ("*\n!a/*/c", "a/x", true),
            ("*\n!a/*/c", "b", false),
            ("*\n!a", "b", false),
            ("*\n!a", "a/b", true),
        ] {
            let ignore = Ignore::parse(text).expect(text);
            assert_eq!(ignore.enters(folder), expected, "{text:?} {folder}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_kept_in_a_folder_that_is_not_entered(
            text in "([!]?[ab*/.]{1,6}\n){0,5}", folder in "[ab](/[ab]){0,2}", below in "[ab](/[ab]){0,2}",
        ) {
            if let Ok(ignore) = Ignore::parse(&text) && !ignore.enters(&folder) {
                let path = format!("{folder}/{below}");
                prop_assert!(ignore.excludes(&path), "{} is in", path);
            }
        }

        #[test]
        fn nothing_panics(text in proptest::collection::vec(any::<u8>(), 0..60), path in ".{0,20}") {
            if let Ok(ignore) = Ignore::parse(&text) {
                ignore.enters(&path);
            }
        }
    }
}
