//! Where the proofs find the project and put their things.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::ProofError;
use super::tools::{self, run};

/// A clean release build on two cores, with room to spare.
const BUILD: Duration = Duration::from_secs(1200);

/// The project's folder, its build folder, and the proofs' cache in that.
pub(crate) struct Ground {
    /// The workspace.
    pub(super) repo: PathBuf,
    /// Cargo's target folder.
    pub(super) target: PathBuf,
    /// What the proofs keep between two runs.
    pub(super) cache: PathBuf,
}

impl Ground {
    /// The ground of the workspace that this program was built from.
    pub(crate) fn of_this_workspace() -> Result<Self, ProofError> {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .ok_or(ProofError::Host(
                "this program's package lies in no workspace",
            ))?
            .to_owned();
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| repo.join("target"), |dir| repo.join(dir));
        let cache = target.join("proofs");
        tools::folder(&cache)?;
        Ok(Self {
            repo,
            target,
            cache,
        })
    }

    /// Builds `cosm` as users do, and returns the program. `COSM_BIN` names one that is there already.
    pub(super) fn cosm(&self) -> Result<PathBuf, ProofError> {
        if let Some(binary) = env::var_os("COSM_BIN") {
            return Ok(binary.into());
        }
        let started = Instant::now();
        run(
            self.cargo()
                .args(["build", "--release", "--locked", "-p", "cosm-cli"]),
            BUILD,
        )?;
        println!("built cosm in {:.1} s", started.elapsed().as_secs_f64());
        Ok(self.target.join("release/cosm"))
    }

    /// Cargo, in the workspace.
    pub(super) fn cargo(&self) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(&self.repo)
            .env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// The host's Debian release: a program built here runs there.
    pub(super) fn debian_suite(&self) -> Result<String, ProofError> {
        let text = tools::read(Path::new("/etc/os-release"))?;
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_matches('"').to_owned())
        };
        match (value("ID=").as_deref(), value("VERSION_CODENAME=")) {
            (Some("debian"), Some(suite)) => Ok(suite),
            _ => Err(ProofError::Host(
                "this proof makes its guest of the host's own Debian release: it needs a Debian host",
            )),
        }
    }
}
