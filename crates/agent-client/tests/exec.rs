//! Commands in a real agent.

mod common;

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Agent, boot, command, framed, run, shell};
use cosm_agent_client::{AgentError, ExecEvent};
use cosm_proto::agent::{
    ExecIn, ExitStatus, Hello, Request, Rlimit, RlimitKind, SpawnReason, Stdio, VERSION,
};
use cosm_proto::frame::{self, Kind};

#[tokio::test]
async fn code_streams_and_usage() {
    let agent = Agent::start();
    agent.client.ping().await.expect("ping");
    for start in [
        shell("echo out; echo err >&2; exit 3"),
        framed(shell("echo out; echo err >&2; exit 3")),
    ] {
        let done = run(&agent, start).await;
        assert_eq!(
            (done.stdout.as_slice(), done.stderr.as_slice()),
            (&b"out\n"[..], &b"err\n"[..])
        );
        let report = done.exit.report;
        assert_eq!(report.status, ExitStatus::Code(3));
        assert!(
            !report.timed_out && !report.oom && !report.leftovers && !done.exit.detached_holders
        );
        assert!(
            report.usage.wall_us > 0 && report.usage.peak_memory.is_some_and(|bytes| bytes > 0)
        );
    }
}

#[tokio::test]
async fn a_signal_is_not_a_code() {
    let agent = Agent::start();
    let done = run(&agent, shell("kill -USR1 $$")).await;
    assert_eq!(done.exit.report.status, ExitStatus::Signal(10));
}

