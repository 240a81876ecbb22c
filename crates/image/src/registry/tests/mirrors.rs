//! Mirrors: asked first, trusted no further than a digest goes.

use std::io::Read as _;

use super::super::{Credentials, HostConfig, Registry, RegistryError};
use super::server::{Fault, MANIFEST, Reply, Server, descriptor, impatient, ordinary};
use crate::cancel::Cancel;
use crate::digest::Digest;

const CONTENT: &[u8] = b"what is in the blob";

fn client(own: &Server, mirrors: &[&Server]) -> Registry {
    let mut config = impatient();
    let host = HostConfig {
        mirrors: mirrors.iter().map(|mirror| mirror.url("")).collect(),
        ..HostConfig::default()
    };
    config.hosts.insert(own.host(), host);
    let me = Credentials::password("me", "secret");
    config.credentials.given.insert(own.host(), me);
    Registry::new(config).expect("a client")
}

#[test]
fn a_mirror_is_asked_first() {
    let (own, mirror) = (Server::with(CONTENT), Server::with(CONTENT));
    let registry = client(&own, &[&mirror]);
    let cancel = Cancel::default();
    registry
        .manifest(&own.reference(), "1", &cancel)
        .expect("the manifest");
    registry
        .blob_bytes(&own.reference(), &descriptor(CONTENT), 100, &cancel)
        .expect("the blob");
    assert_eq!((own.count(), mirror.count()), (0, 2));
}

#[test]
fn the_registry_stands_in_for_its_mirrors() {
    let own = Server::with(CONTENT);
    let lacks = Server::new(|_| Reply::new(404, ""));
    let fails = Server::new(|_| Reply::new(500, ""));
    let gone = Server::with(CONTENT);
    let registry = client(&own, &[&lacks, &fails, &gone]);
    drop(gone);
    let cancel = Cancel::default();
    registry
        .manifest(&own.reference(), "1", &cancel)
        .expect("the manifest");
    registry
        .resolve(&own.reference(), "1", &cancel)
        .expect("the digest");
    registry
        .blob_bytes(&own.reference(), &descriptor(CONTENT), 100, &cancel)
        .expect("the blob");
    assert_eq!(own.count(), 3);
    // The registry's own error is the one that is told.
    let own = Server::new(|_| Reply::new(404, ""));
    let error = client(&own, &[&fails])
        .manifest(&own.reference(), "1", &cancel)
        .unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error:?}");
}

#[test]
fn a_mirror_gets_no_credentials_of_the_registry() {
    let own = Server::with(CONTENT);
    let mirror = Server::new(|_| Reply::new(401, "").header("WWW-Authenticate", "Basic realm=x"));
    let registry = client(&own, &[&mirror]);
    registry
        .manifest(&own.reference(), "1", &Cancel::default())
        .expect("the manifest");
    assert!(
        mirror
            .seen()
            .iter()
            .all(|seen| seen.header("authorization").is_none())
    );
    assert!(mirror.count() > 0);
}

#[test]
fn a_blob_goes_on_elsewhere() {
    let own = Server::with(CONTENT);
    let mirror = Server::new(|seen| match seen.nth {
        0 => Reply::new(200, CONTENT).fault(Fault::Cut(5)),
        _ => Reply::new(500, ""),
    });
    let registry = client(&own, &[&mirror]);
    let mut blob = registry
        .blob(&own.reference(), &descriptor(CONTENT), &Cancel::default())
        .expect("a blob");
    let mut bytes = Vec::new();
    blob.read_to_end(&mut bytes).expect("the blob");
    assert_eq!(bytes, CONTENT);
    assert_eq!(own.seen()[0].header("range"), Some("bytes=5-"));
}

#[test]
fn a_mirror_that_sends_something_else_is_passed_over() {
    let own = Server::with(CONTENT);
    let other = [b'x'; CONTENT.len()];
    let mirror = Server::new(move |seen| ordinary(seen, &other));
    let registry = client(&own, &[&mirror]);
    let cancel = Cancel::default();
    for _ in 0..2 {
        let bytes = registry.blob_bytes(&own.reference(), &descriptor(CONTENT), 100, &cancel);
        assert_eq!(bytes.expect("the blob"), CONTENT);
    }
    assert_eq!((own.count(), mirror.count()), (2, 1));
    let mirror = Server::new(|_| Reply::new(200, "{}"));
    let registry = client(&own, &[&mirror]);
    let digest = Digest::of(MANIFEST).to_string();
    let document = registry
        .manifest(&own.reference(), &digest, &cancel)
        .expect("it");
    assert_eq!(document.bytes, MANIFEST);
}

#[test]
fn what_is_no_mirror_is_refused_at_once() {
    for bad in ["", "ftp://x", "https://mirror.test/path/", "a b"] {
        let mut config = impatient();
        let host = HostConfig {
            mirrors: vec![bad.to_owned()],
            ..HostConfig::default()
        };
        config.hosts.insert("docker.io".to_owned(), host);
        let error = Registry::new(config).unwrap_err();
        assert!(matches!(error, RegistryError::BadHost { .. }), "{bad}");
    }
}
