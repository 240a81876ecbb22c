//! `cosm cp`

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common::Cosm;

#[test]
fn trees_go_in_and_come_back() {
    let cosm = Cosm::new();
    let work = tempfile::tempdir().expect("a temporary folder");
    let tree = work.path().join("tree");
    std::fs::create_dir_all(tree.join("sub/empty")).expect("mkdir");
    std::fs::write(tree.join("sub/file"), vec![7; 200_000]).expect("write");
    std::fs::set_permissions(
        tree.join("sub/file"),
        std::fs::Permissions::from_mode(0o750),
    )
    .expect("chmod");
    std::os::unix::fs::symlink("sub/file", tree.join("link")).expect("symlink");
    cosm.ok(["create", "--name", "box"]);

    cosm.ok(["cp", tree.to_str().expect("text"), "box:/tmp"]);
    assert_eq!(
        cosm.ok([
            "exec",
            "box",
            "--",
            "sh",
            "-c",
            "cd /tmp/tree && stat -c '%a %s' sub/file && readlink link && ls -d sub/empty"
        ]),
        "750 200000\nsub/file\nsub/empty\n"
    );
    let back = work.path().join("back");
    cosm.ok(["cp", "box:/tmp/tree", back.to_str().expect("text")]);
    assert_eq!(
        std::fs::read(back.join("sub/file")).expect("read"),
        vec![7; 200_000]
    );
    assert_eq!(
        std::fs::read_link(back.join("link")).expect("a link"),
        Path::new("sub/file")
    );
    assert!(back.join("sub/empty").is_dir());
    let mode = back
        .join("sub/file")
        .metadata()
        .expect("stat")
        .permissions()
        .mode();
    assert_eq!(mode & 0o700, 0o700);

    // Into a folder that is there goes a file of the same name.
    std::fs::create_dir(work.path().join("into")).expect("mkdir");
    let into = work.path().join("into");
    cosm.ok(["cp", "box:/tmp/tree/sub/file", into.to_str().expect("text")]);
    assert!(into.join("file").is_file());
}

#[test]
fn a_link_in_the_guest_leads_nowhere_outside() {
    let cosm = Cosm::new();
    let work = tempfile::tempdir().expect("a temporary folder");
    let victim = work.path().join("victim");
    std::fs::write(&victim, "untouched").expect("write");
    cosm.ok(["create", "--name", "box"]);
    let script = format!(
        "mkdir /tmp/t && ln -s {} /tmp/t/x && echo evil > /tmp/y",
        victim.display()
    );
    cosm.ok(["exec", "box", "--", "sh", "-c", &script]);
    let out = work.path().join("out");
    cosm.ok(["cp", "box:/tmp/t", out.to_str().expect("text")]);
    // A second copy writes to a name at which the first one left a link.
    cosm.ok(["cp", "box:/tmp/y", out.join("x").to_str().expect("text")]);
    assert_eq!(std::fs::read_to_string(&victim).expect("read"), "untouched");
    assert_eq!(
        std::fs::read_to_string(out.join("x")).expect("read"),
        "evil\n"
    );
}

#[test]
fn errors_say_what_and_where() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let said = cosm.fails(125, ["cp", "box:/no/such/file", "/tmp"]);
    assert!(
        said.contains("/no/such/file in the sandbox: No such file"),
        "{said}"
    );
    let said = cosm.fails(125, ["cp", "/no/such/file", "box:/tmp"]);
    assert!(said.contains("/no/such/file on this host"), "{said}");
    let said = cosm.fails(125, ["cp", "/dev/null", "box:/usr/it's"]);
    assert!(said.contains("sockets and devices"), "{said}");
    let work = tempfile::tempdir().expect("a temporary folder");
    let file = work.path().join("file");
    std::fs::write(&file, "text").expect("write");
    let name = file.to_str().expect("text");
    let said = cosm.fails(125, ["cp", name, "box:/usr/it's"]);
    assert!(
        said.contains("/usr/it's in the sandbox: Read-only"),
        "{said}"
    );
    // Below what is no folder here.
    let there = format!("{name}/below");
    let said = cosm.fails(125, ["cp", "box:/etc/hostname", &there]);
    assert!(said.contains(&format!("{there} on this host")), "{said}");
    // In place of a folder that is not empty: the whole path is said, though only its end was written.
    std::fs::create_dir_all(work.path().join("tree/hostname/full")).expect("mkdir");
    let tree = work.path().join("tree");
    let said = cosm.fails(
        125,
        ["cp", "box:/etc/hostname", tree.to_str().expect("text")],
    );
    let place = tree.join("hostname");
    assert!(
        said.contains(&format!("{} on this host", place.display())),
        "{said}"
    );
    let said = cosm.fails(125, ["cp", "/a", "/b"]);
    assert!(said.contains("NAME:PATH"), "{said}");
}
