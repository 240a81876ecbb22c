//! Names of images, read as Docker reads them (`distribution/reference`).

use std::fmt;
use std::str::FromStr;

use cosm_base::text::quoted;

use crate::digest::Digest;

/// Where a name without a host points.
pub const DEFAULT_HOST: &str = "docker.io";
/// The tag of a name that has neither tag nor digest.
pub const DEFAULT_TAG: &str = "latest";
/// Names may be this long, without tag and digest.
const MAX_NAME: usize = 255;

/// An image in a registry: host, repository, and a tag, a digest or both. With both, the digest says what it is and the
/// tag is decoration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Why a text names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("an image's name can't be empty")]
    Empty,
    #[error("{} is not the name of an image: {why}", quoted(.text))]
    Syntax { text: String, why: &'static str },
    #[error(
        "{} is not the name of an image: repositories are in lower case, as in {}",
        quoted(.0),
        quoted(.0.to_lowercase())
    )]
    UpperCase(String),
    #[error("{} can't name an image: 64 hexadecimal digits are an id", quoted(.0))]
    LooksLikeId(String),
}

impl Reference {
    /// The registry's host, perhaps with a port; `docker.io` where the name has none.
    pub fn host(&self) -> &str {
        &self.host
    }
    /// The repository at the host; `library/python` for `python`.
    pub fn repository(&self) -> &str {
        &self.repository
    }
    /// The tag, `latest` where there is neither tag nor digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }
    /// The manifest's digest, where the name has one.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }
    /// What a registry is asked for: the digest, or else the tag.
    pub fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }
    /// The same repository, with this digest alone.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self {
            tag: None,
            digest: Some(digest),
            ..self.clone()
        }
    }
    /// The name without tag and digest, whole: `docker.io/library/python`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }
    /// As people write it: without what goes without saying.
    pub fn familiar(&self) -> String {
        let mut text = self.familiar_name();
        if let Some(tag) = &self.tag {
            text.push(':');
            text.push_str(tag);
        }
        if let Some(digest) = self.digest {
            text.push('@');
            text.push_str(&digest.to_string());
        }
        text
    }
    /// The name without tag and digest, as people write it: `python`.
    pub fn familiar_name(&self) -> String {
        if self.host != DEFAULT_HOST {
            return self.name();
        }
        match self.repository.strip_prefix("library/") {
            Some(short) if !short.contains('/') => short.to_owned(),
            _ => self.repository.clone(),
        }
    }
}

impl fmt::Display for Reference {
    /// Whole: `docker.io/library/python:3.12`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        let syntax = |why| ReferenceError::Syntax {
            text: text.to_owned(),
            why,
        };
        if Digest::from_hex(text).is_ok() {
            return Err(ReferenceError::LooksLikeId(text.to_owned()));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = digest
                    .parse()
                    .map_err(|_| syntax("after @ comes sha256: and 64 hexadecimal digits"))?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        // A colon after the last slash is a tag's, one before it a port's.
        let name_end = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest[name_end..].find(':') {
            Some(colon) => {
                let (name, tag) = rest.split_at(name_end + colon);
                (name, Some(&tag[1..]))
            }
            None => (rest, None),
        };
        if let Some(tag) = tag
            && !is_tag(tag)
        {
            return Err(syntax(
                "a tag is 1 to 128 letters, digits, dots, dashes and underscores, and starts with none of . and -",
            ));
        }
        let (host, repository) = match name.split_once('/') {
            // Docker takes the first part for a host if it could be none of its own repositories.
            Some((first, rest))
                if first.contains(['.', ':'])
                    || first == "localhost"
                    || first.chars().any(|c| c.is_ascii_uppercase()) =>
            {
                (first, rest)
            }
            _ => (DEFAULT_HOST, name),
        };
        if !is_host(host) {
            return Err(syntax(
                "its host is not one: names of letters, digits and dashes with dots between, perhaps a port",
            ));
        }
        if repository.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(ReferenceError::UpperCase(text.to_owned()));
        }
        if repository.is_empty() || !repository.split('/').all(is_component) {
            return Err(syntax(
                "a repository is lower-case letters and digits, with single dots, dashes or underscores between, in parts with / between",
            ));
        }
        let host = if host == "index.docker.io" {
            DEFAULT_HOST
        } else {
            host
        };
        let repository = if host == DEFAULT_HOST && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        if host.len() + 1 + repository.len() > MAX_NAME {
            return Err(syntax("it is longer than 255 bytes"));
        }
        let tag = match (tag, digest) {
            (None, None) => Some(DEFAULT_TAG.to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Self {
            host: host.to_owned(),
            repository,
            tag,
            digest,
        })
    }
}

