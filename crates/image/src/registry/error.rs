//! What can go wrong between here and a registry.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cosm_base::ErrorKind;
use cosm_base::text::{printable_path, quoted};

use super::helper::HelperError;
use super::said::{FoundSize, Said};
use crate::cancel::Cancelled;
use crate::digest::Digest;

/// What went wrong between here and a registry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A file named in the configuration can't be read or written.
    #[error("{doing} {}", printable_path(path))]
    File {
        /// What was tried: `reading`, `writing`, …
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file that should hold certificates or a key holds none.
    #[error("{} holds no {wanted} in PEM form", printable_path(path))]
    Pem {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        wanted: &'static str,
    },
    /// A file of credentials is damaged. What is in it is not repeated: it is secret.
    #[error(
        "{} is no valid configuration of credentials (line {line}): mend it, or move it away and log in again",
        printable_path(path)
    )]
    ConfigForm {
        /// The file.
        path: PathBuf,
        /// Where reading it ended.
        line: usize,
    },
    /// The name of a host is none.
    #[error("{} is not a registry's host: write a name or an address, perhaps with a port", quoted(.host))]
    BadHost {
        /// What was given.
        host: String,
    },
    /// What was asked for is neither a tag nor a digest.
    #[error("{} is neither a tag nor a digest", quoted(.version))]
    BadVersion {
        /// What was given.
        version: String,
    },
    /// A program that keeps credentials did not do its work.
    #[error("docker-credential-{name}, which keeps the credentials of {host}")]
    Helper {
        /// The program's name after `docker-credential-`.
        name: String,
        /// Whose credentials were asked for.
        host: String,
        /// What went wrong.
        #[source]
        source: HelperError,
    },
    /// The host did not answer, or not as HTTP wants it.
    #[error("asking {host}")]
    Transport {
        /// The host.
        host: String,
        /// What went wrong.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The host's certificate is not trusted.
    #[error(
        "the certificate of {host} is not trusted: if it is of an authority of your own, put that one's certificate into certs.d/{host}/ca.crt"
    )]
    Certificate {
        /// The host.
        host: String,
        /// Why it is not.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The registry wants to know who asks.
    #[error(
        "{host} gives {repository} to nobody without a login (or has no such repository): `cosm registry login {host}`{said}"
    )]
    LoginNeeded {
        /// The registry.
        host: String,
        /// What was asked for.
        repository: String,
        /// The registry's own words.
        said: Said,
    },
    /// The registry does not accept the credentials.
    #[error(
        "{host} does not accept the credentials there are for it: `cosm registry login {host}` replaces them{said}"
    )]
    BadCredentials {
        /// The registry.
        host: String,
        /// The registry's own words.
        said: Said,
    },
    /// The registry knows who asks, and refuses.
    #[error(
        "{host} does not let this user read {repository}: ask its owner, or `cosm registry login {host}` as another user{said}"
    )]
    Forbidden {
        /// The registry.
        host: String,
        /// What was asked for.
        repository: String,
        /// The registry's own words.
        said: Said,
    },
    /// There is no such thing.
    #[error("{host} has no {what} in {repository}: check the name{said}")]
    NotFound {
        /// The registry.
        host: String,
        /// The repository.
        repository: String,
        /// The tag or digest.
        what: String,
        /// The registry's own words.
        said: Said,
    },
    /// The registry wants fewer requests.
    #[error(
        "{host} limits the rate of requests: try again later, or `cosm registry login {host}` for a higher limit{said}"
    )]
    RateLimited {
        /// The registry.
        host: String,
        /// How long it wants to be left alone, if it said so.
        retry_after: Option<Duration>,
        /// The registry's own words.
        said: Said,
    },
    /// Any other refusal.
    #[error("{host} answered with status {status}{said}")]
    Status {
        /// The host.
        host: String,
        /// HTTP's number.
        status: u16,
        /// How long it wants to be left alone, if it said so.
        retry_after: Option<Duration>,
        /// The registry's own words.
        said: Said,
    },
    /// A redirect that is not followed.
    #[error("{host} redirects to {}, {why}", quoted(.to))]
    Redirect {
        /// Who redirects.
        host: String,
        /// Where to: the host alone, as the rest of such addresses is often a secret.
        to: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The registry wants a login in no way that is known.
    #[error("{host} wants a login in a way that is not known here (neither Basic nor Bearer)")]
    Challenge {
        /// The registry.
        host: String,
    },
    /// The registry names a place for tokens that credentials can't be sent to.
    #[error("{host} sends for its tokens to {}, {why}", quoted(.realm))]
    Realm {
        /// The registry.
        host: String,
        /// The place, without its query.
        realm: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The place for tokens gave none.
    #[error("the token service of {host}, {service}, gave no token that can be used")]
    Token {
        /// The registry.
        host: String,
        /// The service's host.
        service: String,
    },
    /// A document is bigger than any that is meant.
    #[error("{host} sent a {what} of more than {limit} bytes")]
    TooBig {
        /// The host.
        host: String,
        /// What it was to be.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A document did not come in time.
    #[error("{host} took longer than {seconds} s for a {what}")]
    TooSlow {
        /// The host.
        host: String,
        /// What it was to be.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// What came is not what its name says.
    #[error("{host} sent other content than was asked for: {expected} is wanted, {found} came")]
    Digest {
        /// The registry.
        host: String,
        /// What was asked for, or what the registry itself said it sends.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// A blob is longer or shorter than the manifest says.
    #[error("{host} has {digest} with another size: {expected} bytes are wanted, and {found}")]
    Size {
        /// The registry.
        host: String,
        /// The blob.
        digest: Digest,
        /// What the manifest says.
        expected: u64,
        /// What there is.
        found: FoundSize,
    },
    /// The registry answered a request for the rest of a blob with some other part.
    #[error("{host} sent another part of {digest} than was asked for")]
    WrongPart {
        /// The registry.
        host: String,
        /// The blob.
        digest: Digest,
    },
    /// The transfer of a blob was cut again and again.
    #[error(
        "the transfer of {digest} from {host} was cut at byte {at} of {size}, too often to go on"
    )]
    Cut {
        /// The registry.
        host: String,
        /// The blob.
        digest: Digest,
        /// How many bytes came.
        at: u64,
        /// How many there are.
        size: u64,
        /// The last cause.
        #[source]
        source: io::Error,
    },
    /// Somebody asked for the end of it.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl RegistryError {
    /// The kind, as callers tell errors apart.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
                io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Os,
            },
            Self::Pem { .. } | Self::BadHost { .. } | Self::BadVersion { .. } => {
                ErrorKind::InvalidInput
            }
            Self::ConfigForm { .. } => ErrorKind::State,
            Self::Helper { source, .. } => source.kind(),
            Self::Transport { source, .. } => match **source {
                ureq::Error::Timeout(_) => ErrorKind::TimedOut,
                ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) => {
                    ErrorKind::Protocol
                }
                _ => ErrorKind::Os,
            },
            Self::Certificate { .. }
            | Self::LoginNeeded { .. }
            | Self::BadCredentials { .. }
            | Self::Forbidden { .. } => ErrorKind::PermissionDenied,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::RateLimited { .. } => ErrorKind::ResourceExhausted,
            Self::TooSlow { .. } | Self::Cut { .. } => ErrorKind::TimedOut,
            Self::Status { .. }
            | Self::Redirect { .. }
            | Self::Challenge { .. }
            | Self::Realm { .. }
            | Self::Token { .. }
            | Self::TooBig { .. }
            | Self::Digest { .. }
            | Self::Size { .. }
            | Self::WrongPart { .. } => ErrorKind::Protocol,
            Self::Cancelled(_) => ErrorKind::Cancelled,
        }
    }

    /// Whether the same request may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { source, .. } => !matches!(
                **source,
                ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::InvalidProxyUrl
            ),
            Self::Status { status, .. } => matches!(status, 408 | 500 | 502..=504),
            Self::RateLimited { .. }
            | Self::TooSlow { .. }
            | Self::Digest { .. }
            | Self::Size { .. }
            | Self::WrongPart { .. }
            | Self::Cut { .. } => true,
            _ => false,
        }
    }

    /// How long the other side wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Status { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// The error that a [`Blob`](super::Blob) gave through `Read`, or the other one unchanged.
    ///
    /// # Errors
    /// The error itself, when it is none of a registry's.
    pub fn from_io(error: io::Error) -> Result<Self, io::Error> {
        error.downcast::<Self>()
    }
}

impl From<RegistryError> for io::Error {
    fn from(error: RegistryError) -> Self {
        Self::other(error)
    }
}
