//! Who asks: credentials, and where they are looked up.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

use super::config::RegistryConfig;
use super::docker_config::DockerConfig;
use super::error::RegistryError;
use super::helper::{Helper, HelperError};
use super::host::{canonical_host, helper_key};
use crate::cancel::Cancel;

/// Who asks. Nothing of it is shown by `Debug` but the name.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password, or a token that stands for one.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// What a token service gave at a login, to get tokens by.
    IdentityToken(String),
    /// What is shown to the registry itself.
    RegistryToken(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => f
                .debug_struct("Password")
                .field("user", user)
                .finish_non_exhaustive(),
            Self::IdentityToken(_) => f.write_str("IdentityToken"),
            Self::RegistryToken(_) => f.write_str("RegistryToken"),
        }
    }
}

/// Other programs write it with and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Credentials {
    /// A name and a password.
    pub fn password(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::Password {
            user: user.into(),
            password: password.into(),
        }
    }

    /// The name, where there is one.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Password { user, .. } => Some(user),
            _ => None,
        }
    }

    /// What stands after `Basic`, and in `auth` of a `config.json`.
    pub(crate) fn basic(user: &str, password: &str) -> String {
        STANDARD.encode(format!("{user}:{password}"))
    }

    /// Reads what [`Credentials::basic`] wrote.
    pub(crate) fn from_basic(text: &str) -> Option<Self> {
        let text = LENIENT.decode(text.trim()).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (user, password) = text.split_once(':')?;
        // Old versions of Docker filled up with zeros.
        Some(Self::password(user, password.trim_end_matches('\0')))
    }
}

/// The first credentials for a host among all sources.
///
/// # Errors
/// [`RegistryError`] when a file is damaged or a helper fails. A helper that is not installed is only warned of: a
/// configuration that came from another machine must not keep from public images.
pub(crate) fn find(
    config: &RegistryConfig,
    host: &str,
    cancel: &Cancel,
) -> Result<Option<Credentials>, RegistryError> {
    let Some(host) = canonical_host(host) else {
        return Ok(None);
    };
    let sources = &config.credentials;
    for (name, credentials) in &sources.given {
        if canonical_host(name).as_ref() == Some(&host) {
            return Ok(Some(credentials.clone()));
        }
    }
    for path in &sources.files {
        let file = DockerConfig::read(path)?;
        if let Some(name) = file.helper(&host)
            && let Some(search) = &sources.helper_path
        {
            let helper = Helper {
                name,
                search,
                limit: config.timeouts.helper,
                cancel,
            };
            match helper.get(helper_key(&host)) {
                Ok(Some(credentials)) => return Ok(Some(credentials)),
                Ok(None) => {}
                Err(HelperError::Missing) => {
                    tracing::warn!(host, "docker-credential-{name} is not installed");
                }
                Err(HelperError::Cancelled(cancelled)) => return Err(cancelled.into()),
                Err(source) => {
                    return Err(RegistryError::Helper {
                        name: name.to_owned(),
                        host,
                        source,
                    });
                }
            }
        }
        if let Some(credentials) = file.credentials(&host) {
            return Ok(Some(credentials));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        for secret in [
            Credentials::password("me", "hunter2"),
            Credentials::IdentityToken("hunter2".to_owned()),
            Credentials::RegistryToken("hunter2".to_owned()),
        ] {
            assert!(!format!("{secret:?}").contains("hunter2"));
        }
    }

    #[test]
    fn basic_is_read_back() {
        let same = |user: &str, password: &str| {
            assert_eq!(
                Credentials::from_basic(&Credentials::basic(user, password)),
                Some(Credentials::password(user, password))
            );
        };
        same("me", "a:b:c");
        same("ä", "");
        assert_eq!(
            Credentials::from_basic("YTpi"),
            Some(Credentials::password("a", "b"))
        );
        assert_eq!(
            Credentials::from_basic("YTpiYw"),
            Some(Credentials::password("a", "bc"))
        );
        assert_eq!(Credentials::from_basic("YWI="), None);
        assert_eq!(Credentials::from_basic("%"), None);
    }
}
