//! A request to a registry: tried again after failures that pass, with a login where one is wanted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ureq::http::HeaderMap;

use super::MIRROR_RETRIES;
use super::agents::{Agents, settings};
use super::auth::{Held, Key, Visit, Wallet, challenges};
use super::config::RegistryConfig;
use super::credentials::{self, Credentials};
use super::error::RegistryError;
use super::exchange::{Answer, Ask, Http, may_speak_no_tls};
use super::host::{Endpoint, Origin, Scheme};
use super::wait::Patience;
use crate::cancel::Cancel;

/// What all requests share.
pub(crate) struct Client {
    pub(crate) config: RegistryConfig,
    agents: Agents,
    wallet: Wallet,
    /// Whether hosts that may speak either, by authority, speak TLS.
    speaks_tls: Mutex<HashMap<String, bool>>,
    /// Mirrors that sent something else than was asked for.
    distrusted: Mutex<HashSet<String>>,
}

/// What is wanted of a registry.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) repository: &'a str,
    /// What comes after `/v2/`.
    pub(crate) path: String,
    /// The tag or digest, for errors.
    pub(crate) what: &'a str,
    pub(crate) ask: Ask<'a>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    pub(crate) fn new(config: RegistryConfig) -> Self {
        Self {
            config,
            agents: Agents::new(),
            wallet: Wallet::default(),
            speaks_tls: Mutex::default(),
            distrusted: Mutex::default(),
        }
    }

    pub(crate) fn http<'a>(&'a self, cancel: &'a Cancel) -> Http<'a> {
        Http {
            config: &self.config,
            agents: &self.agents,
            cancel,
        }
    }

    pub(crate) fn patience(&self, endpoint: &Endpoint) -> Patience {
        let retries = self.config.retries;
        Patience::new(
            &self.config,
            if endpoint.is_mirror {
                retries.min(MIRROR_RETRIES)
            } else {
                retries
            },
        )
    }

    /// The address of a host or a mirror.
    pub(crate) fn endpoint(&self, text: &str, is_mirror: bool) -> Result<Endpoint, RegistryError> {
        let plain = |name: &str| settings(&self.config, name).is_some_and(|host| host.plain_http);
        Endpoint::new(text, plain, is_mirror)
    }

    /// Where a host's repositories are asked for, in order: its mirrors, and itself.
    pub(crate) fn endpoints(&self, host: &str) -> Result<VecDeque<Endpoint>, RegistryError> {
        let own = self.endpoint(host, false)?;
        let mut all = VecDeque::new();
        let mirrors = settings(&self.config, &own.name).map(|host| host.mirrors.as_slice());
        for mirror in mirrors.unwrap_or_default() {
            let mirror = self.endpoint(mirror, true)?;
            if !lock(&self.distrusted).contains(&mirror.authority) {
                all.push_back(mirror);
            }
        }
        all.push_back(own);
        Ok(all)
    }

    /// Makes a mirror be passed over from now on.
    pub(crate) fn distrust(&self, endpoint: &Endpoint) {
        if endpoint.is_mirror {
            lock(&self.distrusted).insert(endpoint.authority.clone());
        }
    }

    /// Asks until there is an answer with a status of success, or a reason not to ask again.
    pub(crate) fn send(
        &self,
        request: &Request<'_>,
        patience: &mut Patience,
        cancel: &Cancel,
    ) -> Result<Answer, RegistryError> {
        patiently(patience, cancel, || self.once(request, cancel))
    }

    /// Asks for something short, and reads it whole.
    pub(crate) fn send_document(
        &self,
        request: &Request<'_>,
        what: &'static str,
        limit: u64,
        patience: &mut Patience,
        cancel: &Cancel,
    ) -> Result<(HeaderMap, Vec<u8>), RegistryError> {
        patiently(patience, cancel, || {
            let answer = self.once(request, cancel)?;
            let headers = answer.headers.clone();
            let bytes = self.http(cancel).document(answer, what, limit)?;
            Ok((headers, bytes))
        })
    }

    /// Asks, and once more if the registry wants to know who does.
    fn once(&self, request: &Request<'_>, cancel: &Cancel) -> Result<Answer, RegistryError> {
        let Request { endpoint, .. } = request;
        let scope = format!("repository:{}:pull", request.repository);
        let shown = self.origin(endpoint).and_then(|origin| {
            self.wallet.get(&Key {
                origin,
                scope: scope.clone(),
            })
        });
        let (origin, answer) = self.ask(request, shown.as_ref(), cancel)?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        if answer.status != 401 || answer.origin != origin {
            return Err(self.refusal(request, &origin, answer, shown.as_ref(), cancel));
        }
        let ways = challenges(&answer.headers);
        let key = Key {
            origin: origin.clone(),
            scope: scope.clone(),
        };
        let held = self.wallet.renew(key, shown.as_ref(), || {
            let credentials = credentials::find(&self.config, &endpoint.name, cancel)?;
            let visit = Visit {
                http: self.http(cancel),
                host: &endpoint.name,
                origin: &origin,
                scope: &scope,
                credentials: credentials.as_ref(),
            };
            visit.answer(&ways)
        })?;
        let Some(held) = held else {
            return Err(self.refusal(request, &origin, answer, None, cancel));
        };
        drop(answer);
        let (origin, answer) = self.ask(request, Some(&held), cancel)?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(self.refusal(request, &origin, answer, Some(&held), cancel))
    }

    fn ask(
        &self,
        request: &Request<'_>,
        shown: Option<&Held>,
        cancel: &Cancel,
    ) -> Result<(Origin, Answer), RegistryError> {
        let shown = shown.map(|held| held.header.as_str());
        self.at(request.endpoint, &request.path, &request.ask, shown, cancel)
    }

    /// The origin of a registry, as far as it is known whether it speaks TLS.
    fn origin(&self, endpoint: &Endpoint) -> Option<Origin> {
        let https = self.known_scheme(endpoint)?;
        Origin::of(&endpoint.uri(https, "").ok()?)
    }

    fn known_scheme(&self, endpoint: &Endpoint) -> Option<bool> {
        match endpoint.scheme {
            Scheme::Https => Some(true),
            Scheme::Http => Some(false),
            Scheme::Either => lock(&self.speaks_tls).get(&endpoint.authority).copied(),
        }
    }

    /// Asks a registry for a path, with TLS or without.
    fn at(
        &self,
        endpoint: &Endpoint,
        path: &str,
        ask: &Ask<'_>,
        authorization: Option<&str>,
        cancel: &Cancel,
    ) -> Result<(Origin, Answer), RegistryError> {
        let exchange = |https| {
            let uri = endpoint.uri(https, path)?;
            let origin = Origin::of(&uri).ok_or_else(|| RegistryError::BadHost {
                host: endpoint.name.clone(),
            })?;
            let answer = self.http(cancel).exchange(uri, ask, authorization)?;
            Ok((origin, answer))
        };
        if let Some(https) = self.known_scheme(endpoint) {
            return exchange(https);
        }
        let remember = |https| {
            lock(&self.speaks_tls).insert(endpoint.authority.clone(), https);
        };
        match exchange(true) {
            // A certificate that is not trusted is no reason to do without one.
            Err(RegistryError::Transport { host, source })
                if host_is(endpoint, &host) && may_speak_no_tls(&source) =>
            {
                tracing::debug!(%source, "{host} does not speak TLS, perhaps HTTP alone");
                let plain = exchange(false)?;
                remember(false);
                Ok(plain)
            }
            result => {
                if result.is_ok() {
                    remember(true);
                }
                result
            }
        }
    }

    /// The error for an answer that is no success.
    fn refusal(
        &self,
        request: &Request<'_>,
        origin: &Origin,
        answer: Answer,
        shown: Option<&Held>,
        cancel: &Cancel,
    ) -> RegistryError {
        let http = self.http(cancel);
        let host = request.endpoint.name.clone();
        if answer.origin != *origin {
            // A store of blobs elsewhere, which knows neither repositories nor users.
            let elsewhere = answer.origin.name();
            return http.status(&elsewhere, answer);
        }
        let repository = request.repository.to_owned();
        let by_login = shown.is_some_and(|held| held.by_login);
        match answer.status.as_u16() {
            401 | 403 if !by_login => RegistryError::LoginNeeded {
                host,
                repository,
                said: http.said(answer),
            },
            401 if shown.is_some_and(|held| held.header.starts_with("Basic ")) => {
                RegistryError::BadCredentials {
                    host,
                    said: http.said(answer),
                }
            }
            401 | 403 => RegistryError::Forbidden {
                host,
                repository,
                said: http.said(answer),
            },
            404 => RegistryError::NotFound {
                host,
                repository,
                what: request.what.to_owned(),
                said: http.said(answer),
            },
            _ => http.status(&host, answer),
        }
    }

    pub(crate) fn check_login(
        &self,
        endpoint: &Endpoint,
        credentials: &Credentials,
        cancel: &Cancel,
    ) -> Result<(), RegistryError> {
        let http = self.http(cancel);
        let mut patience = self.patience(endpoint);
        patiently(&mut patience, cancel, || {
            let ask = Ask::default();
            let (origin, answer) = self.at(endpoint, "", &ask, None, cancel)?;
            if answer.status.is_success() {
                return Ok(());
            }
            if answer.status != 401 {
                return Err(http.status(&endpoint.name, answer));
            }
            let visit = Visit {
                http,
                host: &endpoint.name,
                origin: &origin,
                scope: "",
                credentials: Some(credentials),
            };
            let held = visit.answer(&challenges(&answer.headers))?;
            let refused = |answer| RegistryError::BadCredentials {
                host: endpoint.name.clone(),
                said: http.said(answer),
            };
            let Some(held) = held else {
                return Err(refused(answer));
            };
            let (_, answer) = self.at(endpoint, "", &ask, Some(&held.header), cancel)?;
            match answer.status.as_u16() {
                200..=299 => Ok(()),
                401 | 403 => Err(refused(answer)),
                _ => Err(http.status(&endpoint.name, answer)),
            }
        })
    }
}

/// Whether it was the registry itself that could not be talked to, and not what it redirects to.
fn host_is(endpoint: &Endpoint, host: &str) -> bool {
    endpoint.authority.trim_end_matches(":443") == host
}

fn patiently<T>(
    patience: &mut Patience,
    cancel: &Cancel,
    mut what: impl FnMut() -> Result<T, RegistryError>,
) -> Result<T, RegistryError> {
    loop {
        match what() {
            Err(error) if error.is_retryable() => {
                if !patience.wait(error.retry_after(), cancel)? {
                    return Err(error);
                }
                tracing::debug!(%error, "trying again");
            }
            result => return result,
        }
    }
}
