//! Registries: manifests and blobs by the OCI distribution specification 1.1 (Docker's registry protocol, version 2).
//!
//! Blocking, and made to be shared: a clone is the same client, with the same connections and tokens. A request passes
//! from the outside in:
//!
//! - this file: mirrors before the registry itself;
//! - `send`: failures that pass are tried again, and a 401 is answered;
//! - `exchange`: redirects are followed, and who may see the credentials is decided;
//! - `agents`: certificates and connections.
//!
//! Nothing that comes back is believed before its digest has been checked, every document has a limit, and credentials
//! go to the host they are for and to the token service that this host names, nowhere else.

mod agents;
mod auth;
mod blob;
mod challenge;
mod config;
mod credentials;
mod docker_config;
mod error;
mod exchange;
mod helper;
mod host;
mod said;
mod send;
mod staged;
mod wait;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ureq::http::Method;
use ureq::http::header::CONTENT_TYPE;

pub use blob::Blob;
pub use config::{CredentialSources, HostConfig, ProxyConfig, RegistryConfig, Timeouts};
pub use credentials::Credentials;
pub use docker_config::{Login, LoginFile, list_logins, remove_login, store_login};
pub use error::RegistryError;
pub use helper::HelperError;
pub use said::{FoundSize, Said};

use crate::cancel::Cancel;
use crate::digest::Digest;
use crate::manifest::{Descriptor, MAX_MANIFEST, media};
use crate::reference::{Reference, is_tag};
use exchange::Ask;
use host::Endpoint;
use send::{Client, Request};
use wait::Patience;

/// What a registry calls the digest of what it sends.
const CONTENT_DIGEST: &str = "docker-content-digest";
/// Mirrors are tried again this often at most: there is always another place to ask.
const MIRROR_RETRIES: u32 = 1;

/// All kinds of manifest, so that a registry converts none.
fn accept_manifests() -> String {
    [
        media::OCI_INDEX,
        media::DOCKER_INDEX,
        media::OCI_MANIFEST,
        media::DOCKER_MANIFEST,
        "*/*;q=0.1",
    ]
    .join(", ")
}

/// The client of all registries.
#[derive(Clone)]
pub struct Registry {
    client: Arc<Client>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// A manifest or an index, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its bytes, which [`Found::parse`](crate::manifest::Found::parse) reads.
    pub bytes: Vec<u8>,
    /// What the registry says it is.
    pub media_type: Option<String>,
    /// The digest of the bytes: what was asked for, if that was a digest.
    pub digest: Digest,
}

impl Registry {
    /// A client. Files and hosts are looked at when they are first needed.
    ///
    /// # Errors
    /// [`RegistryError::BadHost`] when a host or a mirror in the configuration is none.
    pub fn new(config: RegistryConfig) -> Result<Self, RegistryError> {
        let client = Client::new(config);
        for (name, host) in &client.config.hosts {
            client.endpoint(name, false)?;
            for mirror in &host.mirrors {
                client.endpoint(mirror, true)?;
            }
        }
        Ok(Self {
            client: Arc::new(client),
        })
    }

    /// The manifest or index of a tag or a digest (`version`) in the repository of `reference`.
    ///
    /// # Errors
    /// [`RegistryError`]: it can't be had, or what came is not what its digest says, twice.
    pub fn manifest(
        &self,
        reference: &Reference,
        version: &str,
        cancel: &Cancel,
    ) -> Result<Document, RegistryError> {
        check_version(version)?;
        self.anywhere(reference, cancel, |endpoint, patience| {
            let fetch = |patience: &mut Patience| {
                self.fetch_manifest(endpoint, reference, version, patience, cancel)
            };
            twice(|| fetch(patience))
        })
    }

    /// The digest of what a tag means now; the manifest itself is only fetched from a registry that does not say.
    ///
    /// # Errors
    /// [`RegistryError`] when it can't be had.
    pub fn resolve(
        &self,
        reference: &Reference,
        version: &str,
        cancel: &Cancel,
    ) -> Result<Digest, RegistryError> {
        check_version(version)?;
        self.anywhere(reference, cancel, |endpoint, patience| {
            let accept = accept_manifests();
            let request = of_manifest(Method::HEAD, endpoint, reference, version, &accept);
            match self.client.send(&request, patience, cancel) {
                Ok(answer) => {
                    if let Some(digest) = content_digest(&answer.headers) {
                        return Ok(digest);
                    }
                }
                Err(error @ (RegistryError::Cancelled(_) | RegistryError::RateLimited { .. })) => {
                    return Err(error);
                }
                // An answer to HEAD has no body that would say why, and some registries do not know the method.
                Err(error) => tracing::debug!(%error, "HEAD"),
            }
            patience.refill();
            twice(|| self.fetch_manifest(endpoint, reference, version, patience, cancel))
                .map(|document| document.digest)
        })
    }

