//! What a command is to be run with.

use std::time::Duration;

use cosm_base::ByteString;
use cosm_proto::agent::{ExecStart, Rlimit, RlimitKind, Stdio, WindowSize};
use cosm_spec::RlimitName;

/// What is kept of each stream where output is collected, unless said otherwise: 16 MiB.
pub const DEFAULT_CAP: usize = 16 << 20;

/// A command and what it is run with.
///
/// ```
/// # use cosm::ExecOptions;
/// # use std::time::Duration;
/// let options = ExecOptions::new("python3")
///     .args(["-c", "print(1)"])
///     .env("PYTHONUTF8", "1")
///     .timeout(Duration::from_secs(5));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ExecOptions {
    pub(crate) argv: Vec<ByteString>,
    pub(crate) env: Vec<(ByteString, ByteString)>,
    pub(crate) cwd: Option<ByteString>,
    pub(crate) user: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stdin: Stdin,
    pub(crate) tty: Option<(u16, u16)>,
    pub(crate) rlimits: Vec<Rlimit>,
    pub(crate) cap: usize,
    pub(crate) kill_leftovers: bool,
    pub(crate) ends_guest: bool,
}

/// Where a command's input comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// Nowhere: it reads the end of file at once.
    #[default]
    Null,
    /// The caller writes it.
    Pipe,
    /// These bytes, then the end of file.
    Bytes(Vec<u8>),
}

impl ExecOptions {
    /// Runs this program, which is looked up on the guest's PATH unless it has a slash.
    pub fn new(program: impl Into<ByteString>) -> Self {
        Self {
            argv: vec![program.into()],
            env: Vec::new(),
            cwd: None,
            user: None,
            timeout: None,
            stdin: Stdin::Null,
            tty: None,
            rlimits: Vec::new(),
            cap: DEFAULT_CAP,
            kill_leftovers: false,
            ends_guest: false,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<ByteString>) -> Self {
        self.argv.push(arg.into());
        self
    }
    /// Adds arguments.
    pub fn args<A: Into<ByteString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }
    /// Where it runs. Default: the sandbox's working directory.
    pub fn cwd(mut self, path: impl Into<ByteString>) -> Self {
        self.cwd = Some(path.into());
        self
    }
    /// As whom: `name`, `id`, `name:group` or `id:id`. Default: the sandbox's user.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }
    /// Adds an environment variable over the sandbox's.
    pub fn env(mut self, name: impl Into<ByteString>, value: impl Into<ByteString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
    /// Adds environment variables over the sandbox's.
    pub fn envs<N: Into<ByteString>, V: Into<ByteString>>(
        mut self,
        envs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.env
            .extend(envs.into_iter().map(|(n, v)| (n.into(), v.into())));
        self
    }
    /// Adds an environment variable unless one of this name was added already.
    pub fn env_default(self, name: impl Into<ByteString>, value: impl Into<ByteString>) -> Self {
        let name = name.into();
        match self.env.iter().any(|(known, _)| *known == name) {
            true => self,
            false => self.env(name, value),
        }
    }
    /// Kill it with all its descendants after this long. Default: never.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }
    /// No input: it reads the end of file at once. This is the default.
    pub fn stdin_null(mut self) -> Self {
        self.stdin = Stdin::Null;
        self
    }
    /// The caller writes its input; see [`ExecHandle::take_stdin`](crate::ExecHandle::take_stdin).
    pub fn stdin_pipe(mut self) -> Self {
        self.stdin = Stdin::Pipe;
        self
    }
    /// These bytes are its input, then the end of file.
    pub fn stdin_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }
    /// Gives it a terminal of 24 rows and 80 columns as input, output and error output.
    pub fn tty(self, yes: bool) -> Self {
        if yes {
            self.tty_size(WindowSize::DEFAULT.rows, WindowSize::DEFAULT.cols)
        } else {
            Self { tty: None, ..self }
        }
    }
    /// Gives it a terminal of this size.
    pub fn tty_size(mut self, rows: u16, cols: u16) -> Self {
        self.tty = Some((rows, cols));
        self
    }
    /// Sets a POSIX limit, soft and hard, over the sandbox's.
    pub fn rlimit(self, name: RlimitName, limit: u64) -> Self {
        self.rlimit_range(name, limit, limit)
    }
    /// Sets a POSIX limit over the sandbox's.
    pub fn rlimit_range(mut self, name: RlimitName, soft: u64, hard: u64) -> Self {
        let kind = rlimit_kind(name);
        self.rlimits.push(Rlimit { kind, soft, hard });
        self
    }
    /// What is kept of each stream where output is collected, in bytes. Default [`DEFAULT_CAP`].
    pub fn output_cap(mut self, bytes: usize) -> Self {
        self.cap = bytes;
        self
    }
    /// When the command itself has ended, kill what it left running. By default that lives on.
    pub fn kill_leftovers(mut self, yes: bool) -> Self {
        self.kill_leftovers = yes;
        self
    }

    /// When it has returned 0 and left nothing running, the guest ends by itself: for a sandbox that is made for one
    /// command, and removed then.
    pub fn ends_guest(mut self, yes: bool) -> Self {
        self.ends_guest = yes;
        self
    }

    /// As the agent is told, with these streams.
    pub(crate) fn to_start(&self, stdio: Stdio) -> ExecStart {
        let bytes = |b: &ByteString| b.as_bytes().to_vec();
        ExecStart {
            argv: self.argv.iter().map(bytes).collect(),
            env: self.env.iter().map(|(n, v)| (bytes(n), bytes(v))).collect(),
            cwd: self.cwd.as_ref().map(bytes),
            user: self.user.as_ref().map(|u| u.clone().into_bytes()),
            stdio,
            rlimits: self.rlimits.clone(),
            timeout_ms: self
                .timeout
                .map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX).max(1)),
            kill_leftovers: self.kill_leftovers,
            ends_guest: self.ends_guest,
        }
    }

    /// As a keeper is told.
    pub(crate) fn to_job(&self) -> ExecStart {
        let stdio = match self.tty {
            Some((rows, cols)) => Stdio::Terminal {
                size: WindowSize { rows, cols },
            },
            None => Stdio::Framed {
                stdin: self.stdin != Stdin::Null,
            },
        };
        self.to_start(stdio)
    }
}

fn rlimit_kind(name: RlimitName) -> RlimitKind {
    use RlimitKind as K;
    match name {
        RlimitName::Cpu => K::Cpu,
        RlimitName::Fsize => K::Fsize,
        RlimitName::Data => K::Data,
        RlimitName::Stack => K::Stack,
        RlimitName::Core => K::Core,
        RlimitName::Rss => K::Rss,
        RlimitName::Nproc => K::Nproc,
        RlimitName::Nofile => K::Nofile,
        RlimitName::Memlock => K::Memlock,
        RlimitName::As => K::As,
        RlimitName::Locks => K::Locks,
        RlimitName::Sigpending => K::Sigpending,
        RlimitName::Msgqueue => K::Msgqueue,
        RlimitName::Nice => K::Nice,
        RlimitName::Rtprio => K::Rtprio,
        RlimitName::Rttime => K::Rttime,
    }
}
