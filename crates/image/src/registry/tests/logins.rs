//! Files of credentials and the programs that keep them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::credentials::find;
use super::super::{
    CredentialSources, Credentials, HelperError, Login, LoginFile, RegistryConfig, RegistryError,
    list_logins, remove_login, store_login,
};
use super::server::impatient;
use crate::cancel::Cancel;

/// Keeps one secret per server in a folder, and what it was started with in `args`.
const HELPER: &str = r#"#!/bin/sh
here=${0%/*}
echo "$*" >> "$here/args"
read -r input
name=$(printf %s "$input" | tr -c 'a-zA-Z0-9' _)
case $1 in
get) cat "$here/kept-$name" 2>/dev/null || { echo 'credentials not found in native keychain'; exit 1; } ;;
store)
    server=${input#*'"ServerURL":"'}; server=${server%%'"'*}
    name=$(printf %s "$server" | tr -c 'a-zA-Z0-9' _)
    printf %s "$input" > "$here/kept-$name"; printf '{"%s":"me"}' "$server" > "$here/list" ;;
erase) rm "$here/kept-$name" 2>/dev/null || { echo 'credentials not found'; exit 1; } ;;
list) cat "$here/list" 2>/dev/null || echo '{}' ;;
esac
"#;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }
    fn path(&self) -> &Path {
        self.folder.path()
    }
    fn config(&self) -> PathBuf {
        self.path().join("config.json")
    }
    fn write(&self, content: &Value) {
        fs::write(self.config(), content.to_string()).expect("a file");
    }
    fn read(&self) -> Value {
        serde_json::from_slice(&fs::read(self.config()).expect("a file")).expect("JSON")
    }
    fn helper(&self, name: &str, script: &str) {
        let path = self.path().join(format!("docker-credential-{name}"));
        // A shell writes it: were it this process, another thread could start a program meanwhile, which would then
        // hold it open for writing, and nothing that is may be executed.
        let written = std::process::Command::new("sh")
            .args(["-c", r#"printf %s "$2" > "$1" && chmod 700 "$1""#, "sh"])
            .arg(&path)
            .arg(script)
            .status()
            .expect("a shell");
        assert!(written.success());
    }
    fn file<'a>(&'a self, path: &'a Path) -> LoginFile<'a> {
        LoginFile::new(path, Some(self.path().as_os_str()))
    }
    fn sources(&self) -> RegistryConfig {
        RegistryConfig {
            credentials: CredentialSources {
                files: vec![self.config()],
                helper_path: Some(self.path().into()),
                ..CredentialSources::default()
            },
            ..impatient()
        }
    }
    fn find(&self, host: &str) -> Result<Option<Credentials>, RegistryError> {
        find(&self.sources(), host, &Cancel::default())
    }
}

fn pair(user: &str, password: &str) -> Option<Credentials> {
    Some(Credentials::password(user, password))
}

#[test]
fn all_forms_of_entries_are_read() {
    let place = Place::new();
    assert_eq!(place.find("a.test").expect("no file"), None);
    place.write(&json!({ "auths": {
        "https://index.docker.io/v1/": { "auth": "bWU6c2VjcmV0" },
        "plain.test": { "username": "u", "password": "p" },
        "identity.test:5000": { "auth": "bWU6c2VjcmV0", "identitytoken": "id" },
        "http://registry.test/v2/": { "registrytoken": "rt" },
        "empty.test": {},
        "garbage.test": { "auth": "%%%" },
        "strange.test": 7,
        "repository.test/org": { "auth": "bWU6c2VjcmV0" },
    }}));
    let find = |host: &str| place.find(host).expect(host);
    for hub in ["docker.io", "index.docker.io"] {
        assert_eq!(find(hub), pair("me", "secret"), "{hub}");
    }
    assert_eq!(find("PLAIN.test"), pair("u", "p"));
    assert_eq!(
        find("identity.test:5000"),
        Some(Credentials::IdentityToken("id".to_owned()))
    );
    assert_eq!(
        find("registry.test"),
        Some(Credentials::RegistryToken("rt".to_owned()))
    );
    for none in [
        "identity.test",
        "empty.test",
        "garbage.test",
        "strange.test",
        "repository.test",
    ] {
        assert_eq!(find(none), None, "{none}");
    }
}

#[test]
fn a_damaged_file_is_not_repeated() {
    let place = Place::new();
    for bad in [r#"{"auths": "hunter2"#, r#""hunter2""#, r#"["hunter2"]"#] {
        fs::write(place.config(), bad).expect("a file");
        let error = place.find("a.test").unwrap_err();
        assert!(matches!(error, RegistryError::ConfigForm { .. }), "{bad}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        store_login(
            place.file(&place.config()),
            "a.test",
            &Credentials::password("a", "b"),
        )
        .unwrap_err();
        assert_eq!(fs::read_to_string(place.config()).expect("a file"), bad);
    }
    fs::write(place.config(), "\n").expect("a file");
    assert_eq!(place.find("a.test").expect("empty"), None);
}

#[test]
fn sources_have_an_order() {
    let place = Place::new();
    place.helper(
        "own",
        "#!/bin/sh\necho '{\"Username\":\"own\",\"Secret\":\"s\"}'\n",
    );
    place.helper("all", HELPER);
    place.write(&json!({
        "auths": { "a.test": { "auth": "bWU6c2VjcmV0" }, "own.test": { "auth": "bWU6c2VjcmV0" } },
        "credsStore": "all",
        "credHelpers": { "own.test": "own", "off.test": "" },
    }));
    let second = place.path().join("second.json");
    fs::write(
        &second,
        r#"{"auths":{"a.test":{"auth":"YTpi"},"b.test":{"auth":"YTpi"}}}"#,
    )
    .expect("a file");
    let mut config = place.sources();
    config.credentials.files.push(second);
    let given = Credentials::password("given", "x");
    config
        .credentials
        .given
        .insert("g.test".to_owned(), given.clone());
    let find = |config: &RegistryConfig, host: &str| {
        find(config, host, &Cancel::default()).expect("an answer")
    };
    assert_eq!(
        find(&config, "own.test"),
        pair("own", "s"),
        "a host's own program is the first"
    );
    assert_eq!(
        find(&config, "a.test"),
        pair("me", "secret"),
        "the file, if the program has none"
    );
    assert_eq!(
        find(&config, "b.test"),
        pair("a", "b"),
        "then the next file"
    );
    assert_eq!(
        find(&config, "g.test"),
        Some(given),
        "what is given comes before all"
    );
    assert_eq!(find(&config, "c.test"), None);
    config.credentials.helper_path = None;
    assert_eq!(
        find(&config, "own.test"),
        pair("me", "secret"),
        "no program without a PATH"
    );
}

#[test]
fn a_helper_that_is_not_there_is_passed_over() {
    let place = Place::new();
    for name in ["missing", "../../bin/sh", "a b", "a;b"] {
        place.write(&json!({
            "credsStore": name,
            "auths": { "a.test": { "auth": "bWU6c2VjcmV0" } },
        }));
        assert_eq!(
            place.find("a.test").expect("a warning"),
            pair("me", "secret")
        );
        let error = store_login(
            place.file(&place.config()),
            "a.test",
            &Credentials::password("a", "b"),
        )
        .unwrap_err();
        let missing = matches!(
            error,
            RegistryError::Helper {
                source: HelperError::Missing,
                ..
            }
        );
        assert!(missing, "{error:?}");
    }
}

#[test]
fn helpers_that_fail() {
    let place = Place::new();
    place.write(&json!({ "credsStore": "bad" }));
    let fails = |script: &str| {
        place.helper("bad", &format!("#!/bin/sh\n{script}\n"));
        let began = Instant::now();
        let error = place.find("a.test").unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10), "{script}");
        let text = format!("{error:?}");
        assert!(!text.contains("hunter2"), "{text}");
        match error {
            RegistryError::Helper { source, .. } => source,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(fails("echo hunter2"), HelperError::Form));
    assert!(matches!(fails("exec cat /dev/zero"), HelperError::Form));
    assert!(matches!(
        fails("sleep 100 & wait"),
        HelperError::TimedOut { seconds: 2 }
    ));
    assert!(matches!(
        fails("exec >&-; sleep 100"),
        HelperError::TimedOut { .. }
    ));
    match fails("printf 'locked\\033[2J'; exit 3") {
        error @ HelperError::Failed {
            status: Some(3), ..
        } => {
            assert_eq!(error.to_string(), "it failed: locked\\u{1b}[2J");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        fails("kill -9 $$"),
        HelperError::Failed { status: None, .. }
    ));
    place.helper("bad", "#!/bin/sh\nsleep 100 & wait\n");
    let cancel = Cancel::default();
    cancel.cancel();
    let error = find(&place.sources(), "a.test", &cancel).unwrap_err();
    assert!(matches!(error, RegistryError::Cancelled(_)));
}

#[test]
fn identity_tokens_come_from_helpers_too() {
    let place = Place::new();
    place.write(&json!({ "credHelpers": { "docker.io": "t" } }));
    place.helper("t", "#!/bin/sh\nread -r s\necho \"{\\\"Username\\\":\\\"<token>\\\",\\\"Secret\\\":\\\"$s\\\"}\"\n");
    let key = "https://index.docker.io/v1/".to_owned();
    assert_eq!(
        place.find("docker.io").expect("it"),
        Some(Credentials::IdentityToken(key))
    );
}

#[test]
fn logins_in_the_file_leave_everything_else_as_it_is() {
    let place = Place::new();
    place.write(&json!({
        "auths": { "old.test": { "auth": "YTpi", "email": "x@y" } },
        "HttpHeaders": { "User-Agent": "x" },
        "proxies": { "default": { "httpProxy": "http://p" } },
    }));
    let path = place.config();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    let me = Credentials::password("me", "secret");
    let login = store_login(place.file(&path), "index.docker.io", &me).expect("a login");
    let expected = Login {
        host: "docker.io".to_owned(),
        user: Some("me".to_owned()),
        helper: None,
    };
    assert_eq!(login, expected);
    let content = place.read();
    assert_eq!(
        content["auths"]["https://index.docker.io/v1/"]["auth"],
        "bWU6c2VjcmV0"
    );
    assert_eq!(content["auths"]["old.test"]["email"], "x@y");
    assert_eq!(content["HttpHeaders"]["User-Agent"], "x");
    assert_eq!(content["proxies"]["default"]["httpProxy"], "http://p");
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(place.find("docker.io").expect("it"), Some(me));
    let token = Credentials::IdentityToken("id".to_owned());
    store_login(place.file(&path), "token.test:5000", &token).expect("a login");
    assert_eq!(place.find("token.test:5000").expect("it"), Some(token));
    let logins = list_logins(place.file(&path)).expect("a list");
    let shown: Vec<_> = logins
        .iter()
        .map(|login| (login.host.as_str(), login.user.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            ("docker.io", Some("me")),
            ("old.test", Some("a")),
            ("token.test:5000", None)
        ]
    );
    assert!(remove_login(place.file(&path), "docker.io").expect("a logout"));
    assert!(!remove_login(place.file(&path), "docker.io").expect("nothing there"));
    assert_eq!(place.find("docker.io").expect("none"), None);
    assert_eq!(place.read()["HttpHeaders"]["User-Agent"], "x");
    let names: Vec<_> = fs::read_dir(place.path()).expect("a folder").collect();
    assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    for bad in ["", "a.test/org"] {
        store_login(place.file(&path), bad, &Credentials::password("a", "b")).unwrap_err();
    }
}

#[test]
fn a_file_is_made_where_there_is_none_and_links_stay() {
    let place = Place::new();
    let me = Credentials::password("me", "secret");
    let deep = place.path().join("a/b/config.json");
    assert!(!remove_login(place.file(&deep), "a.test").expect("nothing there"));
    assert!(!deep.exists());
    store_login(place.file(&deep), "a.test", &me).expect("a login");
    let mode = |path: &Path| fs::metadata(path).expect("it").permissions().mode() & 0o777;
    assert_eq!(
        (mode(&deep), mode(deep.parent().expect("one"))),
        (0o600, 0o700)
    );
    std::os::unix::fs::symlink(&deep, place.config()).expect("a link");
    store_login(place.file(&place.config()), "b.test", &me).expect("a login");
    assert!(place.config().is_symlink());
    assert_eq!(place.find("a.test").expect("it"), Some(me.clone()));
    assert_eq!(list_logins(place.file(&deep)).expect("a list").len(), 2);
}

#[test]
fn logins_are_kept_by_the_helper_that_the_file_names() {
    let place = Place::new();
    place.helper("keep", HELPER);
    place.write(&json!({
        "credsStore": "keep",
        "auths": { "a.test:5000": { "auth": "b2xkOm9sZA==" } },
    }));
    let path = place.config();
    let me = Credentials::password("me", "hunter2");
    let login = store_login(place.file(&path), "a.test:5000", &me).expect("a login");
    assert_eq!(login.helper.as_deref(), Some("keep"));
    let text = fs::read_to_string(&path).expect("a file");
    assert!(
        !text.contains("b2xkOm9sZA"),
        "the old secret is gone: {text}"
    );
    assert_eq!(place.find("a.test:5000").expect("it"), Some(me));
    assert_eq!(list_logins(place.file(&path)).expect("a list"), [login]);
    assert!(remove_login(place.file(&path), "a.test:5000").expect("a logout"));
    assert_eq!(place.find("a.test:5000").expect("none"), None);
    remove_login(place.file(&path), "a.test:5000").expect("nothing there");
    let args = fs::read_to_string(place.path().join("args")).expect("a file");
    assert!(
        !args.contains("hunter2") && args.starts_with("store\nget\nlist\nerase\n"),
        "{args}"
    );
}

#[test]
fn logins_at_the_same_time_are_all_kept() {
    let place = Place::new();
    let path = place.config();
    // What a process that was killed has left.
    let left = "half a secret ".repeat(10_000);
    fs::write(place.path().join("config.json.cosm-new"), left).expect("a file");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (place, path) = (&place, &path);
            scope.spawn(move || {
                for m in 0..5 {
                    let host = format!("h{n}-{m}.test");
                    let credentials = Credentials::password("me", format!("secret {n}"));
                    store_login(place.file(path), &host, &credentials).expect("a login");
                }
                remove_login(place.file(path), &format!("h{n}-0.test")).expect("a logout");
            });
        }
    });
    assert_eq!(list_logins(place.file(&path)).expect("logins").len(), 32);
    let left: Vec<_> = fs::read_dir(place.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["config.json"]);
    let mode = fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_logout_makes_no_file() {
    let place = Place::new();
    let path = place.path().join("none/config.json");
    assert!(!remove_login(place.file(&path), "h.test").expect("nothing to forget"));
    assert!(!path.parent().expect("a folder").exists());
}
