//! What a recipe's stages do, with nothing left to substitute.

use std::fmt;

use crate::config::Healthcheck;

/// Build arguments that programs get though nobody declares them
/// (<https://docs.docker.com/reference/dockerfile/#predefined-args>), in capitals.
pub(super) const PROXIES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];

/// One step of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The line at which it starts; 0 if no file says it.
    pub line: u32,
    /// As it was written, without comments, on one line but for heredocs: for progress.
    pub text: String,
    /// What it does.
    pub action: Action,
}

/// What a step does. Only `Run` and `Copy` (and `Workdir`, where the folder is missing) change files; all others change
/// the configuration ([`crate::config::RunConfig::apply`]).
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Runs a program.
    Run(Run),
    /// Puts files into the image.
    Copy(CopyFiles),
    /// Sets variables.
    Env(Vec<(String, String)>),
    /// Declares build arguments: what is in the image's history of them, and nothing else.
    Arg(Vec<String>),
    /// Enters a folder, and makes it if it is missing. Absolute once it is resolved.
    Workdir(String),
    /// `user`, `uid`, `user:group` or `uid:gid`.
    User(String),
    /// The start of the command.
    Entrypoint {
        /// The command.
        argv: Vec<String>,
        /// Whether the image's `Cmd` stays. One that comes from the base was meant for the base's entry point, and goes.
        keeps_cmd: bool,
    },
    /// The rest of the command.
    Cmd(Vec<String>),
    /// Notes.
    Label(Vec<(String, String)>),
    /// Ports: `80/tcp`.
    Expose(Vec<String>),
    /// Folders that are no part of the image once it runs.
    Volume(Vec<String>),
    /// A signal's name or number.
    StopSignal(String),
    /// What the shell form is run by.
    Shell(Vec<String>),
    /// How to find out whether the program is well.
    Healthcheck(Healthcheck),
    /// Who made it.
    Maintainer(String),
}

/// Runs a program in the stage's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// What.
    pub form: RunForm,
    /// Variables that it finds besides those of the image: build arguments.
    pub env: Vec<(String, String)>,
    /// What it finds mounted, which is no part of the image.
    pub mounts: Vec<RunMount>,
    /// What it can reach.
    pub network: RunNetwork,
}

/// How the program of a [`Run`] is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunForm {
    /// A script for a shell.
    Shell {
        /// The script, with heredocs as the shell reads them.
        script: String,
        /// The shell and its arguments. Empty until it is resolved: the base's then.
        shell: Vec<String>,
    },
    /// A program and its arguments.
    Exec(Vec<String>),
    /// A heredoc that starts with `#!`: to be put into an executable file and run.
    File {
        /// What to call it.
        name: String,
        /// What is in it.
        content: String,
    },
}

impl RunForm {
    /// The arguments, where no file has to be made first.
    pub fn argv(&self) -> Option<Vec<String>> {
        match self {
            Self::Shell { script, shell } => Some(shell.iter().chain([script]).cloned().collect()),
            Self::Exec(argv) => Some(argv.clone()),
            Self::File { .. } => None,
        }
    }
}

/// What a [`Run`] can reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunNetwork {
    /// Whatever the build can.
    #[default]
    Default,
    /// Nothing.
    None,
    /// What the host can.
    Host,
}

/// Something mounted for one [`Run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunMount {
    /// Files from somewhere else.
    Bind {
        /// From where.
        from: Origin,
        /// The path there.
        source: String,
        /// Where it is found; absolute once resolved.
        target: String,
        /// Whether it can be written to. What is written is thrown away.
        writable: bool,
    },
    /// A folder that outlives the build.
    Cache {
        /// Those with the same one are the same.
        id: String,
        /// Where it is found; absolute once resolved.
        target: String,
        /// Who else may use it meanwhile.
        sharing: Sharing,
        /// What it starts with, where that is not nothing.
        from: Option<Origin>,
        /// The path there.
        source: String,
        /// Whether it can't be written to.
        read_only: bool,
        /// Its owner, when it is made.
        uid: u32,
        /// Its group, when it is made.
        gid: u32,
        /// Its permissions, when it is made.
        mode: u32,
    },
    /// An empty folder in memory.
    Tmpfs {
        /// Where it is found; absolute once resolved.
        target: String,
        /// The most bytes.
        size: Option<u64>,
    },
}