#[tokio::test]
async fn no_input_means_end_of_file_at_once() {
    let agent = Agent::start();
    for start in [command(&["cat"]), framed(command(&["cat"]))] {
        let begun = Instant::now();
        assert_eq!(run(&agent, start).await.stdout, b"");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[tokio::test]
async fn bytes_are_bytes() {
    let agent = Agent::start();
    let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'=').collect();
    let mut start = command(&["printf", "%s", "x", "$A"]);
    start.argv = vec![
        b"/bin/sh".to_vec(),
        b"-c".to_vec(),
        b"printf %s \"$1$A\"".to_vec(),
        b"sh".to_vec(),
        every.clone(),
    ];
    start.env = vec![(b"A".to_vec(), every.clone())];
    assert_eq!(
        run(&agent, start).await.stdout,
        [every.as_slice(), every.as_slice()].concat()
    );
}

#[tokio::test]
async fn what_can_not_start_says_why() {
    use std::os::unix::fs::PermissionsExt as _;
    let agent = Agent::start();
    let folder = agent.folder();
    let write = |name: &str, content: &[u8], mode: u32| {
        let path = folder.join(name);
        std::fs::write(&path, content).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
        path.to_str().expect("UTF-8").to_owned()
    };
    let garbage = write("garbage", b"\x01\x02\x03", 0o755);
    let bodiless = write("bodiless", b"#!/nonexistent/interpreter\n", 0o755);
    let sealed = write("sealed", b"#!/bin/sh\n", 0o644);
    let table: &[(&[&str], SpawnReason)] = &[
        (&["no-such-command-anywhere"], SpawnReason::NotFound),
        (&["/no/such/command"], SpawnReason::NotFound),
        (&["/etc/passwd/x"], SpawnReason::NotFound),
        (&[""], SpawnReason::NotFound),
        (&[&sealed], SpawnReason::PermissionDenied),
        (&["/tmp"], SpawnReason::PermissionDenied),
        (&[&garbage], SpawnReason::NotExecutable),
        (&[&bodiless], SpawnReason::NotExecutable),
        (&[], SpawnReason::BadRequest),
        (&["a\0b"], SpawnReason::BadRequest),
    ];
    for (argv, reason) in table {
        let error = agent
            .client
            .exec(command(argv))
            .await
            .expect_err("it can't start");
        assert!(
            matches!(&error, AgentError::Spawn(failure) if failure.reason == *reason),
            "{argv:?}: {error:?}"
        );
    }
    let mut lost = command(&["true"]);
    lost.cwd = Some(b"/no/such/folder".to_vec());
    let error = agent.client.exec(lost).await.expect_err("no folder");
    assert!(
        matches!(&error, AgentError::Spawn(f) if f.reason == SpawnReason::BadCwd && f.subject == b"/no/such/folder")
    );
    let mut long = command(&["true"]);
    long.argv.push(vec![b'x'; 200_000]);
    let error = agent
        .client
        .exec(long)
        .await
        .expect_err("one argument over 128 KiB");
    assert!(
        matches!(&error, AgentError::Spawn(f) if f.reason == SpawnReason::ArgumentsTooLong),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_search_uses_the_commands_own_path() {
    use std::os::unix::fs::PermissionsExt as _;
    let agent = Agent::start();
    let tool = agent.folder().join("only-here");
    std::fs::write(&tool, "#!/bin/sh\necho found\n").expect("write");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let mut start = command(&["only-here"]);
    let path = format!("/nowhere:{}:/usr/bin", agent.folder().display());
    start.env = vec![(b"PATH".to_vec(), path.into_bytes())];
    assert_eq!(run(&agent, start).await.stdout, b"found\n");
}

#[tokio::test]
async fn environment_and_folder() {
    let mut boot = boot();
    boot.env.push((b"A".to_vec(), b"sandbox".to_vec()));
    boot.env.push((b"B".to_vec(), b"sandbox".to_vec()));
    boot.workdir = b"/usr".to_vec();
    let agent = Agent::start_with(&boot);
    let mut start = shell("echo $A $B $PWD; env -i /bin/sh -c 'echo ${HOME-none}'");
    start.env = vec![(b"B".to_vec(), b"call".to_vec())];
    assert_eq!(
        run(&agent, start.clone()).await.stdout,
        b"sandbox call /usr\nnone\n"
    );
    start.cwd = Some(b"/bin/..".to_vec());
    assert!(
        run(&agent, start)
            .await
            .stdout
            .starts_with(b"sandbox call /")
    );
    let home = run(
        &agent,
        shell("test -n \"$HOME\" && test -n \"$USER\" && test \"$USER\" = \"$LOGNAME\""),
    )
    .await;
    assert_eq!(home.exit.report.status, ExitStatus::Code(0));
}

#[tokio::test]
async fn users() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: changing users needs root");
        return;
    }
    let agent = Agent::start();
    let who = async |user: &str| {
        let mut start = shell("echo $(id -u):$(id -g):$(id -G) $USER $HOME");
        start.user = Some(user.as_bytes().to_vec());
        run(&agent, start).await.stdout
    };
    assert_eq!(who("1").await, b"1:1:1 daemon /usr/sbin\n");
    assert_eq!(who("daemon").await, b"1:1:1 daemon /usr/sbin\n");
    assert_eq!(who("54321:7").await, b"54321:7:7 54321 /\n");
    assert!(who("0").await.starts_with(b"0:0:"));
    for wrong in [
        "no-such-user",
        "4294967296",
        "-1",
        "daemon:no-such-group",
        "daemon:",
        "",
    ] {
        let mut start = command(&["true"]);
        start.user = Some(wrong.as_bytes().to_vec());
        let error = agent.client.exec(start).await.expect_err("nobody");
        assert!(
            matches!(&error, AgentError::Spawn(f) if f.reason == SpawnReason::BadUser),
            "{wrong}: {error:?}"
        );
    }
}

#[tokio::test]
async fn an_agent_with_fixed_ids_changes_none() {
    let agent = Agent::start_with(&cosm_proto::agent::AgentBoot {
        fixed_user: true,
        ..boot()
    });
    let me = rustix::process::getuid().as_raw();
    let mut start = shell("id -u");
    start.user = Some(me.to_string().into_bytes());
    assert_eq!(
        run(&agent, start).await.stdout,
        format!("{me}\n").into_bytes()
    );
    let mut other = command(&["true"]);
    other.user = Some((me + 1).to_string().into_bytes());
    let error = agent.client.exec(other).await.expect_err("another");
    assert!(matches!(&error, AgentError::Spawn(f) if f.reason == SpawnReason::BadUser));
}

#[tokio::test]
async fn all_sixteen_limits_arrive() {
    use RlimitKind::*;
    let kinds = [
        Cpu, Fsize, Data, Stack, Core, Rss, Nproc, Nofile, Memlock, As, Locks, Sigpending,
        Msgqueue, Nice, Rtprio, Rttime,
    ];
    let agent = Agent::start();
    let before = run(&agent, command(&["cat", "/proc/self/limits"]))
        .await
        .stdout;
    let before = String::from_utf8(before).expect("text");
    // Halved, so that nobody needs a right to raise them: what is unlimited becomes large.
    let rlimits: Vec<Rlimit> = kinds
        .iter()
        .map(|kind| {
            let hard = rustix_limit(&before, *kind).map_or(1 << 40, |hard| hard / 2);
            Rlimit {
                kind: *kind,
                soft: hard / 2,
                hard,
            }
        })
        .collect();
    let mut start = command(&["cat", "/proc/self/limits"]);
    start.rlimits = rlimits.clone();
    let after = String::from_utf8(run(&agent, start).await.stdout).expect("text");
    for limit in rlimits {
        assert_eq!(
            rustix_limit(&after, limit.kind),
            Some(limit.hard),
            "{:?} in\n{after}",
            limit.kind
        );
    }
    let mut refused = command(&["true"]);
    refused.rlimits = vec![Rlimit {
        kind: Nofile,
        soft: 10,
        hard: 5,
    }];
    let error = agent
        .client
        .exec(refused)
        .await
        .expect_err("soft over hard");
    assert!(
        matches!(&error, AgentError::Spawn(f) if f.reason == SpawnReason::ResourceLimit),
        "{error:?}"
    );
}

/// The hard limit in a `/proc/PID/limits`.
fn rustix_limit(text: &str, kind: RlimitKind) -> Option<u64> {
    let title = match kind {
        RlimitKind::Cpu => "Max cpu time",
        RlimitKind::Fsize => "Max file size",
        RlimitKind::Data => "Max data size",
        RlimitKind::Stack => "Max stack size",
        RlimitKind::Core => "Max core file size",
        RlimitKind::Rss => "Max resident set",
        RlimitKind::Nproc => "Max processes",
        RlimitKind::Nofile => "Max open files",
        RlimitKind::Memlock => "Max locked memory",
        RlimitKind::As => "Max address space",
        RlimitKind::Locks => "Max file locks",
        RlimitKind::Sigpending => "Max pending signals",
        RlimitKind::Msgqueue => "Max msgqueue size",
        RlimitKind::Nice => "Max nice priority",
        RlimitKind::Rtprio => "Max realtime priority",
        RlimitKind::Rttime => "Max realtime timeout",
    };
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(title))
        .expect("the kernel lists all");
    line.split_whitespace()
        .nth(1)
        .and_then(|hard| hard.parse().ok())
}

