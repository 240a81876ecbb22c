//! Dockerfiles (<https://docs.docker.com/reference/dockerfile/>), as BuildKit reads them.
//!
//! Reading one goes in three steps, each of which needs more than the one before: [`Dockerfile::parse`] needs the text,
//! [`Dockerfile::recipe`] the build arguments and the platform, [`super::Recipe::resolve`] the configuration of a
//! stage's base.

mod copy;
mod expand;
mod lines;
pub(super) mod paths;
mod plan;
mod resolve;
mod run;
mod syntax;

use std::collections::BTreeMap;

use super::error::{DockerfileError, DockerfileErrorKind as Kind};
use crate::platform::Platform;
use syntax::{Args, Instruction};

pub(super) use resolve::Body;

/// The most instructions of a file; a hundred times more than an image can have layers.
const MAX_INSTRUCTIONS: usize = 50_000;

/// A Dockerfile whose instructions have been found to be instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    escape: char,
    /// `ARG` before the first `FROM`.
    globals: Vec<Instruction>,
    stages: Vec<StageText>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StageText {
    from: Instruction,
    image: String,
    name: Option<String>,
    instructions: Vec<Instruction>,
}

/// What a Dockerfile does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--build-arg`
    pub build_args: BTreeMap<String, String>,
    /// The stage that becomes the image, by name or number; the last one where it is absent.
    pub target: Option<String>,
    /// For what machine the image is.
    pub platform: Platform,
    /// What machine builds it.
    pub build_platform: Platform,
}

impl Default for Options {
    /// The last stage, for this machine.
    fn default() -> Self {
        Self {
            build_args: BTreeMap::new(),
            target: None,
            platform: Platform::here(),
            build_platform: Platform::here(),
        }
    }
}

impl Dockerfile {
    /// Reads a file. How long it may be is for the caller to say.
    ///
    /// # Errors
    /// [`DockerfileError`], which names the line: an unknown instruction or flag, a heredoc that is not closed, and all
    /// else that can be found without knowing what variables stand for.
    pub fn parse(text: &str) -> Result<Self, DockerfileError> {
        if let Some((_, line)) = text.lines().zip(1..).find(|(text, _)| text.contains('\0')) {
            return Err(DockerfileError {
                line,
                kind: Kind::Nul,
            });
        }
        let lines = lines::split(text, syntax::can_have_heredocs)?;
        if lines.instructions.len() > MAX_INSTRUCTIONS {
            let most = MAX_INSTRUCTIONS;
            let kind = Kind::TooLong { most };
            return Err(DockerfileError { line: 0, kind });
        }
        let mut this = Self {
            escape: lines.escape,
            globals: Vec::new(),
            stages: Vec::new(),
        };
        for logical in lines.instructions {
            let instruction = Instruction::parse(logical, lines.escape)?;
            let line = instruction.line;
            this.take(instruction)
                .map_err(|kind| DockerfileError { line, kind })?;
        }
        if this.stages.is_empty() {
            let kind = Kind::NoFrom;
            return Err(DockerfileError { line: 0, kind });
        }
        Ok(this)
    }

    fn take(&mut self, instruction: Instruction) -> Result<(), Kind> {
        match (instruction.keyword, self.stages.last_mut()) {
            ("FROM", _) => {
                let stage = StageText::parse(instruction)?;
                let same = |other: &&StageText| other.name.is_some() && other.name == stage.name;
                if let Some(first) = self.stages.iter().find(same) {
                    return Err(Kind::StageTwice {
                        name: stage.name.unwrap_or_default(),
                        first: first.from.line,
                    });
                }
                self.stages.push(stage);
            }
            ("ARG", None) => self.globals.push(instruction),
            (keyword, None) => {
                return Err(Kind::BeforeFrom {
                    instruction: keyword,
                });
            }
            ("ONBUILD", _) => {
                return Err(Kind::Unsupported {
                    what: "ONBUILD",
                    instead: "write its instruction into the Dockerfiles that build on this image",
                });
            }
            (_, Some(stage)) => stage.instructions.push(instruction),
        }
        Ok(())
    }
}

impl StageText {
    fn parse(from: Instruction) -> Result<Self, Kind> {
        let Args::Words(words) = &from.args else {
            unreachable!("FROM has words");
        };
        let (image, name) = match words.as_slice() {
            [image] => (image.clone(), None),
            [image, r#as, name] if r#as.eq_ignore_ascii_case("as") => {
                (image.clone(), Some(name.to_lowercase()))
            }
            _ => {
                return Err(Kind::Arguments {
                    instruction: "FROM",
                    expected: "an image, and perhaps AS and a name",
                });
            }
        };
        if let Some(kind) = name.as_deref().and_then(paths::bad_stage_name) {
            return Err(kind);
        }
        Ok(Self {
            from,
            image,
            name,
            instructions: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
