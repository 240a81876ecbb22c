//! What may be written on the command line: the first of three types. Arguments become settings, settings a command.

pub(crate) mod parse;
mod sandbox;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, FromArgMatches as _, Parser, Subcommand, ValueEnum};

pub(crate) use sandbox::{
    AccessArg, IdsArg, IsolationArg, LimitArgs, MountArg, MountArgs, NetArg, ProcessArgs,
    ProfileArg, SandboxArgs,
};

/// The widest help.
const WIDTH: usize = 100;

/// Runs code you do not trust, each in a sandbox of its own.
#[derive(Debug, Parser)]
#[command(
    name = "cosm",
    version,
    max_term_width = WIDTH,
    disable_help_subcommand = true,
    after_help = "Examples:\n  cosm run --here -- python3 script.py\n  cosm run -it\n  \
        cosm create --name box && cosm exec box -- uname -a && cosm rm --force box\n\n\
        Environment:\n  COSM_HOME  the state folder; default $XDG_DATA_HOME/cosm or ~/.local/share/cosm\n  \
        COSM_ID_SLOTS  FIRST:COUNT, the ranges of 65536 ids that root's sandboxes get; default 1879048192:4094\n  \
        NO_COLOR   no colours\n\n\
        Exit codes: the command's own; 124 its time-out passed; 125 cosm failed; 126 not executable;\n\
        127 not found; 128+n signal n ended it."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads a whole command line.
    ///
    /// # Errors
    /// What is wrong with it, or the help that was asked for.
    pub(crate) fn read(mut words: Vec<OsString>) -> Result<Command, clap::Error> {
        // Describing all commands to the parser takes longer than all else here, and `run` is in a hurry.
        if words.get(1).is_some_and(|word| word == "run") {
            let command = clap::Command::new("run")
                .bin_name("cosm run")
                .max_term_width(WIDTH);
            let mut found =
                RunArgs::augment_args(command).try_get_matches_from(words.split_off(1))?;
            return RunArgs::from_arg_matches_mut(&mut found)
                .map(|args| Command::Run(Box::new(args)));
        }
        Self::try_parse_from(words).map(|cli| cli.command)
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Create(Box<CreateArgs>),
    Start(StartArgs),
    Stop(StopArgs),
    Kill(KillArgs),
    Drain(DrainArgs),
    Restart(RestartArgs),
    Wait(WaitArgs),
    Rm(RmArgs),
    Ls(LsArgs),
    #[command(visible_alias = "status")]
    Ps(PsArgs),
    Inspect(InspectArgs),
    Exec(ExecArgs),
    Shell(ShellArgs),
    Attach(AttachArgs),
    Jobs(JobsArgs),
    Logs(LogsArgs),
    Cp(CpArgs),
    Metrics(MetricsArgs),
    Doctor(DoctorArgs),
    Completion(CompletionArgs),
    /// Prints the reference of all commands, as it stands in docs/cli.md.
    #[command(name = "__docs", hide = true)]
    Docs,
}

/// Run a command in a new sandbox.
///
/// Without --name the sandbox is gone when the command ends. With one it stays, stopped: the command is its job `main`,
/// with a log, and `cosm start` runs it again. Either way it ends with this program, unless the keys that detach are
/// pressed. IMAGE is `host` (the default: this host's own programs,
/// read-only, and none of its users' files) or a folder, written ./dir or /dir, which is copied on write.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm run -- uname -a\n  cosm run --here -- python3 script.py\n  \
    cosm run --here=rw --memory 512m --timeout 1m -- make test\n  cosm run -it\n  \
    cosm run ./rootfs -- /bin/sh -c 'id; ls /'\n  cosm run -d --name web -- python3 -m http.server"
)]
pub(crate) struct RunArgs {
    /// `host`, or a folder with a root file system.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: Option<OsString>,
    /// The command and its arguments. Without one: a shell, if this is a terminal.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Return at once; the command runs on as the job `main`. Prints the sandbox's name.
    #[arg(short, long, conflicts_with_all = ["interactive", "tty"])]
    pub(crate) detach: bool,
    /// Remove the sandbox when it has stopped, although it has a name.
    #[arg(long)]
    pub(crate) rm: bool,
    /// Say on standard error where each millisecond went.
    #[arg(long)]
    pub(crate) timings: bool,
    /// Kill the command with all its descendants after this long: 10, 1m30s, 250ms. Where nobody waits for it, stop the
    /// sandbox.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) stdio: StdioArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// Make a sandbox that lives until it is stopped.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm create --name box\n  cosm create --name web --here -- python3 -m http.server\n  \
    cosm create --name box --replace --memory 1g --cpus 0.5"
)]
pub(crate) struct CreateArgs {
    /// `host`, or a folder with a root file system.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: Option<OsString>,
    /// A main command, which runs as the job `main`; the sandbox stops when it ends.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Give the main command a terminal.
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Remove the sandbox when it has stopped.
    #[arg(long)]
    pub(crate) rm: bool,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Start a stopped sandbox.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm start box")]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) names: Names,
}

