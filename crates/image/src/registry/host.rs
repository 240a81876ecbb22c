//! Names of hosts: as people write them, as files of credentials have them, and as they are connected to.

use std::net::IpAddr;

use ureq::http::Uri;

use super::error::RegistryError;
use crate::reference::DEFAULT_HOST;

/// Where Docker Hub's registry really is.
const HUB_API: &str = "registry-1.docker.io";
/// Under what name credentials of Docker Hub are kept, by everybody and for ever.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// The host that a key of a `config.json` means, as references have it, or `None` when the key is of something else (a
/// single repository, in Podman's files).
pub(crate) fn canonical_host(key: &str) -> Option<String> {
    let rest = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || !matches!(path.trim_end_matches('/'), "" | "v1" | "v2") {
        return None;
    }
    let host = host.to_ascii_lowercase();
    Some(match host.as_str() {
        "index.docker.io" | HUB_API => DEFAULT_HOST.to_owned(),
        _ => host,
    })
}

/// Under what name a host's credentials are kept.
pub(crate) fn helper_key(host: &str) -> &str {
    if host == DEFAULT_HOST { HUB_KEY } else { host }
}

/// One place that is connected to: what credentials, redirects and certificates are bound to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) https: bool,
    /// In lower case, IPv6 addresses in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Origin {
    /// The origin of an address with a scheme that is spoken here, and without a name and password before the host: what
    /// would be done with those is nobody's to say but the user's.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return None;
        }
        Some(Self {
            https,
            host: authority.host().to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(if https { 443 } else { 80 }),
        })
    }

    /// The host, with its port if that is not the scheme's.
    pub(crate) fn name(&self) -> String {
        if self.port == if self.https { 443 } else { 80 } {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether nobody else can be there.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether a host is talked to with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Https,
    Http,
    /// With TLS if it speaks that: on this machine's own addresses, as Docker does.
    Either,
}

/// One registry's address.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// The host as references and credentials have it.
    pub(crate) name: String,
    /// Host and port that are connected to.
    pub(crate) authority: String,
    pub(crate) scheme: Scheme,
    pub(crate) is_mirror: bool,
}

impl Endpoint {
    /// The registry of a host as references name it, or a mirror, which may have a scheme before the name.
    pub(crate) fn new(
        text: &str,
        plain_http: impl Fn(&str) -> bool,
        is_mirror: bool,
    ) -> Result<Self, RegistryError> {
        let bad = || RegistryError::BadHost {
            host: text.to_owned(),
        };
        let (said, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(_) => return Err(bad()),
            None => (None, text),
        };
        let name = canonical_host(rest.trim_end_matches('/')).ok_or_else(bad)?;
        if rest.trim_end_matches('/').contains('/') {
            return Err(bad());
        }
        let authority = if name == DEFAULT_HOST { HUB_API } else { &name };
        let uri: Uri = format!("https://{authority}/").parse().map_err(|_| bad())?;
        let origin = Origin::of(&uri).ok_or_else(bad)?;
        let scheme = match said {
            Some(scheme) => scheme,
            None if plain_http(&name) => Scheme::Http,
            None if origin.is_loopback() => Scheme::Either,
            None => Scheme::Https,
        };
        Ok(Self {
            authority: authority.to_owned(),
            name,
            scheme,
            is_mirror,
        })
    }

    /// An address there. `path` begins after `/v2/`.
    pub(crate) fn uri(&self, https: bool, path: &str) -> Result<Uri, RegistryError> {
        let scheme = if https { "https" } else { "http" };
        format!("{scheme}://{}/v2/{path}", self.authority)
            .parse()
            .map_err(|_| RegistryError::BadHost {
                host: self.name.clone(),
            })
    }
}

