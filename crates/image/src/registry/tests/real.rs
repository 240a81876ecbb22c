//! Against a registry of another make (Docker's own), filled by another client (skopeo).

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::{Credentials, HostConfig, Registry, RegistryConfig, RegistryError};
use super::made::{Layout, certificates, run};
use crate::cancel::Cancel;
use crate::manifest::{Found, MAX_CONFIG};
use crate::reference::Reference;

const PROGRAMS: [&str; 4] = ["docker-registry", "skopeo", "htpasswd", "openssl"];

/// Whether all programs are here; says so if not.
fn is_equipped() -> bool {
    let has = |program: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).exists())
    };
    match PROGRAMS.iter().find(|program| !has(program)) {
        Some(program) => {
            println!("skipped: no {program} here");
            false
        }
        None => true,
    }
}

/// A running registry; it ends when this is dropped.
struct Docker {
    child: Child,
    host: String,
}

impl Docker {
    /// Starts one with these further settings.
    fn start(folder: &Path, tls: &str, auth: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        let host = format!("127.0.0.1:{port}");
        let config = folder.join("config.yml");
        let storage = folder.join("storage");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"{host}\"{tls}}}\n{auth}\n",
            storage.display()
        );
        fs::write(&config, text).expect("a file");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a registry");
        let docker = Self { child, host };
        let end = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(&docker.host).is_err() {
            assert!(Instant::now() < end, "the registry does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        docker
    }

    fn push(&self, layout: &Path, options: &[&str]) {
        run(Command::new("skopeo")
            .args(["--insecure-policy", "copy", "--preserve-digests"])
            .args(options)
            .arg(format!("oci:{}:1", layout.display()))
            .arg(format!("docker://{}/org/app:1", self.host)));
    }

    fn reference(&self) -> Reference {
        format!("{}/org/app:1", self.host).parse().expect("a name")
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Fetches the whole image.
fn pull(config: RegistryConfig, docker: &Docker, layout: &Layout) -> Result<(), RegistryError> {
    let registry = Registry::new(config)?;
    let (reference, cancel) = (docker.reference(), Cancel::default());
    let digest = registry.resolve(&reference, "1", &cancel)?;
    assert_eq!(digest, layout.manifest);
    let document = registry.manifest(&reference, &digest.to_string(), &cancel)?;
    let Ok(Found::Manifest(manifest)) =
        Found::parse(&document.bytes, document.media_type.as_deref())
    else {
        panic!("an image was pushed");
    };
    registry.blob_bytes(&reference, &manifest.config, MAX_CONFIG, &cancel)?;
    let mut blob = registry.blob(&reference, &manifest.layers[0], &cancel)?;
    let mut bytes = Vec::new();
    blob.read_to_end(&mut bytes).expect("the layer");
    assert!(bytes == layout.layer, "the layer differs");
    let error = registry
        .manifest(&reference, "missing", &cancel)
        .unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error:?}");
    Ok(())
}

#[test]
fn an_open_registry() {
    if !is_equipped() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let layout = Layout::new(folder.path());
    let docker = Docker::start(folder.path(), "", "");
    docker.push(&layout.folder, &["--dest-tls-verify=false"]);
    pull(RegistryConfig::default(), &docker, &layout).expect("the image");
    let registry = Registry::new(RegistryConfig::default()).expect("a client");
    let cancel = Cancel::default();
    let me = Credentials::password("a", "b");
    registry
        .check_login(&docker.host, &me, &cancel)
        .expect("no login is wanted");
    let name = format!("{}/no/such:1", docker.host)
        .parse()
        .expect("a name");
    let error = registry.manifest(&name, "1", &cancel).unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error:?}");
}

#[test]
fn a_registry_with_logins() {
    if !is_equipped() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let layout = Layout::new(folder.path());
    let users = folder.path().join("users");
    let lines = run(Command::new("htpasswd").args(["-Bbn", "me", "secret"]));
    fs::write(&users, lines).expect("a file");
    let auth = format!(
        "auth: {{htpasswd: {{realm: here, path: {}}}}}",
        users.display()
    );
    let docker = Docker::start(folder.path(), "", &auth);
    let options = ["--dest-tls-verify=false", "--dest-creds", "me:secret"];
    docker.push(&layout.folder, &options);
    let me = Credentials::password("me", "secret");
    let wrong = Credentials::password("me", "wrong");
    let with = |credentials: Option<&Credentials>| {
        let mut config = RegistryConfig::default();
        if let Some(credentials) = credentials {
            let host = docker.host.clone();
            config.credentials.given.insert(host, credentials.clone());
        }
        config
    };
    pull(with(Some(&me)), &docker, &layout).expect("the image");
    let error = pull(with(None), &docker, &layout).unwrap_err();
    assert!(
        matches!(error, RegistryError::LoginNeeded { .. }),
        "{error:?}"
    );
    let error = pull(with(Some(&wrong)), &docker, &layout).unwrap_err();
    assert!(
        matches!(error, RegistryError::BadCredentials { .. }),
        "{error:?}"
    );
    let registry = Registry::new(with(None)).expect("a client");
    let cancel = Cancel::default();
    registry
        .check_login(&docker.host, &me, &cancel)
        .expect("a login");
    let error = registry
        .check_login(&docker.host, &wrong, &cancel)
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::BadCredentials { .. }),
        "{error:?}"
    );
    // A login of another program is one of ours.
    let auths = folder.path().join("auth.json");
    run(Command::new("skopeo")
        .args([
            "login",
            "--tls-verify=false",
            "-u",
            "me",
            "-p",
            "secret",
            "--authfile",
        ])
        .arg(&auths)
        .arg(&docker.host));
    let mut config = RegistryConfig::default();
    config.credentials.files.push(auths);
    pull(config, &docker, &layout).expect("the image");
}

