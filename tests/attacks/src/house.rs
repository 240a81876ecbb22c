//! A state folder, a folder for sockets and a home of a case's own, and the program run in them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::census::Census;
use crate::procs;

/// How long a command may take, unless a case says otherwise.
const LIMIT: Duration = Duration::from_secs(60);

/// The children that a [`Running`] stands for, so that nobody reaps them in its stead.
static STARTED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

pub(crate) fn started() -> BTreeSet<i32> {
    STARTED
        .lock()
        .expect("nobody panics while it is held")
        .clone()
}

/// Where one case lives.
#[derive(Debug)]
pub struct House {
    folder: PathBuf,
    program: PathBuf,
    census: Census,
}

impl House {
    /// Makes the folders. `program` is the `cosm` under attack.
    pub fn new(program: &Path) -> Self {
        let folder = std::env::temp_dir().join(format!("cosm-attack-{}", std::process::id()));
        for part in ["", "home", "run", "state"] {
            let path = folder.join(part);
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        // Others of this machine go through it to what a case shows them.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))
            .expect("the folder is ours");
        Self {
            folder,
            program: program.to_owned(),
            census: Census::take(),
        }
    }

    /// A folder of the case's own.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `$COSM_HOME`.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// `$XDG_RUNTIME_DIR`.
    pub fn sockets(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// The program under attack.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A folder below the case's own, made now.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// The program with arguments, in this house.
    pub fn cosm<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.program);
        self.furnish(&mut command);
        command.args(args);
        command
    }

    /// Gives a command this house's environment.
    pub fn furnish(&self, command: &mut Command) {
        command
            .env("COSM_HOME", self.state())
            .env("XDG_RUNTIME_DIR", self.sockets())
            .env("HOME", self.folder.join("home"))
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null());
    }

    /// Runs the program to its end.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Done {
        Running::start(self.cosm(args)).done(LIMIT)
    }

    /// Runs the program; it must succeed.
    pub fn ok<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Done {
        let done = self.run(args);
        assert_eq!(done.code(), Some(0), "{done:?}");
        done
    }

    /// Makes a sandbox that lives until it is stopped.
    pub fn sandbox(&self, name: &str, options: &[&str]) {
        self.ok(["create", "--name", name].iter().chain(options));
    }

    /// Runs a shell script in a sandbox.
    pub fn shell(&self, name: &str, script: &str) -> Done {
        self.run(["exec", name, "--", "/bin/sh", "-c", script])
    }

    /// Runs a shell script in a new sandbox that is gone afterwards.
    pub fn try_script(&self, options: &[&str], script: &str) -> Done {
        let command = ["--", "/bin/sh", "-c", script];
        self.run(["run"].iter().chain(options).chain(&command))
    }

    /// Removes a sandbox, whatever it does.
    pub fn remove(&self, name: &str) {
        self.ok(["rm", "--force", name]);
    }

    /// The names of all sandboxes, newest first. Looking also sweeps what was killed.
    pub fn names(&self) -> Vec<String> {
        self.ok(["ls", "-q"])
            .text()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// What this house's processes are, the case's own children apart.
    pub fn processes(&self) -> Vec<procs::Process> {
        procs::descendants(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// The keepers that run.
    pub fn keepers(&self) -> Vec<procs::Process> {
        self.processes()
            .into_iter()
            .filter(procs::Process::is_keeper)
            .collect()
    }

    /// The folders that hold one entry for each sandbox.
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.state().join("v1/sandboxes")];
        for entry in fs::read_dir(self.sockets().join("cosm"))
            .into_iter()
            .flatten()
            .flatten()
        {
            folders.push(entry.path());
        }
        folders
    }

    /// Looks once, and says what is left although nothing should be.
    pub fn left_behind(&self) -> Vec<String> {
        let names = self.run(["ls", "-q"]);
        let mut left = self.census.left_behind(&self.folders());
        left.extend(names.text().lines().map(|name| format!("row {name}")));
        if names.code() != Some(0) && !self.state().join("v1").exists() {
            return left;
        }
        if names.code() != Some(0) {
            left.push(format!("no listing: {names:?}"));
        }
        left
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("{}: {error}", self.folder.display());
        }
    }
}

