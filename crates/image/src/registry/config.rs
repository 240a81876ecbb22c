//! What the caller decides: hosts, certificates, credentials and patience.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::credentials::Credentials;

/// How registries are talked to. Nothing is read from the environment or a home folder: the caller passes every path.
#[derive(Debug, Clone)]
pub struct RegistryConfig {
    /// Settings of single hosts, by name as in references (`docker.io`, `localhost:5000`).
    pub hosts: BTreeMap<String, HostConfig>,
    /// Where credentials come from.
    pub credentials: CredentialSources,
    /// Folders in the form of Docker's `/etc/docker/certs.d`: `<host[:port]>/*.crt` are authorities, `*.cert` with the
    /// `*.key` of the same name is what this client shows of itself.
    pub certs_dirs: Vec<PathBuf>,
    /// The authorities that are trusted for all hosts, in PEM. `None` is the system's bundle, and where the system has
    /// none, Mozilla's list as this program was built with it.
    pub ca_bundle: Option<PathBuf>,
    /// The proxy that all but loopback hosts are reached by.
    pub proxy: Option<ProxyConfig>,
    /// How long is waited for what.
    pub timeouts: Timeouts,
    /// How often a request is made again after a failure that may pass.
    pub retries: u32,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            hosts: BTreeMap::new(),
            credentials: CredentialSources::default(),
            certs_dirs: Vec::new(),
            ca_bundle: None,
            proxy: None,
            timeouts: Timeouts::default(),
            retries: 4,
        }
    }
}

/// One host's settings.
#[derive(Debug, Clone, Default)]
pub struct HostConfig {
    /// Talk without TLS.
    pub plain_http: bool,
    /// Take any certificate.
    pub skip_verify: bool,
    /// Authorities trusted for this host besides the common ones, in PEM.
    pub ca: Vec<PathBuf>,
    /// Hosts that are asked before this one, perhaps with `http://` or `https://` before the name.
    pub mirrors: Vec<String>,
}

/// A proxy for HTTP.
#[derive(Clone)]
pub struct ProxyConfig {
    /// `http://[user:password@]host:port`.
    pub url: String,
    /// Hosts that are reached without it, as in `NO_PROXY`.
    pub except: Vec<String>,
}

impl std::fmt::Debug for ProxyConfig {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyConfig")
            .field("except", &self.except)
            .finish_non_exhaustive()
    }
}

/// Where credentials come from, the first that has any for the host.
#[derive(Debug, Clone, Default)]
pub struct CredentialSources {
    /// Given by the caller, by host.
    pub given: BTreeMap<String, Credentials>,
    /// Files in the form of Docker's `config.json`. One that does not exist is empty.
    pub files: Vec<PathBuf>,
    /// The `PATH` in which `docker-credential-NAME` is looked up. Without it no such program is run.
    pub helper_path: Option<OsString>,
}

/// How long is waited for what.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// Until there is a connection, TLS included.
    pub connect: Duration,
    /// From the request to the end of the response's header.
    pub response: Duration,
    /// Between two reads: the whole of a download has no limit, its pauses have.
    pub idle: Duration,
    /// For the whole of a manifest or a token.
    pub document: Duration,
    /// Before the first repetition; each further one waits twice as long, up to [`Timeouts::MAX_BACKOFF`].
    pub backoff: Duration,
    /// The most that a registry can make a request wait by `Retry-After`, in all.
    pub retry_after: Duration,
    /// For a program that keeps credentials.
    pub helper: Duration,
}

impl Timeouts {
    /// The longest wait between two repetitions that the registry did not ask for itself.
    pub const MAX_BACKOFF: Duration = Duration::from_secs(8);
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            response: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            document: Duration::from_secs(120),
            backoff: Duration::from_millis(300),
            retry_after: Duration::from_secs(60),
            helper: Duration::from_secs(30),
        }
    }
}
