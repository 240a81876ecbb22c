//! Copies between a host and a guest that lays traps.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use cosm_attacks::{Case, House, Noise, Running, Verdict, fingerprint};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(copy::trees_arrive_whole, 60),
    case!(copy::links_of_the_guest_lead_nowhere, 60),
    case!(copy::links_of_the_host_are_not_followed, 60),
    case!(copy::guest_swaps_folders_while_it_is_read, 120),
    case!(copy::host_swaps_folders_while_it_is_read, 120),
    case!(copy::special_files_and_modes, 60),
    case!(copy::names_with_any_byte, 60),
];

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The control of all others: what may be copied is copied.
fn trees_arrive_whole(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let tree = house.scratch("tree");
    fs::create_dir_all(tree.join("a/b/c")).expect("folders");
    let big = Noise::new(5).bytes(5_000_001);
    fs::write(tree.join("a/big"), &big).expect("a file");
    fs::write(tree.join("a/b/empty"), b"").expect("a file");
    fs::write(tree.join("a/b/c/run"), b"#!/bin/sh\necho ran\n").expect("a file");
    fs::set_permissions(tree.join("a/b/c/run"), fs::Permissions::from_mode(0o755)).expect("ours");
    symlink("b/c/run", tree.join("a/link")).expect("a link");
    house.ok(["cp", path(&tree), "box:/tmp/in"]);
    assert_eq!(
        house
            .shell("box", "/tmp/in/a/link && ls -A /tmp/in/a")
            .text(),
        "ran\nb\nbig\nlink"
    );
    let back = house.folder().join("back");
    house.ok(["cp", "box:/tmp/in", path(&back)]);
    assert_eq!(
        fingerprint(&fs::read(back.join("a/big")).expect("a file")),
        fingerprint(&big)
    );
    assert_eq!(fs::read(back.join("a/b/empty")).expect("a file"), b"");
    assert_eq!(
        fs::metadata(back.join("a/b/c/run")).expect("a file").mode() & 0o777,
        0o755
    );
    assert_eq!(
        fs::read_link(back.join("a/link")).expect("a link"),
        Path::new("b/c/run")
    );
    house.remove("box");
    Verdict::Passed
}

fn links_of_the_guest_lead_nowhere(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let victim = house.folder().join("victim");
    fs::write(&victim, "untouched").expect("a file");
    let prize = house.scratch("prize");
    let (v, p) = (victim.display(), prize.display());
    // A tree whose links point at places of the host, and things that want to be written through them.
    let script = format!(
        "mkdir -p /tmp/t/d && ln -s {v} /tmp/t/file && ln -s {p} /tmp/t/folder && ln -s / /tmp/t/root && \
         ln -s ../../../../../../etc/passwd /tmp/t/up && echo x > /tmp/t/d/x"
    );
    assert_eq!(house.shell("box", &script).code(), Some(0));
    let out = house.scratch("out");
    house.ok(["cp", "box:/tmp/t", path(&out)]);
    // Once more over what lies there now: the links that came out are not followed either.
    let script = "cd /tmp/t && rm file folder root up && echo owned > file && mkdir folder && echo owned > folder/x && echo owned > root";
    assert_eq!(house.shell("box", script).code(), Some(0));
    house.run(["cp", "box:/tmp/t", path(&out)]);
    house.run(["cp", "box:/tmp/t/file", path(&out.join("t/file"))]);
    assert_eq!(
        fs::read_to_string(&victim).expect("a file"),
        "untouched",
        "a link of the guest's was written through"
    );
    assert_eq!(
        fs::read_dir(&prize).expect("a folder").count(),
        0,
        "a link of the guest's was entered"
    );
    // A single file that is a link gives what the guest sees there, never the host's.
    house.shell("box", &format!("ln -sf {v} /tmp/single"));
    let single = out.join("single");
    house.run(["cp", "box:/tmp/single", path(&single)]);
    let copied_link = fs::symlink_metadata(&single).is_ok_and(|meta| meta.file_type().is_symlink());
    assert!(copied_link || fs::read_to_string(&single).map_or(true, |text| text != "untouched"));
    house.remove("box");
    Verdict::Passed
}

/// A link in a tree that is copied in arrives as a link: the host's file behind it is not given away.
fn links_of_the_host_are_not_followed(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let secret = house.folder().join("secret");
    fs::write(&secret, "hunter2").expect("a file");
    let tree = house.scratch("tree");
    symlink(&secret, tree.join("link")).expect("a link");
    symlink(house.folder(), tree.join("folder")).expect("a link");
    fs::write(tree.join("plain"), "plain").expect("a file");
    house.ok(["cp", path(&tree), "box:/tmp/in"]);
    let done = house.shell(
        "box",
        "cat /tmp/in/plain; grep -r hunter2 /tmp/in; readlink /tmp/in/link",
    );
    assert!(done.text().starts_with("plain"), "control: {done:?}");
    assert!(!done.text().contains("hunter2"), "{done:?}");
    // Inside, a link in the target's path is the guest's own affair: it stays in the guest.
    house.shell("box", "ln -s /root /tmp/away");
    house.run(["cp", path(&tree.join("plain")), "box:/tmp/away/plain"]);
    assert_eq!(house.shell("box", "cat /root/plain").text(), "plain");
    house.remove("box");
    Verdict::Passed
}

