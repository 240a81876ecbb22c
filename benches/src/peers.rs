//! The programs that cosm is compared with.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Result;
use crate::ground::Ground;

/// A root file system of busybox alone.
pub(crate) fn busybox_root(ground: &Ground) -> Result<PathBuf> {
    let root = ground.folder().join("rootfs");
    if root.exists() {
        return Ok(root);
    }
    for folder in ["bin", "dev", "etc", "proc", "root", "sys", "tmp", "run"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    fs::copy(
        busybox.ok_or("there is no busybox")?,
        root.join("bin/busybox"),
    )?;
    for applet in ["sh", "true", "cat", "sleep", "ls"] {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    Ok(root)
}

/// bubblewrap with all it can unshare, on a root file system.
pub(crate) fn bwrap(ground: &Ground, root: &str, command: &[&str]) -> Command {
    let mut bwrap = Command::new("bwrap");
    ground.furnish(&mut bwrap);
    bwrap.args([
        "--unshare-all",
        "--ro-bind",
        root,
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--",
    ]);
    bwrap.args(command);
    bwrap
}

/// runc with a bundle of `true`, made when it is first asked for.
pub(crate) fn runc(ground: &Ground, root: &Path, number: usize) -> Command {
    let bundle = ground.folder().join("bundle");
    if let Err(error) = bundle_of_true(&bundle, root) {
        eprintln!("runc's bundle: {error}");
    }
    let mut runc = Command::new("runc");
    ground.furnish(&mut runc);
    runc.arg("--root").arg(ground.folder().join("runc"));
    runc.args(["run", "--bundle"])
        .arg(bundle)
        .arg(format!("cosm-bench-{}-{number}", std::process::id()));
    runc
}

fn bundle_of_true(bundle: &Path, root: &Path) -> Result<()> {
    let file = bundle.join("config.json");
    if file.exists() {
        return Ok(());
    }
    fs::create_dir_all(bundle)?;
    let mut spec = Command::new("runc");
    spec.arg("spec");
    if !rustix::process::geteuid().is_root() {
        spec.arg("--rootless");
    }
    spec.arg("--bundle").arg(bundle).status()?;
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
    config["process"]["terminal"] = false.into();
    config["process"]["args"] = json!(["true"]);
    config["root"] = json!({ "path": root, "readonly": true });
    fs::write(&file, config.to_string())?;
    Ok(())
}

/// A Docker engine of our own, with its own socket and folders. It ends with this value.
pub(crate) struct Dockerd {
    process: Child,
    folder: PathBuf,
}

const IMAGE: &str = "bench";
const CONTAINER: &str = "bench";

impl Dockerd {
    /// Starts it, gives it an image, and starts a container that waits.
    pub(crate) fn start(ground: &Ground, root: &Path) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err("its engine needs root".into());
        }
        let folder = ground.folder().join("docker");
        fs::create_dir_all(&folder)?;
        let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let log = fs::File::create(folder.join("log"))?;
        let process = Command::new("dockerd")
            .args([
                "--host",
                &format!("unix://{}", at("socket")),
                "--data-root",
                &at("data"),
                "--exec-root",
                &at("exec"),
            ])
            .args([
                "--pidfile",
                &at("pid"),
                "--iptables=false",
                "--ip6tables=false",
                "--bridge=none",
                "--ip-forward=false",
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let engine = Self { process, folder };
        engine.prepare(root)?;
        Ok(engine)
    }

    fn prepare(&self, root: &Path) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        while !self
            .docker(&["version"])
            .stderr(Stdio::null())
            .status()?
            .success()
        {
            if Instant::now() > end {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!(
                    "its engine does not answer: {}",
                    log.lines().last().unwrap_or_default()
                )
                .into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let archive = self.folder.join("image.tar");
        let tar = Command::new("tar")
            .arg("-C")
            .arg(root)
            .arg("-cf")
            .arg(&archive)
            .arg(".")
            .status()?;
        let archive = archive.to_string_lossy().into_owned();
        let steps = [
            self.docker(&["import", &archive, IMAGE]).status()?,
            self.docker(&[
                "run",
                "--detach",
                "--network=none",
                "--name",
                CONTAINER,
                IMAGE,
                "sleep",
                "100000",
            ])
            .status()?,
        ];
        if tar.success() && steps.iter().all(std::process::ExitStatus::success) {
            Ok(())
        } else {
            Err("its container could not be started".into())
        }
    }

    fn docker(&self, args: &[&str]) -> Command {
        let mut docker = Command::new("docker");
        docker
            .arg("--host")
            .arg(format!("unix://{}", self.folder.join("socket").display()))
            .args(args)
            .env("DOCKER_CONFIG", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        docker
    }

    /// `docker run --rm true`.
    pub(crate) fn run(&self) -> Command {
        self.docker(&["run", "--rm", "--network=none", IMAGE, "true"])
    }

    /// `docker exec true` in the container that waits.
    pub(crate) fn exec(&self) -> Command {
        self.docker(&["exec", CONTAINER, "true"])
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        // What it started ends with the container, and the engine on TERM takes its containerd with it.
        drop(
            self.docker(&["rm", "--force", CONTAINER])
                .stderr(Stdio::null())
                .status(),
        );
        if let Some(pid) = rustix::process::Pid::from_raw(self.process.id().cast_signed()) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
        let end = Instant::now() + Duration::from_secs(30);
        while self.process.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > end {
                drop(self.process.kill());
                drop(self.process.wait());
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        for entry in fs::read_to_string("/proc/self/mounts")
            .unwrap_or_default()
            .lines()
        {
            let Some(place) = entry.split_whitespace().nth(1) else {
                continue;
            };
            if Path::new(place).starts_with(&self.folder) {
                drop(Command::new("umount").arg(place).status());
            }
        }
    }
}
