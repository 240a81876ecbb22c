//! What is made for the real registries: an image, and certificates.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::digest::Digest;
use crate::manifest::media;

pub(super) fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("a program");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// A small image, in the form of an OCI layout, and its layer.
pub(super) struct Layout {
    pub(super) folder: PathBuf,
    pub(super) layer: Vec<u8>,
    pub(super) manifest: Digest,
}

impl Layout {
    pub(super) fn new(folder: &Path) -> Self {
        let folder = folder.join("layout");
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).expect("a folder");
        let keep = |bytes: &[u8]| {
            let digest = Digest::of(bytes);
            fs::write(blobs.join(digest.hex()), bytes).expect("a blob");
            digest
        };
        let mut tar = tar::Builder::new(Vec::new());
        // What does not compress, so that the layer is longer than all buffers on its way.
        let mut state = 1_u32;
        let mut content = vec![0; 3 << 20];
        for byte in &mut content {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = state.to_be_bytes()[0];
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "file", content.as_slice())
            .expect("an entry");
        let tar = tar.into_inner().expect("a tar");
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&tar).expect("memory");
        let layer = packed.finish().expect("memory");
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": [Digest::of(&tar)] },
        })
        .to_string();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media::OCI_MANIFEST,
            "config": {
                "mediaType": media::OCI_CONFIG,
                "digest": keep(config.as_bytes()),
                "size": config.len(),
            },
            "layers": [{
                "mediaType": media::OCI_LAYER_GZIP,
                "digest": keep(&layer),
                "size": layer.len(),
            }],
        })
        .to_string();
        let digest = keep(manifest.as_bytes());
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": media::OCI_MANIFEST,
                "digest": digest,
                "size": manifest.len(),
                "annotations": { "org.opencontainers.image.ref.name": "1" },
            }],
        });
        fs::write(folder.join("index.json"), index.to_string()).expect("an index");
        fs::write(
            folder.join("oci-layout"),
            r#"{"imageLayoutVersion":"1.0.0"}"#,
        )
        .expect("a file");
        Self {
            folder,
            layer,
            manifest: digest,
        }
    }
}

/// An authority, a certificate of it for 127.0.0.1, and one for a client.
pub(super) fn certificates(folder: &Path) {
    let openssl = |args: &[&str]| {
        run(Command::new("openssl").current_dir(folder).args(args));
    };
    openssl(&[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=an authority",
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
    ]);
    for (name, extension) in [
        ("server", "subjectAltName=IP:127.0.0.1"),
        ("client", "extendedKeyUsage=clientAuth"),
    ] {
        let file = |end: &str| format!("{name}.{end}");
        openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=somebody",
            "-keyout",
            &file("key"),
            "-out",
            &file("csr"),
        ]);
        fs::write(folder.join("ext"), extension).expect("a file");
        openssl(&[
            "x509",
            "-req",
            "-in",
            &file("csr"),
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "ext",
            "-out",
            &file("crt"),
        ]);
    }
}