#[tokio::test]
async fn nothing_is_inherited() {
    let agent = Agent::start();
    let fds = run(&agent, shell("exec ls -l /proc/self/fd | grep -c -- '->'")).await;
    // 0, 1, 2, and the folder that `ls` reads.
    assert_eq!(
        fds.stdout,
        b"4\n",
        "{}",
        String::from_utf8_lossy(&fds.stderr)
    );
    let state = run(
        &agent,
        shell("grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; umask; ps -o tty= -p $$"),
    )
    .await;
    let text = String::from_utf8(state.stdout).expect("text");
    for line in text
        .lines()
        .filter(|line| line.starts_with("SigBlk") || line.starts_with("SigIgn"))
    {
        assert!(line.ends_with("\t0000000000000000"), "{text}");
    }
    assert!(text.contains("0022\n"), "{text}");
}

#[tokio::test]
async fn a_command_that_stops_reading_is_a_visible_error() {
    let agent = Agent::start();
    for stdio in [Stdio::Passed { stdin: true }, Stdio::Framed { stdin: true }] {
        let mut start = shell("exec 0<&-; sleep 0.3; echo done");
        start.stdio = stdio;
        let session = agent.client.exec(start).await.expect("start");
        let mut input = session.input.expect("asked for");
        let write = tokio::spawn(async move {
            let chunk = vec![0; 1 << 20];
            input.write_all(&chunk).await
        });
        let done = session.output.collect(100).await.expect("end");
        assert_eq!(done.stdout, b"done\n");
        assert!(
            matches!(write.await.expect("join"), Err(AgentError::InputClosed)),
            "{stdio:?}"
        );
    }
}