/// Stop sandboxes: ask, wait, kill.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm stop box\n  cosm stop --time 0 box\n  cosm stop --label team=ci"
)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) which: Selection,
    /// Between asking and killing; 0 kills at once. Default: the sandbox's --stop-timeout.
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) time: Option<Duration>,
    /// Do not kill when the time is over: fail, and let it run on.
    #[arg(long)]
    pub(crate) no_kill: bool,
}

/// End sandboxes at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm kill box\n  cosm kill --label team=ci")]
pub(crate) struct KillArgs {
    #[command(flatten)]
    pub(crate) which: Selection,
}

/// Let what runs finish, accept nothing new, then stop.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm drain box")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) which: Selection,
}

/// Stop a sandbox and start it again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm restart box")]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    pub(crate) names: Names,
    /// Between asking and killing; 0 kills at once. Default: the sandbox's --stop-timeout.
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) time: Option<Duration>,
}

/// Wait for a sandbox's end; exits as its main command did.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm wait web; echo $?\n  cosm wait --json web")]
pub(crate) struct WaitArgs {
    /// The sandbox's name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Remove sandboxes with all they hold.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm rm box\n  cosm rm --force --label team=ci")]
pub(crate) struct RmArgs {
    #[command(flatten)]
    pub(crate) which: Selection,
    /// Stop it first, if it runs.
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// List sandboxes, newest first.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm ls\n  cosm ls --state running --label team=ci --json\n  cosm ls -q --limit 10"
)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// At most this many.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Those after this one, as the last listing's `next` says.
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    /// Names only.
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Show how sandboxes are: state, time, jobs, use.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm ps\n  cosm status box --json")]
pub(crate) struct PsArgs {
    /// Sandboxes; default: all that run.
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Show everything about a sandbox, as JSON.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm inspect box")]
pub(crate) struct InspectArgs {
    /// The sandbox's name.
    pub(crate) name: String,
    /// Show values of the environment that look secret, too.
    #[arg(long)]
    pub(crate) show_secrets: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Run a command in a running sandbox.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm exec box -- ls -l /\n  cosm exec -it box -- bash\n  \
    echo hello | cosm exec -i box -- cat\n  cosm exec --timeout 5s -w /tmp -e A=1 box -- make\n  \
    cosm exec -d box -- sleep 1000"
)]
pub(crate) struct ExecArgs {
    /// The sandbox's name.
    pub(crate) name: String,
    /// The command and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    /// Kill the command with all its descendants after this long: 10, 1m30s, 250ms.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Return at once; the command runs on as a job. Prints its id.
    #[arg(short, long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) stdio: StdioArgs,
}

/// Open a shell in a running sandbox, or run a script in it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm shell box\n  cosm shell box 'cd /tmp && ls | wc -l'")]
pub(crate) struct ShellArgs {
    /// The sandbox's name.
    pub(crate) name: String,
    /// A script; default: an interactive shell.
    #[arg(allow_hyphen_values = true)]
    pub(crate) script: Option<OsString>,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    /// Kill the script with all its descendants after this long.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) timeout: Option<Duration>,
    /// The keys that detach.
    #[arg(long, value_name = "KEYS", default_value = "ctrl-]", value_parser = parse::detach_keys)]
    pub(crate) detach_keys: crate::detach::Keys,
}

/// See and steer a job; the job goes on when the view ends.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm attach web\n  cosm attach --detach-keys ctrl-p,ctrl-q web 2"
)]
pub(crate) struct AttachArgs {
    /// The sandbox's name.
    pub(crate) name: String,
    /// The job.
    #[arg(default_value = "main")]
    pub(crate) job: String,
    /// The keys that detach.
    #[arg(long, value_name = "KEYS", default_value = "ctrl-]", value_parser = parse::detach_keys)]
    pub(crate) detach_keys: crate::detach::Keys,
    /// Do not begin with the output so far.
    #[arg(long)]
    pub(crate) no_replay: bool,
}

