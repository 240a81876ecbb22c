//! Instructions: their names, flags and the forms of their arguments, with variables still in them.

use serde_json::Value;

use super::lines::{Heredoc, Logical, heredoc, raw_words};
use crate::recipe::error::{DockerfileError, DockerfileErrorKind as Kind, near};

/// An instruction as it stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) line: u32,
    pub(super) text: String,
    pub(super) keyword: &'static str,
    pub(super) flags: Vec<(&'static str, Option<String>)>,
    pub(super) args: Args,
    pub(super) heredocs: Vec<Heredoc>,
}

/// What follows the flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Args {
    /// A JSON array.
    Json(Vec<String>),
    /// Words between spaces.
    Words(Vec<String>),
    /// All of it.
    Text(String),
    /// `NAME=value`; an `ARG` can be without a value.
    Pairs(Vec<(String, Option<String>)>),
}

/// How an instruction's arguments are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Words,
    JsonOrWords,
    JsonOrText,
    Text,
    Pairs,
    Names,
}

struct Shape {
    keyword: &'static str,
    form: Form,
    flags: &'static [&'static str],
}

const COPY_FLAGS: &[&str] = &["from", "chown", "chmod", "link", "exclude", "parents"];
const ADD_FLAGS: &[&str] = &[
    "chown",
    "chmod",
    "link",
    "exclude",
    "keep-git-dir",
    "checksum",
    "unpack",
];
const RUN_FLAGS: &[&str] = &["mount", "network", "security", "device"];
const CHECK_FLAGS: &[&str] = &[
    "interval",
    "timeout",
    "start-period",
    "start-interval",
    "retries",
];
/// The flags that can be given more than once.
const MANY: &[&str] = &["mount", "exclude", "device"];

const SHAPES: &[Shape] = &[
    shape("ADD", Form::JsonOrWords, ADD_FLAGS),
    shape("ARG", Form::Names, &[]),
    shape("CMD", Form::JsonOrText, &[]),
    shape("COPY", Form::JsonOrWords, COPY_FLAGS),
    shape("ENTRYPOINT", Form::JsonOrText, &[]),
    shape("ENV", Form::Pairs, &[]),
    shape("EXPOSE", Form::Words, &[]),
    shape("FROM", Form::Words, &["platform"]),
    shape("HEALTHCHECK", Form::Text, CHECK_FLAGS),
    shape("LABEL", Form::Pairs, &[]),
    shape("MAINTAINER", Form::Text, &[]),
    shape("ONBUILD", Form::Text, &[]),
    shape("RUN", Form::JsonOrText, RUN_FLAGS),
    shape("SHELL", Form::JsonOrText, &[]),
    shape("STOPSIGNAL", Form::Text, &[]),
    shape("USER", Form::Text, &[]),
    shape("VOLUME", Form::JsonOrWords, &[]),
    shape("WORKDIR", Form::Text, &[]),
];

const fn shape(keyword: &'static str, form: Form, flags: &'static [&'static str]) -> Shape {
    Shape {
        keyword,
        form,
        flags,
    }
}

/// Whether the instruction of a line can have heredocs: a JSON array has none.
pub(super) fn can_have_heredocs(line: &str) -> bool {
    let (keyword, args) = split_keyword(line);
    ["RUN", "COPY", "ADD"]
        .iter()
        .any(|k| keyword.eq_ignore_ascii_case(k))
        && !matches!(json(flags(args, '\\').1), Some(Ok(_)))
}

impl Instruction {
    pub(super) fn parse(logical: Logical, escape: char) -> Result<Self, DockerfileError> {
        let line = logical.line;
        Self::read(logical, escape).map_err(|kind| DockerfileError { line, kind })
    }

    fn read(logical: Logical, escape: char) -> Result<Self, Kind> {
        let (keyword, rest) = split_keyword(&logical.text);
        let Some(shape) = SHAPES
            .iter()
            .find(|s| keyword.eq_ignore_ascii_case(s.keyword))
        else {
            return Err(Kind::UnknownInstruction {
                found: keyword.to_owned(),
                near: near(keyword, SHAPES.iter().map(|s| s.keyword)),
            });
        };
        let keyword = shape.keyword;
        // Instructions without flags have arguments that start with two dashes, which are their own.
        let (flags, rest) = if shape.flags.is_empty() {
            (Vec::new(), rest)
        } else {
            let (found, rest) = flags(rest, escape);
            (known_flags(shape, found)?, rest)
        };
        let args = shape.form.read(keyword, rest, escape)?;
        Ok(Self {
            line: logical.line,
            keyword,
            flags,
            args,
            heredocs: logical.heredocs,
            text: logical.text,
        })
    }

    /// The value of a flag that is given at most once.
    pub(super) fn flag(&self, name: &str) -> Option<&Option<String>> {
        self.flags.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// A flag's value, which must be there.
    pub(super) fn flag_text(&self, name: &str) -> Result<Option<&str>, Kind> {
        match self.flag(name) {
            None => Ok(None),
            Some(value) => flag_value(name_of(self.keyword, name), value).map(Some),
        }
    }

    /// All values of a flag.
    pub(super) fn flag_texts(&self, name: &str) -> Result<Vec<&str>, Kind> {
        let all = self.flags.iter().filter(|(n, _)| *n == name);
        all.map(|(n, value)| flag_value(n, value)).collect()
    }

    /// A flag that is on when it has no value.
    pub(super) fn flag_switch(&self, name: &'static str, default: bool) -> Result<bool, Kind> {
        match self.flag(name).map(|value| value.as_deref()) {
            None => Ok(default),
            Some(None | Some("true" | "1")) => Ok(true),
            Some(Some("false" | "0")) => Ok(false),
            Some(Some(found)) => Err(Kind::Value {
                what: name,
                found: found.to_owned(),
                expected: "true or false",
            }),
        }
    }

    /// Whether a heredoc is all that there is to run.
    pub(super) fn is_one_heredoc(&self) -> bool {
        matches!(&self.args, Args::Text(text) if self.heredocs.len() == 1 && heredoc(text).is_some())
    }
}

fn name_of(keyword: &'static str, flag: &str) -> &'static str {
    let shapes = SHAPES.iter().find(|s| s.keyword == keyword);
    shapes
        .and_then(|s| s.flags.iter().find(|f| **f == flag))
        .unwrap_or(&"flag")
}

fn flag_value<'a>(name: &'static str, value: &'a Option<String>) -> Result<&'a str, Kind> {
    match value.as_deref() {
        None | Some("") => Err(Kind::Value {
            what: name,
            found: String::new(),
            expected: "written --flag=value",
        }),
        Some(value) => Ok(value),
    }
}

fn split_keyword(text: &str) -> (&str, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

type Found = Vec<(String, Option<String>)>;

/// The flags before the arguments. Quotes around values and escapes in them are taken away.
fn flags(text: &str, escape: char) -> (Found, &str) {
    let mut found = Vec::new();
    let mut rest = text;
    while rest.starts_with("--") {
        let mut word = String::new();
        let mut quote = None;
        let mut chars = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match (c, quote) {
                (c, None) if c.is_whitespace() => {
                    end = at;
                    break;
                }
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(q)) if c == q => quote = None,
                (c, _) if c == escape => word.extend(chars.next().map(|(_, c)| c)),
                (c, _) => word.push(c),
            }
        }
        rest = rest[end..].trim_start();
        if word == "--" {
            break;
        }
        found.push(match word[2..].split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word[2..].to_owned(), None),
        });
    }
    (found, rest)
}

