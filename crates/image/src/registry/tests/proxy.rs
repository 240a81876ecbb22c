//! What leaves by a proxy, and what by none.

use super::super::{ProxyConfig, Registry};
use super::server::{Reply, Server, impatient};
use crate::cancel::Cancel;
use crate::reference::Reference;

#[test]
fn only_others_hosts_are_reached_by_a_proxy() {
    let proxy = Server::new(|_| Reply::new(403, ""));
    let local = Server::with(b"content");
    let mut config = impatient();
    config.retries = 0;
    config.proxy = Some(ProxyConfig {
        url: proxy.url("").replace("//", "//me:secret@"),
        except: vec!["except.invalid".to_owned()],
    });
    assert!(!format!("{config:?}").contains("secret"));
    let registry = Registry::new(config).expect("a client");
    let ask = |reference: Reference| registry.manifest(&reference, "1", &Cancel::default());
    ask(local.reference()).expect("the manifest");
    let name = |name: &str| name.parse().expect("a name");
    ask(name("except.invalid/org/app")).unwrap_err();
    assert_eq!(proxy.count(), 0);
    let error = ask(name("other.invalid/org/app")).unwrap_err();
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    let asked = &proxy.seen()[0];
    assert_eq!(
        (asked.method.as_str(), asked.path.as_str()),
        ("CONNECT", "other.invalid:443")
    );
    assert_eq!(
        asked.header("proxy-authorization"),
        Some("Basic bWU6c2VjcmV0")
    );
}
