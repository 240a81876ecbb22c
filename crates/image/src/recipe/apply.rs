//! What steps do to the image's configuration.

use super::step::{Action, Step};
use crate::config::{ImageConfig, RunConfig};

impl ImageConfig {
    /// Takes over what a step says of the configuration. The history is for the one who makes layers.
    pub fn apply(&mut self, step: &Step) {
        match &step.action {
            Action::Maintainer(author) => self.author.clone_from(author),
            action => self.config.apply(action),
        }
    }
}

impl RunConfig {
    /// Takes over what a step says of how programs start.
    pub fn apply(&mut self, action: &Action) {
        match action {
            Action::Env(pairs) => pairs.iter().for_each(|(k, v)| self.set_env(k, v)),
            Action::Workdir(path) => self.working_dir = join(&self.working_dir, path),
            Action::User(user) => self.user.clone_from(user),
            Action::Entrypoint { argv, keeps_cmd } => {
                self.entrypoint.clone_from(argv);
                if !keeps_cmd {
                    self.cmd.clear();
                }
            }
            Action::Cmd(argv) => self.cmd.clone_from(argv),
            Action::Label(pairs) => self.labels.extend(pairs.iter().cloned()),
            Action::Expose(ports) => self.exposed_ports.extend(ports.iter().map(|port| {
                if port.contains('/') {
                    port.clone()
                } else {
                    format!("{port}/tcp")
                }
            })),
            Action::Volume(paths) => self.volumes.extend(paths.iter().cloned()),
            Action::StopSignal(signal) => self.stop_signal.clone_from(signal),
            Action::Shell(shell) => self.shell.clone_from(shell),
            Action::Healthcheck(check) => self.healthcheck = Some(check.clone()),
            Action::Run(_) | Action::Copy(_) | Action::Arg(_) | Action::Maintainer(_) => {}
        }
    }
}

/// A path as seen from a folder, without `.` and `..`: absolute, and with a slash at its end only if it is `/`. Like a
/// shell's `cd`, it takes no notice of symbolic links.
pub(super) fn join(folder: &str, path: &str) -> String {
    let folder = if path.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// [`join`] for the destination of a copy: the slash that says that it is a folder stays.
pub(super) fn join_dest(folder: &str, path: &str, is_folder: bool) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let mut joined = join(folder, path);
    if (is_folder || matches!(last, "" | "." | "..")) && !joined.ends_with('/') {
        joined.push('/');
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_from_the_working_folder() {
        for (folder, path, expected) in [
            ("", "a", "/a"),
            ("/", "/", "/"),
            ("/w", "a/../b/", "/w/b"),
            ("/w", "/x//y", "/x/y"),
            ("/w", "../../..", "/"),
            ("/w", "", "/w"),
        ] {
            assert_eq!(join(folder, path), expected, "{folder} {path}");
        }
        for (path, is_folder, expected) in [
            ("a", false, "/w/a"),
            ("a", true, "/w/a/"),
            ("a/", false, "/w/a/"),
            (".", false, "/w/"),
            ("/", false, "/"),
            ("a/.", false, "/w/a/"),
            ("..", false, "/"),
        ] {
            assert_eq!(join_dest("/w", path, is_folder), expected, "{path}");
        }
    }

    #[test]
    fn configurations_follow_the_steps() {
        let mut config = RunConfig {
            cmd: vec!["bash".to_owned()],
            working_dir: "/w".to_owned(),
            env: vec!["PATH=/bin".to_owned(), "A=1".to_owned()],
            ..RunConfig::default()
        };
        let text = |text: &str| text.to_owned();
        for action in [
            Action::Env(vec![(text("PATH"), text("/x:/bin")), (text("B"), text(""))]),
            Action::Workdir(text("sub")),
            Action::User(text("me")),
            Action::Label(vec![(text("k"), text("v"))]),
            Action::Expose(vec![text("80"), text("53/udp")]),
            Action::Volume(vec![text("/data")]),
            Action::StopSignal(text("SIGINT")),
            Action::Shell(vec![text("bash"), text("-c")]),
            Action::Entrypoint {
                argv: vec![text("/init")],
                keeps_cmd: false,
            },
        ] {
            config.apply(&action);
        }
        assert_eq!(
            serde_json::to_value(&config).expect("it is JSON"),
            serde_json::json!({
                "Env": ["PATH=/x:/bin", "A=1", "B="], "WorkingDir": "/w/sub", "User": "me", "Labels": {"k": "v"},
                "ExposedPorts": {"80/tcp": {}, "53/udp": {}}, "Volumes": {"/data": {}}, "StopSignal": "SIGINT",
                "Shell": ["bash", "-c"], "Entrypoint": ["/init"],
            })
        );
        config.apply(&Action::Cmd(vec![text("x")]));
        config.apply(&Action::Entrypoint {
            argv: Vec::new(),
            keeps_cmd: true,
        });
        assert!(config.entrypoint.is_empty() && config.cmd == ["x"]);
    }
}