fn known_flags(shape: &Shape, found: Found) -> Result<Vec<(&'static str, Option<String>)>, Kind> {
    let mut flags: Vec<(&'static str, Option<String>)> = Vec::new();
    for (name, value) in found {
        let Some(known) = shape.flags.iter().find(|flag| **flag == name) else {
            return Err(Kind::UnknownFlag {
                instruction: shape.keyword,
                near: near(&name, shape.flags.iter().copied()),
                found: name,
            });
        };
        if !MANY.contains(known) && flags.iter().any(|(flag, _)| flag == known) {
            return Err(Kind::FlagTwice {
                instruction: shape.keyword,
                flag: known,
            });
        }
        flags.push((known, value));
    }
    Ok(flags)
}

/// A JSON array of texts; `None` if it is something else, and an error if it is an array of something else.
pub(super) fn json(text: &str) -> Option<Result<Vec<String>, ()>> {
    if !text.starts_with('[') {
        return None;
    }
    let values: Vec<Value> = serde_json::from_str(text).ok()?;
    let texts = values.into_iter().map(|value| match value {
        Value::String(text) => Ok(text),
        _ => Err(()),
    });
    Some(texts.collect())
}

impl Form {
    fn read(self, keyword: &'static str, text: &str, escape: char) -> Result<Args, Kind> {
        if matches!(self, Self::JsonOrWords | Self::JsonOrText)
            && let Some(texts) = json(text)
        {
            let texts = texts.map_err(|()| Kind::NotTexts {
                instruction: keyword,
            })?;
            return Ok(Args::Json(texts));
        }
        match self {
            Self::Words | Self::JsonOrWords => Ok(Args::Words(
                text.split_whitespace().map(str::to_owned).collect(),
            )),
            Self::Text | Self::JsonOrText => Ok(Args::Text(text.to_owned())),
            Self::Pairs | Self::Names => pairs(keyword, text, escape, self == Self::Names),
        }
    }
}

fn pairs(keyword: &'static str, text: &str, escape: char, bare_names: bool) -> Result<Args, Kind> {
    let needs = |expected| Kind::Arguments {
        instruction: keyword,
        expected,
    };
    // A quote that is not closed is found when variables are put in.
    let words = raw_words(text, escape).unwrap_or_else(|| vec![text]);
    let Some(first) = words.first() else {
        return Err(needs(if bare_names { "a name" } else { "NAME=value" }));
    };
    if !bare_names && !first.contains('=') {
        // The old form: one name, and all that follows.
        let (name, value) = split_keyword(text);
        if value.is_empty() {
            return Err(needs("NAME=value"));
        }
        return Ok(Args::Pairs(vec![(name.to_owned(), Some(value.to_owned()))]));
    }
    let pairs = words.into_iter().map(|word| match word.split_once('=') {
        Some(("", _)) => Err(needs("a name before each =")),
        Some((name, value)) => Ok((name.to_owned(), Some(value.to_owned()))),
        None if bare_names => Ok((word.to_owned(), None)),
        None => Err(Kind::NoEquals {
            instruction: keyword,
            word: word.to_owned(),
        }),
    });
    Ok(Args::Pairs(pairs.collect::<Result<_, _>>()?))
}