/// A command that runs, its output being read.
#[derive(Debug)]
pub struct Running {
    child: Child,
    command: String,
    since: Instant,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    /// Starts a command and reads all it writes.
    pub fn start(command: Command) -> Self {
        let mut running = Self::unread(command);
        running.stdout = running.child.stdout.take().map(read_all);
        running
    }

    /// Starts a command and reads what it writes to standard error, but nothing of its standard output.
    pub fn unread(mut command: Command) -> Self {
        let shown = format!("{command:?}");
        let since = Instant::now();
        let mut known = STARTED.lock().expect("nobody panics while it is held");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        known.insert(child.id().cast_signed());
        drop(known);
        let stderr = child.stderr.take().map(read_all);
        Self {
            child,
            command: shown,
            since,
            stdout: None,
            stderr,
        }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The writing end of its standard input, if that is a pipe.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// The reading end of its standard output, if nobody reads it.
    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Writes bytes to its standard input from another thread, then closes it. Whether it takes them is its affair.
    pub fn feed(&mut self, bytes: Vec<u8>) {
        if let Some(mut stdin) = self.stdin() {
            std::thread::spawn(move || drop(stdin.write_all(&bytes)));
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is our child");
    }

    /// Waits for its end. It is killed, and the case fails, when that takes longer.
    pub fn done(mut self, limit: Duration) -> Done {
        let end = self.since + limit;
        let mut pause = Duration::from_micros(200);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            if Instant::now() >= end {
                let below = procs::descendants(self.pid());
                self.kill();
                panic!(
                    "{} was still running after {limit:?}; below it: {below:#?}",
                    self.command
                );
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        };
        let took = self.since.elapsed();
        let collect = |reader: Option<JoinHandle<Vec<u8>>>| {
            reader
                .map(|r| r.join().expect("the reader"))
                .unwrap_or_default()
        };
        Done {
            command: std::mem::take(&mut self.command),
            status,
            stdout: collect(self.stdout.take()),
            stderr: collect(self.stderr.take()),
            took,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.pid();
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            // A case that forgets a command does not leave it.
            drop(self.child.kill());
            drop(self.child.wait());
        }
        STARTED
            .lock()
            .expect("nobody panics while it is held")
            .remove(&pid);
    }
}

fn read_all(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("a pipe");
        bytes
    })
}

/// A command that ended.
pub struct Done {
    command: String,
    status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// How long it took.
    pub took: Duration,
}

impl Done {
    /// Its exit code, unless a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Its standard output as text, without white space around it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// Its standard error as text.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Fails unless cosm itself refused, in words and without a control character that a terminal would obey.
    pub fn refused(&self) -> &Self {
        assert!(matches!(self.code(), Some(125 | 2)), "{self:?}");
        assert!(
            !self.stderr.is_empty(),
            "it refused without a word: {self:?}"
        );
        assert_plain(&self.stderr);
        assert!(!self.said().contains("panicked"), "{self:?}");
        self
    }
}

/// Fails if a terminal would obey something in these bytes.
pub(crate) fn assert_plain(bytes: &[u8]) {
    let bad = bytes
        .iter()
        .find(|byte| (**byte < 0x20 && !matches!(byte, b'\n' | b'\t')) || **byte == 0x7f);
    assert_eq!(
        bad,
        None,
        "a control character in {:?}",
        String::from_utf8_lossy(bytes)
    );
}

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |bytes: &[u8]| {
            let from = bytes.len().saturating_sub(2000);
            String::from_utf8_lossy(&bytes[from..]).into_owned()
        };
        write!(f, "{} -> ", self.command)?;
        match self.status.signal() {
            Some(signal) => write!(f, "signal {signal}")?,
            None => write!(f, "code {:?}", self.code())?,
        }
        write!(
            f,
            " after {:?}\nstdout: {:?}\nstderr: {:?}",
            self.took,
            short(&self.stdout),
            short(&self.stderr)
        )
    }
}
