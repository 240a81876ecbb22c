//! One request and its answer, redirects followed.

use std::io::Read;
use std::time::Instant;

use ureq::http::header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION, RANGE};
use ureq::http::{HeaderMap, Method, Request, StatusCode, Uri};
use ureq::{Body, BodyReader};

use super::agents::Agents;
use super::config::RegistryConfig;
use super::error::RegistryError;
use super::host::{Origin, follow};
use super::said::Said;
use super::wait::retry_after;
use crate::cancel::Cancel;

/// More redirects than this are a loop.
const MAX_REDIRECTS: usize = 10;
/// What is read of the body of an error.
const MAX_ERROR: u64 = 64 * 1024;

/// What is asked for, besides where.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// The media types wanted; empty is any.
    pub(crate) accept: &'a str,
    /// The first byte wanted.
    pub(crate) from: u64,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Who answered: perhaps not who was asked.
    pub(crate) origin: Origin,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// What requests are made with.
#[derive(Clone, Copy)]
pub(crate) struct Http<'a> {
    pub(crate) config: &'a RegistryConfig,
    pub(crate) agents: &'a Agents,
    pub(crate) cancel: &'a Cancel,
}

impl Http<'_> {
    /// Asks, and follows redirects. `authorization` is shown to the host of `uri` alone; once a redirect has led away
    /// from it, to nobody.
    pub(crate) fn exchange(
        self,
        mut uri: Uri,
        ask: &Ask<'_>,
        authorization: Option<&str>,
    ) -> Result<Answer, RegistryError> {
        let bad = |uri: &Uri| RegistryError::BadHost {
            host: uri.host().unwrap_or_default().to_owned(),
        };
        let mut origin = Origin::of(&uri).ok_or_else(|| bad(&uri))?;
        let mut authorization = authorization.map(secret);
        for _ in 0..=MAX_REDIRECTS {
            self.cancel.check()?;
            let mut request = Request::new(());
            *request.method_mut() = ask.method.clone();
            *request.uri_mut() = uri.clone();
            let headers = request.headers_mut();
            if let Ok(accept) = HeaderValue::from_str(ask.accept)
                && !ask.accept.is_empty()
            {
                headers.insert(ACCEPT, accept);
            }
            if ask.from > 0 {
                let range = HeaderValue::from_str(&format!("bytes={}-", ask.from));
                headers.insert(RANGE, range.expect("digits are fit for a header"));
            }
            if let Some(Some(authorization)) = &authorization {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let agent = self.agents.get(self.config, &origin)?;
            let response = agent
                .run(request)
                .map_err(|error| transport(&origin, error))?;
            let (parts, body) = response.into_parts();
            let location = parts.headers.get(LOCATION);
            if !matches!(parts.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(Answer {
                    origin,
                    status: parts.status,
                    headers: parts.headers,
                    body,
                });
            }
            let location = location.map(HeaderValue::as_bytes).unwrap_or_default();
            let location = String::from_utf8_lossy(location);
            let refused = |why| RegistryError::Redirect {
                host: origin.name(),
                to: redacted(&location),
                why,
            };
            if location.is_empty() {
                return Err(refused("which is nowhere"));
            }
            let next = follow(&uri, &location).map_err(refused)?;
            let there = Origin::of(&next).ok_or_else(|| bad(&next))?;
            if there != origin {
                authorization = None;
            }
            (uri, origin) = (next, there);
        }
        Err(RegistryError::Redirect {
            host: origin.name(),
            to: redacted(&uri.to_string()),
            why: "on and on",
        })
    }

    /// Sends a form, for which no redirect is followed: what it holds is a secret.
    pub(crate) fn post(self, uri: &Uri, form: String) -> Result<Answer, RegistryError> {
        self.cancel.check()?;
        let origin = Origin::of(uri).ok_or_else(|| RegistryError::BadHost {
            host: uri.host().unwrap_or_default().to_owned(),
        })?;
        let agent = self.agents.get(self.config, &origin)?;
        let response = agent
            .post(uri)
            .content_type("application/x-www-form-urlencoded")
            .send(form)
            .map_err(|error| transport(&origin, error))?;
        let (parts, body) = response.into_parts();
        Ok(Answer {
            origin,
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }

    /// The whole of an answer that is meant to be short.
    pub(crate) fn document(
        self,
        answer: Answer,
        what: &'static str,
        limit: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let host = || answer.origin.name();
        let too_big = || RegistryError::TooBig {
            host: host(),
            what,
            limit,
        };
        if answer.body.content_length().is_some_and(|n| n > limit) {
            return Err(too_big());
        }
        let end = Instant::now() + self.config.timeouts.document;
        let mut reader = answer.body.into_reader();
        let mut bytes = Vec::new();
        let mut block = [0; 16 * 1024];
        loop {
            self.cancel.check()?;
            let n = read(&mut reader, &mut block).map_err(|e| transport(&answer.origin, e))?;
            if n == 0 {
                return Ok(bytes);
            }
            bytes.extend_from_slice(&block[..n]);
            if bytes.len() as u64 > limit {
                return Err(too_big());
            }
            if Instant::now() >= end {
                return Err(RegistryError::TooSlow {
                    host: host(),
                    what,
                    seconds: self.config.timeouts.document.as_secs(),
                });
            }
        }
    }

    /// What the body of an error says. That it can't be read changes nothing about the error.
    pub(crate) fn said(self, answer: Answer) -> Said {
        self.document(answer, "error", MAX_ERROR)
            .map(|body| Said::read(&body))
            .unwrap_or_default()
    }

    /// The error for an answer of which nothing more is known than its status.
    pub(crate) fn status(self, host: &str, answer: Answer) -> RegistryError {
        let status = answer.status.as_u16();
        let retry_after = retry_after(&answer.headers);
        let host = host.to_owned();
        let said = self.said(answer);
        if status == 429 {
            return RegistryError::RateLimited {
                host,
                retry_after,
                said,
            };
        }
        RegistryError::Status {
            host,
            status,
            retry_after,
            said,
        }
    }
}

fn read(reader: &mut BodyReader<'_>, block: &mut [u8]) -> Result<usize, ureq::Error> {
    // An error of the client's own comes back out of the one of `Read`.
    reader.read(block).map_err(ureq::Error::from)
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// An address without its path and query, which give access to what they name.
pub(crate) fn redacted(address: &str) -> String {
    const MAX: usize = 100;
    let after_scheme = address.find("://").map_or(0, |at| at + 3);
    let end = address[after_scheme..]
        .find(['/', '?', '#'])
        .map_or(address.len(), |at| after_scheme + at);
    // A name and password may stand before the host.
    let (scheme, rest) = address[..end].split_at(after_scheme.min(end));
    let host = rest.rsplit('@').next().unwrap_or_default();
    format!("{scheme}{host}").chars().take(MAX).collect()
}

fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// Whether what went wrong may be that the other side speaks no TLS. One that refuses this client in the words of TLS
/// does speak it.
pub(crate) fn may_speak_no_tls(error: &ureq::Error) -> bool {
    tls_error(error).is_none_or(|error| matches!(error, rustls::Error::InvalidMessage(_)))
}

fn transport(origin: &Origin, error: ureq::Error) -> RegistryError {
    let is_certificate = matches!(
        tls_error(&error),
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    );
    let host = origin.name();
    let source = Box::new(error);
    if is_certificate {
        RegistryError::Certificate { host, source }
    } else {
        RegistryError::Transport { host, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_addresses_only_the_host_is_shown() {
        for (address, shown) in [
            ("https://cdn.test/x?signature=secret", "https://cdn.test"),
            ("https://me:secret@cdn.test?x", "https://cdn.test"),
            ("/path?secret", ""),
            ("file:///etc/passwd", "file://"),
        ] {
            assert_eq!(redacted(address), shown);
        }
    }
}
