//! Recipes: how an image is made, in code or in a Dockerfile. Nothing here reads or runs anything.
//!
//! A recipe is a list of stages. Which of them are needed, and on what each one builds, is known at once
//! ([`Recipe::order`], [`Stage::base`]); what the steps of a stage are is known when the configuration of its base is,
//! since `ENV PATH=/app/bin:$PATH` depends on it ([`Recipe::resolve`]).
//!
//! ```
//! use cosm_image::recipe::{Options, Recipe, Scope, dockerfile::Dockerfile};
//!
//! let by_hand = Recipe::from("debian:12").run("make").workdir("/app").cmd(["./app"]).build()?;
//! let from_text = Dockerfile::parse("FROM debian:12\nRUN make\nWORKDIR /app\nCMD [\"./app\"]")?
//!     .recipe(&Options::default())?;
//! let base = Scope::default();
//! assert_eq!(by_hand.resolve(0, &base)?.1.config, from_text.resolve(0, &base)?.1.config);
//! # Ok::<(), cosm_image::recipe::DockerfileError>(())
//! ```

mod apply;
mod builder;
pub mod dockerfile;
mod error;
mod glob;
mod ignore;
mod scope;
mod step;

use crate::platform::Platform;

pub use builder::RecipeBuilder;
pub use dockerfile::{Dockerfile, Options};
pub use error::{DockerfileError, DockerfileErrorKind, ExpandError, PatternError};
pub use glob::Wildcard;
pub use ignore::Ignore;
pub use scope::Scope;
pub use step::{
    Action, CopyFiles, Origin, Run, RunForm, RunMount, RunNetwork, Sharing, Source, Step,
};

/// How an image is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    stages: Vec<Stage>,
    target: usize,
    unused_args: Vec<String>,
}

/// A part of a recipe, which starts with some image and does steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// What others call it, in lower case.
    pub name: Option<String>,
    /// Its line; 0 if no file says it.
    pub line: u32,
    /// How it starts, as it was written.
    pub text: String,
    /// What it builds on.
    pub base: Base,
    /// For what machine the base is, where that is not the machine that the image is for.
    pub platform: Option<Platform>,
    uses: Vec<usize>,
    body: Body,
}

/// What a stage builds on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// An image: what a [`crate::Reference`] is read from, or whatever else the one who builds takes for an image.
    Image(String),
    /// Nothing.
    Scratch,
    /// An earlier stage.
    Stage(usize),
}

#[derive(Debug, Clone, PartialEq)]
enum Body {
    Steps(Vec<Step>),
    Dockerfile(dockerfile::Body),
}

impl Recipe {
    /// Starts one in code. The text is an image's name or `scratch`.
    pub fn from(base: impl Into<String>) -> RecipeBuilder {
        RecipeBuilder::new(base.into())
    }

    /// All stages.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The stage that becomes the image.
    pub fn target(&self) -> usize {
        self.target
    }

    /// Build arguments that were given and that nothing declares, which are likely mistyped.
    pub fn unused_args(&self) -> &[String] {
        &self.unused_args
    }

    /// The stages that the target needs and the target itself, each one after those that it needs.
    pub fn order(&self) -> Vec<usize> {
        let mut needed = vec![false; self.stages.len()];
        needed[self.target] = true;
        for index in (0..self.stages.len()).rev().filter(|i| *i <= self.target) {
            if !needed[index] {
                continue;
            }
            let stage = &self.stages[index];
            if let Base::Stage(base) = stage.base {
                needed[base] = true;
            }
            for used in &stage.uses {
                needed[*used] = true;
            }
        }
        (0..needed.len()).filter(|i| needed[*i]).collect()
    }

    /// The steps of a stage, and what a stage that builds on this one starts with.
    ///
    /// `base` is what the base ended with if it is a stage, or has the configuration of the image.
    ///
    /// # Errors
    /// [`DockerfileError`] when an instruction can't be followed.
    ///
    /// # Panics
    /// If there is no such stage.
    pub fn resolve(
        &self,
        stage: usize,
        base: &Scope,
    ) -> Result<(Vec<Step>, Scope), DockerfileError> {
        let stage = &self.stages[stage];
        if !base.config.on_build.is_empty() {
            return Err(DockerfileError {
                line: stage.line,
                kind: DockerfileErrorKind::Unsupported {
                    what: "an image with ONBUILD instructions as the base",
                    instead: "write what they do into this Dockerfile, on the image that the base is built on",
                },
            });
        }
        let mut scope = scope::Resolving::new(base);
        let steps = match &stage.body {
            Body::Steps(steps) => steps
                .iter()
                .map(|step| {
                    let mut step = step.clone();
                    scope.finish(&mut step.action);
                    step
                })
                .collect(),
            Body::Dockerfile(body) => body.resolve(&mut scope)?,
        };
        Ok((steps, scope.end()))
    }
}