/// Where a `Location` leads from an address (RFC 3986, 5.2, but for `..`, which the other side resolves as well), or why
/// it leads nowhere.
pub(crate) fn follow(from: &Uri, location: &str) -> Result<Uri, &'static str> {
    let location = location.split('#').next().unwrap_or_default();
    let scheme = from.scheme_str().unwrap_or_default();
    let origin = format!(
        "{scheme}://{}",
        from.authority().map_or("", |authority| authority.as_str())
    );
    let names_scheme = location.split_once(':').is_some_and(|(before, _)| {
        !before.contains(['/', '?']) && before.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    let whole = if names_scheme {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{origin}{location}")
    } else if location.starts_with('?') {
        format!("{origin}{}{location}", from.path())
    } else {
        let folder = from
            .path()
            .rfind('/')
            .map_or("", |slash| &from.path()[..slash]);
        format!("{origin}{folder}/{location}")
    };
    let to: Uri = whole.parse().map_err(|_| "which is no address")?;
    match (Origin::of(from), Origin::of(&to)) {
        (_, None) => Err("which is no address of HTTP"),
        (Some(from), Some(to)) if from.https && !to.https => {
            Err("which would be without the encryption that there is now")
        }
        _ => Ok(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Option<(String, String, Scheme)> {
        let endpoint = Endpoint::new(text, |name| name == "plain.test", false).ok()?;
        Some((endpoint.name, endpoint.authority, endpoint.scheme))
    }

    #[test]
    fn hosts_and_where_they_are() {
        let is = |name: &str, authority: &str, scheme| {
            Some((name.to_owned(), authority.to_owned(), scheme))
        };
        let hub = is("docker.io", "registry-1.docker.io", Scheme::Https);
        assert_eq!(endpoint("docker.io"), hub);
        assert_eq!(endpoint("index.docker.io"), hub);
        assert_eq!(endpoint("GHCR.io"), is("ghcr.io", "ghcr.io", Scheme::Https));
        assert_eq!(
            endpoint("plain.test"),
            is("plain.test", "plain.test", Scheme::Http)
        );
        assert_eq!(
            endpoint("http://m.test/"),
            is("m.test", "m.test", Scheme::Http)
        );
        for local in ["localhost", "localhost:5000", "127.1.2.3:1", "[::1]:5000"] {
            assert_eq!(endpoint(local), is(local, local, Scheme::Either));
        }
        for bad in [
            "",
            "a b",
            "ftp://x",
            "a@b",
            "host/path",
            "host:port:x",
            "https://",
            "a\nb",
        ] {
            assert_eq!(endpoint(bad), None, "{bad}");
        }
    }

    #[test]
    fn keys_of_credentials() {
        for hub in [
            "https://index.docker.io/v1/",
            "docker.io",
            "index.docker.io",
            "registry-1.docker.io",
            "https://index.docker.io/v1",
        ] {
            assert_eq!(canonical_host(hub).as_deref(), Some("docker.io"), "{hub}");
        }
        assert_eq!(canonical_host("http://h:1/v2/").as_deref(), Some("h:1"));
        assert_eq!(canonical_host("quay.io/org/app"), None);
        assert_eq!(canonical_host(""), None);
        assert_eq!(helper_key("docker.io"), "https://index.docker.io/v1/");
        assert_eq!(helper_key("quay.io"), "quay.io");
    }

    #[test]
    fn redirects_lead_where_they_say() {
        let to = |location: &str| {
            follow(
                &"https://r.test:5000/v2/a/blobs/x?q=1"
                    .parse()
                    .expect("an address"),
                location,
            )
            .map(|to| to.to_string())
        };
        for (location, expected) in [
            ("https://cdn.test/x?y=z#f", "https://cdn.test/x?y=z"),
            ("//cdn.test/x", "https://cdn.test/x"),
            ("/other", "https://r.test:5000/other"),
            ("?p=2", "https://r.test:5000/v2/a/blobs/x?p=2"),
            ("y", "https://r.test:5000/v2/a/blobs/y"),
        ] {
            assert_eq!(to(location).as_deref(), Ok(expected));
        }
        for refused in [
            "http://r.test:5000/x",
            "file:///etc/passwd",
            "ftp://r.test/x",
            "data:,x",
            "https://user:password@r.test/",
            "https://a b/",
            "https://",
        ] {
            assert!(to(refused).is_err(), "{refused}");
        }
        let plain = "http://localhost:5000/v2/".parse().expect("an address");
        assert!(follow(&plain, "https://cdn.test/").is_ok());
        assert!(follow(&plain, "http://cdn.test/").is_ok());
    }
}
