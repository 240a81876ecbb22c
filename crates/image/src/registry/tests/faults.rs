//! Each fault, and beside it the same request without it.

use std::io::Read as _;
use std::time::{Duration, Instant};

use super::super::{FoundSize, Registry, RegistryError};
use super::server::{Fault, MANIFEST, Reply, Seen, Server, descriptor, impatient};
use crate::cancel::Cancel;
use crate::digest::Digest;
use crate::manifest::media;

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

#[test]
fn without_any_fault() {
    let server = Server::with(&CONTENT);
    let cancel = Cancel::default();
    let registry = registry();
    for version in ["1", &Digest::of(MANIFEST).to_string()] {
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
fn threads_can_share_a_client_and_hand_on_a_blob() {
    fn shared<T: Send + Sync + Clone>() {}
    fn sent<T: Send>() {}
    shared::<Registry>();
    sent::<super::super::Blob>();
    sent::<RegistryError>();
}
