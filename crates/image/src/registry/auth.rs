//! Telling a registry who asks: Basic, and tokens as Docker's token services give them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use ureq::http::header::WWW_AUTHENTICATE;
use ureq::http::{HeaderMap, HeaderValue, Uri};

use super::challenge::{self, Challenge};
use super::credentials::Credentials;
use super::error::RegistryError;
use super::exchange::{Answer, Ask, Http, redacted};
use super::host::Origin;

/// The answer of a token service is no longer.
const MAX_ANSWER: u64 = 256 * 1024;
/// A token is no longer: a header must hold it.
const MAX_TOKEN: usize = 32 * 1024;
/// How long a token lasts that does not say so.
const USUAL_LIFE: u64 = 60;
/// A token is not used any more shortly before its end, as a request takes its time.
const SPARE: Duration = Duration::from_secs(5);
/// What token services are told of this client.
const CLIENT_ID: &str = "cosm";

/// What is shown to a registry.
#[derive(Clone)]
pub(crate) struct Held {
    /// The value of `Authorization`.
    pub(crate) header: String,
    until: Option<Instant>,
    /// Whether it came by credentials; without, anybody can get it.
    pub(crate) by_login: bool,
}

/// What to show is kept by registry and scope.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) origin: Origin,
    pub(crate) scope: String,
}

/// All that is shown to registries, for as long as it is good.
#[derive(Default)]
pub(crate) struct Wallet {
    held: Mutex<HashMap<Key, Held>>,
    /// Taken while something new is got, so that threads that need the same token ask for it once.
    turn: Mutex<()>,
}

impl Wallet {
    pub(crate) fn get(&self, key: &Key) -> Option<Held> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(key)
            .filter(|held| held.until.is_none_or(|until| Instant::now() < until))
            .cloned()
    }

    /// What to show after `refused` was: what another thread has got meanwhile, or what `make` gets.
    pub(crate) fn renew(
        &self,
        key: Key,
        refused: Option<&Held>,
        make: impl FnOnce() -> Result<Option<Held>, RegistryError>,
    ) -> Result<Option<Held>, RegistryError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = self.get(&key)
            && refused.is_none_or(|refused| refused.header != held.header)
        {
            return Ok(Some(held));
        }
        let made = make()?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match &made {
            Some(made) => held.insert(key, made.clone()),
            None => held.remove(&key),
        };
        Ok(made)
    }
}

/// The ways that a 401 names.
pub(crate) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .take(8)
        .flat_map(|header| challenge::parse(&String::from_utf8_lossy(header.as_bytes())))
        .collect()
}

/// Somebody wants to get at something.
pub(crate) struct Visit<'a> {
    pub(crate) http: Http<'a>,
    /// The registry's host, as people name it.
    pub(crate) host: &'a str,
    /// The registry.
    pub(crate) origin: &'a Origin,
    /// What is wanted, where the registry does not say so itself; empty at a login.
    pub(crate) scope: &'a str,
    pub(crate) credentials: Option<&'a Credentials>,
}