#[tokio::test]
async fn an_open_input_does_not_keep_a_command_alive() {
    let agent = Agent::start();
    for stdio in [Stdio::Passed { stdin: true }, Stdio::Framed { stdin: true }] {
        let begun = Instant::now();
        let mut start = command(&["echo", "hi"]);
        start.stdio = stdio;
        let session = agent.client.exec(start).await.expect("start");
        let done = session.output.collect(100).await.expect("end");
        assert_eq!(done.stdout, b"hi\n");
        assert!(begun.elapsed() < Duration::from_secs(10));
        drop(session.input);
    }
}

#[tokio::test]
async fn signals_reach_the_command_and_its_tree() {
    let agent = Agent::start();
    let session = agent
        .client
        .exec(shell(
            "trap 'echo got; exit 7' TERM; echo up; while :; do sleep 0.05; done",
        ))
        .await;
    let mut session = session.expect("start");
    assert!(matches!(
        session.output.next().await,
        Ok(Some(ExecEvent::Stdout(_)))
    ));
    session.control.signal(15, false).await.expect("signal");
    let done = session.output.collect(100).await.expect("end");
    assert_eq!(
        (done.stdout.as_slice(), done.exit.report.status),
        (&b"got\n"[..], ExitStatus::Code(7))
    );

    let session = agent
        .client
        .exec(shell("(sleep 100; echo no) & sleep 100"))
        .await
        .expect("start");
    tokio::time::sleep(Duration::from_millis(100)).await;
    session.control.signal(9, true).await.expect("signal");
    let done = session.output.collect(100).await.expect("end");
    assert_eq!(done.exit.report.status, ExitStatus::Signal(9));
    assert!(!done.exit.detached_holders);
    // After the end nothing of this is an error.
    session.control.signal(15, true).await.expect("ignored");
    session.control.kill().await.expect("ignored");
}

#[test]
fn what_comes_in_one_piece_with_the_request_is_heard() {
    use std::io::{Read as _, Write as _};

    let agent = Agent::start();
    let mut start = command(&["cat"]);
    start.stdio = Stdio::Framed { stdin: true };
    let hello = Hello {
        version: VERSION,
        request: Request::Exec(start),
    };
    let mut all = frame::message(&hello).expect("it fits");
    all.extend_from_slice(&frame::header(Kind::Stdin, 5));
    all.extend_from_slice(b"early");
    all.extend_from_slice(&frame::message(&ExecIn::StdinEof).expect("it fits"));
    let mut host = UnixStream::connect(agent.folder().join("socket")).expect("connect");
    host.set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a time limit");
    host.write_all(&all).expect("write");
    let mut answer = Vec::new();
    host.read_to_end(&mut answer)
        .expect("an answer within the time limit");
    assert!(answer.windows(5).any(|part| part == b"early"));
}
