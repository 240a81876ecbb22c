//! Files in a real agent's reach.

mod common;

use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::Agent;
use cosm_agent_client::{AgentError, Files, TreeLimits, WriteOptions};
use cosm_proto::agent::{ChangeKind, FileKind};
use rustix::io::Errno;

fn start() -> (Agent, Files, PathBuf) {
    let agent = Agent::start();
    let files = agent.client.files();
    let place = agent.folder().join("guest");
    std::fs::create_dir(&place).expect("mkdir");
    (agent, files, place)
}

fn errno<T: std::fmt::Debug>(result: Result<T, AgentError>) -> i32 {
    match result.expect_err("it can't work") {
        AgentError::File(failure) => failure.errno,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn content_goes_in_and_comes_out() {
    let (_agent, files, place) = start();
    let path = place.join("a file \u{e4}");
    let content: Vec<u8> = (0..5_000_000_u32).map(|i| (i % 253) as u8).collect();
    files
        .write(&path, &content, WriteOptions::default())
        .await
        .expect("write");
    assert!(files.read(&path, 5_000_000).await.expect("read") == content);
    assert_eq!(
        errno(files.read(&path, 4_999_999).await),
        Errno::FBIG.raw_os_error()
    );
    files
        .write(
            &path,
            b"+",
            WriteOptions {
                append: true,
                ..WriteOptions::default()
            },
        )
        .await
        .expect("append");
    let mut part = files.read_stream(&path, 4_999_999, 10).await.expect("open");
    assert_eq!(
        part.next().await.expect("read"),
        Some(vec![content[4_999_999], b'+'])
    );
    assert_eq!(part.next().await.expect("end"), None);
    files
        .write(&path, b"", WriteOptions::default())
        .await
        .expect("empty it");
    assert_eq!(files.read(&path, 0).await.expect("read"), b"");
    let new = WriteOptions {
        create_new: true,
        ..WriteOptions::default()
    };
    assert_eq!(
        errno(files.write(&path, b"x", new).await),
        Errno::EXIST.raw_os_error()
    );
    let private = WriteOptions {
        mode: Some(0o4600),
        ..WriteOptions::default()
    };
    files
        .write(place.join("p"), b"x", private)
        .await
        .expect("write");
    assert_eq!(
        std::fs::metadata(place.join("p")).expect("there").mode() & 0o7777,
        0o4600
    );
}

#[tokio::test]
async fn a_refused_write_says_so_however_much_was_sent() {
    let (_agent, files, place) = start();
    let much = vec![0; 8 << 20];
    assert_eq!(
        errno(
            files
                .write(place.join("no/such"), &much, WriteOptions::default())
                .await
        ),
        Errno::NOENT.raw_os_error()
    );
    assert_eq!(
        errno(
            files
                .write("/dev/full", &much, WriteOptions::default())
                .await
        ),
        Errno::NOSPC.raw_os_error()
    );
    let error = files
        .read(place.join("nothing"), 1)
        .await
        .expect_err("nothing");
    assert!(
        error
            .to_string()
            .contains("nothing in the sandbox: No such file"),
        "{error}"
    );
}

#[tokio::test]
async fn folders_links_and_modes() {
    let (_agent, files, place) = start();
    files
        .mkdir(place.join("a/b/c"), Some(0o700), true)
        .await
        .expect("mkdir -p");
    files
        .mkdir(place.join("a/b/c"), None, true)
        .await
        .expect("again");
    assert_eq!(
        errno(files.mkdir(place.join("a"), None, false).await),
        Errno::EXIST.raw_os_error()
    );
    assert_eq!(
        files
            .stat(place.join("a/b/c"), false)
            .await
            .expect("stat")
            .mode,
        0o700
    );
    files
        .write(place.join("a/f"), b"12345", WriteOptions::default())
        .await
        .expect("write");
    files
        .symlink("f", place.join("a/l"))
        .await
        .expect("symlink");
    assert_eq!(
        files.readlink(place.join("a/l")).await.expect("readlink"),
        Path::new("f")
    );
    let (link, file) = (
        files.stat(place.join("a/l"), false).await,
        files.stat(place.join("a/l"), true).await,
    );
    let (link, file) = (link.expect("stat"), file.expect("stat"));
    assert_eq!(
        (link.kind, link.target.as_deref()),
        (FileKind::Symlink, Some(&b"f"[..]))
    );
    assert_eq!((file.kind, file.size), (FileKind::File, 5));
    let mut names: Vec<_> = files
        .list(place.join("a"))
        .await
        .expect("list")
        .into_iter()
        .map(|e| e.path)
        .collect();
    names.sort_unstable();
    assert_eq!(names, [b"b".to_vec(), b"f".to_vec(), b"l".to_vec()]);
    files.chmod(place.join("a/f"), 0o640).await.expect("chmod");
    files
        .rename(place.join("a/f"), place.join("a/g"))
        .await
        .expect("rename");
    assert_eq!(
        std::fs::metadata(place.join("a/g")).expect("there").mode() & 0o7777,
        0o640
    );
    assert!(
        files
            .exists(place.join("a/l"))
            .await
            .expect("a dangling link is there")
    );
    assert!(!files.exists(place.join("a/f")).await.expect("gone"));
    assert!(
        !files
            .exists(place.join("a/g/x"))
            .await
            .expect("no folder, so not there")
    );
    if rustix::process::getuid().is_root() {
        files
            .chown(place.join("a/g"), Some(12), Some(34), false)
            .await
            .expect("chown");
        let made = std::fs::metadata(place.join("a/g")).expect("there");
        assert_eq!((made.uid(), made.gid()), (12, 34));
    } else {
        eprintln!("skipped a part: chown needs root");
    }
}

#[tokio::test]
async fn removing() {
    let (_agent, files, place) = start();
    let outside = place.join("outside");
    std::fs::create_dir(&outside).expect("mkdir");
    std::fs::write(outside.join("kept"), "x").expect("write");
    let tree = place.join("tree");
    for i in 0..300 {
        std::fs::create_dir_all(tree.join(format!("d{i}/e/f"))).expect("mkdir");
        std::fs::write(tree.join(format!("d{i}/e/file")), "x").expect("write");
    }
    symlink(&outside, tree.join("d0/link")).expect("symlink");
    let deep = (0..400).fold(tree.clone(), |path, _| path.join("x"));
    std::fs::create_dir_all(deep).expect("a deep one");
    assert_eq!(
        errno(files.remove(&tree, false).await),
        Errno::NOTEMPTY.raw_os_error()
    );
    files.remove(&tree, true).await.expect("remove");
    assert!(!tree.exists() && outside.join("kept").exists());
    symlink(&outside, place.join("link")).expect("symlink");
    files
        .remove(place.join("link"), true)
        .await
        .expect("the link only");
    assert!(outside.join("kept").exists());
    for wrong in ["/", "//", "/tmp/..", ".", ""] {
        assert_eq!(
            errno(files.remove(wrong, true).await),
            Errno::INVAL.raw_os_error(),
            "{wrong}"
        );
    }
    assert_eq!(
        errno(files.remove(place.join("nothing"), true).await),
        Errno::NOENT.raw_os_error()
    );
}

/// A tree with one of everything.
fn sample(root: &Path) {
    std::fs::create_dir_all(root.join("sub/empty")).expect("mkdir");
    std::fs::write(root.join("plain"), vec![7; 200_000]).expect("write");
    std::fs::write(root.join("sub/run"), "#!/bin/sh\n").expect("write");
    std::fs::set_permissions(root.join("sub/run"), std::fs::Permissions::from_mode(0o755))
        .expect("chmod");
    std::fs::set_permissions(
        root.join("sub/empty"),
        std::fs::Permissions::from_mode(0o500),
    )
    .expect("chmod");
    std::fs::hard_link(root.join("plain"), root.join("sub/same")).expect("link");
    symlink("../plain", root.join("sub/link")).expect("symlink");
    symlink("/etc/passwd", root.join("absolute")).expect("symlink");
    let sparse = std::fs::File::create(root.join("sparse")).expect("create");
    sparse.set_len(1 << 30).expect("set_len");
    std::os::unix::fs::FileExt::write_at(&sparse, b"middle", 1 << 29).expect("write");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo"),
        rustix::fs::FileType::Fifo,
        0o644.into(),
        0,
    )
    .expect("mkfifo");
    let odd = std::ffi::OsStr::from_bytes(b"\xff name\n");
    std::fs::write(root.join(odd), "").expect("write");
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    std::fs::File::open(root.join("sub"))
        .and_then(|file| file.set_modified(old))
        .expect("utimens");
}

use std::os::unix::ffi::OsStrExt as _;

fn check(root: &Path) {
    assert_eq!(
        std::fs::read(root.join("plain")).expect("there"),
        vec![7; 200_000]
    );
    let of = |name: &str| std::fs::symlink_metadata(root.join(name)).expect("there");
    assert_eq!(
        (
            of("sub/run").mode() & 0o7777,
            of("sub/empty").mode() & 0o7777
        ),
        (0o755, 0o500)
    );
    assert_eq!(of("plain").ino(), of("sub/same").ino());
    assert_eq!(
        std::fs::read_link(root.join("sub/link")).expect("there"),
        Path::new("../plain")
    );
    assert_eq!(
        std::fs::read_link(root.join("absolute")).expect("there"),
        Path::new("/etc/passwd")
    );
    assert_eq!(of("sparse").len(), 1 << 30);
    assert!(
        of("sparse").blocks() < 1000,
        "holes stay holes: {} blocks",
        of("sparse").blocks()
    );
    let mut middle = [0; 6];
    let sparse = std::fs::File::open(root.join("sparse")).expect("open");
    std::os::unix::fs::FileExt::read_exact_at(&sparse, &mut middle, 1 << 29).expect("read");
    assert_eq!(&middle, b"middle");
    assert!(of("fifo").file_type().is_fifo());
    assert_eq!(of("sub").mtime(), 1_000_000_000);
    assert!(
        root.join(std::ffi::OsStr::from_bytes(b"\xff name\n"))
            .exists()
    );
}

#[tokio::test]
async fn trees_in_out_and_within() {
    let (agent, files, place) = start();
    let host = agent.folder().join("host");
    sample(&host);
    let report = files
        .copy_in(&host, false, place.join("in"))
        .await
        .expect("copy in");
    check(&place.join("in"));
    assert_eq!((report.entries, report.skipped), (11, 0));
    files
        .copy(place.join("in"), place.join("within"), true)
        .await
        .expect("copy within");
    check(&place.join("within"));
    let out = agent.folder().join("out");
    let report = files
        .copy_out_to(place.join("within"), &out, TreeLimits::default())
        .await
        .expect("copy out");
    check(&out);
    assert_eq!(report.entries, 11);
    assert!(report.bytes < 300_000, "{}", report.bytes);
    // Again, over what is there.
    files
        .copy_out_to(place.join("within"), &out, TreeLimits::default())
        .await
        .expect("copy out again");
    check(&out);
    files
        .copy_out_to(
            place.join("in/sub/run"),
            &agent.folder().join("one"),
            TreeLimits::default(),
        )
        .await
        .expect("one file");
    assert_eq!(
        std::fs::read(agent.folder().join("one")).expect("there"),
        b"#!/bin/sh\n"
    );
    assert_eq!(
        errno(files.copy(place.join("in"), place.join("no"), false).await),
        Errno::ISDIR.raw_os_error()
    );
    files
        .copy(place.join("in/sub"), place.join("in/sub/inside"), true)
        .await
        .expect("into itself, once");
    assert!(
        place.join("in/sub/inside/run").exists() && !place.join("in/sub/inside/inside").exists()
    );
}

#[tokio::test]
async fn limits_of_a_copy_to_the_host() {
    let (agent, files, place) = start();
    sample(&place.join("tree"));
    let out = agent.folder().join("out");
    for limits in [
        TreeLimits {
            bytes: 1000,
            ..TreeLimits::default()
        },
        TreeLimits {
            entries: 3,
            ..TreeLimits::default()
        },
        TreeLimits {
            depth: 1,
            ..TreeLimits::default()
        },
    ] {
        let error = files
            .copy_out_to(place.join("tree"), &out, limits)
            .await
            .expect_err("too much");
        assert!(matches!(error, AgentError::TreeLimit(_)), "{error:?}");
    }
    let error = files
        .copy_out_to(place.join("nothing"), &out, TreeLimits::default())
        .await;
    assert_eq!(errno(error), Errno::NOENT.raw_os_error());
    let error = files
        .copy_in("/no/such/thing", false, place.join("x"))
        .await
        .expect_err("nothing");
    assert!(matches!(error, AgentError::Host { .. }), "{error:?}");
    let error = files
        .copy_in(place.join("tree"), false, "/no/such/folder/x")
        .await;
    assert_eq!(errno(error), Errno::NOENT.raw_os_error());
}

#[tokio::test]
async fn links_planted_on_the_host_are_not_followed() {
    let (agent, files, place) = start();
    std::fs::create_dir_all(place.join("tree/sub")).expect("mkdir");
    std::fs::write(place.join("tree/sub/file"), "new").expect("write");
    std::fs::write(place.join("tree/top"), "new").expect("write");
    let secret = agent.folder().join("secret");
    std::fs::create_dir(&secret).expect("mkdir");
    std::fs::write(secret.join("file"), "old").expect("write");
    let out = agent.folder().join("out");
    std::fs::create_dir(&out).expect("mkdir");
    // A folder's place taken by a link: an error. A file's: the link is replaced.
    symlink(&secret, out.join("sub")).expect("symlink");
    symlink(secret.join("file"), out.join("top")).expect("symlink");
    let error = files
        .copy_out_to(place.join("tree"), &out, TreeLimits::default())
        .await
        .expect_err("a link in the way");
    assert!(matches!(error, AgentError::Host { .. }), "{error:?}");
    std::fs::remove_file(out.join("sub")).expect("rm");
    files
        .copy_out_to(place.join("tree"), &out, TreeLimits::default())
        .await
        .expect("now");
    assert_eq!(std::fs::read(secret.join("file")).expect("there"), b"old");
    assert_eq!(std::fs::read(out.join("top")).expect("there"), b"new");
    // The root itself too.
    symlink(&secret, agent.folder().join("root")).expect("symlink");
    let error = files
        .copy_out_to(
            place.join("tree/sub"),
            &agent.folder().join("root"),
            TreeLimits::default(),
        )
        .await;
    assert!(matches!(error, Err(AgentError::Host { .. })), "{error:?}");
    assert_eq!(std::fs::read(secret.join("file")).expect("there"), b"old");
}

#[tokio::test]
async fn a_tree_that_changes_while_it_is_copied_does_no_harm() {
    let (agent, files, place) = start();
    let tree = place.join("tree");
    std::fs::create_dir_all(&tree).expect("mkdir");
    let secret = agent.folder().join("secret");
    std::fs::create_dir(&secret).expect("mkdir");
    std::fs::write(secret.join("file"), "SECRET").expect("write");
    for i in 0..40 {
        std::fs::create_dir(tree.join(format!("d{i}"))).expect("mkdir");
        std::fs::write(tree.join(format!("d{i}/file")), "fine").expect("write");
    }
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let swap = {
        let (tree, secret) = (tree.clone(), secret.clone());
        move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                for i in 0..40 {
                    let (folder, aside) = (
                        tree.join(format!("d{i}")),
                        tree.with_extension(format!("{i}")),
                    );
                    std::fs::rename(&folder, &aside).expect("aside");
                    symlink(&secret, &folder).expect("swap");
                    std::fs::remove_file(&folder).expect("back");
                    std::fs::rename(&aside, &folder).expect("back");
                }
            }
        }
    };
    let swapper = std::thread::spawn(swap);
    let mut copied = 0;
    for round in 0..15 {
        // Inward: the host's tree is what changes.
        let to = place.join(format!("copy{round}"));
        let result = files.copy_in(&tree, false, &to).await;
        copied += usize::from(result.is_ok());
        for i in 0..40 {
            let content =
                std::fs::read_to_string(to.join(format!("d{i}/file"))).unwrap_or_default();
            let is_link = std::fs::symlink_metadata(to.join(format!("d{i}")))
                .is_ok_and(|found| found.is_symlink());
            assert!(
                is_link || content != "SECRET",
                "round {round}: a link was followed"
            );
        }
    }
    stop.send(()).expect("it runs");
    swapper.join().expect("join");
    eprintln!("{copied} of 15 copies met no change that made them fail");
}

