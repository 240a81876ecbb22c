//! Much of everything, and none of it lost.

mod common;

use std::time::{Duration, Instant};

use common::{Agent, command, framed, run, shell};
use cosm_agent_client::ExecEvent;
use cosm_proto::agent::{ExitStatus, Stdio};
use rustix::process::{Resource, getrlimit, setrlimit};

const INPUTS: [Stdio; 2] = [Stdio::Passed { stdin: true }, Stdio::Framed { stdin: true }];

#[tokio::test]
async fn half_a_million_single_bytes() {
    let agent = Agent::start();
    // dd writes each block with one system call.
    for start in [
        shell("exec dd if=/dev/zero bs=1 count=500000 2>/dev/null"),
        framed(shell("exec dd if=/dev/zero bs=1 count=500000 2>/dev/null")),
    ] {
        assert_eq!(run(&agent, start).await.stdout_total, 500_000);
    }
}

#[tokio::test]
async fn thirty_two_mebibytes_on_both_streams_at_once() {
    let agent = Agent::start();
    let script = "head -c 33554432 /dev/zero & head -c 33554432 /dev/zero | tr '\\0' x >&2; wait";
    for start in [shell(script), framed(shell(script))] {
        let done = run(&agent, start).await;
        assert_eq!((done.stdout_total, done.stderr_total), (32 << 20, 32 << 20));
        assert!(
            done.stdout.iter().all(|byte| *byte == 0)
                && done.stderr.iter().all(|byte| *byte == b'x')
        );
    }
}

