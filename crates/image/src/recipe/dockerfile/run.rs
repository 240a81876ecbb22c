//! `RUN`: its forms, mounts and network (<https://docs.docker.com/reference/dockerfile/#run>).

use super::paths;
use super::resolve::Place;
use super::syntax::Args;
use crate::recipe::error::{DockerfileErrorKind as Kind, near};
use crate::recipe::step::{Origin, PROXIES, Run, RunForm, RunMount, RunNetwork, Sharing};

const KEYS: &[&str] = &[
    "type",
    "from",
    "source",
    "src",
    "target",
    "dst",
    "destination",
    "ro",
    "readonly",
    "rw",
    "readwrite",
    "id",
    "sharing",
    "size",
    "mode",
    "uid",
    "gid",
    "required",
    "env",
];

impl Place<'_> {
    pub(super) fn run(&self) -> Result<Run, Kind> {
        let instruction = self.instruction;
        match instruction.flag_text("security")? {
            None | Some("sandbox") => {}
            Some(_) => {
                return Err(Kind::Unsupported {
                    what: "RUN --security",
                    instead: "a build never gets more rights than its sandbox has, so leave the flag out",
                });
            }
        }
        if instruction.flag("device").is_some() {
            return Err(Kind::Unsupported {
                what: "RUN --device",
                instead: "a build has no devices of the host, so leave the flag out",
            });
        }
        let network = match instruction.flag_text("network")? {
            None | Some("default") => RunNetwork::Default,
            Some("none") => RunNetwork::None,
            Some("host") => RunNetwork::Host,
            Some(found) => {
                return Err(Kind::Value {
                    what: "network",
                    found: found.to_owned(),
                    expected: "default, none or host",
                });
            }
        };
        let mounts = instruction.flag_texts("mount")?;
        let mounts = mounts.into_iter().map(|text| self.mount(text));
        let mounts = mounts.collect::<Result<_, _>>()?;
        Ok(Run {
            form: self.form()?,
            env: self.run_env(),
            mounts,
            network,
        })
    }

    fn form(&self) -> Result<RunForm, Kind> {
        let instruction = self.instruction;
        let script = match &instruction.args {
            Args::Json(argv) if !argv.is_empty() => return Ok(RunForm::Exec(argv.clone())),
            Args::Text(text) if !text.is_empty() => text,
            _ => return Err(instruction.needs("a command")),
        };
        let script = if instruction.is_one_heredoc() {
            let heredoc = &instruction.heredocs[0];
            let content = heredoc.content();
            if content.starts_with("#!") {
                let name = heredoc.name.clone();
                return Ok(RunForm::File { name, content });
            }
            content
        } else {
            // The shell knows heredocs itself.
            let mut script = script.clone();
            for heredoc in &instruction.heredocs {
                script.push_str(&format!("\n{}{}", heredoc.raw, heredoc.name));
            }
            if !instruction.heredocs.is_empty() {
                script.push('\n');
            }
            script
        };
        let shell = Vec::new();
        Ok(RunForm::Shell { script, shell })
    }

    fn run_env(&self) -> Vec<(String, String)> {
        let mut env = self.scope.visible_args();
        for (name, value) in &self.common.build_args {
            if PROXIES.contains(&name.to_ascii_uppercase().as_str())
                && self.scope.lookup(name).is_none()
            {
                env.push((name.clone(), value.clone()));
            }
        }
        env
    }

    fn mount(&self, text: &str) -> Result<RunMount, Kind> {
        let mut fields = Vec::new();
        for (key, value) in fields_of(text)? {
            let value = match value {
                // Where files come from says which stages are needed, before variables have values.
                Some(value) if key != "from" => Some(self.expand(&value)?),
                value => value,
            };
            fields.push((key, value));
        }
        let fields = Fields(fields);
        let from = match fields.text(&["from"]) {
            Some(text) => Some(self.common.from(text, self.stage, "from=")?),
            None => None,
        };
        fields.mount(from)
    }
}

/// From where a mount's content is, as it is written.
pub(super) fn mount_from(text: &str) -> Result<Option<String>, Kind> {
    let fields = Fields(fields_of(text)?);
    Ok(fields.text(&["from"]).map(str::to_owned))
}

