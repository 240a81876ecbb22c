//! Illegal specs, each with a sentence, found before anything starts.

use std::collections::HashSet;
use std::fmt;

use cosm_base::ByteString;
use cosm_base::text::quoted;

use crate::mount::MountSource;
use crate::resources::Limit;
use crate::sandbox::{IdMode, ImageSource, Lifetime, Profile, SandboxSpec};

/// The least memory in which a guest can start.
const LEAST_MEMORY: u64 = 4 << 20;

/// One thing that is wrong with a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("{field}: {} is not absolute", path.display())]
    NotAbsolute {
        field: &'static str,
        path: ByteString,
    },
    #[error("{field}: {} holds '..'", path.display())]
    ParentDir {
        field: &'static str,
        path: ByteString,
    },
    #[error("{field}: {} holds a NUL byte", path.display())]
    Nul {
        field: &'static str,
        path: ByteString,
    },
    #[error("mounts: {} is mounted over twice", .0.display())]
    MountedTwice(ByteString),
    #[error("mounts: the root itself can't be mounted over")]
    MountOverRoot,
    #[error("devices: {} is not below /dev", .0.display())]
    NotADevice(ByteString),
    #[error("env: {} can't be an environment name (empty, or with '=' or a NUL byte)", .0.display())]
    EnvName(ByteString),
    #[error(
        "scripts: {} can't be a script's name: letters, digits, '.', '_' and '-', not starting with '.' or '-'",
        quoted(.0)
    )]
    ScriptName(String),
    #[error(
        "labels: {} can't be a label's key: it is empty, longer than 128 bytes, or holds '=' or a control character",
        quoted(.0)
    )]
    LabelKey(String),
    #[error("labels: the value of {} is longer than 4096 bytes or holds a NUL byte", quoted(.0))]
    LabelValue(String),
    #[error(
        "hostname: {} is not one: at most 63 letters, digits and '-', not starting or ending with '-'",
        quoted(.0)
    )]
    Hostname(String),
    #[error("user: {} is not one: write name, id, name:group or id:id", quoted(.0))]
    User(String),
    #[error("command: it is empty")]
    EmptyCommand,
    #[error("command: an argument holds a NUL byte")]
    CommandNul,
    #[error("memory: {0} bytes are too few to start a guest in (at least 4 MiB)")]
    TooLittleMemory(u64),
    #[error("cpus: {0} is not a number of processors above 0")]
    Cpus(String),
    #[error("pids: a guest needs at least 8")]
    TooFewPids,
    #[error("{0}: the limit can't be 0")]
    ZeroLimit(&'static str),
    #[error("rlimits: {0} is set twice")]
    RlimitTwice(&'static str),
    #[error("rlimits: {0}: the soft limit is above the hard one")]
    RlimitOrder(&'static str),
    #[error("stop_signal: {0} is not a signal from 1 to 64")]
    StopSignal(i32),
    #[error("timeouts: {0} can't be 0")]
    ZeroTimeout(&'static str),
    #[error(
        "profile: `restricted` has no capabilities, so its commands can't change to a range of ids: leave ids at auto or single"
    )]
    RestrictedRange,
    #[error(
        "remove_on_exit: a persistent sandbox without a main command never exits by itself; leave one of the two out"
    )]
    PersistentEphemeral,
}

