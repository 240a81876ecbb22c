//! What is in force at some place of a stage.

use super::apply::{join, join_dest};
use super::step::{Action, RunForm};
use crate::config::RunConfig;

/// What a stage starts or ends with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    /// How programs start.
    pub config: RunConfig,
    /// Build arguments that have been declared and have a value.
    pub(super) args: Vec<(String, String)>,
}

impl Scope {
    /// With the configuration of an image.
    pub fn of(config: RunConfig) -> Self {
        Self {
            config,
            args: Vec::new(),
        }
    }
}

/// A stage on its way.
pub(super) struct Resolving {
    scope: Scope,
    has_cmd: bool,
}

impl Resolving {
    pub(super) fn new(base: &Scope) -> Self {
        Self {
            scope: base.clone(),
            has_cmd: false,
        }
    }

    pub(super) fn config(&self) -> &RunConfig {
        &self.scope.config
    }

    pub(super) fn end(self) -> Scope {
        self.scope
    }

    /// What a variable stands for. What `ENV` says counts more than build arguments
    /// (<https://docs.docker.com/reference/dockerfile/#using-arg-variables>).
    pub(super) fn lookup(&self, name: &str) -> Option<String> {
        let arg = || {
            self.scope
                .args
                .iter()
                .find(|(arg, _)| arg == name)
                .map(|(_, v)| v.as_str())
        };
        self.scope.config.env(name).or_else(arg).map(str::to_owned)
    }

    /// Gives a build argument a value.
    pub(super) fn declare(&mut self, name: &str, value: String) {
        match self.scope.args.iter_mut().find(|(arg, _)| arg == name) {
            Some((_, old)) => *old = value,
            None => self.scope.args.push((name.to_owned(), value)),
        }
    }

    /// The build arguments that programs find in their environment.
    pub(super) fn visible_args(&self) -> Vec<(String, String)> {
        let args = self.scope.args.iter();
        args.filter(|(name, _)| self.scope.config.env(name).is_none())
            .cloned()
            .collect()
    }

    /// Puts in what an action takes from those before it, and takes over what it says.
    pub(super) fn finish(&mut self, action: &mut Action) {
        let config = &self.scope.config;
        match action {
            Action::Run(run) => {
                if let RunForm::Shell { shell, .. } = &mut run.form
                    && shell.is_empty()
                {
                    *shell = config.shell();
                }
                for mount in &mut run.mounts {
                    let target = mount.target_mut();
                    *target = join(&config.working_dir, target);
                }
            }
            Action::Copy(copy) => {
                let is_folder = copy.sources.len() > 1;
                copy.dest = join_dest(&config.working_dir, &copy.dest, is_folder);
            }
            Action::Workdir(path) => *path = join(&config.working_dir, path),
            Action::Cmd(_) => self.has_cmd = true,
            Action::Entrypoint { keeps_cmd, .. } => *keeps_cmd = self.has_cmd,
            _ => {}
        }
        self.scope.config.apply(action);
    }
}