struct Fields(Vec<(&'static str, Option<String>)>);

impl Fields {
    fn text(&self, keys: &[&str]) -> Option<&str> {
        let found = self.0.iter().rev().find(|(key, _)| keys.contains(key));
        found
            .and_then(|(_, value)| value.as_deref())
            .filter(|value| !value.is_empty())
    }

    fn switch(&self, keys: &[&'static str]) -> Result<Option<bool>, Kind> {
        match self.0.iter().rev().find(|(key, _)| keys.contains(key)) {
            None => Ok(None),
            Some((key, value)) => match value.as_deref() {
                None | Some("true" | "1") => Ok(Some(true)),
                Some("false" | "0") => Ok(Some(false)),
                Some(found) => Err(Kind::Value {
                    what: key,
                    found: found.to_owned(),
                    expected: "true or false",
                }),
            },
        }
    }

    /// Whether it can be written to, which is said in either way.
    fn writable(&self, default: bool) -> Result<bool, Kind> {
        let read_only = self.switch(&["ro", "readonly"])?;
        let writable = self.switch(&["rw", "readwrite"])?;
        Ok(read_only
            .map(|read_only| !read_only)
            .or(writable)
            .unwrap_or(default))
    }

    fn target(&self) -> Result<String, Kind> {
        self.text(&["target", "dst", "destination"])
            .map(str::to_owned)
            .ok_or(Kind::Arguments {
                instruction: "RUN --mount",
                expected: "a target",
            })
    }

    fn source(&self) -> Result<String, Kind> {
        paths::source(self.text(&["source", "src"]).unwrap_or("/"), false)
    }

    fn number(&self, key: &'static str) -> Result<u32, Kind> {
        self.text(&[key]).map_or(Ok(0), |text| paths::id(key, text))
    }

    fn mount(&self, from: Option<Origin>) -> Result<RunMount, Kind> {
        match self.text(&["type"]).unwrap_or("bind") {
            "bind" => Ok(RunMount::Bind {
                from: from.unwrap_or(Origin::Context),
                source: self.source()?,
                target: self.target()?,
                writable: self.writable(false)?,
            }),
            "cache" => {
                let target = self.target()?;
                let mode = self.text(&["mode"]).map(|text| paths::mode("mode", text));
                Ok(RunMount::Cache {
                    id: self.text(&["id"]).unwrap_or(&target).to_owned(),
                    sharing: self.sharing()?,
                    from,
                    source: self.source()?,
                    read_only: !self.writable(true)?,
                    uid: self.number("uid")?,
                    gid: self.number("gid")?,
                    mode: mode.transpose()?.unwrap_or(0o755),
                    target,
                })
            }
            "tmpfs" => Ok(RunMount::Tmpfs {
                target: self.target()?,
                size: self.text(&["size"]).map(paths::size).transpose()?,
            }),
            "secret" => Err(Kind::Unsupported {
                what: "RUN --mount=type=secret",
                instead: "put what the build needs into a stage that the image takes only files from",
            }),
            "ssh" => Err(Kind::Unsupported {
                what: "RUN --mount=type=ssh",
                instead: "fetch what it is for before the build, into the folder that is built",
            }),
            found => Err(Kind::Value {
                what: "the type of a mount",
                found: found.to_owned(),
                expected: "bind, cache or tmpfs",
            }),
        }
    }

    fn sharing(&self) -> Result<Sharing, Kind> {
        match self.text(&["sharing"]) {
            None | Some("shared") => Ok(Sharing::Shared),
            Some("private") => Ok(Sharing::Private),
            Some("locked") => Ok(Sharing::Locked),
            Some(found) => Err(Kind::Value {
                what: "sharing",
                found: found.to_owned(),
                expected: "shared, private or locked",
            }),
        }
    }
}

/// The fields of a mount, with commas between. One with a comma in it stands in double quotes.
fn fields_of(text: &str) -> Result<Vec<(&'static str, Option<String>)>, Kind> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("there is one").push(c),
        }
    }
    let fields = fields.into_iter().map(|field| {
        let (key, value) = match field.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (field.as_str(), None),
        };
        let key = key.trim().to_lowercase();
        match KEYS.iter().find(|known| **known == key) {
            Some(known) => Ok((*known, value)),
            None => Err(Kind::UnknownField {
                near: near(&key, KEYS.iter().copied()),
                found: key,
            }),
        }
    });
    fields.collect()
}
