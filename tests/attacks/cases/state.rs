//! State folders of other versions, without room, without permission.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cosm_attacks::{Case, Done, House, Running, Verdict, has, is_root, skip};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(state::newer_folder, 60),
    case!(state::another_generation_beside_ours, 60),
    case!(state::damaged_catalogue, 60),
    case!(state::no_space_left, 90),
    case!(state::read_only, 60),
    case!(state::relative_or_strange_place, 60),
    case!(state::private, 60),
    case!(state::folder_of_sockets_of_somebody_else, 60),
    case!(state::garbage_among_the_sandboxes, 60),
    case!(state::mounts_over_a_sandbox, 60),
];

fn catalogue(house: &House) -> std::path::PathBuf {
    house.state().join("v1/catalogue.db")
}

/// SQLite keeps the schema's version in the four bytes from 60 on (file format, section 1.3).
fn set_version(database: &Path, version: u32) {
    let mut bytes = fs::read(database).expect("a catalogue");
    bytes[60..64].copy_from_slice(&version.to_be_bytes());
    fs::write(database, bytes).expect("a catalogue");
}

fn newer_folder(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    house.ok(["stop", "box"]);
    let database = catalogue(house);
    let original = fs::read(&database).expect("a catalogue");
    let version = u32::from_be_bytes(original[60..64].try_into().expect("four bytes"));
    set_version(&database, version + 1000);
    let newer = fs::read(&database).expect("a catalogue");
    for args in [
        &["ls"][..],
        &["create", "--name", "new"],
        &["rm", "box"],
        &["start", "box"],
    ] {
        let done = house.run(args);
        done.refused();
        assert!(done.said().contains("newer"), "{done:?}");
    }
    // One that nobody will ask for again needs no row.
    house.run(["run", "--", "true"]);
    assert!(
        fs::read(&database).expect("a catalogue") == newer,
        "what is not understood is not touched"
    );
    assert!(house.keepers().is_empty());
    set_version(&database, version);
    assert_eq!(
        house.names(),
        ["box"],
        "control: with its own version it reads well"
    );
    house.remove("box");
    Verdict::Passed
}

fn another_generation_beside_ours(house: &House) -> Verdict {
    let other = house.state().join("v2");
    fs::create_dir_all(other.join("sandboxes/abc")).expect("a folder");
    fs::write(other.join("catalogue.db"), b"of another version").expect("a file");
    house.sandbox("box", &[]);
    house.remove("box");
    assert!(house.names().is_empty());
    assert_eq!(
        fs::read(other.join("catalogue.db")).expect("untouched"),
        b"of another version"
    );
    assert!(other.join("sandboxes/abc").is_dir());
    Verdict::Passed
}

fn damaged_catalogue(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    house.remove("box");
    let database = catalogue(house);
    let original = fs::read(&database).expect("a catalogue");
    for (suffix, bytes) in [
        ("", b"not a database".repeat(400)),
        ("", original[..original.len() / 2].to_vec()),
    ] {
        for side in ["-wal", "-shm", suffix] {
            let path = house.state().join(format!("v1/catalogue.db{side}"));
            if side != suffix && path.exists() {
                fs::remove_file(&path).expect("a file");
            }
        }
        fs::write(&database, &bytes).expect("a catalogue");
        let done = house.run(["ls"]);
        if done.code() != Some(0) {
            done.refused();
        }
        let done = house.run(["run", "--", "echo", "x"]);
        assert!(
            done.code() == Some(0) || done.code() == Some(125),
            "{done:?}"
        );
        assert!(!done.said().contains("panicked"), "{done:?}");
    }
    fs::write(&database, &original).expect("a catalogue");
    assert!(house.names().is_empty());
    Verdict::Passed
}

/// Runs a script with the state folder on a small file system of its own, in a mount namespace that ends with it.
fn on_small_disk(house: &House, options: &str, script: &str) -> Option<Done> {
    if !has("unshare") {
        return None;
    }
    let mut command = Command::new("unshare");
    house.furnish(&mut command);
    command.env("COSM", house.program());
    if is_root() {
        command.args(["--mount", "--propagation", "private"]);
    } else {
        command.args(["--user", "--map-root-user", "--mount"]);
    }
    let setup = format!(
        "mount -t tmpfs -o {options} none \"$COSM_HOME\" || exit 99; cd \"$COSM_HOME\"; {script}"
    );
    command.args(["/bin/sh", "-c", &setup]);
    let done = Running::start(command).done(Duration::from_secs(60));
    (done.code() != Some(99) && !done.said().contains("unshare failed")).then_some(done)
}

