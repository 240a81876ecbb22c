//! A sandbox that can't be removed: it is told of, stays known by its name, and is in nobody's way.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::common::{Cosm, show};

/// A file that even root can't remove, until this is dropped.
struct Immutable(File);

impl Immutable {
    /// `None`, which is said, where this user or the file system can't have such.
    fn make(path: &Path) -> Option<Self> {
        let file = File::open(path).expect("opens");
        let made = ioctl_getflags(&file)
            .and_then(|flags| ioctl_setflags(&file, flags | IFlags::IMMUTABLE));
        match made {
            Ok(()) => Some(Self(file)),
            Err(error) => {
                println!("skipped: no immutable files here: {error}");
                None
            }
        }
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let flags = ioctl_getflags(&self.0).expect("its flags");
        ioctl_setflags(&self.0, flags - IFlags::IMMUTABLE).expect("its flags");
    }
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()? {
        let path = entry.expect("an entry").path();
        if path.file_name().is_some_and(|found| found == name) {
            return Some(path);
        }
        if path.is_dir()
            && !path.is_symlink()
            && let Some(found) = find(&path, name)
        {
            return Some(found);
        }
    }
    None
}

/// A stopped sandbox `box` with a file that can't be removed.
fn stuck(cosm: &Cosm) -> Option<Immutable> {
    cosm.ok(["run", "--name", "box", "--", "touch", "/root/stuck"]);
    let path = find(cosm.home(), "stuck").expect("the guest's file");
    Immutable::make(&path)
}

#[test]
fn a_failed_removal_can_be_said_again() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "other"]);
    let Some(stuck) = stuck(&cosm) else { return };
    let text = cosm.fails(125, ["rm", "box"]);
    assert!(text.contains("Operation not permitted"), "{text}");

    let listed = cosm.output(["ls", "--json"]);
    assert!(listed.status.success(), "{}", show(&listed));
    let warned = String::from_utf8_lossy(&listed.stderr);
    assert!(warned.contains("cleaning up sandbox box"), "{warned}");
    let list: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let seen = &list["sandboxes"][0];
    assert_eq!(
        (&seen["name"], &seen["state"]),
        (&"box".into(), &"crashed".into())
    );
    let reason = seen["crash"].as_str().expect("a reason");
    assert!(reason.contains("it could not be removed"), "{reason}");

    // Others do not notice.
    assert_eq!(cosm.ok(["exec", "other", "--", "echo", "hi"]), "hi\n");
    assert_eq!(cosm.ok(["run", "--", "echo", "hi"]), "hi\n");
    assert_eq!(
        cosm.ok(["run", "--name", "new", "--", "echo", "hi"]),
        "hi\n"
    );
    cosm.ok(["rm", "--force", "new", "other"]);
    // What is half gone is not started.
    let text = cosm.fails(125, ["start", "box"]);
    assert!(text.contains("it could not be removed"), "{text}");
    cosm.fails(125, ["rm", "box"]);

    drop(stuck);
    cosm.ok(["rm", "box"]);
    assert_eq!(cosm.ok(["ls", "-q"]), "");
}

#[test]
fn the_next_look_removes_what_could_not_be() {
    let cosm = Cosm::new();
    let Some(stuck) = stuck(&cosm) else { return };
    cosm.fails(125, ["rm", "--force", "box"]);
    assert_eq!(cosm.ok(["ls", "-q"]), "box\n");
    drop(stuck);
    assert_eq!(cosm.ok(["ls", "-q"]), "");
}

#[test]
fn a_record_that_cannot_be_read_hides_no_other() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "other"]);
    cosm.ok(["run", "--name", "box", "--", "true"]);
    let id = cosm.json(["inspect", "box"])["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let record = find(cosm.home(), &id).expect("its folder").join("records");
    std::fs::write(&record, "p{\n").expect("written");
    let list = cosm.json(["ls", "--json"]);
    assert_eq!(list["sandboxes"][0]["state"], "crashed", "{list}");
    assert_eq!(list["sandboxes"][1]["state"], "running", "{list}");
    assert!(record.exists(), "nobody asked for its removal");
    cosm.ok(["rm", "box"]);
    assert_eq!(cosm.ok(["ls", "-q"]), "other\n");
}
