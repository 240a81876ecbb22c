//! The steps of a stage, once it is known what its base's variables are.

use std::sync::Arc;

use super::expand::Expander;
use super::lines::Heredoc;
use super::paths;
use super::plan::Common;
use super::syntax::{Args, Instruction, json};
use crate::config::Healthcheck;
use crate::recipe::error::{DockerfileError, DockerfileErrorKind as Kind};
use crate::recipe::scope::Resolving;
use crate::recipe::step::{Action, Step};

/// A stage with variables in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::recipe) struct Body {
    pub(super) instructions: Vec<Instruction>,
    pub(super) common: Arc<Common>,
    pub(super) stage: usize,
}

/// An instruction, where it is.
pub(super) struct Place<'a> {
    pub(super) instruction: &'a Instruction,
    pub(super) common: &'a Common,
    pub(super) stage: usize,
    pub(super) scope: &'a Resolving,
}

impl Body {
    pub(in crate::recipe) fn resolve(
        &self,
        scope: &mut Resolving,
    ) -> Result<Vec<Step>, DockerfileError> {
        let mut steps = Vec::new();
        for instruction in &self.instructions {
            let place = Place {
                instruction,
                common: &self.common,
                stage: self.stage,
                scope,
            };
            let resolved = place
                .action()
                .and_then(|action| Ok((action, place.declared()?)));
            let (mut action, declared) = resolved.map_err(|kind| instruction.error(kind))?;
            for (name, value) in declared {
                scope.declare(&name, value);
            }
            scope.finish(&mut action);
            steps.push(Step {
                line: instruction.line,
                text: instruction.shown(),
                action,
            });
        }
        Ok(steps)
    }
}

impl Instruction {
    fn shown(&self) -> String {
        let mut text = self.text.clone();
        for heredoc in &self.heredocs {
            let Heredoc { raw, name, .. } = heredoc;
            text.push_str(&format!("\n{raw}{name}"));
        }
        text
    }

    pub(super) fn needs(&self, expected: &'static str) -> Kind {
        Kind::Arguments {
            instruction: self.keyword,
            expected,
        }
    }
}

