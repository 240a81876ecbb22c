//! What is tried in containers, and what has to come of it.

use super::super::ProofError;
use super::engine::Engine;

/// A script in a container.
pub(super) struct Case {
    name: &'static str,
    /// How the container is started.
    flags: &'static [&'static str],
    script: &'static str,
    /// The exit code.
    code: i32,
    /// What its output contains.
    says: &'static [&'static str],
}

const SECCOMP: &[&str] = &["seccomp", "docker run --security-opt seccomp=unconfined"];
const PROC: &[&str] = &["/proc", "systempaths=unconfined"];

const OPEN: &[&str] = &[
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "systempaths=unconfined",
];
const OPEN_USER: &[&str] = &[
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "systempaths=unconfined",
    "--user",
    "1000:1000",
];
const OPEN_ADMIN: &[&str] = &[
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "systempaths=unconfined",
    "--cap-add",
    "SYS_ADMIN",
];
const PRIVILEGED: &[&str] = &["--privileged"];

/// A folder as an image, in a state folder that lies on the container's own overlay.
const IMAGE: &str = "set -e
    mkdir -p /tmp/image/bin
    cp /usr/bin/busybox /tmp/image/bin/busybox
    ln -s busybox /tmp/image/bin/sh
    cosm create --name box /tmp/image
    cosm exec box -- sh -c 'echo written > /new'
    cosm exec box -- sh -c 'read word < /new; echo found $word'
    cosm inspect box
    test ! -e /tmp/image/new
    cosm rm --force box
    cosm ls -q";

macro_rules! case {
    ($name:literal, $flags:expr, $script:expr, $code:literal, $says:expr) => {
        Case {
            name: $name,
            flags: $flags,
            script: $script,
            code: $code,
            says: $says,
        }
    };
}

pub(super) const CASES: &[Case] = &[
    case!(
        "as it comes: doctor names the switch",
        &[],
        "cosm doctor",
        1,
        SECCOMP
    ),
    case!(
        "as it comes: run names the switch",
        &[],
        "cosm run -- true",
        125,
        SECCOMP
    ),
    case!(
        "as it comes, as a user: run names the switch",
        &["--user", "1000:1000"],
        "cosm run -- true",
        125,
        SECCOMP
    ),
    case!(
        "without seccomp: doctor names what is next",
        &OPEN_SECCOMP,
        "cosm doctor",
        1,
        PROC
    ),
    case!(
        "without seccomp: run names what is next",
        &OPEN_SECCOMP,
        "cosm run -- true",
        125,
        PROC
    ),
    case!("opened: doctor", OPEN, "cosm doctor", 0, &[]),
    case!(
        "opened: run",
        OPEN,
        "cosm run -- echo inside",
        0,
        &["inside"]
    ),
    case!(
        "opened, as a user: run",
        OPEN_USER,
        "cosm run -- echo inside",
        0,
        &["inside"]
    ),
    case!(
        "opened, with CAP_SYS_ADMIN: run",
        OPEN_ADMIN,
        "cosm run -- echo inside",
        0,
        &["inside"]
    ),
    case!(
        "opened: a folder as an image on an overlay",
        OPEN,
        IMAGE,
        0,
        &["found written", "tmpfs"]
    ),
    case!(
        "opened, as a user: a folder as an image on an overlay",
        OPEN_USER,
        IMAGE,
        0,
        &["found written", "tmpfs"]
    ),
    case!(
        "privileged: run",
        PRIVILEGED,
        "cosm run -- echo inside",
        0,
        &["inside"]
    ),
];

const OPEN_SECCOMP: [&str; 2] = ["--security-opt", "seccomp=unconfined"];

impl Case {
    /// Tries it, and says how that went.
    pub(super) fn try_in(&self, engine: &Engine) -> Result<String, ProofError> {
        let (status, said) = engine.sh(self.flags, self.script)?;
        // Where root itself may not do everything, nobody can be given it.
        if self.flags == PRIVILEGED && said.starts_with("docker: Error response from daemon") {
            return Ok(format!("SKIP {}: {}\n", self.name, said.trim_end()));
        }
        let missing = self.says.iter().find(|words| !said.contains(**words));
        let seen = match (status.code() == Some(self.code), missing) {
            (true, None) => return Ok(format!("PASS {}\n", self.name)),
            (false, _) => format!("{status}, not {}", self.code),
            (true, Some(words)) => format!("it does not say {words:?}"),
        };
        Ok(format!(
            "FAIL {}: {seen}; it says: {}\n",
            self.name,
            said.trim_end()
        ))
    }
}
