//! Variables in instructions, as Docker's own small shell has them
//! (<https://docs.docker.com/reference/dockerfile/#environment-replacement>).

use crate::recipe::error::ExpandError;

/// The longest text that variables may make: far more than a kernel takes for a variable.
const MAX_TEXT: usize = 1 << 20;
/// How deep `${A:-${B}}` may go.
const MAX_DEPTH: u32 = 50;

/// Puts variables into texts.
#[derive(Clone, Copy)]
pub(super) struct Expander<'a> {
    /// What a variable is set to.
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
    /// The character that takes the meaning from the next one.
    pub(super) escape: char,
    /// Whether quotes mean something.
    pub(super) quotes: bool,
}

/// Where in a text the reading is, and what has been made of what was before.
struct Reader<'a> {
    expander: Expander<'a>,
    rest: &'a str,
    depth: u32,
    /// Escape characters are kept, since what reads the pattern next needs them.
    raw: bool,
}

/// A text, and its words: those of unquoted values are split at their spaces.
#[derive(Default)]
struct Out {
    text: String,
    words: Vec<String>,
    word: Option<String>,
}

impl Out {
    fn push(&mut self, c: char, quoted: bool) {
        self.text.push(c);
        if !quoted && c.is_whitespace() {
            self.words.extend(self.word.take());
        } else {
            self.word.get_or_insert_default().push(c);
        }
    }
    fn push_str(&mut self, text: &str, quoted: bool) -> Result<(), ExpandError> {
        if self.text.len() + text.len() > MAX_TEXT {
            return Err(ExpandError::TooLong);
        }
        text.chars().for_each(|c| self.push(c, quoted));
        if quoted {
            self.word.get_or_insert_default();
        }
        Ok(())
    }
}

impl Expander<'_> {
    /// One text.
    pub(super) fn text(self, text: &str) -> Result<String, ExpandError> {
        Ok(self.run(text)?.text)
    }

    /// One text that may come to stand for several.
    pub(super) fn words(self, text: &str) -> Result<Vec<String>, ExpandError> {
        let out = self.run(text)?;
        let words = out.words.into_iter().chain(out.word);
        Ok(words.filter(|word| !word.is_empty()).collect())
    }

    fn run(self, text: &str) -> Result<Out, ExpandError> {
        Reader {
            expander: self,
            rest: text,
            depth: 0,
            raw: false,
        }
        .until(None)
    }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn until(&mut self, stop: Option<char>) -> Result<Out, ExpandError> {
        let mut out = Out::default();
        loop {
            let Some(c) = self.peek() else {
                return if stop.is_some() {
                    Err(ExpandError::Brace)
                } else {
                    Ok(out)
                };
            };
            match c {
                c if Some(c) == stop => {
                    self.next();
                    return Ok(out);
                }
                '\'' if self.expander.quotes => {
                    let text = self.single()?;
                    out.push_str(text, true)?;
                }
                '"' if self.expander.quotes => out.push_str(&self.double()?, true)?,
                '$' => out.push_str(&self.dollar()?, false)?,
                c if c == self.expander.escape => {
                    self.next();
                    if self.raw {
                        out.push(c, true);
                    }
                    if let Some(c) = self.next() {
                        out.push(c, true);
                    }
                }
                c => {
                    self.next();
                    out.push(c, false);
                }
            }
        }
    }

    fn single(&mut self) -> Result<&'a str, ExpandError> {
        let (text, rest) = self.rest[1..]
            .split_once('\'')
            .ok_or(ExpandError::Quote { quote: '\'' })?;
        self.rest = rest;
        Ok(text)
    }

    fn double(&mut self) -> Result<String, ExpandError> {
        self.next();
        let mut text = String::new();
        loop {
            if text.len() > MAX_TEXT {
                return Err(ExpandError::TooLong);
            }
            let Some(c) = self.peek() else {
                return Err(ExpandError::Quote { quote: '"' });
            };
            if c == '$' {
                text.push_str(&self.dollar()?);
                continue;
            }
            self.next();
            match (c, self.peek()) {
                ('"', _) => return Ok(text),
                (c, Some(next)) if c == self.expander.escape => {
                    if self.raw {
                        text.push(c);
                    }
                    if next == '"' || next == '$' || next == c {
                        self.next();
                        text.push(next);
                    } else {
                        text.push(c);
                    }
                }
                (c, _) => text.push(c),
            }
        }
    }

    fn name(&mut self) -> &'a str {
        let end = match self.peek() {
            Some(c) if c.is_ascii_digit() => self.rest.find(|c: char| !c.is_ascii_digit()),
            Some('@' | '*' | '#' | '?' | '-' | '$' | '!') => Some(1),
            _ => self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')),
        };
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        name
    }

    fn dollar(&mut self) -> Result<String, ExpandError> {
        self.next();
        if self.peek() != Some('{') {
            let name = self.name();
            return Ok(match name {
                "" => "$".to_owned(),
                name => self.value(name).unwrap_or_default(),
            });
        }
        self.next();
        match self.peek() {
            None => return Err(ExpandError::Brace),
            Some('{' | '}' | ':') => return Err(ExpandError::Substitution),
            Some(_) => {}
        }
        let name = self.name();
        let value = self.value(name);
        match self.next() {
            None => Err(ExpandError::Brace),
            Some('}') => Ok(value.unwrap_or_default()),
            Some(':') => {
                let operator = self.next().ok_or(ExpandError::Brace)?;
                self.operator(operator, name, value, true)
            }
            Some(operator) => self.operator(operator, name, value, false),
        }
    }

    fn operator(
        &mut self,
        operator: char,
        name: &str,
        value: Option<String>,
        empty_is_unset: bool,
    ) -> Result<String, ExpandError> {
        let present = value
            .as_ref()
            .is_some_and(|v| !(empty_is_unset && v.is_empty()));
        match operator {
            '-' | '+' | '?' => {
                let word = self.inner('}', false)?;
                match (operator, present) {
                    ('-', false) | ('+', true) => Ok(word),
                    ('+', false) => Ok(String::new()),
                    ('?', false) => Err(ExpandError::Required {
                        name: name.to_owned(),
                        message: match word.as_str() {
                            "" if value.is_some() => "it can't be empty".to_owned(),
                            "" => "it has no value".to_owned(),
                            _ => word,
                        },
                    }),
                    _ => Ok(value.unwrap_or_default()),
                }
            }
            '#' | '%' if !empty_is_unset => {
                let greedy = self.rest.starts_with(operator);
                if greedy {
                    self.next();
                }
                let pattern = Pattern::new(&self.inner('}', true)?);
                Ok(pattern.trim(&value.unwrap_or_default(), operator == '#', greedy))
            }
            '/' if !empty_is_unset => {
                let all = self.rest.starts_with('/');
                if all {
                    self.next();
                }
                let pattern = Pattern::new(&self.inner('/', true)?);
                let with = self.inner('}', true)?;
                let value = pattern.replace(&value.unwrap_or_default(), &with, all);
                value.ok_or(ExpandError::TooLong)
            }
            _ => Err(ExpandError::Substitution),
        }
    }

    /// What stands in braces, with its own variables.
    fn inner(&mut self, stop: char, raw: bool) -> Result<String, ExpandError> {
        if self.depth == MAX_DEPTH {
            return Err(ExpandError::TooLong);
        }
        self.depth += 1;
        let before = std::mem::replace(&mut self.raw, raw);
        let out = self.until(Some(stop));
        self.raw = before;
        self.depth -= 1;
        Ok(out?.text)
    }

    fn value(&self, name: &str) -> Option<String> {
        (self.expander.lookup)(name)
    }
}

