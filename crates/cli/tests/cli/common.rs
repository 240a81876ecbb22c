//! The real program on a state folder of its own.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

/// A state folder and a folder for sockets. All sandboxes in it are removed in the end.
pub(crate) struct Cosm {
    home: TempDir,
    runtime: TempDir,
}

impl Cosm {
    pub(crate) fn new() -> Self {
        // Whoever runs the tests in the background of a script has them ignore these, and the program with them.
        for signal in [Signal::INT, Signal::QUIT, Signal::HUP, Signal::TERM] {
            cosm_sys::process::default_signal(signal.as_raw()).expect("a signal");
        }
        Self {
            home: private_dir("cosm-home"),
            runtime: private_dir("cr"),
        }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cosm"));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("COSM_HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn output<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// Runs it, expects code 0 and gives its output.
    pub(crate) fn ok<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        let output = self.output(args);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs it, expects this code and gives its error output.
    pub(crate) fn fails<A: AsRef<OsStr>>(
        &self,
        code: i32,
        args: impl IntoIterator<Item = A>,
    ) -> String {
        let output = self.output(args);
        assert_eq!(output.status.code(), Some(code), "{}", show(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs it with this input.
    pub(crate) fn with_input<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        input: &[u8],
    ) -> Output {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || stdin.write_all(&input).is_ok());
        let output = child.wait_with_output().expect("the program ends");
        feeder.join().expect("the feeder ends");
        output
    }

    pub(crate) fn json<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> serde_json::Value {
        serde_json::from_str(&self.ok(args)).expect("JSON")
    }
}

impl Drop for Cosm {
    fn drop(&mut self) {
        let listed = self.output(["ls", "-q"]);
        for name in String::from_utf8_lossy(&listed.stdout).lines() {
            self.output(["rm", "--force", name]);
        }
    }
}

/// A temporary folder that nobody else can enter.
pub(crate) fn private_dir(prefix: &str) -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in("/tmp")
        .expect("a temporary folder")
}

pub(crate) fn show(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
