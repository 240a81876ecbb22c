//! The project's folder, and running programs in it.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Result, TaskError};

/// The workspace that this program was built from.
#[derive(Debug, Clone)]
pub(crate) struct Repo {
    root: PathBuf,
    target: PathBuf,
}

impl Repo {
    pub(crate) fn of_this_workspace() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let root = root.canonicalize().unwrap_or(root);
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self { root, target }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    pub(crate) fn read(&self, relative: &str) -> Result<String> {
        let path = self.path(relative);
        std::fs::read_to_string(&path).map_err(TaskError::file(path))
    }

    pub(crate) fn write(&self, relative: &str, text: &str) -> Result<()> {
        let path = self.path(relative);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(TaskError::file(folder))?;
        }
        std::fs::write(&path, text).map_err(TaskError::file(path))
    }

    /// Cargo in the workspace, with the arguments.
    pub(crate) fn cargo<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).args(args);
        command
    }

    /// Builds `cosm` as users get it and returns the program. `COSM_BIN` names one that is there already.
    pub(crate) fn cosm(&self) -> Result<PathBuf> {
        if let Some(binary) = std::env::var_os("COSM_BIN") {
            return Ok(binary.into());
        }
        run(&mut self.cargo(["build", "--release", "--locked", "-p", "cosm-cli"]))?;
        Ok(self.target.join("release/cosm"))
    }
}

/// How a command reads in a terminal.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Runs a command to its end; it shares this program's streams.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    say(&shown(command));
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(TaskError::program(command))?;
    if status.success() {
        Ok(())
    } else {
        Err(TaskError::Command {
            command: shown(command),
            status,
        })
    }
}

/// Runs a command to its end and returns what it wrote to standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(TaskError::program(command))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(TaskError::Command {
            command: shown(command),
            status: output.status,
        })
    }
}

/// Runs a command, shows what it writes to standard output while it does, and hands each line to `see`.
/// Returns whether it ended well.
pub(crate) fn watch(command: &mut Command, mut see: impl FnMut(&str)) -> Result<bool> {
    say(&shown(command));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(TaskError::program(command))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(TaskError::file("standard output"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            see(&line);
        }
    }
    let status = child.wait().map_err(TaskError::program(command))?;
    Ok(status.success())
}

/// Whether a program is on PATH.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

pub(crate) fn say(text: &str) {
    println!("\n$ {text}");
}