/// All that is wrong with a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl SandboxSpec {
    /// Finds everything that can be known to be wrong without looking at the host.
    ///
    /// # Errors
    /// [`Problems`] with one entry for each thing that is wrong.
    pub fn check(&self) -> Result<(), Problems> {
        let mut found = Vec::new();
        self.check_paths(&mut found);
        self.check_words(&mut found);
        self.check_limits(&mut found);
        self.check_combinations(&mut found);
        if found.is_empty() {
            Ok(())
        } else {
            Err(Problems(found))
        }
    }

    fn check_paths(&self, found: &mut Vec<Problem>) {
        if let ImageSource::Folder(path) = &self.image {
            absolute("image", path, found);
        }
        for path in &self.prefixes {
            absolute("prefixes", path, found);
        }
        if let Some(path) = &self.workdir {
            absolute("workdir", path, found);
        }
        if let Some(path) = &self.shell {
            absolute("shell", path, found);
        }
        let mut targets = HashSet::new();
        for mount in &self.mounts {
            absolute("mounts", &mount.target, found);
            if let MountSource::Bind(source) = &mount.source {
                absolute("mounts", source, found);
            }
            let normal: Vec<&[u8]> = parts(&mount.target).collect();
            if normal.is_empty() {
                found.push(Problem::MountOverRoot);
            }
            if !targets.insert(normal) {
                found.push(Problem::MountedTwice(mount.target.clone()));
            }
            if let MountSource::Tmpfs {
                size: Some(size), ..
            } = mount.source
                && size.0 == 0
            {
                found.push(Problem::ZeroLimit("mounts: size"));
            }
        }
        for device in &self.devices {
            for path in [&device.source, &device.target] {
                absolute("devices", path, found);
                let mut parts = parts(path);
                if parts.next() != Some(b"dev") || parts.next().is_none() {
                    found.push(Problem::NotADevice(path.clone()));
                }
            }
        }
    }

    fn check_words(&self, found: &mut Vec<Problem>) {
        for (name, value) in &self.env {
            let bytes = name.as_bytes();
            if bytes.is_empty() || bytes.contains(&b'=') || bytes.contains(&0) {
                found.push(Problem::EnvName(name.clone()));
            }
            nul("env", value, found);
        }
        found.extend(
            self.scripts
                .keys()
                .filter(|name| !is_script_name(name))
                .cloned()
                .map(Problem::ScriptName),
        );
        for (key, value) in &self.labels {
            if key.is_empty()
                || key.len() > 128
                || key.contains(|c: char| c == '=' || c.is_control())
            {
                found.push(Problem::LabelKey(key.clone()));
            }
            if value.len() > 4096 || value.contains('\0') {
                found.push(Problem::LabelValue(key.clone()));
            }
        }
        if let Some(name) = self.hostname.as_ref().filter(|name| !is_hostname(name)) {
            found.push(Problem::Hostname(name.clone()));
        }
        if let Some(user) = self.user.as_ref().filter(|user| !is_user(user)) {
            found.push(Problem::User(user.clone()));
        }
        if let Some(command) = &self.command {
            if command
                .first()
                .is_none_or(|program| program.as_bytes().is_empty())
            {
                found.push(Problem::EmptyCommand);
            }
            if command.iter().any(|arg| arg.as_bytes().contains(&0)) {
                found.push(Problem::CommandNul);
            }
        }
        if let Some(signal) = self.stop_signal.filter(|s| !(1..=64).contains(s)) {
            found.push(Problem::StopSignal(signal));
        }
    }

    fn check_limits(&self, found: &mut Vec<Problem>) {
        let resources = &self.resources;
        if let Limit::At(memory) = resources.memory
            && memory.0 < LEAST_MEMORY
        {
            found.push(Problem::TooLittleMemory(memory.0));
        }
        if let Limit::At(cpus) = resources.cpus
            && !((0.01..=65_536.0).contains(&cpus))
        {
            found.push(Problem::Cpus(cpus.to_string()));
        }
        if let Limit::At(pids) = resources.pids
            && pids < 8
        {
            found.push(Problem::TooFewPids);
        }
        for (name, limit) in [("disk", resources.disk), ("log", resources.log)] {
            if let Limit::At(size) = limit
                && size.0 == 0
            {
                found.push(Problem::ZeroLimit(name));
            }
        }
        let mut seen = HashSet::new();
        for limit in &self.rlimits {
            if !seen.insert(limit.name) {
                found.push(Problem::RlimitTwice(limit.name.as_str()));
            }
            if limit.soft > limit.hard {
                found.push(Problem::RlimitOrder(limit.name.as_str()));
            }
        }
        for (name, time) in [
            ("boot", Some(self.timeouts.boot)),
            ("max_duration", self.timeouts.max_duration),
            ("idle", self.timeouts.idle),
        ] {
            if time.is_some_and(|t| t.is_zero()) {
                found.push(Problem::ZeroTimeout(name));
            }
        }
    }

    fn check_combinations(&self, found: &mut Vec<Problem>) {
        if self.profile == Profile::Restricted && self.ids == IdMode::Range {
            found.push(Problem::RestrictedRange);
        }
        if self.lifetime == Lifetime::Persistent && self.remove_on_exit && self.command.is_none() {
            found.push(Problem::PersistentEphemeral);
        }
    }
}

