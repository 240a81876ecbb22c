//! Kinds of machine.

use std::fmt;
use std::str::FromStr;

use cosm_base::text::quoted;
use serde::{Deserialize, Serialize};

use crate::manifest::{Descriptor, Index};

/// What an image runs on, in Go's words as registries have them: `linux/amd64`, `linux/arm/v7`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// The operating system.
    pub os: String,
    /// The processor: `amd64`, `arm64`, `arm`, `386`, `ppc64le`, `riscv64`, `s390x`, ...
    pub architecture: String,
    /// Its generation: `v7`, `v8`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// Why a text names no platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not a platform: write an operating system and a processor, such as linux/arm64", quoted(.0))]
pub struct PlatformError(String);

impl Platform {
    /// This machine's.
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            other => other,
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        }
    }

    /// How well an image for `offered` runs on this one: `None` not at all, else the lower the better.
    fn distance(&self, offered: &Self) -> Option<u32> {
        if offered.os != self.os || offered.architecture != self.architecture {
            return None;
        }
        let level = |platform: &Self| -> u32 {
            let default = match platform.architecture.as_str() {
                "arm64" => 8,
                "arm" => 7,
                "amd64" => 1,
                _ => 0,
            };
            platform
                .variant
                .as_deref()
                .and_then(|variant| variant.strip_prefix('v')?.parse().ok())
                .unwrap_or(default)
        };
        // What is made for an older generation runs on a newer one.
        level(self).checked_sub(level(offered))
    }

    /// The best match in an index; none of two equal ones is better than the first.
    pub fn choose<'a>(&self, index: &'a Index) -> Option<&'a Descriptor> {
        index
            .manifests
            .iter()
            .filter_map(|d| Some((self.distance(d.platform.as_ref()?)?, d)))
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, descriptor)| descriptor)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let bad = || PlatformError(text.to_owned());
        let parts: Vec<&str> = text.split('/').collect();
        let word = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        };
        if !parts.iter().all(|part| word(part)) {
            return Err(bad());
        }
        let (os, architecture, variant) = match parts[..] {
            [architecture] => ("linux", architecture, None),
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => return Err(bad()),
        };
        let architecture = match architecture {
            "x86_64" | "x86-64" => "amd64",
            "aarch64" => "arm64",
            "i386" | "i686" => "386",
            "linux" => return Err(bad()),
            other => other,
        };
        Ok(Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn offered(platforms: &[&str]) -> Index {
        Index {
            schema_version: 2,
            media_type: None,
            manifests: platforms
                .iter()
                .map(|text| Descriptor {
                    media_type: String::new(),
                    digest: Digest::of(text.as_bytes()),
                    size: 1,
                    platform: text.parse().ok(),
                    annotations: Default::default(),
                })
                .collect(),
            annotations: Default::default(),
        }
    }

    #[test]
    fn the_nearest_is_chosen() {
        for (wanted, platforms, expected) in [
            (
                "linux/amd64",
                vec!["", "linux/arm64", "linux/amd64"],
                Some("linux/amd64"),
            ),
            ("amd64", vec!["windows/amd64", "linux/amd64/v3"], None),
            (
                "linux/amd64/v3",
                vec!["linux/amd64", "linux/amd64/v2"],
                Some("linux/amd64/v2"),
            ),
            (
                "linux/arm64",
                vec!["linux/arm/v7", "linux/arm64/v8"],
                Some("linux/arm64/v8"),
            ),
            (
                "linux/arm/v7",
                vec!["linux/arm/v5", "linux/arm/v6", "linux/arm64"],
                Some("linux/arm/v6"),
            ),
            ("linux/riscv64", vec!["linux/amd64"], None),
        ] {
            let platform: Platform = wanted.parse().expect(wanted);
            let index = offered(&platforms);
            assert_eq!(
                platform.choose(&index).map(|d| d.digest),
                expected.map(|text| Digest::of(text.as_bytes())),
                "{wanted}"
            );
        }
        for bad in ["", "linux", "a/b/c/d", "linux/", "li nux/x"] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
    }
}
