//! Where the measuring is done.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cosm::{Host, HostConfig, SandboxSpec};

use crate::Result;

/// A state folder, a folder for sockets and a small root file system, which go away with this value.
pub(crate) struct Ground {
    folder: PathBuf,
    /// What a login gives as `XDG_RUNTIME_DIR`: in memory, where there is such a place.
    runtime: PathBuf,
    cosm: PathBuf,
    quick: bool,
}

impl Ground {
    pub(crate) fn new(cosm: PathBuf, quick: bool) -> Result<Self> {
        let name = format!("cosm-bench-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        let memory = Path::new("/dev/shm");
        let ground = Self {
            runtime: match memory.is_dir() {
                true => memory.join(name),
                false => folder.join("run"),
            },
            folder,
            cosm,
            quick,
        };
        let parts = ["", "state", "home"].map(|part| ground.folder.join(part));
        for part in parts.iter().chain([&ground.runtime]) {
            std::fs::DirBuilder::new().mode(0o700).create(part)?;
        }
        Ok(ground)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// This many iterations; a quick run makes a tenth of it.
    pub(crate) fn count(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(5) } else { full }
    }

    /// The command line, in this place.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.cosm);
        self.furnish(&mut command);
        command.args(args);
        command
    }

    /// Gives a command this place's environment.
    pub(crate) fn furnish(&self, command: &mut Command) {
        command
            .env("COSM_HOME", self.folder.join("state"))
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env("HOME", self.folder.join("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
    }

    /// The library, in this place.
    pub(crate) fn host(&self) -> Result<Host> {
        let config = HostConfig {
            home: self.folder.join("state"),
            runtime_dir: self.runtime.join("cosm"),
            program: self.cosm.clone(),
            ids: None,
            spare: None,
        };
        Ok(Host::open(config)?)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Leased ones have ended; what a failed part kept is removed by name.
        if let Ok(output) = self.command(&["ls", "-q"]).stdout(Stdio::piped()).output() {
            let names = String::from_utf8_lossy(&output.stdout).into_owned();
            for name in names.lines() {
                drop(self.command(&["rm", "--force", name]).status());
            }
        }
        for folder in [&self.runtime, &self.folder] {
            match std::fs::remove_dir_all(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    eprintln!("{}: {error}", folder.display());
                }
                _ => {}
            }
        }
    }
}

/// A spec for which no cgroup is needed.
pub(crate) fn without_limits() -> SandboxSpec {
    use cosm::spec::Limit;
    let mut spec = SandboxSpec::default();
    spec.resources.memory = Limit::Unlimited;
    spec.resources.cpus = Limit::Unlimited;
    spec.resources.pids = Limit::Unlimited;
    spec.resources.disk = Limit::Unlimited;
    spec
}

/// The command line's words for the same.
pub(crate) const WITHOUT_LIMITS: [&str; 8] = [
    "--memory",
    "unlimited",
    "--cpus",
    "unlimited",
    "--pids",
    "unlimited",
    "--disk",
    "unlimited",
];

/// Runs a command to its end and returns how long that took.
pub(crate) fn time(command: &mut Command) -> Result<Duration> {
    let since = Instant::now();
    let status = command.status()?;
    let took = since.elapsed();
    if status.success() {
        Ok(took)
    } else {
        Err(format!("{command:?} ended with {status}").into())
    }
}

/// Runs something that waits.
pub(crate) fn wait_for<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