/// List jobs, signal them, wait for them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm jobs box\n  cosm jobs box --signal TERM 2\n  cosm jobs box --wait 2"
)]
pub(crate) struct JobsArgs {
    /// The sandbox's name.
    pub(crate) name: String,
    /// The job, for --signal and --wait.
    pub(crate) job: Option<String>,
    /// Send this signal: a number, or a name such as TERM.
    #[arg(long, value_name = "SIGNAL", value_parser = parse::signal, requires = "job")]
    pub(crate) signal: Option<i32>,
    /// Send the signal to all its descendants too.
    #[arg(long, requires = "signal")]
    pub(crate) tree: bool,
    /// Wait for its end and exit as it did.
    #[arg(long, requires = "job", conflicts_with = "signal")]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Show the logs of a sandbox's jobs.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm logs web\n  cosm logs -f --tail 20 web\n  cosm logs --since 10m --stream stderr web"
)]
pub(crate) struct LogsArgs {
    /// The sandbox's name.
    pub(crate) name: String,
    /// The job.
    #[arg(default_value = "main")]
    pub(crate) job: String,
    /// Go on until the job ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only what is younger: 10m, 1h30m.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub(crate) since: Option<Duration>,
    /// Only the last lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) tail: Option<usize>,
    /// Only this stream.
    #[arg(long, value_enum)]
    pub(crate) stream: Option<StreamArg>,
    /// Put the time before each line.
    #[arg(short, long)]
    pub(crate) timestamps: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// A stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamArg {
    Stdout,
    Stderr,
}

/// Copy files and trees between this host and a sandbox.
///
/// One of the two is NAME:PATH. A folder is copied with all that is in it, with modes and links. If the target is an
/// existing folder, the copy is put in it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cosm cp ./data box:/work\n  cosm cp box:/work/out.txt .")]
pub(crate) struct CpArgs {
    /// From: a path, or NAME:PATH.
    pub(crate) from: OsString,
    /// To: a path, or NAME:PATH.
    pub(crate) to: OsString,
    /// As this user in the sandbox.
    #[arg(short, long)]
    pub(crate) user: Option<String>,
}

/// Show what sandboxes use.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm metrics\n  cosm metrics box --json\n  cosm metrics --watch"
)]
pub(crate) struct MetricsArgs {
    /// Sandboxes; default: all that run.
    pub(crate) names: Vec<String>,
    /// Show it again every so often, until interrupted.
    #[arg(short, long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s",
        require_equals = true, value_parser = parse::duration)]
    pub(crate) watch: Option<Duration>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Tell what works on this host, why the rest does not, and what would help.
#[derive(Debug, Args)]
#[command(
    after_help = "Exits with 0 if sandboxes can be started here.\n\nExamples:\n  cosm doctor\n  cosm doctor --json"
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cosm completion bash > ~/.local/share/bash-completion/completions/cosm"
)]
pub(crate) struct CompletionArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// How a command's streams meet this terminal.
#[derive(Debug, Args)]
pub(crate) struct StdioArgs {
    /// Give it this program's standard input. By default it reads the end of file at once.
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give it a terminal.
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// The keys that detach from its terminal.
    #[arg(long, value_name = "KEYS", default_value = "ctrl-]", value_parser = parse::detach_keys)]
    pub(crate) detach_keys: crate::detach::Keys,
}

/// How things are shown.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct FormatArgs {
    /// Show it as JSON, with documented keys.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sandboxes by name.
#[derive(Debug, Args)]
pub(crate) struct Names {
    /// The sandboxes' names.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Sandboxes by name or by label.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// The sandboxes' names.
    #[arg(required_unless_present = "label", value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// All with this label: KEY or KEY=VALUE. With several, all must match.
    #[arg(short, long, value_name = "LABEL", conflicts_with = "names", value_parser = parse::label_filter)]
    pub(crate) label: Vec<(String, Option<String>)>,
}

/// Which sandboxes are listed.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only with this label: KEY or KEY=VALUE. With several, all must match.
    #[arg(short, long, value_name = "LABEL", value_parser = parse::label_filter)]
    pub(crate) label: Vec<(String, Option<String>)>,
    /// Only in this state: created, starting, running, draining, paused, stopped, crashed.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Vec<String>,
}
