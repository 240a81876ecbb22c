//! Recipes made in code.

use super::dockerfile::paths;
use super::error::{DockerfileError, DockerfileErrorKind as Kind};
use super::step::{Action, CopyFiles, Origin, Run, RunForm, RunNetwork, Source, Step};
use super::{Base, Body, Recipe, Stage};
use crate::platform::Platform;

/// A recipe that is being written. What is wrong with it is said by [`RecipeBuilder::build`].
#[derive(Debug, Clone)]
#[must_use = "nothing comes of it before build()"]
pub struct RecipeBuilder {
    done: Vec<Stage>,
    now: Stage,
    steps: Vec<Step>,
    error: Option<DockerfileError>,
}

impl RecipeBuilder {
    pub(super) fn new(base: String) -> Self {
        let mut this = Self {
            done: Vec::new(),
            now: stage(String::new()),
            steps: Vec::new(),
            error: None,
        };
        this.now = this.start(base);
        this
    }

    /// Starts another stage: on an image, `scratch` or an earlier stage, by name. The last one becomes the image.
    pub fn stage(mut self, base: impl Into<String>) -> Self {
        self.close();
        self.now = self.start(base.into());
        self
    }

    /// Names the stage, so that others can take files from it or build on it.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        let name = name.into().to_lowercase();
        if let Some(kind) = paths::bad_stage_name(&name) {
            self.fail(kind);
        } else if self.find(&name).is_some() {
            self.fail(Kind::StageTwice { name, first: 0 });
        } else {
            self.now.name = Some(name);
        }
        self
    }

    /// Takes the stage's base for this kind of machine.
    pub fn platform(mut self, platform: Platform) -> Self {
        self.now.platform = Some(platform);
        self
    }

    /// Runs a script in the shell.
    pub fn run(self, script: impl Into<String>) -> Self {
        let script = script.into();
        let text = format!("RUN {script}");
        let shell = Vec::new();
        self.run_as(text, RunForm::Shell { script, shell })
    }

    /// Runs a program, without a shell.
    pub fn run_exec(self, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = texts(argv);
        if argv.is_empty() {
            return self.failing(Kind::Arguments {
                instruction: "RUN",
                expected: "a command",
            });
        }
        self.run_as(format!("RUN {}", json(&argv)), RunForm::Exec(argv))
    }

    fn run_as(self, text: String, form: RunForm) -> Self {
        let run = Run {
            form,
            env: Vec::new(),
            mounts: Vec::new(),
            network: RunNetwork::Default,
        };
        self.step(text, Action::Run(run))
    }

    /// Copies from the folder that is built.
    pub fn copy(self, source: impl Into<String>, dest: impl Into<String>) -> Self {
        let (source, dest) = (source.into(), dest.into());
        let text = format!("COPY {source} {dest}");
        self.copy_as(text, Origin::Context, &source, dest)
    }

    /// Copies from an earlier stage, by name, or an image.
    pub fn copy_from(
        self,
        from: impl AsRef<str>,
        source: impl Into<String>,
        dest: impl Into<String>,
    ) -> Self {
        let (name, source, dest) = (from.as_ref(), source.into(), dest.into());
        let text = format!("COPY --from={name} {source} {dest}");
        let from = match self.find(&name.to_lowercase()) {
            Some(index) => Origin::Stage(index),
            None => Origin::Image(name.to_owned()),
        };
        self.copy_as(text, from, &source, dest)
    }

    fn copy_as(self, text: String, from: Origin, source: &str, dest: String) -> Self {
        if source.is_empty() || dest.is_empty() {
            return self.failing(Kind::Arguments {
                instruction: "COPY",
                expected: "a source and a destination",
            });
        }
        let source = match paths::source(source, false) {
            Ok(source) => source,
            Err(kind) => return self.failing(kind),
        };
        let copy = CopyFiles {
            sources: vec![Source::Path(source)],
            from,
            dest,
            chown: None,
            chmod: None,
            link: false,
            exclude: Vec::new(),
            parents: false,
            unpack: false,
        };
        self.step(text, Action::Copy(copy))
    }

    /// Sets a variable.
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return self.failing(Kind::Value {
                what: "the name of a variable",
                found: name,
                expected: "neither empty nor has it a = in it",
            });
        }
        let text = format!("ENV {name}={value}");
        self.step(text, Action::Env(vec![(name, value)]))
    }

    /// Enters a folder.
    pub fn workdir(self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.step(format!("WORKDIR {path}"), Action::Workdir(path))
    }

    /// Sets the user: `user`, `uid`, `user:group` or `uid:gid`.
    pub fn user(self, user: impl Into<String>) -> Self {
        let user = user.into();
        self.step(format!("USER {user}"), Action::User(user))
    }

    /// Sets the start of the command. The base's `cmd` goes.
    pub fn entrypoint(self, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = texts(argv);
        let text = format!("ENTRYPOINT {}", json(&argv));
        let keeps_cmd = false;
        self.step(text, Action::Entrypoint { argv, keeps_cmd })
    }

    /// Sets the rest of the command.
    pub fn cmd(self, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = texts(argv);
        self.step(format!("CMD {}", json(&argv)), Action::Cmd(argv))
    }

    /// Adds a note.
    pub fn label(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        let text = format!("LABEL {name}={value}");
        self.step(text, Action::Label(vec![(name, value)]))
    }

    /// Names a port: `80`, `53/udp`.
    pub fn expose(self, port: impl AsRef<str>) -> Self {
        match paths::ports(port.as_ref()) {
            Ok(ports) => self.step(format!("EXPOSE {}", port.as_ref()), Action::Expose(ports)),
            Err(kind) => self.failing(kind),
        }
    }

    /// Sets the shell of scripts: `["/bin/bash", "-c"]`.
    pub fn shell(self, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = texts(argv);
        self.step(format!("SHELL {}", json(&argv)), Action::Shell(argv))
    }

    /// Adds a step with all its details. The text is what is shown of it.
    pub fn step(mut self, text: impl Into<String>, action: Action) -> Self {
        for from in action.uses() {
            match from {
                Origin::Stage(index) if *index < self.done.len() => self.now.uses.push(*index),
                Origin::Stage(index) => {
                    let name = index.to_string();
                    self.fail(Kind::LaterStage { name });
                    break;
                }
                Origin::Context | Origin::Image(_) => {}
            }
        }
        self.steps.push(Step {
            line: 0,
            text: text.into(),
            action,
        });
        self
    }

    /// The recipe.
    ///
    /// # Errors
    /// The first thing that was wrong.
    pub fn build(mut self) -> Result<Recipe, DockerfileError> {
        self.close();
        if let Some(error) = self.error {
            return Err(error);
        }
        Ok(Recipe {
            target: self.done.len() - 1,
            stages: self.done,
            unused_args: Vec::new(),
        })
    }

    fn start(&mut self, base: String) -> Stage {
        let mut stage = stage(format!("FROM {base}"));
        stage.base = match self.find(&base.to_lowercase()) {
            Some(index) => Base::Stage(index),
            None if base == "scratch" => Base::Scratch,
            None => Base::Image(base.clone()),
        };
        if base.trim().is_empty() {
            self.fail(Kind::EmptyBase { text: base });
        }
        stage
    }

    fn close(&mut self) {
        let mut stage = std::mem::replace(&mut self.now, stage(String::new()));
        stage.body = Body::Steps(std::mem::take(&mut self.steps));
        self.done.push(stage);
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.done
            .iter()
            .position(|stage| stage.name.as_deref() == Some(name))
    }

    fn fail(&mut self, kind: Kind) {
        self.error.get_or_insert(DockerfileError { line: 0, kind });
    }

    fn failing(mut self, kind: Kind) -> Self {
        self.fail(kind);
        self
    }
}