/// Docker's and OCI's rule.
pub(crate) fn is_tag(tag: &str) -> bool {
    tag.len() <= 128
        && tag
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        && !tag.is_empty()
        && !tag.starts_with(['.', '-'])
}

/// Letters and digits, with `.`, `_`, `__` or any number of dashes between.
fn is_component(part: &str) -> bool {
    let mut rest = part;
    loop {
        let word = rest
            .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()))
            .unwrap_or(rest.len());
        if word == 0 {
            return false;
        }
        rest = &rest[word..];
        if rest.is_empty() {
            return true;
        }
        let separator = rest
            .find(|c: char| !matches!(c, '.' | '_' | '-'))
            .unwrap_or(rest.len());
        let between = &rest[..separator];
        if !(matches!(between, "." | "_" | "__") || between.bytes().all(|b| b == b'-')) {
            return false;
        }
        rest = &rest[separator..];
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => (address, None),
            Some((address, port)) => match port.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None => return false,
            },
            None => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    if let Some(port) = port
        && !(port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok())
    {
        return false;
    }
    if host.starts_with('[') {
        return name.parse::<std::net::Ipv6Addr>().is_ok();
    }
    name.split('.').all(|label| {
        label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &str) -> String {
        text.parse::<Reference>()
            .unwrap_or_else(|e| panic!("{text}: {e}"))
            .to_string()
    }

    #[test]
    fn names_are_read_as_docker_reads_them() {
        let digest = Digest::of(b"x");
        for (text, expected) in [
            ("python", "docker.io/library/python:latest"),
            ("python:3.12", "docker.io/library/python:3.12"),
            ("docker.io/python", "docker.io/library/python:latest"),
            ("index.docker.io/python", "docker.io/library/python:latest"),
            ("org/app", "docker.io/org/app:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000/app", "localhost:5000/app:latest"),
            ("localhost:5000", "docker.io/library/localhost:5000"),
            ("ghcr.io/org/app:v1", "ghcr.io/org/app:v1"),
            ("Host/app", "Host/app:latest"),
            ("[::1]:5000/app", "[::1]:5000/app:latest"),
            ("a.b/c/d/e__f-g---h.i:T_1", "a.b/c/d/e__f-g---h.i:T_1"),
        ] {
            assert_eq!(whole(text), expected, "{text}");
        }
        assert_eq!(
            whole(&format!("python@{digest}")),
            format!("docker.io/library/python@{digest}")
        );
        assert_eq!(
            whole(&format!("python:3@{digest}")),
            format!("docker.io/library/python:3@{digest}")
        );
        let long = format!("a.b/{}", "c".repeat(251));
        assert_eq!(whole(&long), format!("{long}:latest"));
    }

    #[test]
    fn what_is_no_name_says_why() {
        let long = format!("a.b/{}", "c".repeat(252));
        for bad in [
            "",
            ":",
            "@",
            "/",
            "a/",
            "/a",
            "a//b",
            "a:",
            "a:b:c",
            "a:-x",
            "a:.x",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "a._b",
            "Python",
            "docker.io/Python",
            "a@sha256:12",
            "a@md5:12",
            "a b",
            "a\nb",
            "../a",
            "a/../b",
            "host.:99999/a",
            "h:1x/a",
            "[::1/a",
            "[x]/a",
            "x_y.z/a",
            "a.b:/c d",
            "ä",
            &long,
            &Digest::of(b"").hex(),
        ] {
            let error = bad.parse::<Reference>().expect_err(bad);
            assert!(!error.to_string().is_empty());
        }
        assert_eq!(
            "Python:3".parse::<Reference>().unwrap_err().to_string(),
            r#""Python:3" is not the name of an image: repositories are in lower case, as in "python:3""#
        );
    }

    #[test]
    fn familiar_names() {
        for text in [
            "python:3.12",
            "org/app:1",
            "ghcr.io/x/y:1",
            "localhost:5000/a:b",
        ] {
            assert_eq!(text.parse::<Reference>().expect(text).familiar(), text);
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_read_is_read_again(text in "[a-zA-Z0-9./:@_-]{0,40}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(&whole(&reference.to_string()), &reference.to_string());
                prop_assert_eq!(&whole(&reference.familiar()), &reference.to_string());
            }
        }
    }
}
