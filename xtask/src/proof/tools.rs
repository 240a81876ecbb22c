//! Running programs within a time box, and folders that go away.

use std::fs;
use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{PACKAGES, ProofError};

/// How much of a program's output an error repeats.
const TAIL: usize = 4000;

/// A program that is killed when this one ends, however that happens.
///
/// `setpriv` arranges it in the kernel, since a destructor does not run when this program is killed.
pub(super) fn bound(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", program])
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end, within a time, and returns what it wrote to both streams.
pub(super) fn run(command: &mut Command, within: Duration) -> Result<String, ProofError> {
    let (status, output) = finish(command, within)?;
    if !status.success() {
        return Err(ProofError::Command {
            command: shown(command),
            status,
            output: tail(&output),
        });
    }
    Ok(output)
}

/// As [`run`], but how it ended is the caller's affair.
pub(super) fn finish(
    command: &mut Command,
    within: Duration,
) -> Result<(ExitStatus, String), ProofError> {
    let mut log = unnamed_file()?;
    let dup = || {
        log.try_clone()
            .map_err(|source| file_error("output", source))
    };
    // A group of its own, so that what it started ends with it at the time-out.
    command.stdout(dup()?).stderr(dup()?).process_group(0);
    let mut child = start(command)?;
    let ended = wait(&mut child, within)?;
    let mut output = Vec::new();
    log.rewind()
        .and_then(|()| log.read_to_end(&mut output))
        .map_err(|source| file_error("output", source))?;
    let output = String::from_utf8_lossy(&output).into_owned();
    match ended {
        Some(status) => Ok((status, output)),
        None => Err(ProofError::TimedOut {
            command: shown(command),
            seconds: within.as_secs(),
            output: tail(&output),
        }),
    }
}

/// Starts a command.
pub(super) fn start(command: &mut Command) -> Result<Child, ProofError> {
    command.spawn().map_err(|source| {
        let program = command.get_program().to_string_lossy().into_owned();
        ProofError::Program {
            package: package_of(&program),
            program,
            source,
        }
    })
}

/// Waits for a child's end; kills it when the time is over, and its process group with it.
pub(super) fn wait(child: &mut Child, within: Duration) -> Result<Option<ExitStatus>, ProofError> {
    let failed = |source| file_error("a child process", source);
    let end = Instant::now() + within;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            stop(child)?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills a child and its group, and waits until it is gone.
pub(super) fn stop(child: &mut Child) -> Result<(), ProofError> {
    let group = Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", child.id())])
        .stderr(Stdio::null())
        .status();
    if !group.is_ok_and(|status| status.success()) {
        // It was no group of its own.
        child
            .kill()
            .map_err(|source| file_error("a child process", source))?;
    }
    child
        .wait()
        .map_err(|source| file_error("a child process", source))?;
    Ok(())
}

fn unnamed_file() -> Result<fs::File, ProofError> {
    let scratch = Scratch::new("output")?;
    let path = scratch.path().join("log");
    fs::OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(true)
        .open(&path)
        .map_err(|source| ProofError::File { path, source })
}

fn file_error(path: impl Into<PathBuf>, source: std::io::Error) -> ProofError {
    ProofError::File {
        path: path.into(),
        source,
    }
}

fn package_of(program: &str) -> &'static str {
    let like = match program {
        "mkfs.ext4" => "e2fsprogs",
        "mmdebstrap" => "mmdebstrap",
        "dockerd" | "docker" => "docker.io",
        "busybox" => "busybox-static",
        name if name.starts_with("qemu-") => "qemu-system-x86",
        _ => "util-linux",
    };
    PACKAGES
        .iter()
        .find(|package| **package == like)
        .copied()
        .unwrap_or(like)
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// The last part of a text.
pub(super) fn tail(text: &str) -> String {
    let mut from = text.len().saturating_sub(TAIL);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

/// A folder that is removed with all it holds.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(what: &str) -> Result<Self, ProofError> {
        let unique = std::time::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.as_nanos());
        let path =
            std::env::temp_dir().join(format!("cosm-{what}-{}-{unique}", std::process::id()));
        fs::create_dir(&path).map_err(|source| ProofError::File {
            path: path.clone(),
            source,
        })?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: can't be removed: {error}", self.0.display());
        }
    }
}

/// Writes a file.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> Result<(), ProofError> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|source| file_error(path, source))
}

/// Copies a file.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), ProofError> {
    fs::copy(from, to)
        .map(|_| ())
        .map_err(|source| file_error(from, source))
}

/// Makes a folder and those above it.
pub(super) fn folder(path: &Path) -> Result<(), ProofError> {
    fs::create_dir_all(path).map_err(|source| file_error(path, source))
}

/// Reads what is there of a text.
pub(super) fn read(path: &Path) -> Result<String, ProofError> {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|source| file_error(path, source))
}

/// Moves a file or a folder within a file system.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), ProofError> {
    fs::rename(from, to).map_err(|source| file_error(from, source))
}
