//! Files in the form of Docker's `config.json`: who is logged in where.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::credentials::Credentials;
use super::error::RegistryError;
use super::helper::{Helper, HelperError, TOKEN_USER};
use super::host::{canonical_host, helper_key};
use super::staged::Staged;
use crate::cancel::Cancel;

/// A longer file is none of these.
const MAX_FILE: u64 = 4 << 20;
const AUTHS: &str = "auths";

/// Such a file's content. Keys that are not known here are kept.
#[derive(Clone)]
pub(crate) struct DockerConfig {
    root: Map<String, Value>,
}

impl DockerConfig {
    /// Reads a file. One that does not exist, or is empty, holds nothing.
    pub(crate) fn read(path: &Path) -> Result<Self, RegistryError> {
        let failed = |source| RegistryError::File {
            doing: "reading",
            path: path.to_owned(),
            source,
        };
        let mut text = Vec::new();
        match File::open(path) {
            Ok(file) => file.take(MAX_FILE).read_to_end(&mut text).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(failed(error)),
        };
        if text.trim_ascii().is_empty() {
            return Ok(Self { root: Map::new() });
        }
        let root = serde_json::from_slice(&text).map_err(|error| RegistryError::ConfigForm {
            path: path.to_owned(),
            line: error.line(),
        })?;
        Ok(Self { root })
    }

    /// The program that keeps a host's credentials, by the part of its name that tells it from others.
    pub(crate) fn helper(&self, host: &str) -> Option<&str> {
        let own = self
            .helpers()
            .find(|(key, _)| canonical_host(key).as_deref() == Some(host));
        match own {
            // An empty name switches the common one off for this host.
            Some((_, name)) => Some(name),
            None => self.root.get("credsStore")?.as_str(),
        }
        .filter(|name| !name.is_empty())
    }

    fn helpers(&self) -> impl Iterator<Item = (&String, &str)> {
        let all = self.root.get("credHelpers").and_then(Value::as_object);
        all.into_iter()
            .flatten()
            .filter_map(|(key, name)| Some((key, name.as_str()?)))
    }

    fn auths(&self) -> impl Iterator<Item = (&String, &Value)> {
        let all = self.root.get(AUTHS).and_then(Value::as_object);
        all.into_iter().flatten()
    }

    /// The credentials that the file itself holds for a host.
    pub(crate) fn credentials(&self, host: &str) -> Option<Credentials> {
        self.auths()
            .filter(|(key, _)| canonical_host(key).as_deref() == Some(host))
            .find_map(|(_, entry)| read_entry(entry))
    }

    fn set(&mut self, host: &str, entry: Value) {
        self.forget(host);
        let auths = self.root.entry(AUTHS).or_insert_with(|| json!({}));
        if !auths.is_object() {
            *auths = json!({});
        }
        if let Some(auths) = auths.as_object_mut() {
            auths.insert(helper_key(host).to_owned(), entry);
        }
    }

    fn forget(&mut self, host: &str) -> bool {
        let Some(auths) = self.root.get_mut(AUTHS).and_then(Value::as_object_mut) else {
            return false;
        };
        let before = auths.len();
        auths.retain(|key, _| canonical_host(key).as_deref() != Some(host));
        auths.len() != before
    }

    fn text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(&self.root).expect("what was JSON can be written");
        text.push(b'\n');
        text
    }
}

fn read_entry(entry: &Value) -> Option<Credentials> {
    let text = |name: &str| {
        let text = entry.get(name)?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    if let Some(token) = text("identitytoken") {
        return Some(Credentials::IdentityToken(token));
    }
    if let Some(token) = text("registrytoken") {
        return Some(Credentials::RegistryToken(token));
    }
    if let Some(auth) = text("auth") {
        return Credentials::from_basic(&auth);
    }
    Some(Credentials::password(text("username")?, text("password")?))
}

fn write_entry(credentials: &Credentials) -> Value {
    match credentials {
        Credentials::Password { user, password } => {
            json!({ "auth": Credentials::basic(user, password) })
        }
        Credentials::IdentityToken(token) => json!({ "identitytoken": token }),
        Credentials::RegistryToken(token) => json!({ "registrytoken": token }),
    }
}

/// A file of logins, and how the programs that it may name are found and waited for.
#[derive(Debug, Clone, Copy)]
pub struct LoginFile<'a> {
    /// The file, in the form of Docker's `config.json`.
    pub path: &'a Path,
    /// The `PATH` in which `docker-credential-NAME` is looked up.
    pub helper_path: Option<&'a OsStr>,
    /// How long such a program is waited for.
    pub helper_limit: Duration,
}