fn guest_swaps_folders_while_it_is_read(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let prize = house.scratch("prize");
    fs::write(prize.join("f1"), "untouched").expect("a file");
    let setup = "mkdir -p /tmp/t/d && i=0; while [ $i -lt 40 ]; do echo owned > /tmp/t/d/f$i; i=$((i+1)); done";
    assert_eq!(house.shell("box", setup).code(), Some(0));
    let swap = format!(
        "cd /tmp/t; ln -s {} /tmp/t/l; while :; do mv d x; mv l d; mv d l; mv x d; done",
        prize.display()
    );
    let swapping = Running::start(house.cosm(["exec", "box", "--", "/bin/sh", "-c", &swap]));
    for round in 0..40 {
        let out = house.folder().join("out");
        let done = house.run(["cp", "box:/tmp/t", path(&out)]);
        assert!(
            done.took < Duration::from_secs(20),
            "round {round}: {done:?}"
        );
        assert_eq!(
            fs::read_to_string(prize.join("f1")).expect("a file"),
            "untouched",
            "round {round}"
        );
        assert_eq!(
            fs::read_dir(&prize).expect("a folder").count(),
            1,
            "round {round}"
        );
        if round % 4 == 3 {
            drop(fs::remove_dir_all(&out));
        }
    }
    drop(swapping);
    house.remove("box");
    Verdict::Passed
}

/// Another process of the host (a build, or a program that shares a folder with the guest) swaps what is copied in.
fn host_swaps_folders_while_it_is_read(house: &House) -> Verdict {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    house.sandbox("box", &[]);
    let secrets = house.scratch("secrets");
    fs::write(secrets.join("f"), "hunter2").expect("a file");
    let tree = house.scratch("tree");
    fs::create_dir(tree.join("d")).expect("a folder");
    fs::write(tree.join("d/f"), "plain").expect("a file");
    symlink(&secrets, tree.join("l")).expect("a link");
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (stop, tree) = (Arc::clone(&stop), tree.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                for (from, to) in [("d", "x"), ("l", "d"), ("d", "l"), ("x", "d")] {
                    fs::rename(tree.join(from), tree.join(to)).expect("ours");
                }
            }
        }
    });
    for round in 0..40 {
        house.run(["cp", path(&tree), &format!("box:/tmp/in{round}")]);
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().expect("the swapper");
    let done = house.shell(
        "box",
        "grep -rl hunter2 /tmp; cat /tmp/in*/d/f /tmp/in*/x/f 2>/dev/null | grep -c plain",
    );
    assert!(!done.text().contains("/tmp/"), "{done:?}");
    assert_ne!(
        done.text(),
        "0",
        "control: the plain file was copied at times: {done:?}"
    );
    house.remove("box");
    Verdict::Passed
}

fn special_files_and_modes(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let script = "mkdir /tmp/t && cd /tmp/t && mkfifo pipe && cp /bin/true suid && chmod 6777 suid && echo x > plain && \
                  chmod 000 plain && mkdir locked && chmod 000 locked";
    assert_eq!(house.shell("box", script).code(), Some(0));
    let out = house.folder().join("out");
    let done = house.run(["cp", "box:/tmp/t", path(&out)]);
    assert!(
        done.took < Duration::from_secs(10),
        "a pipe is not waited for: {done:?}"
    );
    if let Ok(meta) = fs::symlink_metadata(out.join("suid")) {
        assert_eq!(meta.mode() & 0o6000, 0, "set-user-id came out");
    }
    let single = house.run(["cp", "box:/tmp/t/pipe", path(&house.folder().join("pipe"))]);
    assert!(single.took < Duration::from_secs(10), "{single:?}");
    let zero = house.run(["cp", "box:/dev/zero", path(&house.folder().join("zero"))]);
    assert_ne!(zero.code(), Some(0), "an endless file is refused: {zero:?}");
    drop(fs::set_permissions(
        out.join("locked"),
        fs::Permissions::from_mode(0o700),
    ));
    house.remove("box");
    Verdict::Passed
}

fn names_with_any_byte(house: &House) -> Verdict {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    house.sandbox("box", &[]);
    let tree = house.scratch("tree");
    let names: [&[u8]; 6] = [b"-rf", b"a\nb", b"\xff\xfe", b"\x1b[31m", b"a:b", b" "];
    for name in names {
        fs::write(tree.join(OsStr::from_bytes(name)), b"x").expect("a file");
    }
    house.ok(["cp", path(&tree), "box:/tmp/in"]);
    let back = house.folder().join("back");
    house.ok(["cp", "box:/tmp/in", path(&back)]);
    for name in names {
        assert!(back.join(OsStr::from_bytes(name)).is_file(), "{name:?}");
    }
    house.remove("box");
    Verdict::Passed
}
