//! The ordinary user that tests run as when root runs them, and what it is given.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Result, TaskError};
use crate::repo::run;

const NAME: &str = "cosm-test";

/// An ordinary user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Makes the test user where it is missing.
pub(crate) fn make() -> Result<()> {
    if find().is_some() {
        println!("the user {NAME} is there");
        return Ok(());
    }
    run(Command::new("useradd").args(["--create-home", "--shell", "/bin/sh", NAME]))
}

/// The test user, if there is one.
pub(crate) fn find() -> Option<User> {
    let table = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = table
        .lines()
        .find(|line| line.split(':').next() == Some(NAME))?;
    let mut fields = line.split(':').skip(2);
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(User { uid, gid })
}

/// A folder that the user can read, with an empty home in it. It goes away with this value, and so does what the
/// user left in the folder for sockets.
#[derive(Debug)]
pub(crate) struct Stage {
    folder: PathBuf,
    user: User,
}

impl Stage {
    pub(crate) fn new(user: User) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("cosm-stage-{}", std::process::id()));
        let stage = Self { folder, user };
        make_folder(&stage.folder, 0o755)?;
        make_folder(&stage.home(), 0o700)?;
        std::os::unix::fs::chown(stage.home(), Some(user.uid), Some(user.gid))
            .map_err(TaskError::file(stage.home()))?;
        Ok(stage)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// A copy of a program, which the user can run.
    pub(crate) fn program(&self, program: &Path) -> Result<PathBuf> {
        let name = program.file_name().unwrap_or(program.as_os_str());
        let copy = self.folder.join(name);
        std::fs::copy(program, &copy).map_err(TaskError::file(program))?;
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))
            .map_err(TaskError::file(&copy))?;
        Ok(copy)
    }

    /// A command as the user, with nothing of this environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .uid(self.user.uid)
            .gid(self.user.gid)
            .current_dir(self.home())
            .env_clear()
            .env("HOME", self.home())
            .env("USER", NAME)
            .env("LOGNAME", NAME)
            .env("LANG", "C.UTF-8")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
    }

    /// Whether the user can read a file here.
    pub(crate) fn reads(&self, path: &Path) -> bool {
        self.command(Path::new("/usr/bin/test"))
            .arg("-r")
            .arg(path)
            .stdin(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let sockets = std::env::temp_dir().join(format!("cosm-{}", self.user.uid));
        for folder in [&self.folder, &sockets] {
            match std::fs::remove_dir_all(folder) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => eprintln!("{} can't be removed: {error}", folder.display()),
            }
        }
    }
}

fn make_folder(path: &Path, mode: u32) -> Result<()> {
    std::fs::create_dir(path)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)))
        .map_err(TaskError::file(path))
}
