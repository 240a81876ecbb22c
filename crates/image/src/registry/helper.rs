//! Programs that keep credentials: `docker-credential-NAME`, spoken to by the protocol of Docker's
//! `docker-credential-helpers`. Secrets pass by their standard input and output, never by their arguments.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cosm_base::ErrorKind;
use cosm_base::text::printable;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::credentials::Credentials;
use crate::cancel::{Cancel, Cancelled};

/// What such a program may say at most.
const MAX_OUTPUT: u64 = 256 * 1024;
/// What of its complaints is shown.
const MAX_SHOWN: usize = 200;
/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The name under which an identity token is kept.
pub(crate) const TOKEN_USER: &str = "<token>";

/// Why a program that keeps credentials did not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelperError {
    /// There is no such program in the folders of `PATH`.
    #[error("there is no such program in PATH: install it, or take it out of the configuration")]
    Missing,
    /// It could not be started or listened to.
    #[error("it can't be run")]
    Run(#[source] io::Error),
    /// It did not end.
    #[error("it did not answer within {seconds} s")]
    TimedOut {
        /// How long was waited.
        seconds: u64,
    },
    /// It ended with an error.
    #[error("it failed{}", shown(said))]
    Failed {
        /// What it said.
        said: String,
        /// Its exit status, if it had one.
        status: Option<i32>,
    },
    /// It said something that is no answer. That is not shown, as a secret may be in it.
    #[error("its answer is not of the expected form")]
    Form,
    /// Somebody asked for the end of it.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

fn shown(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {}", printable(said.as_bytes()))
    }
}

impl HelperError {
    /// The kind, as callers tell errors apart.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing => ErrorKind::Unsupported,
            Self::Run(_) | Self::Failed { .. } => ErrorKind::Os,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Form => ErrorKind::Protocol,
            Self::Cancelled(_) => ErrorKind::Cancelled,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Record {
    #[serde(default, rename = "ServerURL")]
    server_url: String,
    username: String,
    secret: String,
}

/// One such program.
pub(crate) struct Helper<'a> {
    /// What comes after `docker-credential-`.
    pub(crate) name: &'a str,
    /// The `PATH` it is looked up in.
    pub(crate) search: &'a OsStr,
    pub(crate) limit: Duration,
    pub(crate) cancel: &'a Cancel,
}

impl Helper<'_> {
    /// The credentials it keeps for a server, if any.
    pub(crate) fn get(&self, server: &str) -> Result<Option<Credentials>, HelperError> {
        let answer = match self.run("get", server.as_bytes()) {
            Err(HelperError::Failed { said, .. }) if is_absence(&said) => return Ok(None),
            answer => answer?,
        };
        let record: Record = serde_json::from_slice(&answer).map_err(|_| HelperError::Form)?;
        Ok(Some(if record.username == TOKEN_USER {
            Credentials::IdentityToken(record.secret)
        } else {
            Credentials::password(record.username, record.secret)
        }))
    }

    /// Gives it credentials to keep.
    pub(crate) fn store(&self, server: &str, credentials: &Credentials) -> Result<(), HelperError> {
        let (username, secret) = match credentials {
            Credentials::Password { user, password } => (user.as_str(), password),
            Credentials::IdentityToken(token) | Credentials::RegistryToken(token) => {
                (TOKEN_USER, token)
            }
        };
        let record = Record {
            server_url: server.to_owned(),
            username: username.to_owned(),
            secret: secret.clone(),
        };
        let text = serde_json::to_vec(&record).expect("strings are always JSON");
        self.run("store", &text).map(drop)
    }

    /// Makes it forget a server. That it knows none is no error.
    pub(crate) fn erase(&self, server: &str) -> Result<(), HelperError> {
        match self.run("erase", server.as_bytes()) {
            Err(HelperError::Failed { said, .. }) if is_absence(&said) => Ok(()),
            other => other.map(drop),
        }
    }

    /// The servers it knows, and the names there.
    pub(crate) fn list(&self) -> Result<BTreeMap<String, String>, HelperError> {
        let answer = self.run("list", b"")?;
        serde_json::from_slice(&answer).map_err(|_| HelperError::Form)
    }

    fn program(&self) -> Option<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !self.name.chars().all(plain) {
            return None;
        }
        let file = format!("docker-credential-{}", self.name);
        std::env::split_paths(self.search)
            // A relative folder would be another one wherever the caller happens to be.
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(&file))
            .find(|path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok())
    }

    fn run(&self, verb: &str, input: &[u8]) -> Result<Vec<u8>, HelperError> {
        let program = self.program().ok_or(HelperError::Missing)?;
        let mut child = Command::new(program)
            .arg(verb)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // So that what it starts in turn ends with it.
            .process_group(0)
            .spawn()
            .map_err(HelperError::Run)?;
        let result = self.talk(&mut child, input);
        if result.is_err() {
            end(&mut child);
        }
        let status = child.wait().map_err(HelperError::Run)?;
        let output = result?;
        if status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output);
        Err(HelperError::Failed {
            said: said.trim().chars().take(MAX_SHOWN).collect(),
            status: status.code(),
        })
    }

    /// Says `input`, and hears all it has to say until it ends.
    fn talk(&self, child: &mut Child, input: &[u8]) -> Result<Vec<u8>, HelperError> {
        let mut stdin = child.stdin.take().expect("its input is a pipe");
        let stdout = child.stdout.take().expect("its output is a pipe");
        let input = input.to_vec();
        let (sender, answer) = mpsc::channel();
        // A program that neither reads nor writes must not hold up the one that waits for it.
        std::thread::spawn(move || {
            // One that does not read what it is told fails by itself, and says more about it.
            if let Err(error) = stdin.write_all(&input) {
                tracing::debug!(%error, "a credential helper does not read its input");
            }
            drop(stdin);
            let mut output = Vec::new();
            let read = stdout.take(MAX_OUTPUT + 1).read_to_end(&mut output);
            // Nobody waits any more if this took too long.
            sender.send(read.map(|_| output)).ok();
        });
        let end = Instant::now() + self.limit;
        let timed_out = || HelperError::TimedOut {
            seconds: self.limit.as_secs(),
        };
        let output = loop {
            match answer.recv_timeout(LOOK) {
                Ok(output) => break output.map_err(HelperError::Run)?,
                Err(_) if Instant::now() >= end => return Err(timed_out()),
                Err(_) => self.cancel.check()?,
            }
        };
        if output.len() as u64 > MAX_OUTPUT {
            return Err(HelperError::Form);
        }
        while child.try_wait().map_err(HelperError::Run)?.is_none() {
            if Instant::now() >= end {
                return Err(timed_out());
            }
            self.cancel.check()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(output)
    }
}

/// Ends a program and what it started. It has not been waited for, so its number is still its own.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group
        && let Err(error) = kill_process_group(group, Signal::KILL)
    {
        tracing::debug!(%error, "ending a credential helper");
    }
}

/// The protocol has no other sign for this than the words.
fn is_absence(said: &str) -> bool {
    said.contains("credentials not found")
}
