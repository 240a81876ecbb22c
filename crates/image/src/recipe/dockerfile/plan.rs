//! What the stages are: global arguments, bases, platforms, and who needs whom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::expand::Expander;
use super::resolve::Body;
use super::run::mount_from;
use super::syntax::{Args, Instruction};
use super::{Dockerfile, Options, StageText};
use crate::platform::Platform;
use crate::recipe::error::{DockerfileError, DockerfileErrorKind as Kind, near};
use crate::recipe::step::{Origin, PROXIES};
use crate::recipe::{Base, Body as AnyBody, Recipe, Stage};

/// What all stages of a file have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Common {
    pub(super) escape: char,
    pub(super) build_args: BTreeMap<String, String>,
    /// Arguments from before the first `FROM`, and those that Docker defines.
    pub(super) globals: BTreeMap<String, String>,
    names: Vec<Option<String>>,
}

impl Dockerfile {
    /// The recipe that it is, with these arguments.
    ///
    /// # Errors
    /// [`DockerfileError`] when a `FROM` names nothing, there is no such target, or a stage takes files from one that
    /// comes later.
    pub fn recipe(&self, options: &Options) -> Result<Recipe, DockerfileError> {
        let common = Arc::new(self.common(options)?);
        let mut stages: Vec<Stage> = Vec::new();
        for (index, text) in self.stages.iter().enumerate() {
            stages.push(text.plan(index, &common)?);
        }
        Ok(Recipe {
            target: self.target(options.target.as_deref())?,
            unused_args: self.unused(options),
            stages,
        })
    }

    fn common(&self, options: &Options) -> Result<Common, DockerfileError> {
        let mut common = Common {
            escape: self.escape,
            build_args: options.build_args.clone(),
            globals: predefined(options),
            names: self.stages.iter().map(|stage| stage.name.clone()).collect(),
        };
        for arg in &self.globals {
            let Args::Pairs(pairs) = &arg.args else {
                continue;
            };
            for (name, default) in pairs {
                let value = match (common.build_args.get(name), default) {
                    (Some(value), _) => Some(value.clone()),
                    (None, Some(default)) => {
                        Some(common.expand(default).map_err(|kind| arg.error(kind))?)
                    }
                    (None, None) => None,
                };
                common
                    .globals
                    .extend(value.map(|value| (name.clone(), value)));
            }
        }
        Ok(common)
    }

    fn target(&self, wanted: Option<&str>) -> Result<usize, DockerfileError> {
        let Some(wanted) = wanted else {
            return Ok(self.stages.len() - 1);
        };
        let names = || self.stages.iter().filter_map(|stage| stage.name.as_deref());
        let named = |stage: &StageText| stage.name.as_deref() == Some(&wanted.to_lowercase());
        let number = wanted.parse().ok().filter(|n| *n < self.stages.len());
        self.stages
            .iter()
            .position(named)
            .or(number)
            .ok_or_else(|| DockerfileError {
                line: 0,
                kind: Kind::NoStage {
                    name: wanted.to_owned(),
                    near: near(wanted, names()).map(str::to_owned),
                },
            })
    }

    fn unused(&self, options: &Options) -> Vec<String> {
        let all = self.stages.iter().flat_map(|stage| &stage.instructions);
        let mut declared: BTreeSet<&str> = BTreeSet::new();
        for arg in self
            .globals
            .iter()
            .chain(all.filter(|i| i.keyword == "ARG"))
        {
            if let Args::Pairs(pairs) = &arg.args {
                declared.extend(pairs.iter().map(|(name, _)| name.as_str()));
            }
        }
        let predefined = predefined(options);
        let given = options.build_args.keys();
        given
            .filter(|name| {
                !(declared.contains(name.as_str())
                    || predefined.contains_key(*name)
                    || name.starts_with("BUILDKIT_")
                    || PROXIES.contains(&name.to_ascii_uppercase().as_str()))
            })
            .cloned()
            .collect()
    }
}

