//! A Docker engine for one proof.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::super::tools::{self, run};
use super::super::{Ground, ProofError};

/// What the image has beyond the smallest Debian: what an image in a container is made of.
const INCLUDE: &str = "busybox-static,uidmap,procps";

/// The user of the image that is not root; it has a range of ids.
const CUSTOMIZE: &str = "chroot \"$1\" useradd --create-home --uid 1000 tester";

const BOOTSTRAP: Duration = Duration::from_secs(600);
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(30);
/// One container, with what it runs.
const CONTAINER: Duration = Duration::from_secs(120);

/// The image as an archive in the cache, made now where it is not there.
pub(super) fn image(ground: &Ground) -> Result<PathBuf, ProofError> {
    let suite = ground.debian_suite()?;
    let mut recipe = DefaultHasher::new();
    (INCLUDE, CUSTOMIZE).hash(&mut recipe);
    let archive = ground
        .cache
        .join(format!("container-{suite}-{:016x}.tar", recipe.finish()));
    if !archive.exists() {
        let unfinished = archive.with_extension(format!("{}.tar", std::process::id()));
        let mut mmdebstrap = tools::bound("mmdebstrap");
        mmdebstrap.args(["--quiet", "--mode=root", "--variant=minbase"]);
        mmdebstrap
            .arg(format!("--include={INCLUDE}"))
            .arg(format!("--customize-hook={CUSTOMIZE}"));
        run(mmdebstrap.arg(suite).arg(&unfinished), BOOTSTRAP)?;
        tools::rename(&unfinished, &archive)?;
    }
    Ok(archive)
}

/// The engine, its image loaded.
pub(super) struct Engine {
    daemon: Child,
    socket: String,
    cgroup: String,
    cosm: PathBuf,
    state: PathBuf,
}

impl Engine {
    pub(super) fn start(scratch: &Path, image: &Path, cosm: &Path) -> Result<Self, ProofError> {
        let state = scratch.join("state");
        tools::folder(&state)?;
        let log = scratch.join("dockerd.log");
        let output = fs::File::create(&log).map_err(|source| ProofError::File {
            path: log.clone(),
            source,
        })?;
        let cgroup = format!("cosm-proof-{}", std::process::id());
        let socket = format!("unix://{}", scratch.join("docker.sock").display());
        // TERM, not KILL: it has a containerd of its own to stop.
        let mut dockerd = Command::new("setpriv");
        dockerd.args(["--pdeathsig", "TERM", "--", "dockerd", "--host", &socket]);
        for (flag, name) in [
            ("--data-root", "data"),
            ("--exec-root", "exec"),
            ("--pidfile", "pid"),
        ] {
            dockerd.arg(flag).arg(scratch.join(name));
        }
        // No rule and no bridge of it reaches the host's network.
        dockerd.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
        dockerd.arg(format!("--cgroup-parent=/{cgroup}"));
        let errors = output.try_clone().map_err(|source| ProofError::File {
            path: log.clone(),
            source,
        })?;
        dockerd.stdin(Stdio::null()).stdout(output).stderr(errors);
        let daemon = tools::start(&mut dockerd)?;
        let mut engine = Self {
            daemon,
            socket,
            cgroup,
            cosm: cosm.to_owned(),
            state,
        };
        engine.ready(&log)?;
        run(
            engine.docker(&["import"]).arg(image).arg("proof"),
            CONTAINER,
        )?;
        Ok(engine)
    }

    fn ready(&mut self, log: &Path) -> Result<(), ProofError> {
        let end = Instant::now() + START;
        loop {
            if tools::finish(&mut self.docker(&["version"]), START)?
                .0
                .success()
            {
                return Ok(());
            }
            let gone = self.daemon.try_wait().is_ok_and(|status| status.is_some());
            if gone || Instant::now() > end {
                let console = tools::tail(&tools::read(log)?);
                return Err(ProofError::Unfinished {
                    what: "the Docker engine",
                    console,
                });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn docker(&self, arguments: &[&str]) -> Command {
        let mut docker = tools::bound("docker");
        docker.args(["--host", &self.socket]).args(arguments);
        docker
    }

    /// Runs a shell script in a new container; `/state` in it is a folder of the host's.
    pub(super) fn sh(
        &self,
        flags: &[&str],
        script: &str,
    ) -> Result<(ExitStatus, String), ProofError> {
        let mut docker = self.docker(&["run", "--rm", "--init", "--network", "none"]);
        docker
            .arg("--volume")
            .arg(format!("{}:/usr/local/bin/cosm:ro", self.cosm.display()));
        docker
            .arg("--volume")
            .arg(format!("{}:/state", self.state.display()));
        docker.args(flags).args(["proof", "sh", "-c", script]);
        tools::finish(&mut docker, CONTAINER)
    }

    /// Stops the engine and removes the cgroups that it leaves.
    pub(super) fn stop(mut self) -> Result<(), ProofError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ProofError> {
        if matches!(self.daemon.try_wait(), Ok(Some(_))) {
            return Ok(());
        }
        let pid = self.daemon.id().to_string();
        run(Command::new("kill").args(["-TERM", &pid]), STOP)?;
        tools::wait(&mut self.daemon, STOP)?;
        let mut find = Command::new("find");
        find.args(["/sys/fs/cgroup", "-depth", "-type", "d", "-path"])
            .arg(format!("*/{}*", self.cgroup));
        run(find.args(["-exec", "rmdir", "{}", ";"]), STOP)?;
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("the Docker engine can't be stopped: {error}");
        }
    }
}
