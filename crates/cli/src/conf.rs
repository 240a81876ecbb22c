//! The settings file of `--conf`: YAML with strict keys. Reading it is a pure function of its text and a look-up of
//! `${NAME}`.
//!
//! Text is expanded after the YAML has been read, so that no value can add structure. `${NAME}` is the only expansion;
//! `$${NAME}` stands for the text `${NAME}`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What a settings file may hold. Each key means what the option of the same name means.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Conf {
    pub(crate) name: Option<String>,
    pub(crate) image: Option<String>,
    pub(crate) command: Option<Vec<String>>,
    /// By name.
    pub(crate) env: BTreeMap<String, Scalar>,
    pub(crate) env_file: Vec<String>,
    pub(crate) workdir: Option<String>,
    pub(crate) user: Option<Scalar>,
    pub(crate) hostname: Option<String>,
    pub(crate) shell: Option<String>,
    /// Script texts by name.
    pub(crate) scripts: BTreeMap<String, String>,
    /// As `--mount` has them.
    pub(crate) mounts: Vec<String>,
    pub(crate) mount_prefix: Vec<String>,
    pub(crate) tmpfs: Vec<String>,
    pub(crate) devices: Vec<String>,
    pub(crate) labels: BTreeMap<String, Scalar>,
    pub(crate) memory: Option<Scalar>,
    pub(crate) cpus: Option<Scalar>,
    pub(crate) pids: Option<Scalar>,
    pub(crate) disk: Option<Scalar>,
    pub(crate) log_size: Option<Scalar>,
    /// `SOFT` or `SOFT:HARD` by name.
    pub(crate) rlimits: BTreeMap<String, Scalar>,
    pub(crate) timeout: Option<Scalar>,
    pub(crate) max_duration: Option<Scalar>,
    pub(crate) idle_timeout: Option<Scalar>,
    pub(crate) stop_timeout: Option<Scalar>,
    pub(crate) net: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) isolation: Option<String>,
    pub(crate) ids: Option<String>,
    pub(crate) io_uring: Option<bool>,
    pub(crate) here: Option<String>,
}

