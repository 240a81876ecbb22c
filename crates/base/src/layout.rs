//! Where everything lies under the state folder and the runtime folder.
//!
//! The state folder holds one sub-folder per format generation, so that programs of several versions do not disturb
//! each other. Sockets lie in a short private folder of their own: a Unix socket's path holds 107 bytes.

use std::path::{Path, PathBuf};

use crate::id::SandboxId;

/// The generation of the state folder's format. A change that an older program would misread makes a new one.
pub const GENERATION: &str = "v1";

/// What the names of passing sandboxes' files end with.
const PASSING: &str = "passing";

/// The state folder of one user, `$COSM_HOME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
    passing: Option<PathBuf>,
}

impl Home {
    /// Names the folder; nothing is created.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            passing: None,
        }
    }
    /// Where the files of passing sandboxes lie: beside their sockets, which mostly is in memory. Without this: beside
    /// all others.
    #[must_use]
    pub fn passing_in(self, runtime: &RuntimeDir) -> Self {
        Self {
            passing: Some(runtime.root.clone()),
            ..self
        }
    }
    /// The folder of the files of passing sandboxes.
    pub fn passing(&self) -> PathBuf {
        self.passing.clone().unwrap_or_else(|| self.sandboxes())
    }
    /// The folder that was named.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// The folder of this format generation.
    pub fn generation(&self) -> PathBuf {
        self.root.join(GENERATION)
    }
    /// The SQLite catalogue.
    pub fn catalogue(&self) -> PathBuf {
        self.generation().join("catalogue.db")
    }
    /// The one file whose bytes are the sandboxes' locks.
    pub fn locks(&self) -> PathBuf {
        self.generation().join("locks")
    }
    /// The folder of all sandboxes' folders.
    pub fn sandboxes(&self) -> PathBuf {
        self.generation().join("sandboxes")
    }
    /// Where one sandbox's files lie.
    pub fn sandbox(&self, id: SandboxId) -> SandboxDir {
        SandboxDir {
            passing: self.passing().join(format!("{id}.{PASSING}")),
            path: self.sandboxes().join(id.to_string()),
        }
    }
}

/// Where a sandbox's files lie: in a folder of its own. Of a passing sandbox, which has no row in the catalogue, a file
/// says all that is known; its folder is only there once something has to be in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxDir {
    path: PathBuf,
    passing: PathBuf,
}

impl SandboxDir {
    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// What is known of a passing sandbox.
    pub fn passing(&self) -> &Path {
        &self.passing
    }
    /// The passing sandbox whose file has this name.
    pub fn passing_id(name: &str) -> Option<SandboxId> {
        let (id, extension) = name.split_once('.')?;
        (extension == PASSING).then(|| id.parse().ok())?
    }
    /// How far the keeper has come, and what is needed to end a run that it left behind. A passing sandbox has that in
    /// [its file](Self::passing).
    pub fn records(&self) -> PathBuf {
        self.path.join("records")
    }
    /// What the guest changes: the overlay's upper and work folders, or the private folders of a `host` guest.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }
    /// The logs of the jobs.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }
    /// What the keeper and the guest's first process had to say.
    pub fn keeper_log(&self) -> PathBuf {
        self.path.join("keeper.log")
    }
    /// The sandbox's scripts, read-only on the guest's PATH.
    pub fn scripts(&self) -> PathBuf {
        self.path.join("scripts")
    }
}

/// The folder of sockets of one state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeDir {
    root: PathBuf,
}

impl RuntimeDir {
    /// The sockets' folder for a state folder: a sub-folder of `base` named by a hash of the state folder's path,
    /// so that two state folders of one user stay apart.
    pub fn new(base: &Path, home: &Home) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        // FNV-1a: stable across versions and machines, and no secret depends on it.
        let hash = home
            .generation()
            .as_os_str()
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
                (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        Self {
            root: base.join(format!("{:08x}", (hash >> 32) as u32 ^ hash as u32)),
        }
    }
    /// Names a state folder's sockets' folder itself.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.root
    }
    /// The socket that the keeper answers.
    pub fn control(&self, id: SandboxId) -> PathBuf {
        self.root.join(format!("{id}.ctl"))
    }
    /// The socket that the agent answers.
    pub fn agent(&self, id: SandboxId) -> PathBuf {
        self.root.join(format!("{id}.agent"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_paths_fit() {
        let home = Home::new("/home/a-rather-long-user-name/.local/share/cosm");
        let runtime = RuntimeDir::new(Path::new("/run/user/4294967294/cosm"), &home);
        assert!(
            runtime
                .agent(SandboxId::from_random([255; 8]))
                .as_os_str()
                .len()
                < 100
        );
        let other = RuntimeDir::new(
            Path::new("/run/user/4294967294/cosm"),
            &Home::new("/elsewhere"),
        );
        assert_ne!(runtime, other);
    }
}