#[tokio::test]
async fn changes_are_seen() {
    let (_agent, files, place) = start();
    let mut watch = files.watch(&place).await.expect("watch");
    let mut next = async || {
        tokio::time::timeout(Duration::from_secs(5), watch.next())
            .await
            .expect("in time")
    };
    std::fs::write(place.join("new"), "").expect("write");
    let change = next().await.expect("a change");
    assert_eq!(
        (change.kind, change.name.as_slice()),
        (ChangeKind::Created, &b"new"[..])
    );
    // One write, without the truncation that may be a change of its own.
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(place.join("new"))
        .expect("open");
    file.write_all(b"x").expect("write");
    assert_eq!(next().await.expect("a change").kind, ChangeKind::Modified);
    std::fs::rename(place.join("new"), place.join("newer")).expect("rename");
    assert_eq!(next().await.expect("a change").kind, ChangeKind::MovedFrom);
    assert_eq!(next().await.expect("a change").kind, ChangeKind::MovedTo);
    std::fs::remove_file(place.join("newer")).expect("remove");
    let change = next().await.expect("a change");
    assert_eq!(
        (change.kind, change.name.as_slice()),
        (ChangeKind::Removed, &b"newer"[..])
    );
    assert_eq!(
        errno(files.watch(place.join("nothing")).await),
        Errno::NOENT.raw_os_error()
    );
}

#[tokio::test]
async fn as_another_user() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: acting as another user needs root");
        return;
    }
    let (agent, files, place) = start();
    std::fs::set_permissions(agent.folder(), std::fs::Permissions::from_mode(0o755))
        .expect("chmod");
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o1777)).expect("chmod");
    let theirs = files.clone().as_user("54321:7");
    theirs
        .write(place.join("theirs"), b"x", WriteOptions::default())
        .await
        .expect("write");
    let made = std::fs::metadata(place.join("theirs")).expect("there");
    assert_eq!((made.uid(), made.gid()), (54_321, 7));
    files
        .write(
            place.join("mine"),
            b"x",
            WriteOptions {
                mode: Some(0o600),
                ..WriteOptions::default()
            },
        )
        .await
        .expect("write");
    assert_eq!(
        errno(theirs.read(place.join("mine"), 1).await),
        Errno::ACCESS.raw_os_error()
    );
    assert_eq!(
        errno(files.as_user("nobody-here").read("/etc/passwd", 1).await),
        Errno::NOENT.raw_os_error()
    );
}
