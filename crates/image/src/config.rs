//! Configurations of images: OCI image spec 1.1 (`config.md`) and Docker's, which has a few fields more.
//!
//! What a field does not say and what says `null` is the same here, as it is to Docker: an empty text or list. Fields
//! that nobody here knows are kept and written again, since an image that is built on another one inherits them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::platform::Platform;

/// What programs find as `PATH` where neither the image nor anybody else says (Docker's for Linux).
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An image's configuration: for what machine it is, how a program in it starts, of what layers it consists and how
/// they came to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// When it was made, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Who says to have made it.
    #[serde(
        default,
        deserialize_with = "or_null",
        skip_serializing_if = "String::is_empty"
    )]
    pub author: String,
    /// The processor, in Go's words.
    #[serde(default, deserialize_with = "or_null")]
    pub architecture: String,
    /// The processor's generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The operating system.
    #[serde(default, deserialize_with = "or_null")]
    pub os: String,
    /// How a program in it starts.
    #[serde(default, deserialize_with = "or_null")]
    pub config: RunConfig,
    /// Its layers.
    #[serde(default, deserialize_with = "or_null")]
    pub rootfs: RootFs,
    /// How they came to be, from the oldest step on.
    #[serde(
        default,
        deserialize_with = "or_null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub history: Vec<History>,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// How a program in an image starts: what a command that is run says less of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RunConfig {
    /// `user`, `uid`, `user:group` or `uid:gid`; empty means root.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Ports that the program listens at: `80/tcp`.
    #[serde(with = "keys", skip_serializing_if = "BTreeSet::is_empty")]
    pub exposed_ports: BTreeSet<String>,
    /// `NAME=value`, in the order in which they were set.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The start of the command.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// The rest of the command, where the user gives none.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Folders whose content is no part of the image once a program runs.
    #[serde(with = "keys", skip_serializing_if = "BTreeSet::is_empty")]
    pub volumes: BTreeSet<String>,
    /// Where the program starts; empty means `/`.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// Notes.
    #[serde(
        deserialize_with = "or_null",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// What asks the program to end, where it is not `SIGTERM`.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    /// How to find out whether the program is well (Docker's).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
    /// What the shell form of commands is run by, where it is not `/bin/sh -c` (Docker's).
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub shell: Vec<String>,
    /// Instructions to follow when another image is built on this one (Docker's).
    #[serde(deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub on_build: Vec<String>,
    /// That the command is one text already, which only Windows cares about.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "is_false")]
    pub args_escaped: bool,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Docker's health check. Times are in nanoseconds, and 0 means the default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Healthcheck {
    /// `NONE`; `CMD` and a command; or `CMD-SHELL` and a script. Empty inherits the base's.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<String>,
    /// Between two checks.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "is_zero")]
    pub interval: i64,
    /// How long one may take.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "is_zero")]
    pub timeout: i64,
    /// How long failures do not count at the start.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "is_zero")]
    pub start_period: i64,
    /// Between two checks at the start.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "is_zero")]
    pub start_interval: i64,
    /// How many failures in a row count.
    #[serde(deserialize_with = "or_null", skip_serializing_if = "is_zero")]
    pub retries: i64,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The layers of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RootFs {
    /// `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The digests of the uncompressed layers, from the lowest up.
    #[serde(deserialize_with = "or_null")]
    pub diff_ids: Vec<Digest>,
}

impl Default for RootFs {
    fn default() -> Self {
        Self {
            kind: "layers".to_owned(),
            diff_ids: Vec::new(),
        }
    }
}

/// One step by which an image came to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// When, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// By what command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// A note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// That it made no layer.
    #[serde(
        default,
        deserialize_with = "or_null",
        skip_serializing_if = "is_false"
    )]
    pub empty_layer: bool,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl ImageConfig {
    /// Of an image without layers, for one kind of machine.
    pub fn empty(platform: &Platform) -> Self {
        Self {
            created: None,
            author: String::new(),
            architecture: platform.architecture.clone(),
            variant: platform.variant.clone(),
            os: platform.os.clone(),
            config: RunConfig::default(),
            rootfs: RootFs::default(),
            history: Vec::new(),
            rest: Map::new(),
        }
    }

    /// Reads one. How long it may be is for the caller to say ([`crate::manifest::MAX_CONFIG`]).
    ///
    /// # Errors
    /// When it is not JSON, or a field has another type than it should.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The bytes whose digest names the image.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps with texts for keys can be written as JSON")
    }

    /// For what kind of machine it is.
    pub fn platform(&self) -> Platform {
        Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone(),
        }
    }
}

impl RunConfig {
    /// What a variable is set to.
    pub fn env(&self, name: &str) -> Option<&str> {
        // A program that finds a name twice takes the first, but Docker's own reading makes a map: the last one counts.
        self.env_pairs()
            .filter(|(key, _)| *key == name)
            .last()
            .map(|(_, value)| value)
    }

