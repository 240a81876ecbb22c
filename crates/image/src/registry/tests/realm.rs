//! Tokens and the encryption they are got by.

use super::super::agents::Agents;
use super::super::auth::Visit;
use super::super::challenge;
use super::super::exchange::Http;
use super::super::host::Origin;
use super::super::{Credentials, RegistryError};
use super::server::{Reply, Server, impatient};
use crate::cancel::Cancel;

#[test]
fn a_registry_with_tls_sends_nobody_to_a_service_without() {
    let service = Server::new(|_| Reply::new(200, r#"{"token":"good"}"#));
    let header = format!(r#"Bearer realm="{}""#, service.url("/token"));
    let (config, agents, cancel) = (impatient(), Agents::new(), Cancel::default());
    let ask = |https| {
        let origin = Origin {
            https,
            host: "r.test".to_owned(),
            port: 443,
        };
        let visit = Visit {
            http: Http {
                config: &config,
                agents: &agents,
                cancel: &cancel,
            },
            host: "r.test",
            origin: &origin,
            scope: "",
            credentials: Some(&Credentials::password("me", "secret")),
        };
        visit
            .answer(&challenge::parse(&header))
            .map(|held| held.is_some())
    };
    assert!(matches!(ask(true), Err(RegistryError::Realm { .. })));
    assert_eq!(service.count(), 0);
    assert!(matches!(ask(false), Ok(true)));
}
