//! The library, with the real program as the keeper.

use std::path::Path;
use std::time::{Duration, Instant};

use cosm::spec::ImageSource;
use cosm::{
    ErrorKind, ExecEvent, ExecOptions, ExitStatus, Filter, Host, HostConfig, LogOptions, Sandbox,
    SandboxSpec, SandboxStatus, SpawnReason,
};
use tempfile::TempDir;

struct Place {
    host: Host,
    _folders: [TempDir; 2],
}

impl Place {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let private = |prefix| {
            tempfile::Builder::new()
                .prefix(prefix)
                .permissions(std::fs::Permissions::from_mode(0o700))
                .tempdir_in("/tmp")
                .expect("a temporary folder")
        };
        let folders = [private("cosm-home"), private("cr")];
        let host = Host::open(HostConfig {
            home: folders[0].path().to_owned(),
            runtime_dir: folders[1].path().join("cosm"),
            program: env!("CARGO_BIN_EXE_cosm").into(),
            spare: None,
            ids: None,
        });
        Self {
            host: host.expect("a host"),
            _folders: folders,
        }
    }

    async fn none_is_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let page = self.host.list(&Filter::default()).await.expect("a list");
            if page.sandboxes.is_empty() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "still there: {:?}",
                page.sandboxes
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let left = std::fs::read_dir(self.host.home().sandboxes()).map_or(0, Iterator::count);
        assert_eq!(left, 0, "folders are left");
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), work)
            .await
            .expect("in time")
    })
}

#[test]
fn a_sandbox_ends_with_its_value() {
    let place = Place::new();
    block_on(async {
        let sandbox = Sandbox::builder(&place.host, "")
            .remove_on_exit()
            .create()
            .await
            .expect("created");
        assert!(sandbox.owns_lifecycle());
        assert_eq!(
            sandbox.status().await.expect("a status"),
            SandboxStatus::Running
        );
        drop(sandbox);
        place.none_is_left().await;
    });
}

/// Specs of both kinds: one whose first command is sent while it boots, and one that is kept.
fn both_kinds() -> [SandboxSpec; 2] {
    let passing = SandboxSpec {
        remove_on_exit: true,
        ..SandboxSpec::default()
    };
    [passing, SandboxSpec::default()]
}

#[test]
fn a_first_command_comes_with_its_sandbox() {
    let place = Place::new();
    block_on(async {
        for spec in both_kinds() {
            let command = ExecOptions::new("sh").args(["-c", "cat; echo err >&2; exit 3"]);
            let command = command.stdin_bytes("in");
            let made = place.host.create_and_exec(spec, None, command).await;
            let (sandbox, handle) = made.expect("created");
            let output = handle.expect("started").collect().await.expect("ran");
            assert_eq!(output.status.status, ExitStatus::Code(3));
            assert_eq!(
                (output.stdout_text(), output.stderr_text()),
                ("in".into(), "err\n".into())
            );
            let after = sandbox.shell("echo on").await.expect("it goes on");
            assert_eq!(after.stdout_text(), "on\n");
            sandbox.kill().await.expect("killed");
        }
        for spec in both_kinds() {
            let missing = ExecOptions::new("/no/such/program");
            let made = place.host.create_and_exec(spec, None, missing).await;
            let (sandbox, handle) = made.expect("created");
            let error = handle.expect_err("it is not there");
            assert_eq!(error.kind(), ErrorKind::SpawnFailed, "{error}");
            assert!(sandbox.shell("true").await.expect("it goes on").success());
        }
        for mut spec in both_kinds() {
            spec.image = ImageSource::Folder("/no/such/image".into());
            let command = ExecOptions::new("true");
            let made = place.host.create_and_exec(spec, None, command).await;
            let error = made.expect_err("there is no such image");
            assert!(error.to_string().contains("/no/such/image"), "{error}");
        }
    });
}

#[test]
fn a_guest_ends_with_its_command_if_that_is_all() {
    let place = Place::new();
    block_on(async {
        let [spec, _] = both_kinds();
        let run = |script: &'static str| {
            let command = ExecOptions::new("sh").args(["-c", script]).ends_guest(true);
            place.host.create_and_exec(spec.clone(), None, command)
        };
        let (sandbox, handle) = run("echo out").await.expect("created");
        let output = handle.expect("started").collect().await.expect("ran");
        assert_eq!(output.stdout_text(), "out\n");
        // Whoever asks early enough learns how it ended; then nothing is known of it any more.
        match sandbox.wait().await {
            Ok(end) => assert_eq!(
                (end.reason, end.status),
                (cosm::EndReason::Exited, Some(ExitStatus::Code(0)))
            ),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
        place.none_is_left().await;
        // One that fails can be asked why, and what was left running may still speak.
        for script in ["exit 1", "sleep 1000 & true"] {
            let (sandbox, handle) = run(script).await.expect("created");
            handle.expect("started").collect().await.expect("ran");
            assert!(sandbox.shell("true").await.expect("it goes on").success());
            sandbox.kill().await.expect("killed");
        }
    });
}