    /// All variables. One without `=` is empty.
    pub fn env_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env
            .iter()
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// Sets a variable, at the place where it was if it had been set before.
    pub fn set_env(&mut self, name: &str, value: &str) {
        let pair = format!("{name}={value}");
        let mut places = self
            .env
            .iter_mut()
            .filter(|old| old.split_once('=').map_or(old.as_str(), |(key, _)| key) == name);
        match places.next() {
            Some(place) => *place = pair,
            None => self.env.push(pair),
        }
    }

    /// What the shell form of commands is run by.
    pub fn shell(&self) -> Vec<String> {
        if self.shell.is_empty() {
            vec!["/bin/sh".to_owned(), "-c".to_owned()]
        } else {
            self.shell.clone()
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// Go writes `null` for a list or map that was never made.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A command. Docker takes a single text for a command of one word, since old versions of it wrote that.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        Many(Vec<String>),
        One(String),
    }
    Ok(match Option::deserialize(deserializer)? {
        Some(Words::Many(words)) => words,
        Some(Words::One(word)) => vec![word],
        None => Vec::new(),
    })
}

/// Go's way to write a set: a map to empty maps.
mod keys {
    use super::*;
    use serde::de::IgnoredAny;

    pub(super) fn serialize<S: Serializer>(
        set: &BTreeSet<String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(set.iter().map(|key| (key, Map::<String, Value>::new())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeSet<String>, D::Error> {
        let map: Option<BTreeMap<String, IgnoredAny>> = Option::deserialize(deserializer)?;
        Ok(map.unwrap_or_default().into_keys().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> ImageConfig {
        ImageConfig::parse(value.to_string().as_bytes()).unwrap_or_else(|e| panic!("{value}: {e}"))
    }

    fn written(config: &ImageConfig) -> Value {
        serde_json::from_slice(&config.to_bytes()).expect("it is JSON")
    }

    #[test]
    fn what_is_read_is_written_again() {
        let whole = json!({
            "architecture": "arm64", "variant": "v8", "os": "linux", "os.version": "1", "created": "2024-01-02T03:04:05Z",
            "author": "somebody",
            "config": {
                "Hostname": "x", "User": "1000:1000", "ExposedPorts": {"80/tcp": {}, "53/udp": {}},
                "Env": ["PATH=/bin", "B=", "A=1=2"], "Entrypoint": ["/init"], "Cmd": ["a", "b c"],
                "Volumes": {"/data": {}}, "WorkingDir": "/w", "Labels": {"k": "v"}, "StopSignal": "SIGINT",
                "Healthcheck": {"Test": ["CMD", "true"], "Interval": 5_000_000_000_i64, "Retries": 3},
                "Shell": ["/bin/bash", "-c"], "OnBuild": ["RUN x"], "ArgsEscaped": true,
            },
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(b"x").to_string()]},
            "history": [
                {"created": "2024-01-02T03:04:05Z", "created_by": "COPY", "comment": "buildkit"},
                {"empty_layer": true, "author": "me", "strange": 1},
            ],
            "moby.buildkit.cache.v0": "abc", "docker_version": "20",
        });
        let config = read(&whole);
        assert_eq!(config.config.env("A"), Some("1=2"));
        assert_eq!(config.config.shell(), ["/bin/bash", "-c"]);
        assert_eq!(config.platform().to_string(), "linux/arm64/v8");
        assert_eq!(written(&config), whole);
    }

    #[test]
    fn null_is_as_good_as_nothing() {
        let config = read(&json!({
            "architecture": "amd64", "os": "linux", "variant": null, "created": null, "history": null,
            "config": {
                "User": null, "ExposedPorts": null, "Env": null, "Entrypoint": null, "Cmd": "one", "Volumes": null,
                "WorkingDir": null, "Labels": null, "StopSignal": null, "Healthcheck": null, "Shell": null,
                "OnBuild": null, "ArgsEscaped": null,
            },
            "rootfs": {"type": "layers", "diff_ids": null},
        }));
        assert_eq!(config.config.cmd, ["one"]);
        assert_eq!(
            written(&config),
            json!({
                "architecture": "amd64", "os": "linux", "config": {"Cmd": ["one"]},
                "rootfs": {"type": "layers", "diff_ids": []},
            })
        );
        for least in [json!({}), json!({"config": null, "rootfs": null})] {
            assert_eq!(read(&least).config, RunConfig::default());
        }
        for bad in [
            "",
            "[]",
            r#"{"config":{"Env":[1]}}"#,
            r#"{"rootfs":{"diff_ids":["x"]}}"#,
        ] {
            assert!(ImageConfig::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_variable_keeps_its_place() {
        let mut config = RunConfig::default();
        for (name, value) in [
            ("PATH", "/bin"),
            ("A", "1"),
            ("PATH", "/usr/bin"),
            ("PA", ""),
        ] {
            config.set_env(name, value);
        }
        assert_eq!(config.env, ["PATH=/usr/bin", "A=1", "PA="]);
        assert_eq!(config.env("PA"), Some(""));
        assert_eq!(config.env("P"), None);
    }
}
