//! The catalogue: several processes at once, other versions, damage, odd names.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use cosm_base::{ErrorKind, Home, RunId, SandboxId, SandboxName};
use cosm_proto::keeper::{EndReason, EndReport, GuestUsage, IdSlots};
use cosm_state::{Catalogue, Filter, NewSandbox, Page, Reader, StateError};

fn home() -> (tempfile::TempDir, Home) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = Home::new(folder.path().join("home"));
    cosm_state::prepare_home(&home).expect("folders");
    (folder, home)
}

fn id(n: u64) -> SandboxId {
    SandboxId::from_random(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
}

fn name(text: &str) -> SandboxName {
    text.parse().expect("a name")
}

fn enter(catalogue: &mut Catalogue, n: u64, text: &str) -> Result<Option<u32>, StateError> {
    let labels = BTreeMap::from([("n".to_owned(), n.to_string())]);
    catalogue
        .reserve(&NewSandbox {
            id: id(n),
            name: &name(text),
            spec: b"{}",
            labels: &labels,
            created_ms: n,
            remove_on_exit: false,
            ids: Some(IdSlots::default()),
        })
        .map(|reserved| reserved.id_slot)
}

#[test]
fn looking_makes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = Home::new(folder.path().join("home"));
    let reader = Reader::new(&home);
    assert_eq!(
        reader
            .list(&Filter::default(), Page::default())
            .expect("list"),
        []
    );
    assert_eq!(reader.by_name(&name("x")).expect("find"), None);
    assert_eq!(reader.leftovers().expect("leftovers"), []);
    assert_eq!(reader.keeper(id(1)).expect("keeper"), None);
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        0
    );
    // What is made later is seen by the same reader.
    cosm_state::prepare_home(&home).expect("folders");
    let mut catalogue = Catalogue::open(&home).expect("made");
    enter(&mut catalogue, 1, "x").expect("entered");
    assert!(reader.by_name(&name("x")).expect("find").is_some());
}

#[test]
fn a_reader_does_not_write() {
    let (_folder, home) = home();
    let mut catalogue = Catalogue::open(&home).expect("made");
    enter(&mut catalogue, 1, "x").expect("entered");
    drop(catalogue);
    let before = std::fs::read(home.catalogue()).expect("the catalogue");
    let reader = Reader::new(&home);
    assert!(reader.by_name(&name("x")).expect("find").is_some());
    drop(reader);
    assert_eq!(
        std::fs::read(home.catalogue()).expect("the catalogue"),
        before
    );
}

#[test]
fn names_prefixes_and_history() {
    let (_folder, home) = home();
    let mut catalogue = Catalogue::open(&home).expect("made");
    for n in 1..=20 {
        enter(&mut catalogue, n, &format!("box-{n}")).expect("entered");
    }
    let taken = enter(&mut catalogue, 99, "box-3").expect_err("taken");
    assert!(matches!(&taken, StateError::NameTaken { holder, .. } if *holder == id(3)));
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    let reader = Reader::new(&home);
    let text = id(7).to_string();
    for way in ["box-7", text.as_str(), &text[..6]] {
        assert_eq!(
            reader.find(way).expect("find").expect("found").id,
            id(7),
            "{way}"
        );
    }
    for way in ["box-", "7", &text[..3], "' OR 1=1 --", "zzzz", "\u{1b}", ""] {
        assert_eq!(reader.find(way).expect("find"), None, "{way}");
    }
    let runs = [RunId::from_random([1; 8]), RunId::from_random([2; 8])];
    let end = EndReport {
        status: None,
        reason: EndReason::Stopped,
        killed: false,
        usage: GuestUsage::default(),
    };
    catalogue.run_started(id(7), runs[0], 10).expect("entered");
    catalogue
        .run_ended(id(7), runs[0], 20, &end)
        .expect("entered");
    catalogue.run_started(id(7), runs[1], 30).expect("entered");
    let history = reader.runs(id(7), 10).expect("history");
    assert_eq!(
        history.iter().map(|r| r.run).collect::<Vec<_>>(),
        [runs[1], runs[0]]
    );
    assert_eq!(
        (history[0].end.clone(), history[1].end.clone()),
        (None, Some(end))
    );
    catalogue.remove(id(7)).expect("removed");
    catalogue.remove(id(7)).expect("nothing to do");
    assert_eq!(reader.runs(id(7), 10).expect("history"), []);
    let labelled = Filter {
        labels: vec![("n".to_owned(), Some("7".to_owned()))],
    };
    assert_eq!(reader.list(&labelled, Page::default()).expect("list"), []);
}

#[test]
fn an_ambiguous_prefix_is_said_to_be_one() {
    let (_folder, home) = home();
    let mut catalogue = Catalogue::open(&home).expect("made");
    for low in [1, 2_u64] {
        let id = SandboxId::from_random((0x7777_7777_0000_0000 | low).to_le_bytes());
        catalogue
            .reserve(&NewSandbox {
                id,
                name: &name(&format!("a{low}")),
                spec: b"{}",
                labels: &BTreeMap::new(),
                created_ms: 0,
                remove_on_exit: false,
                ids: None,
            })
            .expect("entered");
    }
    let reader = Reader::new(&home);
    let text = SandboxId::from_random(0x7777_7777_0000_0001_u64.to_le_bytes()).to_string();
    assert!(matches!(
        reader.find(&text[..5]),
        Err(StateError::Ambiguous { .. })
    ));
    assert!(reader.find(&text).expect("find").is_some());
}