fn no_space_left(house: &House) -> Verdict {
    let full = "head -c 100000000 /dev/zero > fill 2>/dev/null; \"$COSM\" create --name box; echo code $?; rm fill; \
                \"$COSM\" ls -q; ls v1/sandboxes 2>/dev/null | wc -l; \"$COSM\" run -- echo works; echo code $?";
    let Some(done) = on_small_disk(house, "size=8m,mode=0700", full) else {
        return skip("no small file system can be mounted here");
    };
    let lines: Vec<String> = done.text().lines().map(str::to_owned).collect();
    assert_eq!(
        lines.first().map(String::as_str),
        Some("code 125"),
        "{done:?}"
    );
    assert_eq!(
        lines.get(1).map(String::as_str),
        Some("0"),
        "neither a row nor a folder is left: {done:?}"
    );
    assert!(
        done.said().to_lowercase().contains("space") || done.said().contains("full"),
        "it says why: {done:?}"
    );
    assert_eq!(
        lines.get(2..),
        Some(&["works".to_owned(), "code 0".to_owned()][..]),
        "control: with space it works: {done:?}"
    );
    // One that runs while the disk fills up can still be stopped and removed.
    let fills = "\"$COSM\" create --name box -- sh -c 'while :; do echo line; sleep 0.01; done' || exit 9; \
                 head -c 100000000 /dev/zero > fill 2>/dev/null; sleep 0.3; \"$COSM\" exec box -- echo on; \
                 \"$COSM\" stop --time 0 box; echo stop $?; rm fill; \"$COSM\" rm --force box; \"$COSM\" ls -q | wc -l";
    let done =
        on_small_disk(house, "size=8m,mode=0700", fills).expect("it could be mounted before");
    assert!(done.text().contains("stop 0"), "{done:?}");
    assert!(done.text().ends_with('0'), "{done:?}");
    Verdict::Passed
}

fn read_only(house: &House) -> Verdict {
    let script = "\"$COSM\" ls; echo code $?; \"$COSM\" create --name box; echo code $?";
    let Some(done) = on_small_disk(house, "ro,mode=0700", script) else {
        return skip("no read-only file system can be mounted here");
    };
    assert!(done.text().ends_with("code 125"), "{done:?}");
    assert!(!done.said().contains("panicked"), "{done:?}");
    assert!(
        done.said().to_lowercase().contains("read-only"),
        "it says why: {done:?}"
    );
    Verdict::Passed
}

fn relative_or_strange_place(house: &House) -> Verdict {
    let folder = house.scratch("cwd");
    let with = |place: &str, args: &[&str]| {
        let mut command = house.cosm(args);
        command.env("COSM_HOME", place).current_dir(&folder);
        Running::start(command).done(Duration::from_secs(20))
    };
    for place in ["/dev/null/x", "/proc/1/x", "/etc/passwd"] {
        with(place, &["create", "--name", "box"]).refused();
        assert!(house.keepers().is_empty());
    }
    // Relative to where it was called, or refused; an empty variable is as good as none.
    for place in ["relative/path", ""] {
        let done = with(place, &["create", "--name", "box"]);
        if done.code() != Some(0) {
            done.refused();
            continue;
        }
        assert_eq!(
            with(place, &["exec", "box", "--", "echo", "on"]).text(),
            "on"
        );
        assert_eq!(with(place, &["rm", "--force", "box"]).code(), Some(0));
    }
    assert!(house.keepers().is_empty());
    Verdict::Passed
}