/// <https://docs.docker.com/reference/dockerfile/#automatic-platform-args-in-the-global-scope>
fn predefined(options: &Options) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (prefix, platform) in [
        ("TARGET", &options.platform),
        ("BUILD", &options.build_platform),
    ] {
        for (name, value) in [
            ("PLATFORM", platform.to_string()),
            ("OS", platform.os.clone()),
            ("ARCH", platform.architecture.clone()),
            ("VARIANT", platform.variant.clone().unwrap_or_default()),
        ] {
            all.insert(format!("{prefix}{name}"), value);
        }
    }
    let stage = options
        .target
        .clone()
        .unwrap_or_else(|| "default".to_owned());
    all.insert("TARGETSTAGE".to_owned(), stage);
    for (name, value) in &options.build_args {
        all.entry(name.clone())
            .and_modify(|old| old.clone_from(value));
    }
    all
}

impl Common {
    fn expand(&self, text: &str) -> Result<String, Kind> {
        let expander = Expander {
            lookup: &|name| self.globals.get(name).cloned(),
            escape: self.escape,
            quotes: true,
        };
        expander.text(text).map_err(|source| Kind::Expand {
            text: text.to_owned(),
            source,
        })
    }

    /// From where `--from` takes files in a stage: an earlier stage by name or number, or an image.
    pub(super) fn from(
        &self,
        text: &str,
        stage: usize,
        what: &'static str,
    ) -> Result<Origin, Kind> {
        if text.contains('$') {
            return Err(Kind::NoVariables { what });
        }
        let lower = text.to_lowercase();
        let named = self
            .names
            .iter()
            .position(|name| name.as_deref() == Some(&lower));
        let number = text.parse::<usize>().ok();
        let name = || text.to_owned();
        match named.or(number) {
            Some(index) if index < stage => Ok(Origin::Stage(index)),
            Some(index) if index == stage => Err(Kind::OwnStage { name: name() }),
            Some(index) if index < self.names.len() => Err(Kind::LaterStage { name: name() }),
            Some(_) => Err(Kind::NoStage {
                name: name(),
                near: None,
            }),
            None => Ok(Origin::Image(text.to_owned())),
        }
    }
}

impl StageText {
    fn plan(&self, index: usize, common: &Arc<Common>) -> Result<Stage, DockerfileError> {
        let error = |kind| self.from.error(kind);
        let platform = self.platform(common).map_err(error)?;
        let image = common.expand(&self.image).map_err(error)?;
        let lower = image.to_lowercase();
        let earlier = common.names[..index].iter();
        let base = match earlier
            .clone()
            .position(|name| name.as_deref() == Some(&lower))
        {
            Some(stage) => Base::Stage(stage),
            None if image == "scratch" => Base::Scratch,
            None if image.trim().is_empty() => {
                let text = self.image.clone();
                return Err(error(Kind::EmptyBase { text }));
            }
            None => Base::Image(image),
        };
        let mut uses = Vec::new();
        for instruction in &self.instructions {
            let used = instruction
                .uses(index, common)
                .map_err(|kind| instruction.error(kind))?;
            uses.extend(used);
        }
        Ok(Stage {
            name: self.name.clone(),
            line: self.from.line,
            text: self.from.text.clone(),
            base,
            platform,
            uses,
            body: AnyBody::Dockerfile(Body {
                instructions: self.instructions.clone(),
                common: Arc::clone(common),
                stage: index,
            }),
        })
    }

    fn platform(&self, common: &Common) -> Result<Option<Platform>, Kind> {
        let Some(text) = self.from.flag_text("platform")? else {
            return Ok(None);
        };
        let text = common.expand(text)?;
        if text.is_empty() {
            return Ok(None);
        }
        Ok(Some(text.parse()?))
    }
}

impl Instruction {
    pub(super) fn error(&self, kind: Kind) -> DockerfileError {
        DockerfileError {
            line: self.line,
            kind,
        }
    }

    /// The stages from which it takes files.
    fn uses(&self, stage: usize, common: &Common) -> Result<Vec<usize>, Kind> {
        let mut from = Vec::new();
        if self.keyword == "COPY" {
            from.extend(
                self.flag_text("from")?
                    .map(|text| common.from(text, stage, "--from")),
            );
        }
        if self.keyword == "RUN" {
            for mount in self.flag_texts("mount")? {
                from.extend(mount_from(mount)?.map(|text| common.from(&text, stage, "from=")));
            }
        }
        let stages = from.into_iter().filter_map(|from| match from {
            Ok(Origin::Stage(index)) => Some(Ok(index)),
            Ok(_) => None,
            Err(kind) => Some(Err(kind)),
        });
        stages.collect()
    }
}
