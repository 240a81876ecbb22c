//! Manifests of registries with a fault, and beside each the same request without it.

use std::time::{Duration, Instant};

use super::super::{Registry, RegistryError};
use super::server::{Fault, MANIFEST, Reply, Seen, Server, impatient, ordinary};
use crate::cancel::Cancel;
use crate::digest::Digest;
use crate::manifest::MAX_MANIFEST;

const CONTENT: &[u8] = b"what is in the blob";

fn registry() -> Registry {
    Registry::new(impatient()).expect("a client")
}

/// Fetches the manifest of a server that answers like this.
fn manifest(
    answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    version: &str,
) -> (Result<Digest, RegistryError>, usize) {
    let server = Server::new(answer);
    let result = registry().manifest(&server.reference(), version, &Cancel::default());
    (result.map(|document| document.digest), server.count())
}

fn right() -> String {
    Digest::of(MANIFEST).to_string()
}

#[test]
fn what_is_no_version_is_not_asked_for() {
    let server = Server::with(CONTENT);
    let none = Cancel::default();
    for bad in [
        "",
        "../x",
        "a/b",
        "a?b",
        "-a",
        "a b",
        "sha256:12",
        "a\r\nb: c",
    ] {
        let error = registry()
            .manifest(&server.reference(), bad, &none)
            .unwrap_err();
        assert!(matches!(error, RegistryError::BadVersion { .. }), "{bad}");
    }
    assert_eq!(server.count(), 0);
}

#[test]
fn a_silent_server_is_given_up() {
    let (result, count) = manifest(|_| Reply::new(200, "").fault(Fault::Silent), "1");
    let error = result.unwrap_err();
    assert_eq!(error.kind(), cosm_base::ErrorKind::TimedOut, "{error:?}");
    assert_eq!(count, 4);
}

#[test]
fn a_manifest_with_another_digest() {
    let other = |seen: &Seen| Reply::new(200, if seen.nth == 0 { b"{}" } else { MANIFEST });
    let (result, count) = manifest(other, &right());
    assert_eq!(
        (result.expect("the manifest"), count),
        (Digest::of(MANIFEST), 2)
    );
    for version in ["1", &right()] {
        let (result, count) = manifest(
            |_| Reply::new(200, "{}").header("Docker-Content-Digest", right()),
            version,
        );
        assert!(matches!(result, Err(RegistryError::Digest { .. })));
        assert_eq!(count, 2);
    }
}

#[test]
fn a_manifest_that_is_too_big() {
    let too_big = |result| matches!(result, Err(RegistryError::TooBig { .. }));
    assert!(too_big(
        manifest(|_| Reply::new(200, "").fault(Fault::Endless), "1").0
    ));
    let said = |_: &Seen| Reply::new(200, "").header("Content-Length", "99999999999");
    assert!(too_big(manifest(said, "1").0));
    let most = usize::try_from(MAX_MANIFEST).expect("a size");
    assert!(too_big(
        manifest(move |_| Reply::new(200, vec![b' '; most + 1]), "1").0
    ));
    manifest(move |_| Reply::new(200, vec![b' '; most]), "1")
        .0
        .expect("just small enough");
}

#[test]
fn a_limit_of_requests() {
    let limited = |after: &'static str| Reply::new(429, "").header("Retry-After", after);
    let began = Instant::now();
    let (result, count) = manifest(
        move |seen| {
            if seen.nth == 0 {
                limited("1")
            } else {
                ordinary(seen, CONTENT)
            }
        },
        "1",
    );
    result.expect("the manifest");
    assert_eq!(count, 2);
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "it waits as long as it is asked to"
    );
    for after in ["0", "1", "1000000", "99999999999999999999999", "garbage"] {
        let began = Instant::now();
        let (result, count) = manifest(move |_| limited(after), "1");
        let error = result.unwrap_err();
        assert!(
            matches!(error, RegistryError::RateLimited { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("limits the rate"), "{error}");
        assert!(
            count <= 4 && began.elapsed() < Duration::from_secs(4),
            "{after}: {count}"
        );
    }
}

#[test]
fn a_servers_failures() {
    let (result, count) = manifest(
        |seen| {
            if seen.nth < 3 {
                Reply::new(500 + 2 * (seen.nth % 2) as u16, "")
            } else {
                ordinary(seen, CONTENT)
            }
        },
        "1",
    );
    result.expect("the manifest");
    assert_eq!(count, 4);
    let (result, count) = manifest(|_| Reply::new(503, "<html>"), "1");
    assert!(matches!(
        result,
        Err(RegistryError::Status { status: 503, .. })
    ));
    assert_eq!(count, 4);
    let (result, count) = manifest(
        |_| Reply::new(400, r#"{"errors":[{"message":"\u001b[2Jno"}]}"#),
        "1",
    );
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("status 400 (it says: \\u{1b}[2Jno)"),
        "{error}"
    );
    assert_eq!(count, 1);
    let (result, count) = manifest(
        |_| Reply::new(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#),
        "1",
    );
    let error = result.unwrap_err();
    assert_eq!(error.kind(), cosm_base::ErrorKind::NotFound);
    assert!(error.to_string().contains("has no 1 in org/app"), "{error}");
    assert_eq!(count, 1);
}

#[test]
fn redirects_end() {
    let (result, count) = manifest(|seen| Reply::redirect(seen.path.clone()), "1");
    assert!(matches!(result, Err(RegistryError::Redirect { .. })));
    assert_eq!(count, 11);
    let (result, _) = manifest(
        |seen| {
            if seen.nth < 10 {
                Reply::redirect(seen.path.clone())
            } else {
                ordinary(seen, CONTENT)
            }
        },
        "1",
    );
    result.expect("ten are not too many");
    for bad in [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "data:,{}",
        "http://me:secret@127.0.0.1/",
        "",
    ] {
        let (result, count) = manifest(move |_| Reply::redirect(bad), "1");
        let error = result.unwrap_err();
        assert!(
            matches!(error, RegistryError::Redirect { .. }),
            "{bad}: {error:?}"
        );
        assert!(!error.to_string().contains("secret"));
        assert_eq!(count, 1);
    }
}

#[test]
fn nobody_there() {
    let server = Server::with(CONTENT);
    let reference = server.reference();
    drop(server);
    let error = registry()
        .manifest(&reference, "1", &Cancel::default())
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::Transport { .. }),
        "{error:?}"
    );
    assert!(error.is_retryable());
}

#[test]
fn a_server_that_is_silent_once() {
    let (result, count) = manifest(
        |seen| {
            let fault = if seen.nth == 0 {
                Fault::Silent
            } else {
                Fault::None
            };
            ordinary(seen, CONTENT).fault(fault)
        },
        "1",
    );
    result.expect("the manifest");
    assert_eq!(count, 2);
}