fn stage(text: String) -> Stage {
    Stage {
        name: None,
        line: 0,
        text,
        base: Base::Scratch,
        platform: None,
        uses: Vec::new(),
        body: Body::Steps(Vec::new()),
    }
}

fn texts(argv: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    argv.into_iter().map(Into::into).collect()
}

fn json(argv: &[String]) -> String {
    serde_json::to_string(argv).expect("texts can be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Scope;

    #[test]
    fn a_recipe_in_code() {
        let recipe = Recipe::from("golang:1")
            .named("Build")
            .workdir("/src")
            .copy(".", ".")
            .run("go build")
            .stage("debian:12")
            .run_exec(["true"])
            .stage("debian:12")
            .copy_from("build", "/src/app", "/usr/bin/app")
            .env("K", "V")
            .user("u")
            .label("a", "b")
            .expose("80")
            .cmd(["x"])
            .entrypoint(["app"])
            .build()
            .expect("nothing is wrong");
        assert_eq!(recipe.order(), [0, 2]);
        let (steps, scope) = recipe
            .resolve(0, &Scope::default())
            .expect("it can be followed");
        assert_eq!(scope.config.working_dir, "/src");
        let Action::Copy(copy) = &steps[1].action else {
            panic!("{steps:?}")
        };
        assert_eq!(
            (copy.dest.as_str(), &copy.sources[..]),
            ("/src/", &[Source::Path(".".to_owned())][..])
        );
        let Action::Run(run) = &steps[2].action else {
            panic!("{steps:?}")
        };
        assert_eq!(
            run.form.argv().expect("it is a script"),
            ["/bin/sh", "-c", "go build"]
        );
        let (_, scope) = recipe
            .resolve(2, &Scope::default())
            .expect("it can be followed");
        assert_eq!(scope.config.entrypoint, ["app"]);
        assert_eq!(scope.config.cmd, ["x"]);
        assert!(scope.config.exposed_ports.contains("80/tcp"));
    }

    #[test]
    fn the_first_mistake_is_told() {
        for (builder, expected) in [
            (
                Recipe::from(""),
                "\"\" names no image: give its ARG a value",
            ),
            (
                Recipe::from("a").env("A=B", "").run_exec([""; 0]),
                "the name of a variable can't be \"A=B\": it is neither empty nor has it a = in it",
            ),
            (
                Recipe::from("a").copy("[", "/"),
                "\"[\" is not a pattern: a [ has no ] after it that closes a set of characters",
            ),
        ] {
            assert_eq!(builder.build().unwrap_err().to_string(), expected);
        }
    }
}
