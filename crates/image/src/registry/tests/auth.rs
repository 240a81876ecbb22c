//! Who is told what, and who is told nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::{Credentials, Registry, RegistryConfig, RegistryError};
use super::server::{MANIFEST, Reply, Seen, Server, descriptor, impatient, ordinary};
use crate::cancel::Cancel;
use crate::reference::Reference;

const CONTENT: &[u8] = b"what is in the blob";
/// `me:secret`, as Basic has it.
const BASIC: &str = "Basic bWU6c2VjcmV0";

fn me() -> Credentials {
    Credentials::password("me", "secret")
}

fn with_login(host: &str, credentials: Credentials) -> RegistryConfig {
    let mut config = impatient();
    config
        .credentials
        .given
        .insert(host.to_owned(), credentials);
    config
}

fn fetch(config: RegistryConfig, reference: &Reference) -> Result<Vec<u8>, RegistryError> {
    let registry = Registry::new(config).expect("a client");
    let cancel = Cancel::default();
    let document = registry.manifest(reference, "1", &cancel)?;
    assert_eq!(document.bytes, MANIFEST);
    registry.blob_bytes(reference, &descriptor(CONTENT), 100, &cancel)
}

/// A registry that wants a token of `realm`, which is `Bearer good`.
fn wants_token(realm: String) -> Server {
    Server::new(move |seen| match seen.header("authorization") {
        Some("Bearer good") => ordinary(seen, CONTENT),
        _ => Reply::bearer(&realm),
    })
}

fn wants_basic() -> Server {
    Server::new(|seen| match seen.header("authorization") {
        Some(BASIC) => ordinary(seen, CONTENT),
        _ => Reply::new(401, "").header("WWW-Authenticate", "Basic realm=x"),
    })
}

fn shown(seen: &[Seen]) -> Vec<Option<&str>> {
    seen.iter()
        .map(|seen| seen.header("authorization"))
        .collect()
}

#[test]
fn tokens_are_got_once() {
    let service = Server::new(|_| Reply::new(200, r#"{"token":"good","expires_in":300}"#));
    let registry = wants_token(service.url("/token?a=b"));
    let bytes = fetch(impatient(), &registry.reference()).expect("the blob");
    assert_eq!(bytes, CONTENT);
    let good = Some("Bearer good");
    assert_eq!(shown(&registry.seen()), [None, good, good]);
    let asked = service.seen();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        asked[0].path,
        "/token?a=b&service=the%20service&scope=repository:org/app:pull"
    );
    assert_eq!(asked[0].header("authorization"), None);
}

#[test]
fn threads_share_a_token() {
    let service = Server::new(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        Reply::new(200, r#"{"access_token":"good"}"#)
    });
    let server = wants_token(service.url("/token"));
    let registry = Registry::new(impatient()).expect("a client");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                registry
                    .manifest(&server.reference(), "1", &Cancel::default())
                    .expect("the manifest");
            });
        }
    });
    assert_eq!(service.count(), 1);
}