impl RunMount {
    /// Where it is found.
    pub fn target(&self) -> &str {
        match self {
            Self::Bind { target, .. } | Self::Cache { target, .. } | Self::Tmpfs { target, .. } => {
                target
            }
        }
    }
    pub(crate) fn target_mut(&mut self) -> &mut String {
        match self {
            Self::Bind { target, .. } | Self::Cache { target, .. } | Self::Tmpfs { target, .. } => {
                target
            }
        }
    }
    /// From where its content is.
    pub fn from(&self) -> Option<&Origin> {
        match self {
            Self::Bind { from, .. } => Some(from),
            Self::Cache { from, .. } => from.as_ref(),
            Self::Tmpfs { .. } => None,
        }
    }
}

/// Who may use a cache at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Everybody.
    #[default]
    Shared,
    /// Nobody: a second one gets another cache.
    Private,
    /// Nobody: a second one waits.
    Locked,
}

/// Puts files into the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyFiles {
    /// What, in order.
    pub sources: Vec<Source>,
    /// From where the sources that are paths are.
    pub from: Origin,
    /// Where to; absolute once resolved. A slash at its end says that it is a folder.
    pub dest: String,
    /// `user[:group]`, by name or number; root where it is absent.
    pub chown: Option<String>,
    /// Permissions; the source's where it is absent.
    pub chmod: Option<u32>,
    /// That the layer does not depend on what is below it: symbolic links in `dest` are not followed.
    pub link: bool,
    /// Patterns of what is left out ([`super::Ignore::new`]).
    pub exclude: Vec<String>,
    /// That sources keep their folders, from a `/./` in them on.
    pub parents: bool,
    /// That local tar archives are unpacked (`ADD`).
    pub unpack: bool,
}

/// One source of a [`CopyFiles`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path below the root of where the files come from, perhaps with wildcards ([`super::Wildcard`]). It has no
    /// slash at its start and no `..`; `.` is the root. (With `parents`, as it was written.)
    Path(String),
    /// A file that stands in the recipe.
    Heredoc {
        /// What to call it, if the destination is a folder.
        name: String,
        /// What is in it.
        content: String,
    },
}

/// Where files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The folder that is built.
    Context,
    /// Another stage of the recipe.
    Stage(usize),
    /// An image, by name.
    Image(String),
}

impl Action {
    /// The other places from which it takes files.
    pub fn uses(&self) -> Vec<&Origin> {
        match self {
            Self::Run(run) => run.mounts.iter().filter_map(RunMount::from).collect(),
            Self::Copy(copy) => vec![&copy.from],
            _ => Vec::new(),
        }
    }

    /// Whether it may change files.
    pub fn changes_files(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Copy(_) | Self::Workdir(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Step {
    /// For the image's history, as BuildKit writes it.
    pub fn created_by(&self) -> String {
        match &self.action {
            Action::Run(Run {
                form: RunForm::Shell { script, shell },
                env,
                ..
            }) => {
                // Proxies are of the place where it was built, and may have passwords in them.
                let env: Vec<String> = env
                    .iter()
                    .filter(|(name, _)| !PROXIES.contains(&name.to_ascii_uppercase().as_str()))
                    .map(|(name, value)| format!("{name}={value} "))
                    .collect();
                let count = match env.len() {
                    0 => String::new(),
                    count => format!("|{count} {}", env.concat()),
                };
                format!("RUN {count}{} {script} # buildkit", shell.join(" "))
            }
            _ => format!("{} # buildkit", self.text),
        }
    }
}