#[tokio::test]
async fn output_cut_by_exit_is_whole_though_the_reader_is_slow() {
    let agent = Agent::start();
    for round in 0..20 {
        for start in [
            shell("head -c 60000 /dev/zero; exit 3"),
            framed(shell("head -c 60000 /dev/zero; exit 3")),
        ] {
            let mut session = agent.client.exec(start).await.expect("start");
            tokio::time::sleep(Duration::from_millis(round % 4 * 5)).await;
            let mut total = 0;
            let exit = loop {
                match session
                    .output
                    .next()
                    .await
                    .expect("no error")
                    .expect("an exit comes first")
                {
                    ExecEvent::Stdout(bytes) => total += bytes.len(),
                    ExecEvent::Exit(exit) => break exit,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(
                (total, exit.report.status),
                (60_000, ExitStatus::Code(3)),
                "round {round}"
            );
        }
    }
}

#[tokio::test]
async fn sixty_four_mebibytes_of_input() {
    let agent = Agent::start();
    for stdio in INPUTS {
        let mut start = shell("exec md5sum");
        start.stdio = stdio;
        let session = agent.client.exec(start).await.expect("start");
        let mut input = session.input.expect("asked for");
        let feeder = tokio::spawn(async move {
            let chunk: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
            for _ in 0..64 {
                input.write_all(&chunk).await.expect("it reads all");
            }
            input.close().await.expect("close");
        });
        let done = session.output.collect(1000).await.expect("end");
        feeder.await.expect("join");
        let expected = std::process::Command::new("sh")
            .args(["-c", "python3 -c \"import sys; sys.stdout.buffer.write(bytes(i % 251 for i in range(1 << 20)) * 64)\" | md5sum"])
            .output()
            .expect("md5sum");
        if expected.stdout.len() != done.stdout.len() {
            eprintln!("skipped the comparison: no python3 to compute it with");
            continue;
        }
        assert_eq!(done.stdout, expected.stdout, "{stdio:?}");
    }
}

#[tokio::test]
async fn what_goes_in_comes_out() {
    let agent = Agent::start();
    for stdio in INPUTS {
        let mut start = command(&["cat"]);
        start.stdio = stdio;
        let session = agent.client.exec(start).await.expect("start");
        let mut input = session.input.expect("asked for");
        let sent: Vec<u8> = (0..3_000_000_u32).flat_map(|i| i.to_le_bytes()).collect();
        let copy = sent.clone();
        let feeder = tokio::spawn(async move {
            for part in copy.chunks(77_777) {
                input.write_all(part).await.expect("write");
            }
        });
        let done = session.output.collect(64 << 20).await.expect("end");
        feeder.await.expect("join");
        assert!(done.stdout == sent, "{stdio:?}");
    }
}

#[tokio::test]
async fn a_command_that_does_not_read_can_still_be_steered() {
    let agent = Agent::start();
    let mut start = shell("trap 'exit 8' USR1; while :; do sleep 0.05; done");
    start.stdio = Stdio::Framed { stdin: true };
    let session = agent.client.exec(start).await.expect("start");
    let mut input = session.input.expect("asked for");
    let feeder = tokio::spawn(async move { input.write_all(&vec![0; 8 << 20]).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    session.control.signal(10, false).await.expect("signal");
    let done = session.output.collect(0).await.expect("end");
    assert_eq!(done.exit.report.status, ExitStatus::Code(8));
    feeder.await.expect("join").expect_err("nobody read it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_commands_at_once() {
    let count = as_many_as_descriptors(1000);
    let agent = std::sync::Arc::new(Agent::start());
    let begun = Instant::now();
    let all: Vec<_> = (0..count)
        .map(|i| {
            let agent = agent.clone();
            tokio::spawn(async move {
                let done = run(&agent, shell(&format!("echo {i}; exit {}", i % 256))).await;
                assert_eq!(done.stdout, format!("{i}\n").into_bytes());
                assert_eq!(done.exit.report.status, ExitStatus::Code(i % 256));
            })
        })
        .collect();
    for one in all {
        one.await.expect("each of them");
    }
    eprintln!("{count} commands at once: {:?}", begun.elapsed());
}

/// Lets this process have as many descriptors as it may, and returns how many commands fit, up to so many: an ordinary
/// user's limit is mostly 1024 until it is raised.
fn as_many_as_descriptors(wanted: i32) -> i32 {
    // The connection and the two ends of two pipes.
    const EACH: u64 = 5;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the hard limit anybody may");
    let fit = limit.current.unwrap_or(u64::MAX).saturating_sub(64) / EACH;
    assert!(fit >= 100, "too few descriptors to try anything: {limit:?}");
    wanted.min(i32::try_from(fit).unwrap_or(i32::MAX))
}

#[tokio::test]
async fn how_long_a_command_takes() {
    let agent = Agent::start();
    let mut times = Vec::new();
    for _ in 0..300 {
        let begun = Instant::now();
        run(&agent, command(&["/bin/true"])).await;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    eprintln!("exec of true: p50 {:?}, p99 {:?}", times[150], times[297]);
    assert!(times[150] < Duration::from_millis(20), "{:?}", times[150]);
}

const GIB: u64 = 1 << 30;

fn through_a_plain_pipe(script: &str) -> Duration {
    let begun = Instant::now();
    let mut child = std::process::Command::new("sh")
        .args(["-c", script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("sh");
    let mut pipe = child.stdout.take().expect("piped");
    let copied = std::io::copy(&mut pipe, &mut std::io::sink()).expect("read");
    assert_eq!(copied, GIB);
    child.wait().expect("wait");
    begun.elapsed()
}

async fn through_exec(agent: &Agent, script: &str) -> Duration {
    let begun = Instant::now();
    let session = agent.client.exec(shell(script)).await.expect("start");
    let mut pipes = session.output.into_pipes().expect("they are pipes");
    let mut stdout = std::fs::File::from(pipes.stdout);
    let reader = tokio::task::spawn_blocking(move || {
        std::io::copy(&mut stdout, &mut std::io::sink()).expect("read")
    });
    assert_eq!(reader.await.expect("join"), GIB);
    assert_eq!(
        pipes.wait.wait().await.expect("end").status,
        ExitStatus::Code(0)
    );
    begun.elapsed()
}

async fn as_events(agent: &Agent, script: &str) -> Duration {
    let begun = Instant::now();
    let mut session = agent.client.exec(shell(script)).await.expect("start");
    let mut total = 0;
    while let Some(event) = session.output.next().await.expect("no error") {
        if let ExecEvent::Stdout(bytes) = event {
            total += bytes.len() as u64;
        }
    }
    assert_eq!(total, GIB);
    begun.elapsed()
}

#[tokio::test]
async fn a_pipe_through_exec_is_as_fast_as_a_pipe() {
    let agent = Agent::start();
    let script = format!("head -c {GIB} /dev/zero");
    // The best of some: other tests run at the same time.
    let (mut plain, mut through) = (Duration::MAX, Duration::MAX);
    for _ in 0..3 {
        plain = plain.min(through_a_plain_pipe(&script));
        through = through.min(through_exec(&agent, &script).await);
    }
    let events = as_events(&agent, &script).await;
    eprintln!("1 GiB: a plain pipe {plain:?}, through exec {through:?}, as events {events:?}");
    assert!(through < plain * 4, "{through:?} against {plain:?}");
}