#[test]
fn a_registry_with_certificates_of_its_own() {
    if !is_equipped() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let layout = Layout::new(folder.path());
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name);
    let tls = format!(
        ", tls: {{certificate: {}, key: {}}}",
        path("server.crt").display(),
        path("server.key").display()
    );
    let docker = Docker::start(folder.path(), &tls, "");
    let certs = path("certs.d");
    let own = certs.join(&docker.host);
    fs::create_dir_all(&own).expect("a folder");
    fs::copy(path("ca.crt"), own.join("ca.crt")).expect("a file");
    docker.push(
        &layout.folder,
        &["--dest-cert-dir", own.to_str().expect("text")],
    );
    // Not trusted is not trusted, on this machine's own addresses as well.
    let error = pull(RegistryConfig::default(), &docker, &layout).unwrap_err();
    assert!(
        matches!(error, RegistryError::Certificate { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(&docker.host), "{error}");
    let by_folder = RegistryConfig {
        certs_dirs: vec![path("nothing"), certs.clone()],
        ..RegistryConfig::default()
    };
    pull(by_folder.clone(), &docker, &layout).expect("the image");
    let by_bundle = RegistryConfig {
        ca_bundle: Some(path("ca.crt")),
        ..RegistryConfig::default()
    };
    pull(by_bundle, &docker, &layout).expect("the image");
    let with = |host: HostConfig| {
        let mut config = RegistryConfig::default();
        config.hosts.insert(docker.host.clone(), host);
        config
    };
    let by_host = HostConfig {
        ca: vec![path("ca.crt")],
        ..HostConfig::default()
    };
    pull(with(by_host), &docker, &layout).expect("the image");
    let any = HostConfig {
        skip_verify: true,
        ..HostConfig::default()
    };
    pull(with(any), &docker, &layout).expect("the image");
    // Its name counts as well.
    let port = docker.host.rsplit(':').next().expect("a port").to_owned();
    let mut other = by_folder;
    other.ca_bundle = Some(path("ca.crt"));
    let registry = Registry::new(other).expect("a client");
    let name = format!("localhost:{port}/org/app:1")
        .parse()
        .expect("a name");
    let error = registry
        .manifest(&name, "1", &Cancel::default())
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::Certificate { .. }),
        "{error:?}"
    );
    let missing = RegistryConfig {
        ca_bundle: Some(path("nothing")),
        ..RegistryConfig::default()
    };
    let error = pull(missing, &docker, &layout).unwrap_err();
    assert!(matches!(error, RegistryError::File { .. }), "{error:?}");
}

#[test]
fn a_registry_that_wants_a_certificate() {
    if !is_equipped() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let layout = Layout::new(folder.path());
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name);
    let tls = format!(
        ", tls: {{certificate: {}, key: {}, clientcas: [{}]}}",
        path("server.crt").display(),
        path("server.key").display(),
        path("ca.crt").display()
    );
    let docker = Docker::start(folder.path(), &tls, "");
    let own = path("certs.d").join(&docker.host);
    fs::create_dir_all(&own).expect("a folder");
    fs::copy(path("ca.crt"), own.join("ca.crt")).expect("a file");
    let mut config = RegistryConfig {
        certs_dirs: vec![path("certs.d")],
        ..RegistryConfig::default()
    };
    config.timeouts.backoff = Duration::from_millis(1);
    let error = pull(config.clone(), &docker, &layout).unwrap_err();
    assert!(
        matches!(error, RegistryError::Transport { .. }),
        "{error:?}"
    );
    fs::copy(path("client.crt"), own.join("client.cert")).expect("a file");
    fs::copy(path("client.key"), own.join("client.key")).expect("a file");
    docker.push(
        &layout.folder,
        &["--dest-cert-dir", own.to_str().expect("text")],
    );
    pull(config, &docker, &layout).expect("the image");
}