#[test]
fn commands_give_what_they_said() {
    let place = Place::new();
    block_on(async {
        let sandbox = Sandbox::builder(&place.host, "box")
            .env("A", "1")
            .create()
            .await
            .expect("created");
        let output = sandbox
            .shell("echo $A; echo err >&2; exit 3")
            .await
            .expect("ran");
        assert_eq!(
            (output.stdout_text(), output.stderr_text()),
            ("1\n".into(), "err\n".into())
        );
        assert_eq!(output.status.status, ExitStatus::Code(3));

        let big: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 253) as u8).collect();
        let output = sandbox
            .exec_with("cat", |o| o.stdin_bytes(big.clone()))
            .await
            .expect("ran");
        assert!(output.stdout == big && !output.status.stdin_closed);
        let output = sandbox
            .exec_with("cat", |o| o.stdin_bytes(big.clone()).output_cap(1000))
            .await
            .expect("ran");
        assert!(
            output.stdout.len() == 1000
                && output.stdout_truncated()
                && output.stdout_total == 5_000_000
        );
        let output = sandbox
            .exec_with("head", |o| o.args(["-c", "1"]).stdin_bytes(big))
            .await
            .expect("ran");
        assert!(
            output.success() && output.status.stdin_closed,
            "it did not read all, and that is told"
        );

        let begin = Instant::now();
        let limit = Duration::from_millis(300);
        let script = ["-c", "echo some; setsid sleep 1000 & sleep 1000"];
        let output = sandbox
            .exec_with("sh", |o| o.args(script).timeout(limit))
            .await
            .expect("ran");
        assert!(
            output.timed_out()
                && output.stdout == b"some\n"
                && begin.elapsed() < Duration::from_secs(10)
        );

        let error = sandbox
            .exec("no-such-program", [""; 0])
            .await
            .expect_err("not there");
        assert_eq!(error.kind(), ErrorKind::SpawnFailed);
        assert_eq!(
            error.spawn_failure().expect("typed").reason,
            SpawnReason::NotFound
        );
        sandbox.kill().await.expect("killed");
        let error = sandbox
            .exec("true", [""; 0])
            .await
            .expect_err("it does not run");
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error:?}");
        sandbox.remove().await.expect("removed");
        place.none_is_left().await;
    });
}