    /// A blob, to be read once from its start to its end. It has been checked when reading it has come to the end
    /// without an error; until then its bytes are anybody's.
    ///
    /// # Errors
    /// [`RegistryError`] when it can't be had.
    pub fn blob(
        &self,
        reference: &Reference,
        descriptor: &Descriptor,
        cancel: &Cancel,
    ) -> Result<Blob, RegistryError> {
        let endpoints = self.client.endpoints(reference.host())?;
        twice(|| {
            Blob::open(
                Arc::clone(&self.client),
                endpoints.clone(),
                reference.repository().to_owned(),
                descriptor,
                cancel.clone(),
            )
        })
    }

    /// A blob as a whole, such as a configuration; one that is not what its digest says is fetched once more.
    ///
    /// # Errors
    /// [`RegistryError::TooBig`] when it is longer than `limit`, and whatever else keeps it from being had.
    pub fn blob_bytes(
        &self,
        reference: &Reference,
        descriptor: &Descriptor,
        limit: u64,
        cancel: &Cancel,
    ) -> Result<Vec<u8>, RegistryError> {
        if descriptor.size > limit {
            return Err(RegistryError::TooBig {
                host: reference.host().to_owned(),
                what: "blob",
                limit,
            });
        }
        twice(|| self.blob(reference, descriptor, cancel)?.into_bytes())
    }

    /// Whether a registry accepts credentials. One that asks for none accepts all.
    ///
    /// # Errors
    /// [`RegistryError::BadCredentials`] when it does not, and whatever else keeps it from answering.
    pub fn check_login(
        &self,
        host: &str,
        credentials: &Credentials,
        cancel: &Cancel,
    ) -> Result<(), RegistryError> {
        let endpoint = self.client.endpoint(host, false)?;
        self.client.check_login(&endpoint, credentials, cancel)
    }

    /// Asks the mirrors of a host, and then the host itself, whose error is the one that counts.
    fn anywhere<T>(
        &self,
        reference: &Reference,
        cancel: &Cancel,
        ask: impl Fn(&Endpoint, &mut Patience) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let mut endpoints = self.client.endpoints(reference.host())?;
        let own = endpoints.pop_back().expect("the host itself is the last");
        for mirror in &endpoints {
            match ask(mirror, &mut self.client.patience(mirror)) {
                Err(error @ RegistryError::Cancelled(_)) => return Err(error),
                Err(error) => {
                    tracing::info!(mirror = mirror.name, %error, "a mirror can't help");
                    cancel.check()?;
                }
                found => return found,
            }
        }
        ask(&own, &mut self.client.patience(&own))
    }

    fn fetch_manifest(
        &self,
        endpoint: &Endpoint,
        reference: &Reference,
        version: &str,
        patience: &mut Patience,
        cancel: &Cancel,
    ) -> Result<Document, RegistryError> {
        let accept = accept_manifests();
        let request = of_manifest(Method::GET, endpoint, reference, version, &accept);
        let (headers, bytes) =
            self.client
                .send_document(&request, "manifest", MAX_MANIFEST, patience, cancel)?;
        let digest = Digest::of(&bytes);
        let expected = version.parse().ok().or_else(|| content_digest(&headers));
        match expected {
            Some(expected) if expected != digest => Err(RegistryError::Digest {
                host: endpoint.name.clone(),
                expected,
                found: digest,
            }),
            _ => Ok(Document {
                media_type: media_type(&headers),
                bytes,
                digest,
            }),
        }
    }
}

fn of_manifest<'a>(
    method: Method,
    endpoint: &'a Endpoint,
    reference: &'a Reference,
    version: &'a str,
    accept: &'a str,
) -> Request<'a> {
    Request {
        endpoint,
        repository: reference.repository(),
        path: format!("{}/manifests/{version}", reference.repository()),
        what: version,
        ask: Ask {
            method,
            accept,
            from: 0,
        },
    }
}

/// Does something again, once, if what came was not what it should be: most often that is a damaged cache on the way.
fn twice<T>(mut what: impl FnMut() -> Result<T, RegistryError>) -> Result<T, RegistryError> {
    match what() {
        Err(
            error @ (RegistryError::Digest { .. }
            | RegistryError::Size { .. }
            | RegistryError::WrongPart { .. }),
        ) => {
            tracing::warn!(%error, "trying once more");
            what()
        }
        result => result,
    }
}

/// Tags and digests are all that may stand in an address.
fn check_version(version: &str) -> Result<(), RegistryError> {
    if is_tag(version) || version.parse::<Digest>().is_ok() {
        return Ok(());
    }
    Err(RegistryError::BadVersion {
        version: version.to_owned(),
    })
}

fn content_digest(headers: &ureq::http::HeaderMap) -> Option<Digest> {
    headers.get(CONTENT_DIGEST)?.to_str().ok()?.parse().ok()
}

fn media_type(headers: &ureq::http::HeaderMap) -> Option<String> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = text.split(';').next()?.trim();
    (!kind.is_empty()).then(|| kind.to_ascii_lowercase())
}