/// One login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The host, as references have it.
    pub host: String,
    /// The user's name, where one is known: tokens have none.
    pub user: Option<String>,
    /// The program that keeps the credentials; `None` is the file itself, where anybody who can read it reads them.
    pub helper: Option<String>,
}

impl<'a> LoginFile<'a> {
    /// A file, with the usual patience.
    pub fn new(path: &'a Path, helper_path: Option<&'a OsStr>) -> Self {
        Self {
            path,
            helper_path,
            helper_limit: Duration::from_secs(30),
        }
    }

    fn writing<T>(&self, result: io::Result<T>) -> Result<T, RegistryError> {
        result.map_err(|source| RegistryError::File {
            doing: "writing",
            path: self.path.to_owned(),
            source,
        })
    }

    fn ask<T>(
        &self,
        name: &str,
        host: &str,
        what: impl FnOnce(&Helper<'_>) -> Result<T, HelperError>,
    ) -> Result<T, RegistryError> {
        let helper = Helper {
            name,
            search: self.helper_path.unwrap_or_default(),
            limit: self.helper_limit,
            cancel: &Cancel::default(),
        };
        what(&helper).map_err(|source| RegistryError::Helper {
            name: name.to_owned(),
            host: host.to_owned(),
            source,
        })
    }
}

fn known(host: &str) -> Result<String, RegistryError> {
    canonical_host(host).ok_or_else(|| RegistryError::BadHost {
        host: host.to_owned(),
    })
}

/// Keeps credentials for a host: in the program that the file names for it, or else in the file. Returns where.
///
/// # Errors
/// [`RegistryError`] when the file is damaged or can't be written, or the program fails.
pub fn store_login(
    file: LoginFile<'_>,
    host: &str,
    credentials: &Credentials,
) -> Result<Login, RegistryError> {
    let host = known(host)?;
    let staged = file.writing(Staged::claim(file.path))?;
    let mut config = DockerConfig::read(file.path)?;
    let helper = config.helper(&host).map(str::to_owned);
    let entry = match &helper {
        Some(name) => {
            file.ask(name, &host, |helper| {
                helper.store(helper_key(&host), credentials)
            })?;
            json!({})
        }
        None => write_entry(credentials),
    };
    config.set(&host, entry);
    file.writing(staged.replace(&config.text()))?;
    Ok(Login {
        user: credentials.user().map(str::to_owned),
        host,
        helper,
    })
}

/// Forgets a host's credentials, wherever they are. Returns whether there were any in the file.
///
/// # Errors
/// [`RegistryError`] when the file is damaged or can't be written, or the program that keeps them fails.
pub fn remove_login(file: LoginFile<'_>, host: &str) -> Result<bool, RegistryError> {
    let host = known(host)?;
    if !file.writing(file.path.try_exists())? {
        return Ok(false);
    }
    let staged = file.writing(Staged::claim(file.path))?;
    let mut config = DockerConfig::read(file.path)?;
    if let Some(name) = config.helper(&host) {
        file.ask(name, &host, |helper| helper.erase(helper_key(&host)))?;
    }
    let found = config.forget(&host);
    if found {
        file.writing(staged.replace(&config.text()))?;
    }
    Ok(found)
}

/// All logins, by host.
///
/// # Errors
/// [`RegistryError`] when the file is damaged or a program that keeps credentials fails.
pub fn list_logins(file: LoginFile<'_>) -> Result<Vec<Login>, RegistryError> {
    let config = DockerConfig::read(file.path)?;
    let mut found = BTreeMap::new();
    for (key, entry) in config.auths() {
        if let (Some(host), Some(credentials)) = (canonical_host(key), read_entry(entry)) {
            let user = credentials.user().map(str::to_owned);
            found.insert(host, (user, None));
        }
    }
    let common = config.root.get("credsStore").and_then(Value::as_str);
    let mut names: Vec<&str> = config
        .helpers()
        .map(|(_, name)| name)
        .chain(common)
        .collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    for name in names {
        for (key, user) in file.ask(name, "all hosts", |helper| helper.list())? {
            // It may keep those of hosts that the file gives to another one.
            if let Some(host) = canonical_host(&key).filter(|h| config.helper(h) == Some(name)) {
                let user = (user != TOKEN_USER).then_some(user);
                found.insert(host, (user, Some(name.to_owned())));
            }
        }
    }
    Ok(found
        .into_iter()
        .map(|(host, (user, helper))| Login { host, user, helper })
        .collect())
}