#[test]
fn a_stream_begins_and_ends() {
    let place = Place::new();
    block_on(async {
        let sandbox = Sandbox::builder(&place.host, "")
            .remove_on_exit()
            .create()
            .await
            .expect("created");
        let mut handle = sandbox
            .exec_stream_with("cat", |o| o.stdin_pipe())
            .await
            .expect("started");
        let mut stdin = handle.take_stdin().expect("a pipe");
        let pid = handle.pid();
        assert_eq!(
            handle.recv().await.expect("an event"),
            Some(ExecEvent::Started { pid })
        );
        stdin.write_all(b"hello").await.expect("written");
        assert_eq!(
            handle.recv().await.expect("an event"),
            Some(ExecEvent::Stdout(b"hello".to_vec()))
        );
        stdin.close().await.expect("closed");
        match handle.recv().await.expect("an event") {
            Some(ExecEvent::Exited(status)) => {
                assert!(status.success() && status.usage.wall_us > 0)
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(handle.recv().await.expect("the end"), None);

        let handle = sandbox
            .exec_stream("sleep", ["1000"])
            .await
            .expect("started");
        handle.signal(15).await.expect("signalled");
        assert_eq!(handle.wait().await.expect("ended").signal(), Some(15));
    });
}

#[test]
fn files() {
    let place = Place::new();
    block_on(async {
        let sandbox = Sandbox::builder(&place.host, "")
            .remove_on_exit()
            .create()
            .await
            .expect("created");
        let fs = sandbox.fs();
        fs.mkdir("/tmp/a/b").await.expect("made");
        fs.write("/tmp/a/b/c", b"content").await.expect("written");
        assert_eq!(fs.read("/tmp/a/b/c").await.expect("read"), b"content");
        fs.symlink("b/c", "/tmp/a/link").await.expect("linked");
        assert_eq!(
            fs.readlink("/tmp/a/link").await.expect("read"),
            Path::new("b/c")
        );
        fs.chmod("/tmp/a/b/c", 0o600).await.expect("changed");
        assert_eq!(fs.stat("/tmp/a/link").await.expect("found").mode, 0o600);
        let mut names: Vec<Vec<u8>> = fs
            .list("/tmp/a")
            .await
            .expect("listed")
            .into_iter()
            .map(|e| e.path)
            .collect();
        names.sort();
        assert_eq!(names, [b"b".to_vec(), b"link".to_vec()]);
        fs.copy("/tmp/a", "/tmp/d").await.expect("copied");
        fs.rename("/tmp/d", "/tmp/e").await.expect("renamed");
        assert!(
            fs.exists("/tmp/e/b/c").await.expect("asked")
                && !fs.exists("/tmp/d").await.expect("asked")
        );
        let mut watch = fs.watch("/tmp/e").await.expect("watched");
        fs.remove_tree("/tmp/e/b").await.expect("removed");
        assert_eq!(watch.next().await.expect("a change").name, b"b");
        let error = fs.read("/tmp/none").await.expect_err("not there");
        assert_eq!(
            (error.kind(), error.errno()),
            (ErrorKind::NotFound, Some(2))
        );
    });
}

#[test]
fn names_conflict_and_are_replaced() {
    let place = Place::new();
    block_on(async {
        let first = Sandbox::builder(&place.host, "box")
            .create()
            .await
            .expect("created");
        let error = Sandbox::builder(&place.host, "box")
            .create()
            .await
            .expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.is_retry_safe() && error.to_string().contains("already exists"));
        let second = Sandbox::builder(&place.host, "box")
            .replace(Duration::ZERO)
            .create()
            .await
            .expect("replaced");
        assert_ne!(first.id(), second.id());
        assert!(first.exec("true", [""; 0]).await.is_err());
        assert!(second.exec("true", [""; 0]).await.expect("ran").success());
        second.kill().await.expect("killed");
        second.remove().await.expect("removed");
        place.none_is_left().await;
    });
}

#[test]
fn a_failed_start_is_typed_and_leaves_nothing() {
    let place = Place::new();
    block_on(async {
        let error = Sandbox::builder(&place.host, "box")
            .bind("/no/such/folder", "/mnt")
            .create()
            .await
            .expect_err("there is nothing to mount");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        assert!(error.to_string().contains("/no/such/folder"), "{error:?}");
        assert_eq!(error.boot_failure().expect("typed").phase, "prepare");
        place.none_is_left().await;
        let error = Sandbox::builder(&place.host, "box")
            .command(["no-such-program"])
            .create()
            .await
            .expect_err("there is nothing to run");
        assert_eq!(error.kind(), ErrorKind::SpawnFailed, "{error:?}");
        assert_eq!(error.boot_failure().expect("typed").phase, "main command");
        assert_eq!(
            error.spawn_failure().expect("typed").reason,
            SpawnReason::NotFound
        );
        place.none_is_left().await;
        let error = Sandbox::builder(&place.host, "../x")
            .memory("lots")
            .create()
            .await
            .expect_err("wrong");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn jobs_and_their_logs() {
    let place = Place::new();
    block_on(async {
        let mut sandbox = Sandbox::builder(&place.host, "box")
            .command(["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.1; done"])
            .create()
            .await
            .expect("created");
        let mut logs = sandbox
            .logs("main", LogOptions::default().follow())
            .await
            .expect("a log");
        let mut text = Vec::new();
        while let Some(piece) = logs.next().await.expect("read") {
            text.extend(piece.bytes);
        }
        assert_eq!(text, b"1\n2\n3\n");
        let end = sandbox.wait().await.expect("ended");
        assert_eq!(end.status, Some(ExitStatus::Code(0)));
        sandbox.settled().await.expect("settled");
        assert_eq!(
            sandbox.status().await.expect("a status"),
            SandboxStatus::Stopped
        );
        sandbox.remove().await.expect("removed");
    });
}

#[test]
fn one_that_is_detached_lives_on() {
    let place = Place::new();
    block_on(async {
        let mut sandbox = Sandbox::builder(&place.host, "box")
            .create()
            .await
            .expect("created");
        sandbox.detach().await.expect("detached");
        assert!(!sandbox.owns_lifecycle());
        drop(sandbox);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let sandbox = place.host.get("box").await.expect("found");
        assert!(sandbox.exec("true", [""; 0]).await.expect("ran").success());
        drop(sandbox);
        place.host.remove("box", true).await.expect("removed");
        place.none_is_left().await;
    });
}

#[test]
fn many_at_once() {
    let place = Place::new();
    block_on(async {
        let mut work = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let host = place.host.clone();
            work.spawn(async move {
                let sandbox = Sandbox::builder(&host, "")
                    .remove_on_exit()
                    .create()
                    .await?;
                let output = sandbox.exec("true", [""; 0]).await?;
                sandbox.kill().await?;
                cosm::Result::Ok(output.success())
            });
        }
        while let Some(done) = work.join_next().await {
            assert!(done.expect("no panic").expect("worked"));
        }
        place.none_is_left().await;
    });
}