fn parts(path: &ByteString) -> impl Iterator<Item = &[u8]> {
    path.as_bytes()
        .split(|&b| b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

fn nul(field: &'static str, value: &ByteString, found: &mut Vec<Problem>) {
    if value.as_bytes().contains(&0) {
        found.push(Problem::Nul {
            field,
            path: value.clone(),
        });
    }
}

fn absolute(field: &'static str, path: &ByteString, found: &mut Vec<Problem>) {
    nul(field, path, found);
    if !path.as_bytes().starts_with(b"/") {
        found.push(Problem::NotAbsolute {
            field,
            path: path.clone(),
        });
    }
    if parts(path).any(|part| part == b"..") {
        found.push(Problem::ParentDir {
            field,
            path: path.clone(),
        });
    }
}

fn is_script_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with(['.', '-'])
        && name.chars().all(allowed)
}

fn is_hostname(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !name.is_empty()
        && name.len() <= 63
        && !name.starts_with('-')
        && !name.ends_with('-')
        && name.chars().all(allowed)
}

fn is_user(user: &str) -> bool {
    let part = |p: &str| {
        !p.is_empty()
            && p.len() <= 64
            && !p.contains(|c: char| c.is_control() || c == ':' || c == '/' || c == ' ')
    };
    match user.split_once(':') {
        None => part(user),
        Some((name, group)) => part(name) && part(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::Mount;
    use proptest::prelude::*;

    fn bind(source: &str, target: &str) -> Mount {
        Mount {
            target: target.into(),
            source: MountSource::Bind(source.into()),
            read_only: true,
        }
    }

    fn problems(change: impl FnOnce(&mut SandboxSpec)) -> Vec<Problem> {
        let mut spec = SandboxSpec::default();
        change(&mut spec);
        spec.check().err().map(|p| p.0).unwrap_or_default()
    }

    #[test]
    fn the_default_is_legal() {
        assert_eq!(problems(|_| ()), []);
    }

    #[test]
    fn each_problem_is_named() {
        assert_eq!(
            problems(|s| s.mounts = vec![bind("/a", "/b"), bind("/c", "//b/.")]),
            [Problem::MountedTwice("//b/.".into())]
        );
        assert_eq!(
            problems(|s| s.mounts = vec![bind("/a", "/")]),
            [Problem::MountOverRoot]
        );
        assert_eq!(
            problems(|s| s.command = Some(vec![])),
            [Problem::EmptyCommand]
        );
        assert_eq!(problems(|s| s.workdir = Some("a/../b".into())).len(), 2);
        assert_eq!(
            problems(|s| s.user = Some("a:".into())),
            [Problem::User("a:".into())]
        );
        assert_eq!(
            problems(|s| s.resources.cpus = Limit::At(f64::NAN)),
            [Problem::Cpus("NaN".into())]
        );
        assert_eq!(
            problems(|s| s.stop_signal = Some(0)),
            [Problem::StopSignal(0)]
        );
        assert_eq!(
            problems(|s| drop(s.scripts.insert("../x".into(), String::new()))),
            [Problem::ScriptName("../x".into())]
        );
    }

    #[test]
    fn a_stored_spec_is_read_by_its_version() {
        let spec = SandboxSpec {
            env: vec![("A".into(), vec![0xff, b'b'].into())],
            ..SandboxSpec::default()
        };
        assert_eq!(SandboxSpec::from_stored(&spec.to_stored()).unwrap(), spec);
        assert!(
            SandboxSpec::from_stored(br#"{"version":99,"new_field":1}"#)
                .unwrap_err()
                .to_string()
                .contains("format 99")
        );
        assert!(SandboxSpec::from_stored(br#"{"version":1,"no_such":1}"#).is_err());
    }

    proptest! {
        #[test]
        fn no_path_panics(path: Vec<u8>) {
            let spec = SandboxSpec { workdir: Some(path.into()), ..SandboxSpec::default() };
            let _verdict = spec.check();
        }
    }
}