impl Place<'_> {
    fn action(&self) -> Result<Action, Kind> {
        let instruction = self.instruction;
        Ok(match instruction.keyword {
            "ADD" | "COPY" => Action::Copy(self.copy()?),
            "RUN" => Action::Run(self.run()?),
            "ARG" => Action::Arg(self.arg_texts()),
            "ENV" => Action::Env(self.pairs()?),
            "LABEL" => Action::Label(self.pairs()?),
            "CMD" => Action::Cmd(self.command()?),
            "ENTRYPOINT" => Action::Entrypoint {
                argv: self.command()?,
                keeps_cmd: false,
            },
            "SHELL" => match &instruction.args {
                Args::Json(argv) if !argv.is_empty() => Action::Shell(argv.clone()),
                _ => return Err(instruction.needs("a JSON array, such as [\"/bin/bash\", \"-c\"]")),
            },
            "WORKDIR" => Action::Workdir(self.one("a folder")?),
            "USER" => Action::User(self.one("a user, and perhaps a colon and a group")?),
            "STOPSIGNAL" => Action::StopSignal(paths::signal(&self.one("a signal")?)?),
            "EXPOSE" => Action::Expose(self.ports()?),
            "VOLUME" => Action::Volume(self.volumes()?),
            "HEALTHCHECK" => Action::Healthcheck(self.healthcheck()?),
            "MAINTAINER" => Action::Maintainer(self.text("a name")?.to_owned()),
            keyword => unreachable!("{keyword} is none of a stage"),
        })
    }

    fn expander<'a>(&self, lookup: &'a dyn Fn(&str) -> Option<String>) -> Expander<'a> {
        Expander {
            lookup,
            escape: self.common.escape,
            quotes: true,
        }
    }

    pub(super) fn expand(&self, text: &str) -> Result<String, Kind> {
        let lookup = |name: &str| self.scope.lookup(name);
        let expander = self.expander(&lookup);
        expander
            .text(text)
            .map_err(|source| expand_error(text, source))
    }

    /// A heredoc's content: quotes in it are its own.
    pub(super) fn expand_content(&self, text: &str) -> Result<String, Kind> {
        let lookup = |name: &str| self.scope.lookup(name);
        let expander = Expander {
            escape: '\\',
            quotes: false,
            ..self.expander(&lookup)
        };
        let shown = text.lines().next().unwrap_or_default();
        expander
            .text(text)
            .map_err(|source| expand_error(shown, source))
    }

    fn text(&self, expected: &'static str) -> Result<&str, Kind> {
        match &self.instruction.args {
            Args::Text(text) if !text.is_empty() => Ok(text),
            _ => Err(self.instruction.needs(expected)),
        }
    }

    fn one(&self, expected: &'static str) -> Result<String, Kind> {
        let text = self.expand(self.text(expected)?)?;
        if text.is_empty() {
            return Err(self.instruction.needs(expected));
        }
        Ok(text)
    }

    pub(super) fn words(&self) -> &[String] {
        match &self.instruction.args {
            Args::Json(words) | Args::Words(words) => words,
            Args::Text(_) | Args::Pairs(_) => &[],
        }
    }

    fn pairs(&self) -> Result<Vec<(String, String)>, Kind> {
        let Args::Pairs(pairs) = &self.instruction.args else {
            return Err(self.instruction.needs("NAME=value"));
        };
        let expanded = pairs.iter().map(|(name, value)| {
            let name = self.expand(name)?;
            if name.is_empty() {
                return Err(self.instruction.needs("a name before each ="));
            }
            Ok((name, self.expand(value.as_deref().unwrap_or_default())?))
        });
        expanded.collect()
    }

    fn arg_texts(&self) -> Vec<String> {
        let Args::Pairs(pairs) = &self.instruction.args else {
            return Vec::new();
        };
        let texts = pairs.iter().map(|(name, default)| match default {
            Some(default) => format!("{name}={default}"),
            None => name.clone(),
        });
        texts.collect()
    }

    /// The arguments that an `ARG` gives values: those of the caller, else its own, else those from before the first
    /// `FROM`.
    fn declared(&self) -> Result<Vec<(String, String)>, Kind> {
        let mut declared = Vec::new();
        let (Args::Pairs(pairs), "ARG") = (&self.instruction.args, self.instruction.keyword) else {
            return Ok(declared);
        };
        for (name, default) in pairs {
            let value = match (self.common.build_args.get(name), default) {
                (Some(value), _) => Some(value.clone()),
                (None, Some(default)) => Some(self.expand(default)?),
                (None, None) => self.common.globals.get(name).cloned(),
            };
            declared.extend(value.map(|value| (name.clone(), value)));
        }
        Ok(declared)
    }

    fn command(&self) -> Result<Vec<String>, Kind> {
        if let Args::Json(argv) = &self.instruction.args {
            return Ok(argv.clone());
        }
        let script = self.text("a command")?.to_owned();
        let mut argv = self.scope.config().shell();
        argv.push(script);
        Ok(argv)
    }

    fn ports(&self) -> Result<Vec<String>, Kind> {
        let mut ports = Vec::new();
        let lookup = |name: &str| self.scope.lookup(name);
        for word in self.words() {
            let expander = self.expander(&lookup);
            let words = expander
                .words(word)
                .map_err(|source| expand_error(word, source))?;
            for word in words {
                ports.extend(paths::ports(&word)?);
            }
        }
        if ports.is_empty() {
            return Err(self.instruction.needs("a port"));
        }
        Ok(ports)
    }

    fn volumes(&self) -> Result<Vec<String>, Kind> {
        let volumes = self.words().iter().map(|word| self.expand(word));
        let volumes: Vec<String> = volumes.collect::<Result<_, _>>()?;
        if volumes.is_empty() || volumes.iter().any(|volume| volume.trim().is_empty()) {
            return Err(self.instruction.needs("folders"));
        }
        Ok(volumes)
    }

    /// <https://docs.docker.com/reference/dockerfile/#healthcheck>
    fn healthcheck(&self) -> Result<Healthcheck, Kind> {
        let text = self.text("CMD and a command, or NONE")?;
        let (kind, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let mut check = Healthcheck::default();
        if kind.eq_ignore_ascii_case("none") {
            if !rest.is_empty() || !self.instruction.flags.is_empty() {
                return Err(self.instruction.needs("nothing else with NONE"));
            }
            check.test = vec!["NONE".to_owned()];
            return Ok(check);
        }
        if !kind.eq_ignore_ascii_case("cmd") || rest.is_empty() {
            return Err(self.instruction.needs("CMD and a command, or NONE"));
        }
        check.test = match json(rest) {
            Some(Ok(argv)) if !argv.is_empty() => [vec!["CMD".to_owned()], argv].concat(),
            Some(Ok(_)) => return Err(self.instruction.needs("a command after CMD")),
            Some(Err(())) => {
                return Err(Kind::NotTexts {
                    instruction: "HEALTHCHECK",
                });
            }
            None => vec!["CMD-SHELL".to_owned(), rest.to_owned()],
        };
        for (name, field) in [
            ("interval", &mut check.interval),
            ("timeout", &mut check.timeout),
            ("start-period", &mut check.start_period),
            ("start-interval", &mut check.start_interval),
        ] {
            if let Some(text) = self.instruction.flag_text(name)? {
                *field = paths::duration(name, text)?;
            }
        }
        if let Some(text) = self.instruction.flag_text("retries")? {
            check.retries = paths::id("retries", text)?.into();
        }
        Ok(check)
    }
}

fn expand_error(text: &str, source: crate::recipe::error::ExpandError) -> Kind {
    Kind::Expand {
        text: text.to_owned(),
        source,
    }
}
