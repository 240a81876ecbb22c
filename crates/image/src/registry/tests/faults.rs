//! Each fault, and beside it the same request without it.

use std::io::Read as _;
use std::time::{Duration, Instant};

use super::super::{FoundSize, Registry, RegistryError};
use super::server::{Fault, MANIFEST, Reply, Seen, Server, descriptor, impatient, ordinary};
use crate::cancel::Cancel;
use crate::digest::Digest;
use crate::manifest::{MAX_MANIFEST, media};

static CONTENT: [u8; 300_000] = {
    let mut content = [0; 300_000];
    let mut i = 0;
    while i < content.len() {
        content[i] = (i / 7 % 251) as u8;
        i += 1;
    }
    content
};

fn registry() -> Registry {
    Registry::new(impatient()).expect("a client")
}

fn read(server: &Server) -> Result<Vec<u8>, RegistryError> {
    let cancel = Cancel::default();
    let mut blob = registry().blob(&server.reference(), &descriptor(&CONTENT), &cancel)?;
    let mut bytes = Vec::new();
    match blob.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(RegistryError::from_io(error).expect("a registry's error")),
    }
}

/// Reads the blob of a server that answers like this.
fn blob(
    answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
) -> (Result<(), RegistryError>, usize) {
    let server = Server::new(answer);
    let result = read(&server).map(|bytes| assert!(bytes == CONTENT, "the content differs"));
    (result, server.count())
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
fn without_any_fault() {
    let server = Server::with(&CONTENT);
    let cancel = Cancel::default();
    let registry = registry();
    for version in ["1", &right()] {
        let document = registry
            .manifest(&server.reference(), version, &cancel)
            .expect("it");
        assert_eq!(document.bytes, MANIFEST);
        assert_eq!(document.media_type.as_deref(), Some(media::OCI_MANIFEST));
        assert_eq!(document.digest, Digest::of(MANIFEST));
    }
    let asked = &server.seen()[0];
    assert_eq!(asked.path, "/v2/org/app/manifests/1");
    assert!(
        asked
            .header("accept")
            .expect("wishes")
            .contains(media::DOCKER_INDEX)
    );
    assert_eq!(asked.header("authorization"), None);
    assert!(
        asked
            .header("user-agent")
            .expect("a name")
            .starts_with("cosm/")
    );
    assert!(read(&server).expect("the blob") == CONTENT);
    let resolved = registry
        .resolve(&server.reference(), "1", &cancel)
        .expect("a digest");
    assert_eq!(resolved, Digest::of(MANIFEST));
    assert_eq!(server.seen().last().expect("a request").method, "HEAD");
    let bytes = registry.blob_bytes(&server.reference(), &descriptor(&CONTENT), 300_000, &cancel);
    assert!(bytes.expect("the blob") == CONTENT);
    let error = registry.blob_bytes(&server.reference(), &descriptor(&CONTENT), 299_999, &cancel);
    assert!(matches!(error, Err(RegistryError::TooBig { .. })));
}

#[test]
fn what_is_no_version_is_not_asked_for() {
    let server = Server::with(&CONTENT);
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
fn a_cut_blob_goes_on_where_it_was() {
    let (result, count) = blob(|seen| Reply::part(seen, &CONTENT).fault(Fault::Cut(100_000)));
    result.expect("the blob");
    assert_eq!(count, 3);
    // A server without ranges sends the whole again.
    let (result, count) = blob(|seen| {
        let cut = if seen.nth == 0 { 100_000 } else { usize::MAX };
        Reply::new(200, CONTENT).fault(Fault::Cut(cut))
    });
    result.expect("the blob");
    assert_eq!(count, 2);
}

#[test]
fn a_blob_that_does_not_come_on_is_given_up() {
    for at in [0, 1, 1000] {
        let (result, count) = blob(move |seen| Reply::part(seen, &CONTENT).fault(Fault::Cut(at)));
        let error = result.unwrap_err();
        assert!(matches!(error, RegistryError::Cut { .. }), "{error:?}");
        assert!(error.is_retryable());
        assert_eq!(count, 4, "cut at {at}");
    }
}

#[test]
fn another_part_than_was_asked_for_is_refused() {
    let (result, _) = blob(|seen| match seen.from() {
        0 => Reply::new(200, CONTENT).fault(Fault::Cut(70_000)),
        from => Reply::new(206, &CONTENT[from - 1..])
            .header("Content-Range", format!("bytes {}-299999/300000", from - 1)),
    });
    assert!(matches!(result, Err(RegistryError::WrongPart { .. })));
    let (result, _) =
        blob(|_| Reply::new(206, CONTENT).header("Content-Range", "bytes 0-9/300000"));
    assert!(matches!(result, Err(RegistryError::WrongPart { .. })));
}

#[test]
fn a_stalled_blob_goes_on_where_it_was() {
    let (result, count) = blob(|seen| {
        let fault = if seen.nth == 0 {
            Fault::Stall(100_000)
        } else {
            Fault::None
        };
        Reply::part(seen, &CONTENT).fault(fault)
    });
    result.expect("the blob");
    assert_eq!(count, 2);
    let (result, count) = manifest(
        |seen| {
            let fault = if seen.nth == 0 {
                Fault::Silent
            } else {
                Fault::None
            };
            ordinary(seen, &CONTENT).fault(fault)
        },
        "1",
    );
    result.expect("the manifest");
    assert_eq!(count, 2);
}

#[test]
fn a_silent_server_is_given_up() {
    let (result, count) = manifest(|_| Reply::new(200, "").fault(Fault::Silent), "1");
    let error = result.unwrap_err();
    assert_eq!(error.kind(), cosm_base::ErrorKind::TimedOut, "{error:?}");
    assert_eq!(count, 4);
}

#[test]
fn a_blob_with_another_digest() {
    let (result, count) = blob(|seen| {
        let mut other = CONTENT;
        other[200_000] ^= 1;
        Reply::part(seen, &other)
    });
    let error = result.unwrap_err();
    assert!(matches!(error, RegistryError::Digest { .. }), "{error:?}");
    assert!(error.is_retryable());
    assert_eq!(count, 1, "the reader decides whether it starts again");
    // Its error stays when it is read on.
    let server = Server::new(|_| Reply::new(200, [0; 300_000]));
    let cancel = Cancel::default();
    let mut blob = registry()
        .blob(&server.reference(), &descriptor(&CONTENT), &cancel)
        .expect("an answer");
    std::io::copy(&mut blob, &mut std::io::sink()).unwrap_err();
    assert!(blob.read(&mut [0]).is_err());
    // What is short is fetched once more.
    let server = Server::new(|seen| match seen.nth {
        0 => Reply::new(200, [0; 300_000]),
        _ => Reply::part(seen, &CONTENT),
    });
    let bytes = registry().blob_bytes(&server.reference(), &descriptor(&CONTENT), 1 << 20, &cancel);
    assert!(bytes.expect("the blob") == CONTENT);
}

#[test]
fn a_blob_of_another_length() {
    let size = |result: Result<(), RegistryError>| match result {
        Err(RegistryError::Size {
            found, expected, ..
        }) => {
            assert_eq!(expected, 300_000);
            found
        }
        other => panic!("{other:?}"),
    };
    let (result, count) = blob(|_| Reply::new(200, &CONTENT[1..]));
    assert_eq!(size(result), FoundSize::Exactly(299_999));
    assert_eq!(count, 2, "once more from the start");
    let longer = || [&CONTENT[..], b"x"].concat();
    let (result, _) = blob(move |_| Reply::new(200, longer()));
    assert_eq!(size(result), FoundSize::Exactly(300_001));
    // Where no length is said.
    let (result, _) = blob(move |_| Reply::new(200, longer()).fault(Fault::NoLength));
    assert_eq!(size(result), FoundSize::More);
    let (result, _) = blob(|_| Reply::new(200, "").fault(Fault::Endless));
    assert_eq!(size(result), FoundSize::More);
    let (result, _) = blob(|seen| Reply::part(seen, &CONTENT[..299_999]).fault(Fault::NoLength));
    assert_eq!(size(result), FoundSize::Exactly(299_999));
    let (result, _) = blob(|_| Reply::new(200, CONTENT).fault(Fault::NoLength));
    result.expect("the right length, though not said");
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
                ordinary(seen, &CONTENT)
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
                ordinary(seen, &CONTENT)
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
                ordinary(seen, &CONTENT)
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
fn waiting_can_be_ended() {
    let slow = |_: &Seen| Reply::new(429, "").header("Retry-After", "50");
    let server = Server::new(slow);
    let mut config = impatient();
    config.timeouts.retry_after = Duration::from_secs(60);
    let registry = Registry::new(config).expect("a client");
    let cancel = Cancel::default();
    let began = Instant::now();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            cancel.cancel();
        });
        registry
            .manifest(&server.reference(), "1", &cancel)
            .unwrap_err()
    });
    assert!(matches!(error, RegistryError::Cancelled(_)));
    assert!(began.elapsed() < Duration::from_secs(5));
    let server = Server::with(&CONTENT);
    let cancel = Cancel::default();
    let mut blob = registry
        .blob(&server.reference(), &descriptor(&CONTENT), &cancel)
        .expect("a blob");
    blob.read_exact(&mut [0; 10]).expect("its start");
    cancel.cancel();
    let error = RegistryError::from_io(blob.read(&mut [0; 10]).unwrap_err()).expect("the error");
    assert!(matches!(error, RegistryError::Cancelled(_)));
}

#[test]
fn nobody_there() {
    let server = Server::with(&CONTENT);
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