fn private(house: &House) -> Verdict {
    let deep = house.folder().join("state/deep/er");
    let mut command = house.cosm(["create", "--name", "box"]);
    command.env("COSM_HOME", &deep);
    assert_eq!(
        Running::start(command).done(Duration::from_secs(20)).code(),
        Some(0)
    );
    for path in [
        deep.clone(),
        deep.join("v1"),
        deep.join("v1/sandboxes"),
        house.sockets().join("cosm"),
    ] {
        let mode = fs::metadata(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{} has the mode {mode:o}", path.display());
    }
    let mut command = house.cosm(["rm", "--force", "box"]);
    command.env("COSM_HOME", &deep);
    assert_eq!(
        Running::start(command).done(Duration::from_secs(20)).code(),
        Some(0)
    );
    Verdict::Passed
}

/// Somebody made the folder for sockets before us, open to all, or pointing elsewhere.
fn folder_of_sockets_of_somebody_else(house: &House) -> Verdict {
    let sockets = house.sockets().join("cosm");
    fs::create_dir(&sockets).expect("a folder");
    fs::set_permissions(&sockets, fs::Permissions::from_mode(0o777)).expect("ours");
    house.run(["create", "--name", "box"]).refused();
    fs::remove_dir(&sockets).expect("empty");
    std::os::unix::fs::symlink(house.scratch("elsewhere"), &sockets).expect("a link");
    house.run(["create", "--name", "box"]).refused();
    fs::remove_file(&sockets).expect("a link");
    assert!(
        house
            .folder()
            .join("elsewhere")
            .read_dir()
            .expect("a folder")
            .next()
            .is_none(),
        "a link was followed"
    );
    house.sandbox("box", &[]);
    house.remove("box");
    Verdict::Passed
}

/// Somebody else's folder, mounted over a sandbox's or below it, is not the sandbox's to remove.
fn mounts_over_a_sandbox(house: &House) -> Verdict {
    if !is_root() {
        return skip("only root can mount there");
    }
    let bait = house.folder().join("theirs");
    fs::create_dir_all(bait.join("data/x")).expect("a folder");
    fs::write(bait.join("data/file"), b"x").expect("a file");
    let whole = |bait: &Path| {
        fs::read_dir(bait).map_or(0, Iterator::count) == 1
            && bait.join("data/x").is_dir()
            && bait.join("data/file").is_file()
    };
    for below in ["", "data", "data/deep"] {
        house.sandbox("box", &[]);
        house.ok(["stop", "box"]);
        let sandboxes = fs::read_dir(house.state().join("v1/sandboxes")).expect("a folder");
        let [only] = &sandboxes.flatten().collect::<Vec<_>>()[..] else {
            panic!("there is one sandbox");
        };
        let place = only.path().join(below);
        fs::create_dir_all(&place).expect("a folder");
        let mount = |args: &[&std::ffi::OsStr]| {
            let done = std::process::Command::new(args[0])
                .args(&args[1..])
                .status();
            assert!(done.expect("it runs").success(), "{args:?}");
        };
        mount(&[
            "mount".as_ref(),
            "--bind".as_ref(),
            bait.as_os_str(),
            place.as_os_str(),
        ]);
        let refused = house.run(["rm", "box"]);
        let listed = house.run(["ls"]);
        mount(&["umount".as_ref(), place.as_os_str()]);
        refused.refused();
        assert!(whole(&bait), "what is mounted at {below:?} was touched");
        assert_eq!(listed.code(), Some(0), "{listed:?}");
        house.remove("box");
    }
    fs::remove_dir_all(&bait).expect("a folder");
    Verdict::Passed
}

fn garbage_among_the_sandboxes(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let sandboxes = house.state().join("v1/sandboxes");
    fs::create_dir(sandboxes.join("not-an-id")).expect("a folder");
    fs::write(sandboxes.join("file"), b"x").expect("a file");
    // What the link leads to is this house's own: what this test is about would destroy it.
    let elsewhere = house.folder().join("theirs");
    for part in ["", "data", "logs"] {
        let folder = elsewhere.join(part);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("file"), b"x").expect("a file");
    }
    std::os::unix::fs::symlink(&elsewhere, sandboxes.join("aaaaaaaaaaaaa")).expect("a link");
    assert_eq!(house.names(), ["box"]);
    for part in ["", "data", "logs"] {
        let count = fs::read_dir(elsewhere.join(part)).map_or(0, Iterator::count);
        let expected = if part.is_empty() { 3 } else { 1 };
        assert_eq!(count, expected, "a link was followed");
    }
    fs::remove_dir_all(&elsewhere).expect("a folder");
    assert_eq!(house.shell("box", "echo on").text(), "on");
    house.remove("box");
    for name in ["not-an-id", "file", "aaaaaaaaaaaaa"] {
        let path = sandboxes.join(name);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir(&path).expect("a folder");
        } else if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).expect("a file");
        }
    }
    Verdict::Passed
}