#[test]
fn other_versions_are_known() {
    let (_folder, home) = home();
    Catalogue::open(&home).expect("made");
    let set = |version: i64| {
        let db = rusqlite::Connection::open(home.catalogue()).expect("open");
        db.pragma_update(None, "user_version", version)
            .expect("set");
    };
    set(1000);
    for error in [
        Catalogue::open(&home).map(drop).expect_err("newer"),
        Reader::new(&home)
            .list(&Filter::default(), Page::default())
            .map(drop)
            .expect_err("newer"),
    ] {
        assert!(
            matches!(error, StateError::Newer { found: 1000, .. }),
            "{error}"
        );
    }
    set(0);
    let error = Catalogue::open(&home).map(drop).expect_err("no schema");
    assert!(matches!(error, StateError::Damaged { .. }), "{error}");
}

/// The schema as the first release had it. It is never changed: what comes later migrates it.
#[test]
fn the_first_schema_is_still_read() {
    let (_folder, home) = home();
    let db = rusqlite::Connection::open(home.catalogue()).expect("open");
    db.execute_batch(include_str!("schema-1.sql"))
        .expect("made");
    drop(db);
    let reader = Reader::new(&home);
    let row = reader
        .by_name(&name("first"))
        .expect("find")
        .expect("found");
    assert_eq!((row.created_ms, row.id_slot), (1_700_000_000_000, Some(7)));
    let mut catalogue = Catalogue::open(&home).expect("migrated");
    enter(&mut catalogue, 5, "second").expect("entered");
    let ended = reader.runs(row.id, 10).expect("history");
    assert_eq!(
        ended[0].end.as_ref().expect("an end").reason,
        EndReason::Exited
    );
    let labelled = Filter {
        labels: vec![("team".to_owned(), Some("a".to_owned()))],
    };
    assert_eq!(
        reader.list(&labelled, Page::default()).expect("list"),
        [row]
    );
}

#[test]
fn damage_is_said_to_be_damage() {
    let (_folder, home) = home();
    for content in [
        &b"no database at all, but long enough to look like one"[..],
        &[0; 4096],
        b"",
    ] {
        std::fs::write(home.catalogue(), content).expect("written");
        let error = Catalogue::open(&home).map(drop).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        let error = Reader::new(&home)
            .by_name(&name("x"))
            .map(drop)
            .expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
    }
}

#[test]
fn a_folder_of_others_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = Home::new(folder.path().join("home"));
    std::fs::create_dir(home.root()).expect("made");
    std::fs::set_permissions(home.root(), std::fs::Permissions::from_mode(0o777)).expect("opened");
    let error = cosm_state::prepare_home(&home).expect_err("anybody may write there");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).expect("a link");
    assert!(matches!(
        cosm_state::make_private(&link),
        Err(StateError::NotPrivate { .. })
    ));
}

/// The environment variables by which this test starts itself as another process.
const HOME: &str = "COSM_STATE_TEST_HOME";
const FIRST: &str = "COSM_STATE_TEST_FIRST";

/// Enters 25 sandboxes, and fights with the others for 25 more names.
#[test]
fn one_of_several_processes() {
    let (Some(home), Ok(first)) = (std::env::var_os(HOME), std::env::var(FIRST)) else {
        return;
    };
    let home = Home::new(std::path::PathBuf::from(home));
    let first: u64 = first.parse().expect("a number");
    for n in first..first + 25 {
        let mut catalogue = Catalogue::open(&home).expect("open");
        enter(&mut catalogue, n, &format!("own-{n}")).expect("entered");
        let wanted = format!("shared-{}", n - first);
        match enter(&mut catalogue, n + 1_000_000, &wanted) {
            Ok(_) | Err(StateError::NameTaken { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn many_processes_lose_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = Home::new(folder.path().join("home"));
    // None of them finds a catalogue: they make it at once.
    cosm_state::prepare_home(&home).expect("folders");
    let program = std::env::current_exe().expect("this program");
    let children: Vec<_> = (0..6_u64)
        .map(|n| {
            Command::new(&program)
                .args(["--exact", "one_of_several_processes", "--quiet"])
                .env(HOME, home.root())
                .env(FIRST, (n * 1000).to_string())
                .stdout(std::process::Stdio::null())
                .spawn()
                .expect("spawn")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("wait").success());
    }
    let rows = Reader::new(&home)
        .list(&Filter::default(), Page::default())
        .expect("list");
    assert_eq!(rows.len(), 6 * 25 + 25);
    let slots: std::collections::HashSet<_> = rows.iter().map(|row| row.id_slot).collect();
    assert_eq!(
        slots.len(),
        rows.len(),
        "no range of ids is given out twice"
    );
    let left: Vec<_> = std::fs::read_dir(home.generation())
        .expect("files")
        .map(|e| e.expect("a file").file_name())
        .filter(|n| n.to_string_lossy().contains("new"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn five_hundred_are_listed_quickly() {
    let (_folder, home) = home();
    let mut catalogue = Catalogue::open(&home).expect("made");
    for n in 0..500 {
        enter(&mut catalogue, n, &format!("box-{n}")).expect("entered");
    }
    let begun = Instant::now();
    let reader = Reader::new(&home);
    let rows = reader
        .list(&Filter::default(), Page::default())
        .expect("list");
    for row in &rows {
        reader.details(row.id).expect("details");
    }
    let took = begun.elapsed();
    assert_eq!(rows.len(), 500);
    // A generous bound: the bar for the whole program is 50 ms when it is built for use.
    assert!(took.as_millis() < 200, "{took:?}");
}