#[test]
fn a_token_that_is_refused_later_is_got_anew() {
    let given = Arc::new(AtomicUsize::new(0));
    let service = Server::new({
        let given = Arc::clone(&given);
        move |_| {
            let n = given.fetch_add(1, Ordering::SeqCst);
            Reply::new(200, format!(r#"{{"token":"t{n}","expires_in":9999}}"#))
        }
    });
    let realm = service.url("/token");
    // Takes each token for one request.
    let registry = Server::new(move |seen| {
        let last = given.load(Ordering::SeqCst);
        let good = format!("Bearer t{}", last.wrapping_sub(1));
        let is_good = seen.header("authorization") == Some(&good) && seen.nth != 2;
        if is_good {
            ordinary(seen, CONTENT)
        } else {
            Reply::bearer(&realm)
        }
    });
    fetch(impatient(), &registry.reference()).expect("the blob");
    assert_eq!(service.count(), 2);
}

#[test]
fn passwords_go_to_the_token_service_alone() {
    let service = Server::new(|seen| match seen.header("authorization") {
        Some(BASIC) => Reply::new(200, r#"{"token":"good"}"#),
        _ => Reply::new(401, r#"{"details":"wrong password"}"#),
    });
    let registry = wants_token(service.url("/token"));
    let host = registry.host();
    fetch(with_login(&host, me()), &registry.reference()).expect("the blob");
    assert!(service.seen()[0].path.contains("account=me"));
    assert!(
        shown(&registry.seen())
            .iter()
            .all(|shown| *shown != Some(BASIC))
    );
    // Another host's are shown to nobody.
    let error = fetch(with_login("other.test", me()), &registry.reference()).unwrap_err();
    assert!(
        matches!(error, RegistryError::LoginNeeded { .. }),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains(&format!("cosm registry login {host}"))
    );
    // Wrong ones are said to be wrong, without being repeated.
    let wrong = Credentials::password("me", "hunter2");
    let error = fetch(with_login(&host, wrong), &registry.reference()).unwrap_err();
    assert!(
        matches!(error, RegistryError::BadCredentials { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("wrong password"), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[test]
fn identity_tokens_are_posted() {
    let service = Server::new(|seen| {
        assert_eq!(seen.method, "POST");
        Reply::new(200, r#"{"access_token":"good"}"#)
    });
    let registry = wants_token(service.url("/token"));
    let token = Credentials::IdentityToken("id&entity".to_owned());
    fetch(with_login(&registry.host(), token), &registry.reference()).expect("the blob");
    let asked = &service.seen()[0];
    assert_eq!(asked.path, "/token");
    assert_eq!(
        asked.body,
        "service=the%20service&grant_type=refresh_token&client_id=cosm&refresh_token=id%26entity&scope=repository:org/app:pull"
    );
    // Nor do they follow a redirect.
    let other = Server::new(|_| Reply::new(200, r#"{"token":"good"}"#));
    let there = other.url("/token");
    let service = Server::new(move |_| Reply::redirect(there.clone()));
    let registry = wants_token(service.url("/token"));
    let token = Credentials::IdentityToken("id".to_owned());
    fetch(with_login(&registry.host(), token), &registry.reference()).unwrap_err();
    assert_eq!(other.count(), 0);
}

#[test]
fn registry_tokens_are_shown_as_they_are() {
    let registry = wants_token("http://127.0.0.1:1/token".to_owned());
    let token = Credentials::RegistryToken("good".to_owned());
    fetch(with_login(&registry.host(), token), &registry.reference()).expect("the blob");
}

#[test]
fn basic() {
    let registry = wants_basic();
    fetch(with_login(&registry.host(), me()), &registry.reference()).expect("the blob");
    assert_eq!(shown(&registry.seen()), [None, Some(BASIC), Some(BASIC)]);
    let error = fetch(impatient(), &registry.reference()).unwrap_err();
    assert!(
        matches!(error, RegistryError::LoginNeeded { .. }),
        "{error:?}"
    );
    let wrong = Credentials::password("me", "wrong");
    let error = fetch(with_login(&registry.host(), wrong), &registry.reference()).unwrap_err();
    assert!(
        matches!(error, RegistryError::BadCredentials { .. }),
        "{error:?}"
    );
}

#[test]
fn redirects_take_no_credentials_along() {
    let store = Server::with(CONTENT);
    let there = store.url("/store?signature=x");
    let registry = Server::new(move |seen| match seen.header("authorization") {
        Some(BASIC) if seen.path.contains("/blobs/") => Reply::redirect(there.clone()),
        Some(BASIC) => ordinary(seen, CONTENT),
        _ => Reply::new(401, "").header("WWW-Authenticate", "Basic realm=x"),
    });
    fetch(with_login(&registry.host(), me()), &registry.reference()).expect("the blob");
    assert_eq!(store.seen()[0].path, "/store?signature=x");
    assert_eq!(shown(&store.seen()), [None]);
    // The control: within the registry they stay.
    let registry = Server::new(|seen| match seen.header("authorization") {
        Some(BASIC) if seen.path.contains("/v2/") => {
            Reply::redirect(seen.path.replace("/v2/", "/elsewhere/"))
        }
        Some(BASIC) => ordinary(seen, CONTENT),
        _ => Reply::new(401, "").header("WWW-Authenticate", "Basic realm=x"),
    });
    fetch(with_login(&registry.host(), me()), &registry.reference()).expect("the blob");
    // Nor do they come back after a way by somebody else's host.
    let store = Server::new(|seen| {
        let back = seen.path.trim_start_matches("/?").to_owned();
        Reply::redirect(back)
    });
    let there = store.url("/?");
    let registry = Server::new(move |seen| {
        let back = format!("http://{}/end", seen.header("host").expect("a host"));
        match (seen.path.as_str(), seen.header("authorization")) {
            ("/end", shown) => Reply::new(if shown.is_none() { 404 } else { 200 }, ""),
            (_, Some(BASIC)) => Reply::redirect(format!("{there}{back}")),
            _ => Reply::new(401, "").header("WWW-Authenticate", "Basic realm=x"),
        }
    });
    let error = fetch(with_login(&registry.host(), me()), &registry.reference()).unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error:?}");
    assert_eq!(registry.seen().last().expect("the end").path, "/end");
}

#[test]
fn a_store_elsewhere_that_asks_for_a_login_gets_none() {
    let store = Server::new(|_| Reply::new(401, "").header("WWW-Authenticate", "Basic realm=x"));
    let there = store.url("/");
    let registry = Server::new(move |_| Reply::redirect(there.clone()));
    let error = fetch(with_login(&registry.host(), me()), &registry.reference()).unwrap_err();
    assert!(
        matches!(error, RegistryError::Status { status: 401, .. }),
        "{error:?}"
    );
    assert_eq!(shown(&store.seen()), [None]);
}

#[test]
fn challenges_that_make_no_sense() {
    for garbage in [
        "",
        "Digest realm=x",
        "\"\"\"===,,,",
        "Bearer",
        "Bearer service=x",
        "Negotiate",
    ] {
        let registry =
            Server::new(move |_| Reply::new(401, "").header("WWW-Authenticate", garbage));
        let error = fetch(with_login(&registry.host(), me()), &registry.reference()).unwrap_err();
        assert!(
            matches!(error, RegistryError::Challenge { .. }),
            "{garbage}: {error:?}"
        );
        assert_eq!(registry.count(), 1);
    }
    for realm in [
        "file:///etc/passwd",
        "nothing",
        "",
        "http://me:secret@127.0.0.1/",
        "ftp://x/",
    ] {
        let registry = wants_token(realm.to_owned());
        let error = fetch(with_login(&registry.host(), me()), &registry.reference()).unwrap_err();
        assert!(
            matches!(error, RegistryError::Realm { .. }),
            "{realm}: {error:?}"
        );
        assert!(!error.to_string().contains("secret"));
    }
}

#[test]
fn token_services_that_never_give_one() {
    for answer in [
        "{}",
        "",
        "[1]",
        r#"{"token":""}"#,
        r#"{"token":"a\nb"}"#,
        r#"{"token":7}"#,
    ] {
        let service = Server::new(move |_| Reply::new(200, answer));
        let registry = wants_token(service.url("/token"));
        let error = fetch(impatient(), &registry.reference()).unwrap_err();
        assert!(
            matches!(error, RegistryError::Token { .. }),
            "{answer}: {error:?}"
        );
        assert_eq!(service.count(), 1);
    }
    // One that gives what the registry then refuses: no loop.
    let service = Server::new(|_| Reply::new(200, r#"{"token":"bad"}"#));
    let registry = wants_token(service.url("/token"));
    let error = fetch(impatient(), &registry.reference()).unwrap_err();
    assert!(
        matches!(error, RegistryError::LoginNeeded { .. }),
        "{error:?}"
    );
    assert_eq!((registry.count(), service.count()), (2, 1));
    let host = registry.host();
    let error = fetch(with_login(&host, me()), &registry.reference()).unwrap_err();
    assert!(
        matches!(error, RegistryError::Forbidden { .. }),
        "{error:?}"
    );
    // One that fails is asked again, within limits.
    let service = Server::new(|_| Reply::new(500, ""));
    let registry = wants_token(service.url("/token"));
    let error = fetch(impatient(), &registry.reference()).unwrap_err();
    assert!(
        matches!(error, RegistryError::Status { status: 500, .. }),
        "{error:?}"
    );
    assert_eq!(service.count(), 4);
    let service = Server::new(|_| Reply::new(200, "").fault(super::server::Fault::Endless));
    let registry = wants_token(service.url("/token"));
    let error = fetch(impatient(), &registry.reference()).unwrap_err();
    assert!(matches!(error, RegistryError::TooBig { .. }), "{error:?}");
    let service = Server::new(|seen| Reply::redirect(seen.path.clone()));
    let registry = wants_token(service.url("/token"));
    let error = fetch(impatient(), &registry.reference()).unwrap_err();
    assert!(matches!(error, RegistryError::Redirect { .. }), "{error:?}");
}

#[test]
fn logins_are_checked() {
    let check = |server: &Server, credentials: &Credentials| {
        Registry::new(impatient()).expect("a client").check_login(
            &server.host(),
            credentials,
            &Cancel::default(),
        )
    };
    let wrong = Credentials::password("me", "wrong");
    let service = Server::new(|seen| match seen.header("authorization") {
        Some(BASIC) => Reply::new(200, r#"{"token":"good"}"#),
        _ => Reply::new(401, ""),
    });
    for server in [wants_basic(), wants_token(service.url("/token"))] {
        check(&server, &me()).expect("a login");
        assert_eq!(server.seen()[0].path, "/v2/");
        let error = check(&server, &wrong).unwrap_err();
        assert!(
            matches!(error, RegistryError::BadCredentials { .. }),
            "{error:?}"
        );
    }
    check(&Server::with(CONTENT), &wrong).expect("a registry that asks for none");
    let error = check(&Server::new(|_| Reply::new(404, "")), &me()).unwrap_err();
    assert!(
        matches!(error, RegistryError::Status { status: 404, .. }),
        "{error:?}"
    );
}
