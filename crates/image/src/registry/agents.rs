//! The HTTP client of each host: with its certificates, and with connections that are used again.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::crypto::{CryptoProvider, ring};
use ureq::Agent;
use ureq::config::Config;
use ureq::tls::{
    Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem,
};

use super::config::{HostConfig, ProxyConfig, RegistryConfig};
use super::error::RegistryError;
use super::host::{Origin, canonical_host};

/// Where systems keep the authorities they trust.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// What the server is told of this client.
const USER_AGENT: &str = concat!("cosm/", env!("CARGO_PKG_VERSION"));

type Certificates = Vec<Certificate<'static>>;

/// All clients, made when they are first needed.
pub(crate) struct Agents {
    common: OnceLock<Certificates>,
    made: Mutex<HashMap<Origin, Agent>>,
}

impl Agents {
    pub(crate) fn new() -> Self {
        Self {
            common: OnceLock::new(),
            made: Mutex::new(HashMap::new()),
        }
    }

    /// The client for a host. Certificates are a host's own, so no two hosts share one.
    pub(crate) fn get(
        &self,
        config: &RegistryConfig,
        origin: &Origin,
    ) -> Result<Agent, RegistryError> {
        let made = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = made().get(origin) {
            return Ok(agent.clone());
        }
        // Two threads may both come here; what the first one made is used.
        let agent = self.make(config, origin)?;
        Ok(made().entry(origin.clone()).or_insert(agent).clone())
    }

    fn make(&self, config: &RegistryConfig, origin: &Origin) -> Result<Agent, RegistryError> {
        let times = &config.timeouts;
        let builder = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(USER_AGENT)
            // What comes must be what the digest names, not something packed once more on its way.
            .accept_encoding("identity")
            .timeout_resolve(Some(times.connect))
            .timeout_connect(Some(times.connect))
            .timeout_send_request(Some(times.response))
            .timeout_send_body(Some(times.response))
            .timeout_recv_response(Some(times.response))
            .timeout_per_read(Some(times.idle))
            .timeout_per_write(Some(times.idle))
            // Otherwise the environment would decide.
            .proxy(proxy(config, origin)?);
        let tls = if origin.https {
            self.tls(config, origin)?
        } else {
            TlsConfig::builder().build()
        };
        Ok(builder.tls_config(tls).build().new_agent())
    }

    fn tls(&self, config: &RegistryConfig, origin: &Origin) -> Result<TlsConfig, RegistryError> {
        let names = names(origin);
        let settings = settings(config, &origin.name());
        let mut roots = match self.common.get() {
            Some(common) => common.clone(),
            None => {
                let common = common(config.ca_bundle.as_deref())?;
                self.common.get_or_init(|| common).clone()
            }
        };
        let mut client = None;
        for path in settings.into_iter().flat_map(|host| &host.ca) {
            roots.extend(certificates(path)?);
        }
        for folder in &config.certs_dirs {
            for name in &names {
                let own = Own::read(&folder.join(name))?;
                roots.extend(own.roots);
                client = client.or(own.client);
            }
        }
        Ok(TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(provider()))
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(client)
            .disable_verification(settings.is_some_and(|host| host.skip_verify))
            .build())
    }
}

#[expect(
    deprecated,
    reason = "the provider with post-quantum algorithms needs a C compiler and CMake to build"
)]
fn provider() -> CryptoProvider {
    ring::default_provider()
}

/// The names under which a host may have settings: its own, and Docker Hub's for the host that its registry is on.
fn names(origin: &Origin) -> Vec<String> {
    let own = origin.name();
    let canonical = canonical_host(&own).filter(|canonical| *canonical != own);
    [Some(own), canonical].into_iter().flatten().collect()
}

/// A host's settings.
pub(crate) fn settings<'a>(config: &'a RegistryConfig, host: &str) -> Option<&'a HostConfig> {
    let host = canonical_host(host);
    config
        .hosts
        .iter()
        .find(|(key, _)| canonical_host(key) == host)
        .map(|(_, settings)| settings)
}

fn proxy(config: &RegistryConfig, origin: &Origin) -> Result<Option<ureq::Proxy>, RegistryError> {
    let Some(ProxyConfig { url, except }) = &config.proxy else {
        return Ok(None);
    };
    if origin.is_loopback() {
        return Ok(None);
    }
    let make = || {
        let plain = ureq::Proxy::new(url)?;
        let mut builder = ureq::Proxy::builder(plain.protocol())
            .host(plain.host())
            .port(plain.port());
        if let Some(user) = plain.username() {
            builder = builder.username(user);
        }
        if let Some(password) = plain.password() {
            builder = builder.password(password);
        }
        except
            .iter()
            .fold(builder, |builder, host| builder.no_proxy(host))
            .build()
    };
    make().map(Some).map_err(|source| RegistryError::Transport {
        host: "the proxy".to_owned(),
        source: Box::new(source),
    })
}

/// The authorities that are trusted for every host.
fn common(bundle: Option<&Path>) -> Result<Certificates, RegistryError> {
    if let Some(path) = bundle {
        return certificates(path);
    }
    for path in BUNDLES.map(Path::new) {
        if path.exists() {
            return certificates(path);
        }
    }
    let built_in = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
    Ok(built_in
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect())
}

fn read(path: &Path) -> Result<Vec<u8>, RegistryError> {
    fs::read(path).map_err(|source| RegistryError::File {
        doing: "reading",
        path: path.to_owned(),
        source,
    })
}

/// A file's certificates. Damaged ones are left out, as long as there are others: bundles hold all sorts of things.
fn certificates(path: &Path) -> Result<Certificates, RegistryError> {
    let pem = read(path)?;
    let found: Certificates = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(RegistryError::Pem {
            path: path.to_owned(),
            wanted: "certificate",
        });
    }
    Ok(found)
}

/// What a host's folder of certificates holds.
#[derive(Default)]
struct Own {
    roots: Certificates,
    client: Option<ClientCert>,
}

impl Own {
    fn read(folder: &Path) -> Result<Self, RegistryError> {
        let failed = |source| RegistryError::File {
            doing: "reading",
            path: folder.to_owned(),
            source,
        };
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        paths.sort();
        let mut own = Self::default();
        for path in paths {
            match path.extension().and_then(|end| end.to_str()) {
                Some("crt") => own.roots.extend(certificates(&path)?),
                Some("cert") if own.client.is_none() => own.client = Some(pair(&path)?),
                _ => {}
            }
        }
        Ok(own)
    }
}

fn pair(path: &Path) -> Result<ClientCert, RegistryError> {
    let chain = certificates(path)?;
    let key_path = path.with_extension("key");
    let key = PrivateKey::from_pem(&read(&key_path)?).map_err(|_| RegistryError::Pem {
        path: key_path,
        wanted: "private key",
    })?;
    Ok(ClientCert::new_with_certs(&chain, key))
}
