//! The lines of a Dockerfile put together to instructions: directives, comments, continuations and heredocs
//! (<https://docs.docker.com/reference/dockerfile/#format>, `#parser-directives`, `#here-documents`).

use crate::recipe::error::{DockerfileError, DockerfileErrorKind as Kind};

/// An instruction on one line, with its heredocs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Logical {
    /// Where it starts.
    pub(super) line: u32,
    /// Without comments, continuations and spaces at both ends.
    pub(super) text: String,
    /// In the order in which they are named.
    pub(super) heredocs: Vec<Heredoc>,
}

/// A text that stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heredoc {
    /// What closes it.
    pub(super) name: String,
    /// Whether variables are put in: the name has no quotes.
    pub(super) expand: bool,
    /// Whether tabs at the start of lines are no part of it: `<<-`.
    pub(super) chomp: bool,
    /// As it stands in the file.
    pub(super) raw: String,
}

impl Heredoc {
    /// What is in it.
    pub(super) fn content(&self) -> String {
        if !self.chomp {
            return self.raw.clone();
        }
        let lines = self.raw.split_inclusive('\n');
        lines.map(|line| line.trim_start_matches('\t')).collect()
    }
}

/// All instructions of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lines {
    /// What takes the meaning from the next character, and the end from a line.
    pub(super) escape: char,
    pub(super) instructions: Vec<Logical>,
}

/// Splits a file. `opens` says whether an instruction of one line can have heredocs.
pub(super) fn split(text: &str, opens: impl Fn(&str) -> bool) -> Result<Lines, DockerfileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n').zip(1_u32..).peekable();
    let escape = directives(text)?;
    let mut instructions = Vec::new();
    while let Some((first, line)) = lines.next() {
        if is_comment(first) {
            continue;
        }
        let (start, mut goes_on) = continued(first.trim_start(), escape);
        let mut text = start.to_owned();
        while goes_on {
            let Some((next, _)) = lines.next() else { break };
            // Empty lines do not end an instruction, as they once did not, though Docker warns.
            if is_comment(next) || next.trim().is_empty() {
                continue;
            }
            let (more, goes_on_after) = continued(next, escape);
            text.push_str(more);
            goes_on = goes_on_after;
        }
        let text = text.trim().to_owned();
        if text.is_empty() {
            continue;
        }
        let mut heredocs = if opens(&text) {
            heredocs_of(&text)
        } else {
            Vec::new()
        };
        for heredoc in &mut heredocs {
            read_heredoc(heredoc, &mut lines).map_err(|kind| DockerfileError { line, kind })?;
        }
        instructions.push(Logical {
            line,
            text,
            heredocs,
        });
    }
    Ok(Lines {
        escape,
        instructions,
    })
}

/// The escape character. Directives stand before all else; the first line that is none ends them, and an unknown one is
/// a comment.
fn directives(text: &str) -> Result<char, DockerfileError> {
    let mut escape = '\\';
    let mut seen: Vec<&'static str> = Vec::new();
    for (text, line) in text.lines().zip(1..) {
        let Some((name, value)) = text
            .trim_start()
            .strip_prefix('#')
            .and_then(|t| t.split_once('='))
        else {
            break;
        };
        let name = name.trim();
        let known = ["syntax", "escape", "check"];
        let Some(name) = known.into_iter().find(|n| name.eq_ignore_ascii_case(n)) else {
            break;
        };
        let error = |kind| DockerfileError { line, kind };
        if seen.contains(&name) {
            return Err(error(Kind::DirectiveTwice { name }));
        }
        seen.push(name);
        // The syntax that others are built by is the one that is read here.
        if name == "escape" {
            escape = match value.trim() {
                "\\" => '\\',
                "`" => '`',
                found => {
                    let found = found.to_owned();
                    return Err(error(Kind::Escape { found }));
                }
            };
        }
    }
    Ok(escape)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// A line without its end and, if it goes on in the next one, what says so.
fn continued(line: &str, escape: char) -> (&str, bool) {
    let line = line.trim_end_matches(['\r', '\n']);
    match line.trim_end_matches([' ', '\t']).strip_suffix(escape) {
        Some(rest) if !rest.ends_with(escape) => (rest, true),
        _ => (line, false),
    }
}

fn read_heredoc<'a>(
    heredoc: &mut Heredoc,
    lines: &mut impl Iterator<Item = (&'a str, u32)>,
) -> Result<(), Kind> {
    for (line, _) in lines {
        let bare = line.trim_end_matches(['\r', '\n']);
        let bare = if heredoc.chomp {
            bare.trim_start_matches('\t')
        } else {
            bare
        };
        if bare == heredoc.name {
            return Ok(());
        }
        heredoc.raw.push_str(line);
    }
    Err(Kind::OpenHeredoc {
        name: heredoc.name.clone(),
    })
}

fn heredocs_of(text: &str) -> Vec<Heredoc> {
    // A quote that is not closed may be closed in a heredoc of another kind; Docker then sees none, either.
    let words = raw_words(text, '\\').unwrap_or_default();
    words.iter().filter_map(|word| heredoc(word)).collect()
}

/// A word of the form `<<EOF`, `<<-EOF`, `<<"EOF"` or `3<<EOF`.
pub(super) fn heredoc(word: &str) -> Option<Heredoc> {
    let rest = word
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .strip_prefix("<<")?;
    let (chomp, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    if rest.is_empty() || rest.contains('<') || raw_words(rest, '\\')?.len() != 1 {
        return None;
    }
    let mut name = String::new();
    let mut quote = None;
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            ('\\', None) => name.extend(chars.next()),
            (c, _) => name.push(c),
        }
    }
    let expand = !rest.contains(['\'', '"']);
    (!name.is_empty()).then_some(Heredoc {
        name,
        expand,
        chomp,
        raw: String::new(),
    })
}

