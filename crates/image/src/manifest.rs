//! Manifests, indexes and descriptors: OCI image spec 1.1 and Docker's manifest, version 2, schema 2, which say the same
//! in other media types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::platform::Platform;

/// The media types that are read and written.
pub mod media {
    pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
    pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
    pub const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    pub const OCI_LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
    pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
    pub const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
    pub const DOCKER_SCHEMA_1: &str = "application/vnd.docker.distribution.manifest.v1+prettyjws";
}

/// The largest manifest or index that is read: what registries commonly take.
pub const MAX_MANIFEST: u64 = 4 << 20;
/// The largest configuration that is read.
pub const MAX_CONFIG: u64 = 8 << 20;
/// The most layers that an image may have: overlayfs stacks 500.
pub const MAX_LAYERS: usize = 499;

/// Why the bytes of a manifest can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("it is not JSON of the expected form: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it is of the type {0}, which is not an image")]
    NotAnImage(String),
    #[error(
        "it is in Docker's old format (schema 1), which registries convert when the image is pushed again"
    )]
    SchemaOne,
    #[error("a layer is of the type {0}, which can't be unpacked")]
    LayerType(String),
    #[error("it has {0} layers, more than the {MAX_LAYERS} that can be stacked")]
    TooManyLayers(usize),
    #[error("it has {layers} layers, and its configuration {diff_ids} digests of layers")]
    LayerCount {
        /// Layers in the manifest.
        layers: usize,
        /// Entries of `rootfs.diff_ids`.
        diff_ids: usize,
    },
}

/// Some content, somewhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// Its name.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// For what kind of machine, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Notes, such as the tag in a layout.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// One image: its configuration, and its layers from the lowest up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 2.
    pub schema_version: u32,
    /// What this is; older OCI manifests do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    /// The layers, from the lowest up.
    pub layers: Vec<Descriptor>,
    /// Notes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Several images for several kinds of machine, or further indexes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// 2.
    pub schema_version: u32,
    /// What this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// What it lists.
    pub manifests: Vec<Descriptor>,
    /// Notes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What a name led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// One image.
    Manifest(Manifest),
    /// Several to choose from.
    Index(Index),
}

impl Found {
    /// Reads a manifest or an index. What the bytes say of themselves counts more than `said`, the media type that they
    /// came with, and a document that could be read as both is refused (CVE-2021-41190).
    ///
    /// # Errors
    /// [`ManifestError`] when it is neither.
    pub fn parse(bytes: &[u8], said: Option<&str>) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            schema_version: Option<u32>,
            media_type: Option<String>,
            manifests: Option<serde::de::IgnoredAny>,
            config: Option<serde::de::IgnoredAny>,
            layers: Option<serde::de::IgnoredAny>,
        }
        let shape: Shape = serde_json::from_slice(bytes)?;
        if shape.schema_version == Some(1) {
            return Err(ManifestError::SchemaOne);
        }
        let kind = shape.media_type.as_deref().or(said.filter(|said| {
            // Registries of files and proxies often say no more than that it is JSON.
            said.starts_with("application/vnd.")
        }));
        let single = shape.config.is_some() || shape.layers.is_some();
        match (single, shape.manifests.is_some(), kind) {
            (_, _, Some(media::DOCKER_SCHEMA_1)) => Err(ManifestError::SchemaOne),
            (true, false, None | Some(media::OCI_MANIFEST | media::DOCKER_MANIFEST)) => {
                let manifest: Manifest = serde_json::from_slice(bytes)?;
                manifest.check()?;
                Ok(Self::Manifest(manifest))
            }
            (false, true, None | Some(media::OCI_INDEX | media::DOCKER_INDEX)) => {
                Ok(Self::Index(serde_json::from_slice(bytes)?))
            }
            (true, true, _) => Err(ManifestError::NotAnImage(
                "both a manifest and an index".to_owned(),
            )),
            (_, _, kind) => Err(ManifestError::NotAnImage(
                kind.unwrap_or("an unknown document").to_owned(),
            )),
        }
    }
}

impl Manifest {
    fn check(&self) -> Result<(), ManifestError> {
        if self.layers.len() > MAX_LAYERS {
            return Err(ManifestError::TooManyLayers(self.layers.len()));
        }
        if ![media::OCI_CONFIG, media::DOCKER_CONFIG].contains(&self.config.media_type.as_str()) {
            // What has another configuration is a chart, a signature or some other artifact.
            return Err(ManifestError::NotAnImage(self.config.media_type.clone()));
        }
        for layer in &self.layers {
            let kind = layer.media_type.as_str();
            let is_tar = kind.starts_with("application/vnd.oci.image.layer.v1.tar")
                || kind.starts_with("application/vnd.oci.image.layer.nondistributable.v1.tar")
                || kind.starts_with("application/vnd.docker.image.rootfs.diff.tar")
                || kind.starts_with("application/vnd.docker.image.rootfs.foreign.diff.tar");
            if !is_tar || kind.contains("encrypted") {
                return Err(ManifestError::LayerType(kind.to_owned()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(config: &str, layers: &[&str]) -> String {
        let descriptor = |kind: &str| {
            format!(
                r#"{{"mediaType":"{kind}","digest":"{}","size":3}}"#,
                Digest::of(b"x")
            )
        };
        let layers: Vec<String> = layers.iter().map(|kind| descriptor(kind)).collect();
        format!(
            r#"{{"schemaVersion":2,"config":{},"layers":[{}]}}"#,
            descriptor(config),
            layers.join(",")
        )
    }

    #[test]
    fn both_kinds_are_told_apart() {
        let text = manifest(media::OCI_CONFIG, &[media::OCI_LAYER_GZIP]);
        for said in [None, Some(media::OCI_MANIFEST), Some("application/json")] {
            assert!(matches!(
                Found::parse(text.as_bytes(), said),
                Ok(Found::Manifest(m)) if m.layers.len() == 1
            ));
        }
        let index = r#"{"schemaVersion":2,"manifests":[]}"#;
        assert!(matches!(
            Found::parse(index.as_bytes(), Some(media::DOCKER_INDEX)),
            Ok(Found::Index(_))
        ));
        for (text, said) in [
            (index, Some(media::OCI_MANIFEST)),
            (text.as_str(), Some(media::OCI_INDEX)),
            (r#"{"schemaVersion":2,"manifests":[],"layers":[]}"#, None),
            (r#"{"schemaVersion":2}"#, None),
            (r#"{"schemaVersion":1,"fsLayers":[]}"#, None),
            ("[]", None),
            ("", None),
        ] {
            assert!(Found::parse(text.as_bytes(), said).is_err(), "{text}");
        }
    }

    #[test]
    fn artifacts_and_strange_layers_are_no_images() {
        for (config, layers) in [
            ("application/vnd.cncf.helm.config.v1+json", vec![]),
            (
                media::OCI_CONFIG,
                vec!["application/vnd.oci.image.layer.v1.tar+gzip+encrypted"],
            ),
            (media::OCI_CONFIG, vec!["text/plain"]),
            (media::OCI_CONFIG, vec![media::OCI_LAYER; 500]),
        ] {
            assert!(Found::parse(manifest(config, &layers).as_bytes(), None).is_err());
        }
    }
}