impl Visit<'_> {
    /// What to show after a 401, or `None` when a login is needed and there is none.
    pub(crate) fn answer(&self, challenges: &[Challenge]) -> Result<Option<Held>, RegistryError> {
        let bearer = challenges
            .iter()
            .find(|c| c.scheme == "bearer" && c.param("realm").is_some());
        let basic = challenges.iter().any(|c| c.scheme == "basic");
        match (bearer, self.credentials) {
            (_, Some(Credentials::RegistryToken(token))) => Ok(Some(Held {
                header: format!("Bearer {token}"),
                until: None,
                by_login: true,
            })),
            (Some(bearer), _) => self.token(bearer),
            (None, Some(Credentials::Password { user, password })) if basic => Ok(Some(Held {
                header: format!("Basic {}", Credentials::basic(user, password)),
                until: None,
                by_login: true,
            })),
            (None, _) if basic => Ok(None),
            (None, _) => Err(RegistryError::Challenge {
                host: self.host.to_owned(),
            }),
        }
    }

    fn token(&self, bearer: &Challenge) -> Result<Option<Held>, RegistryError> {
        let realm = bearer.param("realm").unwrap_or_default();
        let wrong = |why| RegistryError::Realm {
            host: self.host.to_owned(),
            realm: redacted(realm),
            why,
        };
        let uri: Uri = realm.parse().map_err(|_| wrong("which is no address"))?;
        let service = Origin::of(&uri).ok_or_else(|| wrong("which is no address of HTTP"))?;
        if self.origin.https && !service.https {
            return Err(wrong("where credentials would be sent without encryption"));
        }
        let began = Instant::now();
        let answer = self.ask(&uri, bearer)?;
        match answer.status.as_u16() {
            200..=299 => {}
            401 | 403 if self.credentials.is_none() => return Ok(None),
            401 | 403 => {
                return Err(RegistryError::BadCredentials {
                    host: self.host.to_owned(),
                    said: self.http.said(answer),
                });
            }
            _ => return Err(self.http.status(&service.name(), answer)),
        }
        let body = self.http.document(answer, "token", MAX_ANSWER)?;
        let (token, life) = read_token(&body).ok_or_else(|| RegistryError::Token {
            host: self.host.to_owned(),
            service: service.name(),
        })?;
        Ok(Some(Held {
            header: format!("Bearer {token}"),
            until: Some(began + life.saturating_sub(SPARE)),
            by_login: self.credentials.is_some(),
        }))
    }

    fn ask(&self, realm: &Uri, bearer: &Challenge) -> Result<Answer, RegistryError> {
        let scope = bearer.param("scope").unwrap_or(self.scope);
        let mut form = Form::default();
        if let Some(service) = bearer.param("service") {
            form.add("service", service);
        }
        let mut authorization = None;
        match self.credentials {
            Some(Credentials::IdentityToken(token)) => {
                form.add("grant_type", "refresh_token");
                form.add("client_id", CLIENT_ID);
                form.add("refresh_token", token);
                if !scope.is_empty() {
                    form.add("scope", scope);
                }
                return self.http.post(realm, form.0);
            }
            Some(Credentials::Password { user, password }) => {
                form.add("account", user);
                authorization = Some(format!("Basic {}", Credentials::basic(user, password)));
            }
            Some(Credentials::RegistryToken(_)) | None => {}
        }
        for scope in scope.split_ascii_whitespace() {
            form.add("scope", scope);
        }
        let text = realm.to_string();
        let sign = if text.contains('?') { '&' } else { '?' };
        let uri = format!("{text}{sign}{}", form.0)
            .parse()
            .map_err(|_| RegistryError::Realm {
                host: self.host.to_owned(),
                realm: redacted(&text),
                why: "which is too long",
            })?;
        self.http
            .exchange(uri, &Ask::default(), authorization.as_deref())
    }
}

/// The token in a service's answer, and how long it lasts.
fn read_token(body: &[u8]) -> Option<(String, Duration)> {
    #[derive(Deserialize)]
    struct Given {
        #[serde(default)]
        token: Option<String>,
        #[serde(default)]
        access_token: Option<String>,
        #[serde(default)]
        expires_in: Option<f64>,
    }
    let given: Given = serde_json::from_slice(body).ok()?;
    let filled = |token: &String| !token.is_empty();
    let token = given
        .token
        .filter(filled)
        .or(given.access_token.filter(filled))?;
    let fits = token.len() <= MAX_TOKEN && token.bytes().all(|b| b.is_ascii_graphic());
    if !fits || HeaderValue::from_str(&token).is_err() {
        return None;
    }
    let seconds = given.expires_in.unwrap_or_default();
    let life = Duration::try_from_secs_f64(seconds.clamp(0.0, 86_400.0)).unwrap_or_default();
    Some((token, life.max(Duration::from_secs(USUAL_LIFE))))
}

/// Names and values, as a query or a form has them.
#[derive(Default)]
struct Form(String);

impl Form {
    fn add(&mut self, name: &str, value: &str) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~:/,".contains(&byte) {
                self.0.push(char::from(byte));
            } else {
                let digit = |n: u8| char::from(DIGITS[usize::from(n)]);
                self.0.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_with_their_end() {
        let read =
            |body: &str| read_token(body.as_bytes()).map(|(token, life)| (token, life.as_secs()));
        let is = |token: &str, life| Some((token.to_owned(), life));
        assert_eq!(read(r#"{"token":"t","expires_in":300}"#), is("t", 300));
        assert_eq!(read(r#"{"access_token":"a"}"#), is("a", 60));
        assert_eq!(
            read(r#"{"token":"","access_token":"a","expires_in":1}"#),
            is("a", 60)
        );
        assert_eq!(read(r#"{"token":"t","expires_in":1e300}"#), is("t", 86_400));
        assert_eq!(read(r#"{"token":"t","expires_in":-5}"#), is("t", 60));
        for none in [
            "{}",
            "",
            "[]",
            r#"{"token":""}"#,
            r#"{"token":"a\r\nb: c"}"#,
            r#"{"token":"a b"}"#,
        ] {
            assert_eq!(read(none), None, "{none}");
        }
        assert_eq!(
            read(&format!(r#"{{"token":"{}"}}"#, "t".repeat(MAX_TOKEN + 1))),
            None
        );
    }

    #[test]
    fn forms_hold_any_text() {
        let mut form = Form::default();
        form.add("service", "a b&c=d");
        form.add("scope", "repository:x/y:pull,push");
        form.add("account", "ä");
        assert_eq!(
            form.0,
            "service=a%20b%26c%3Dd&scope=repository:x/y:pull,push&account=%C3%A4"
        );
    }
}