/// A text split at spaces that are neither in quotes nor escaped, with quotes and escapes left as they are. `None` if a
/// quote is not closed.
pub(super) fn raw_words(text: &str, escape: char) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    let mut start = None;
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if quote.is_none() && c.is_whitespace() {
            words.extend(start.take().map(|start| &text[start..at]));
            continue;
        }
        start.get_or_insert(at);
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            // Nothing is escaped in single quotes.
            (c, q) if c == escape && q != Some('\'') => {
                chars.next();
            }
            _ => {}
        }
    }
    words.extend(start.map(|start| &text[start..]));
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(u32, String)> {
        let lines = split(text, |_| true).unwrap_or_else(|e| panic!("{text}: {e}"));
        lines
            .instructions
            .into_iter()
            .map(|l| (l.line, l.text))
            .collect()
    }

    #[test]
    fn lines_are_put_together() {
        for (text, expected) in [
            ("", &[] as &[(u32, &str)]),
            ("\n# x\n \n", &[]),
            ("A b\nC d", &[(1, "A b"), (2, "C d")]),
            ("\u{feff}A b\r\nC d\r\n", &[(1, "A b"), (2, "C d")]),
            ("  A b  ", &[(1, "A b")]),
            ("A \\\n  b \\  \n c\nD", &[(1, "A   b  c"), (4, "D")]),
            ("A \\\n# x\n  # y\n\n b", &[(1, "A  b")]),
            ("A \\\\\nB", &[(1, "A \\\\"), (2, "B")]),
            ("A \\", &[(1, "A")]),
            ("A # b", &[(1, "A # b")]),
            ("\\\nA", &[(1, "A")]),
            ("# escape=`\nA `\n\\b\\\nC", &[(2, "A \\b\\"), (4, "C")]),
            ("# SYNTAX = x/y:1\n#Escape=`\nA `\nb", &[(3, "A b")]),
            ("# other=1\n# escape=`\nA `\nb", &[(3, "A `"), (4, "b")]),
            ("\n# escape=`\nA `", &[(3, "A `")]),
        ] {
            let expected: Vec<(u32, String)> = expected
                .iter()
                .map(|(l, t)| (*l, (*t).to_owned()))
                .collect();
            assert_eq!(texts(text), expected, "{text:?}");
        }
        for (text, expected) in [
            (
                "# escape=x\n",
                "line 1: the escape character can't be \"x\": it is \\ or `",
            ),
            (
                "# escape=`\n# escape=`",
                "line 2: the directive escape is there twice: remove one",
            ),
        ] {
            assert_eq!(split(text, |_| true).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn heredocs_follow_their_line() {
        let text = "A <<X 3<<-'Y Z' x\n# in\n\nY Z\nX\n\t\ty\\\n\tY Z\nB 1 << 2 <<< a<<b \"<<Q\"\n";
        let lines = split(text, |_| true).expect("it can be read");
        let heredocs = &lines.instructions[0].heredocs;
        assert_eq!(heredocs.len(), 2);
        assert_eq!(heredocs[0].name, "X");
        assert!(heredocs[0].expand && !heredocs[0].chomp);
        assert_eq!(heredocs[0].content(), "# in\n\nY Z\n");
        assert_eq!(heredocs[1].name, "Y Z");
        assert!(!heredocs[1].expand && heredocs[1].chomp);
        assert_eq!(heredocs[1].content(), "y\\\n");
        assert_eq!(lines.instructions[1].line, 8);
        assert!(lines.instructions[1].heredocs.is_empty());
        assert!(
            split("A <<X", |_| false)
                .expect("none is read")
                .instructions[0]
                .heredocs
                .is_empty()
        );
        let error = split("\nA <<X\nx", |_| true).unwrap_err().to_string();
        assert_eq!(
            error,
            "line 2: the heredoc is not closed: write \"X\" on a line of its own after it"
        );
    }
}
