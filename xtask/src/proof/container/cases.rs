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

const SECCOMP: &[&str] = &["seccomp", "--security-opt seccomp=unconfined"];
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

const USER: &[&str] = &["--user", "1000:1000"];

const RUN: &str = "cosm run -- echo inside";
const COPIED: &[&str] = &["found written", "\"upper\": \"copy\"", "unchanged"];

/// A folder as an image, from the smallest root file system that there is.
macro_rules! image {
    ($options:literal) => {
        concat!(
            "set -e
            mkdir -p /tmp/image/bin
            cp /usr/bin/busybox /tmp/image/bin/busybox
            ln -s busybox /tmp/image/bin/sh
            cosm create --name box ",
            $options,
            " /tmp/image
            cosm exec box -- sh -c 'echo written > /new'
            cosm exec box -- sh -c 'read word < /new; echo found $word'
            cosm inspect box
            test ! -e /tmp/image/new && echo unchanged
            cosm rm --force box
            cosm ls -q"
        )
    };
}

const IMAGE: &str = image!("");
/// More than may be: what is not kept lies in memory, and is bounded there.
const SIZED: &str = "mkdir -p /tmp/image/bin && cp /usr/bin/busybox /tmp/image/bin/sh
    cosm run --disk 8m /tmp/image -- sh -c 'dd if=/dev/zero of=/big bs=1M count=64; ls -l /big'
    test ! -e /tmp/image/big && echo unchanged";
const VOLUME: &str = concat!("export COSM_HOME=/state/home\n", image!(""));

/// Forks more often than it may; a shell that can't fork ends with an error.
const FORKS: &str = "cosm run --pids 32 -- sh -c '
        n=0
        while [ $n -lt 200 ]; do sleep 60 & n=$((n + 1)); done
        echo unbounded'";

const NOTHING_STAYS: &str = "
        cosm create --name box && cosm exec -d box -- sleep 1000 && cosm rm --force box && cosm run -- true
        sleep 0.5
        pgrep -a cosm || pgrep -a sleep || grep '^cosm ' /proc/mounts ||
            ls -A /run/cosm/* /dev/shm/cosm-0/* /tmp/cosm-0/* 2>/dev/null | grep -v : | grep . ||
            ls -A $HOME/.local/share/cosm/v1/sandboxes | grep . || echo clean";

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
        125,
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
        USER,
        "cosm run -- true",
        125,
        SECCOMP
    ),
    case!(
        "without seccomp: doctor names what is next",
        &OPEN_SECCOMP,
        "cosm doctor",
        125,
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
    case!("opened: run", OPEN, RUN, 0, &["inside"]),
    case!(
        "opened, as a user: doctor",
        OPEN_USER,
        "cosm doctor",
        0,
        &[]
    ),
    case!("opened, as a user: run", OPEN_USER, RUN, 0, &["inside"]),
    case!(
        "opened, with CAP_SYS_ADMIN: doctor",
        OPEN_ADMIN,
        "cosm doctor",
        0,
        &[]
    ),
    case!(
        "opened, with CAP_SYS_ADMIN: run",
        OPEN_ADMIN,
        RUN,
        0,
        &["inside"]
    ),
    case!("privileged: run", PRIVILEGED, RUN, 0, &["inside"]),
    // The state folder lies on the container's own overlay, on which no upper layer can lie.
    case!("opened: an image is copied", OPEN, IMAGE, 0, COPIED),
    case!(
        "opened, as a user: an image is copied",
        OPEN_USER,
        IMAGE,
        0,
        COPIED
    ),
    case!(
        "opened, with CAP_SYS_ADMIN: an image is copied",
        OPEN_ADMIN,
        IMAGE,
        0,
        COPIED
    ),
    case!(
        "opened: an image's changes are bounded in memory",
        OPEN,
        SIZED,
        0,
        &["No space left", "unchanged"]
    ),
    // On a volume it can.
    case!(
        "opened: an image on a volume",
        OPEN,
        VOLUME,
        0,
        &["\"upper\": \"overlay\"", "found written"]
    ),
    case!(
        "opened: a memory limit is refused",
        OPEN,
        "cosm run --memory 64m -- true",
        125,
        &["memory limit", "docker run --memory"]
    ),
    case!(
        "opened: a limit on processes is refused, since nobody counts root's",
        OPEN,
        FORKS,
        125,
        &["limit on processes", "--pids-limit"]
    ),
    case!(
        "opened, as a user: processes are bounded",
        OPEN_USER,
        FORKS,
        2,
        &["annot fork"]
    ),
    case!(
        "opened, with CAP_SYS_ADMIN: processes are bounded",
        OPEN_ADMIN,
        FORKS,
        2,
        &["annot fork"]
    ),
    case!("opened: nothing stays", OPEN, NOTHING_STAYS, 0, &["clean"]),
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
