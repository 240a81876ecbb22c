//! What can be wrong with a recipe.

use cosm_base::text::quoted;

use crate::platform::PlatformError;

/// Something in a Dockerfile (or a recipe made in code) that can't be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerfileError {
    /// The line at which the instruction starts; 0 if no line is to blame.
    pub line: u32,
    /// What it is.
    pub kind: DockerfileErrorKind,
}

impl std::fmt::Display for DockerfileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        self.kind.fmt(f)
    }
}

impl std::error::Error for DockerfileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.kind)
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DockerfileErrorKind {
    /// There is nothing to build.
    #[error(
        "there is no FROM: a Dockerfile starts with the image that it builds on, such as FROM debian:12"
    )]
    NoFrom,
    /// A character that no program can be given.
    #[error("there is a NUL character, which no text for a program can have: remove it")]
    Nul,
    /// Too many instructions.
    #[error("there are more than {most} instructions")]
    TooLong {
        /// The most there may be.
        most: usize,
    },
    /// An instruction outside of a stage.
    #[error("{instruction} comes before the first FROM, where only ARG can be")]
    BeforeFrom {
        /// Which.
        instruction: &'static str,
    },
    /// The escape character is neither of the two.
    #[error("the escape character can't be {}: it is \\ or `", quoted(found))]
    Escape {
        /// What it is.
        found: String,
    },
    /// A parser directive twice.
    #[error("the directive {name} is there twice: remove one")]
    DirectiveTwice {
        /// Which.
        name: &'static str,
    },
    /// No instruction is called that.
    #[error("there is no instruction {}{}", quoted(found), maybe(near.as_ref()))]
    UnknownInstruction {
        /// What stands there.
        found: String,
        /// What may be meant.
        near: Option<&'static str>,
    },
    /// The instruction has no such flag.
    #[error("{instruction} has no flag {}{}", quoted(format!("--{found}")), maybe(near.map(|n| format!("--{n}")).as_ref()))]
    UnknownFlag {
        /// The instruction.
        instruction: &'static str,
        /// What stands there.
        found: String,
        /// What may be meant.
        near: Option<&'static str>,
    },
    /// A mount has no such field.
    #[error("RUN --mount has no field {}{}", quoted(found), maybe(near.as_ref()))]
    UnknownField {
        /// What stands there.
        found: String,
        /// What may be meant.
        near: Option<&'static str>,
    },
    /// A flag that can be given once.
    #[error("{instruction} has --{flag} twice: remove one")]
    FlagTwice {
        /// The instruction.
        instruction: &'static str,
        /// The flag.
        flag: &'static str,
    },
    /// A value that can't be.
    #[error("{what} can't be {}: it is {expected}", quoted(found))]
    Value {
        /// Of what.
        what: &'static str,
        /// The value.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The arguments are not those of the instruction.
    #[error("{instruction} needs {expected}")]
    Arguments {
        /// The instruction.
        instruction: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// A JSON array with something else than texts in it.
    #[error("the JSON array of {instruction} can have nothing but texts in double quotes in it")]
    NotTexts {
        /// The instruction.
        instruction: &'static str,
    },
    /// A heredoc that goes on to the end.
    #[error(
        "the heredoc is not closed: write {} on a line of its own after it",
        quoted(name)
    )]
    OpenHeredoc {
        /// The word that ends it.
        name: String,
    },
    /// No `=` where all others have one.
    #[error(
        "{} has no =: {instruction} takes NAME=value, with quotes around values with spaces",
        quoted(word)
    )]
    NoEquals {
        /// The instruction.
        instruction: &'static str,
        /// Where it is missing.
        word: String,
    },
    /// Variables could not be put in.
    #[error("{} can't be read", quoted(text))]
    Expand {
        /// In what.
        text: String,
        /// Why.
        #[source]
        source: ExpandError,
    },
    /// Something that takes no variables.
    #[error(
        "{what} can't have variables in it: give the image a name with FROM .. AS name, and write the name here"
    )]
    NoVariables {
        /// What.
        what: &'static str,
    },
    /// Two stages of one name.
    #[error(
        "a stage named {} is there already, at line {first}: choose another name",
        quoted(name)
    )]
    StageTwice {
        /// The name.
        name: String,
        /// The line of the first.
        first: u32,
    },
    /// A stage that comes later.
    #[error("the stage {} comes later: move it before this one", quoted(name))]
    LaterStage {
        /// Its name or number.
        name: String,
    },
    /// A stage that takes from itself.
    #[error("the stage {} can't take files from itself", quoted(name))]
    OwnStage {
        /// Its name or number.
        name: String,
    },
    /// There is no such stage to build.
    #[error("there is no stage {}{}", quoted(name), maybe(near.as_ref()))]
    NoStage {
        /// The name or number.
        name: String,
        /// What may be meant.
        near: Option<String>,
    },
    /// The image to build on comes out empty.
    #[error("{} names no image: give its ARG a value", quoted(text))]
    EmptyBase {
        /// As it was written.
        text: String,
    },
    /// A platform's name.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// A pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// Something that Docker can do and this can't.
    #[error("{what} is not supported: {instead}")]
    Unsupported {
        /// What.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
}

/// Why variables could not be put into a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpandError {
    /// A quote that is not closed.
    #[error("a {quote} is not closed")]
    Quote {
        /// Which.
        quote: char,
    },
    /// A `${` that is not closed.
    #[error("a ${{ has no }} after it")]
    Brace,
    /// Something in `${..}` that means nothing.
    #[error(
        "a ${{..}} is none that Docker knows: it can be ${{NAME}}, ${{NAME:-default}}, ${{NAME:+instead}}, ${{NAME:?message}}, ${{NAME#start}}, ${{NAME%end}} or ${{NAME/this/that}}"
    )]
    Substitution,
    /// `${NAME:?message}`
    #[error("{name}: {message}")]
    Required {
        /// The variable.
        name: String,
        /// What the file says of it.
        message: String,
    },
    /// Too many `${..}` in each other, or a variable that doubles itself.
    #[error("the variables in it make it too long or too deep")]
    TooLong,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{} is not a pattern: {why}", at(*line), quoted(pattern))]
pub struct PatternError {
    line: u32,
    pattern: Vec<u8>,
    why: &'static str,
}

impl PatternError {
    pub(super) fn new(pattern: &[u8], why: &'static str) -> Self {
        Self {
            line: 0,
            pattern: pattern.to_vec(),
            why,
        }
    }
    pub(super) fn at(self, line: u32) -> Self {
        Self { line, ..self }
    }
}

fn at(line: u32) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

fn maybe(near: Option<&impl AsRef<str>>) -> String {
    near.map_or_else(String::new, |near| {
        format!(": did you mean {}?", near.as_ref())
    })
}

/// The one of some words that a mistyped one may stand for.
pub(super) fn near<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let far = |other: &str| strsim::damerau_levenshtein(&word, &other.to_lowercase());
    // What would be another word altogether is no help.
    words
        .into_iter()
        .filter(|other| far(other) <= 1 + other.len() / 4)
        .min_by_key(|other| far(other))
}