/// A shell's pattern without sets: `*`, `?`, and a backslash before either.
struct Pattern(Vec<Piece>);

enum Piece {
    Char(char),
    Any,
    Star,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            pieces.push(match c {
                '*' => Piece::Star,
                '?' => Piece::Any,
                '\\' => chars.next().map_or(Piece::Char('\\'), Piece::Char),
                c => Piece::Char(c),
            });
        }
        Self(pieces)
    }

    /// The ends of all starts of a text that match, the shortest first.
    fn ends(&self, text: &str) -> Vec<usize> {
        let mut now = vec![false; self.0.len() + 1];
        now[0] = true;
        let mut ends = Vec::new();
        let mut offsets: Vec<(usize, Option<char>)> =
            text.char_indices().map(|(at, c)| (at, Some(c))).collect();
        offsets.push((text.len(), None));
        for (at, c) in offsets {
            for (i, piece) in self.0.iter().enumerate() {
                if now[i] && matches!(piece, Piece::Star) {
                    now[i + 1] = true;
                }
            }
            if now[self.0.len()] {
                ends.push(at);
            }
            let mut next = vec![false; now.len()];
            for (i, piece) in self.0.iter().enumerate().filter(|(i, _)| now[*i]) {
                match piece {
                    Piece::Star => next[i] = true,
                    Piece::Any => next[i + 1] = true,
                    Piece::Char(p) => next[i + 1] |= c == Some(*p),
                }
            }
            if !next.contains(&true) {
                break;
            }
            now = next;
        }
        ends
    }

    fn trim(&self, text: &str, at_start: bool, greedy: bool) -> String {
        if at_start {
            let ends = self.ends(text);
            let end = if greedy { ends.last() } else { ends.first() };
            return text[end.copied().unwrap_or(0)..].to_owned();
        }
        let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        let matches = |at: &usize| self.ends(&text[*at..]).last() == Some(&(text.len() - at));
        let start = if greedy {
            starts.find(matches)
        } else {
            starts.collect::<Vec<_>>().into_iter().rev().find(matches)
        };
        text[..start.unwrap_or(text.len())].to_owned()
    }

    /// `None` if it becomes too long.
    fn replace(&self, text: &str, with: &str, all: bool) -> Option<String> {
        let mut out = String::new();
        let mut rest = text;
        let mut more = true;
        while let Some(c) = rest.chars().next() {
            if out.len() > MAX_TEXT {
                return None;
            }
            match self.ends(rest).last() {
                Some(&end) if more && end > 0 => {
                    out.push_str(with);
                    rest = &rest[end..];
                    more = all;
                }
                _ => {
                    out.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        Some(out)
    }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