/// A text, a number or a truth value, as a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Scalar(pub String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or a number")
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }
            fn visit_bool<E>(self, yes: bool) -> Result<Scalar, E> {
                Ok(Scalar(yes.to_string()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Why a settings file can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfError {
    #[error("it is not valid")]
    Yaml(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{key}: {source}")]
    Expand {
        key: String,
        #[source]
        source: ExpandError,
    },
}

/// Why a text can't be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpandError {
    #[error("${{{0}}} is not set in the environment")]
    Unset(String),
    #[error("${{{0}}} is not a name of letters, digits and '_' (write $${{ for a plain ${{)")]
    Name(String),
    #[error("a ${{ is not closed")]
    Open,
}

/// Reads a settings file.
///
/// # Errors
/// It is no YAML, has a key that is not known, or names a variable that is not set.
pub(crate) fn parse(
    text: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Conf, ConfError> {
    if text.trim().is_empty() {
        return Ok(Conf::default());
    }
    let mut conf: Conf = serde_saphyr::from_str(text).map_err(|e| ConfError::Yaml(Box::new(e)))?;
    conf.each_text(&mut |key, text| {
        *text = expand(text, &lookup).map_err(|source| ConfError::Expand {
            key: key.to_owned(),
            source,
        })?;
        Ok(())
    })?;
    Ok(conf)
}

type Visit<'a> = &'a mut dyn FnMut(&str, &mut String) -> Result<(), ConfError>;

impl Conf {
    fn each_text(&mut self, visit: Visit<'_>) -> Result<(), ConfError> {
        for (key, text) in [
            ("name", &mut self.name),
            ("image", &mut self.image),
            ("workdir", &mut self.workdir),
            ("hostname", &mut self.hostname),
            ("shell", &mut self.shell),
            ("net", &mut self.net),
            ("profile", &mut self.profile),
            ("isolation", &mut self.isolation),
            ("ids", &mut self.ids),
            ("here", &mut self.here),
        ] {
            text.iter_mut().try_for_each(|text| visit(key, text))?;
        }
        for (key, scalar) in [
            ("user", &mut self.user),
            ("memory", &mut self.memory),
            ("cpus", &mut self.cpus),
            ("pids", &mut self.pids),
            ("disk", &mut self.disk),
            ("log-size", &mut self.log_size),
            ("timeout", &mut self.timeout),
            ("max-duration", &mut self.max_duration),
            ("idle-timeout", &mut self.idle_timeout),
            ("stop-timeout", &mut self.stop_timeout),
        ] {
            scalar
                .iter_mut()
                .try_for_each(|scalar| visit(key, &mut scalar.0))?;
        }
        for (key, list) in [
            ("env-file", &mut self.env_file),
            ("mounts", &mut self.mounts),
            ("mount-prefix", &mut self.mount_prefix),
            ("tmpfs", &mut self.tmpfs),
            ("devices", &mut self.devices),
        ] {
            list.iter_mut().try_for_each(|text| visit(key, text))?;
        }
        self.command
            .iter_mut()
            .flatten()
            .try_for_each(|text| visit("command", text))?;
        for (key, map) in [
            ("env", &mut self.env),
            ("labels", &mut self.labels),
            ("rlimits", &mut self.rlimits),
        ] {
            map.values_mut()
                .try_for_each(|scalar| visit(key, &mut scalar.0))?;
        }
        // Scripts are programs with dollar signs of their own: they are taken as they are.
        Ok(())
    }
}

/// Replaces each `${NAME}`.
///
/// # Errors
/// See [`ExpandError`].
pub(crate) fn expand(
    text: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<String, ExpandError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            // "$${": the first dollar goes, the rest is plain.
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let end = inner.find('}').ok_or(ExpandError::Open)?;
        let name = &inner[..end];
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !first || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(ExpandError::Name(name.to_owned()));
        }
        out.push_str(&lookup(name).ok_or_else(|| ExpandError::Unset(name.to_owned()))?);
        rest = &inner[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lookup(name: &str) -> Option<String> {
        (name == "HOME").then(|| "/home/u: [x".to_owned())
    }

    #[test]
    fn a_whole_file() {
        let conf = parse(
            "image: ${HOME}/rootfs\nenv: {A: 1, B: \"$${HOME}\", C: true}\nmemory: 512m\ncpus: 1.5\n\
             mounts:\n  - /a:/b:rw\ncommand: [sh, -c, 'echo $HOME']\nscripts:\n  hi: |\n    echo ${HOME}\nlabels: {team: ci}\n",
            lookup,
        )
        .expect("valid");
        assert_eq!(conf.image.as_deref(), Some("/home/u: [x/rootfs"));
        assert_eq!(conf.env["B"].0, "${HOME}");
        assert_eq!(
            (conf.env["A"].0.as_str(), conf.env["C"].0.as_str()),
            ("1", "true")
        );
        assert_eq!(conf.cpus, Some(Scalar("1.5".into())));
        assert_eq!(conf.command.expect("given")[2], "echo $HOME");
        assert_eq!(conf.scripts["hi"], "echo ${HOME}\n");
    }

    #[test]
    fn keys_are_strict() {
        let error = parse("memroy: 1g\n", lookup).expect_err("a typo");
        let source = std::error::Error::source(&error)
            .expect("the cause")
            .to_string();
        assert!(source.contains("memroy"), "{source}");
        assert!(parse("- a\n", lookup).is_err());
        assert!(parse("memory: [1]\n", lookup).is_err());
        assert_eq!(parse(" \n", lookup).expect("empty"), Conf::default());
    }

    #[test]
    fn only_names_are_expanded() {
        assert_eq!(
            expand("$HOME `x` $(y) $$", lookup),
            Ok("$HOME `x` $(y) $$".into())
        );
        assert_eq!(
            expand("${NO}", lookup),
            Err(ExpandError::Unset("NO".into()))
        );
        assert_eq!(expand("${HOME", lookup), Err(ExpandError::Open));
        assert_eq!(
            expand("${HOME:-x}", lookup),
            Err(ExpandError::Name("HOME:-x".into()))
        );
        assert_eq!(expand("${}", lookup), Err(ExpandError::Name(String::new())));
    }

    proptest! {
        #[test]
        fn nothing_panics(text: String) {
            let _conf = parse(&text, lookup).is_ok();
            let _text = expand(&text, lookup).is_ok();
        }

        #[test]
        fn text_without_braces_stays(text in "[^{]*") {
            prop_assert_eq!(expand(&text, lookup), Ok(text));
        }
    }
}
