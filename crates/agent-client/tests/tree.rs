//! Whole trees of processes: time-outs, kills, what is left behind.

mod common;

use std::time::{Duration, Instant};

use common::{Agent, framed, run, shell};
use cosm_proto::agent::ExitStatus;

/// Processes whose command line holds this.
fn alive(marker: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let lines = entries.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.windows(marker.len())
                .any(|window| window == marker.as_bytes())
        })
        .count()
}

async fn gone(marker: &str) -> bool {
    for _ in 0..1000 {
        if alive(marker) == 0 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test]
async fn a_timeout_ends_the_tree_and_keeps_what_was_written() {
    let agent = Agent::start();
    for (seconds, wrap) in [("1000.11", false), ("1000.12", true)] {
        let script = format!(
            "echo early; (sleep {seconds} & sleep {seconds}) & setsid sleep {seconds} & sleep {seconds}"
        );
        let mut start = if wrap {
            framed(shell(&script))
        } else {
            shell(&script)
        };
        start.timeout_ms = Some(300);
        let begun = Instant::now();
        let done = run(&agent, start).await;
        assert!(
            done.exit.report.timed_out
                && !done.exit.report.leftovers
                && !done.exit.detached_holders
        );
        assert_eq!(
            (done.stdout.as_slice(), done.exit.report.status),
            (&b"early\n"[..], ExitStatus::Signal(9))
        );
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(alive(seconds), 0);
    }
}

#[tokio::test]
async fn a_timeout_holds_for_what_was_left_behind() {
    let agent = Agent::start();
    let mut start = shell("setsid sh -c 'sleep 1000.21 &'");
    start.timeout_ms = Some(3_000);
    let begun = Instant::now();
    let done = run(&agent, start).await;
    assert_eq!(done.exit.report.status, ExitStatus::Code(0));
    assert!(done.exit.detached_holders && done.exit.report.leftovers);
    assert!(
        begun.elapsed() < Duration::from_millis(2_900),
        "the command itself did not wait"
    );
    assert_eq!(alive("1000.21"), 1, "it lives on until its time is over");
    assert!(gone("1000.21").await);
}

#[tokio::test]
async fn a_timeout_holds_though_nobody_reads() {
    let agent = Agent::start();
    for (marker, wrap) in [("zeros1", false), ("zeros2", true)] {
        let script = format!(": {marker}; cat /dev/zero & exec cat /dev/zero");
        let mut start = if wrap {
            framed(shell(&script))
        } else {
            shell(&script)
        };
        start.timeout_ms = Some(200);
        let session = agent.client.exec(start).await.expect("start");
        tokio::time::sleep(Duration::from_millis(800)).await;
        assert_eq!(alive("/dev/zero"), 0, "wrap: {wrap}");
        let done = session.output.collect(10).await.expect("end");
        assert!(done.exit.report.timed_out && done.stdout_truncated());
    }
}

#[tokio::test]
async fn what_ignores_term_dies_all_the_same() {
    let agent = Agent::start();
    let mut start = shell(
        "trap '' TERM HUP INT; (trap '' TERM; sleep 1000.31; sleep 1000.31) & sleep 1000.31; sleep 1000.31",
    );
    start.timeout_ms = Some(200);
    assert!(run(&agent, start).await.exit.report.timed_out);
    assert_eq!(alive("1000.31"), 0);
}

#[tokio::test]
async fn leftovers_live_on_unless_asked_otherwise() {
    let agent = Agent::start();
    let done = run(&agent, shell("sleep 1000.41 >/dev/null 2>&1 &")).await;
    assert!(done.exit.report.leftovers && !done.exit.detached_holders);
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(alive("1000.41"), 1);
    let killer = run(&agent, shell("pkill -f '^sleep 1000.41'")).await;
    assert_eq!(killer.exit.report.status, ExitStatus::Code(0));
    let mut start = shell("sleep 1000.42 & exit 5");
    start.kill_leftovers = true;
    let done = run(&agent, start).await;
    assert_eq!(done.exit.report.status, ExitStatus::Code(5));
    assert!(!done.exit.report.leftovers && !done.exit.detached_holders);
    assert_eq!(alive("1000.42"), 0);
}

#[tokio::test]
async fn a_descendant_that_holds_the_output_does_not_hold_the_answer() {
    let agent = Agent::start();
    for start in [
        shell("echo mine; sleep 1000.51 &"),
        framed(shell("echo mine; sleep 1000.51 &")),
    ] {
        let begun = Instant::now();
        let done = run(&agent, start).await;
        assert_eq!(done.stdout, b"mine\n");
        assert!(done.exit.detached_holders);
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
    }
    run(&agent, shell("pkill -f '^sleep 1000.51'")).await;
    assert!(gone("1000.51").await);
}

#[tokio::test]
async fn a_descendant_that_writes_for_ever_does_not_hold_the_answer() {
    let agent = Agent::start();
    for wrap in [false, true] {
        let script = "echo mine; yes flood-1000.52 &";
        let mut start = if wrap {
            framed(shell(script))
        } else {
            shell(script)
        };
        start.timeout_ms = Some(30_000);
        let begun = Instant::now();
        let done = run(&agent, start).await;
        assert!(done.exit.detached_holders);
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        run(&agent, shell("pkill -9 -f '^yes flood-1000.52'")).await;
    }
}

#[tokio::test]
async fn hanging_up_ends_the_tree() {
    let agent = Agent::start();
    for start in [
        shell("sleep 1000.61 & sleep 1000.61"),
        framed(shell("sleep 1000.61 & sleep 1000.61")),
    ] {
        let session = agent.client.exec(start).await.expect("start");
        while alive("1000.61") < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The other halves live on, and do not keep it alive.
        drop(session.output);
        assert!(gone("1000.61").await);
        drop(session.control);
    }
}

#[tokio::test]
async fn killing_ends_the_tree() {
    let agent = Agent::start();
    let session = agent
        .client
        .exec(shell("setsid sleep 1000.71 & sleep 1000.71"))
        .await
        .expect("start");
    tokio::time::sleep(Duration::from_millis(100)).await;
    session.control.kill().await.expect("kill");
    let done = session.output.collect(0).await.expect("end");
    assert_eq!(
        (done.exit.report.status, done.exit.report.timed_out),
        (ExitStatus::Signal(9), false)
    );
    assert_eq!(alive("1000.71"), 0);
}

#[tokio::test]
async fn a_fork_bomb_dies_at_its_time() {
    let agent = Agent::start();
    let mut start = shell(
        "bomb() { for i in 1 2 3; do bomb 1000.81 & done; sleep 0.02; bomb 1000.81; }; bomb & exec sleep 1000.81",
    );
    start.timeout_ms = Some(500);
    // Enough for a bomb, and not for this machine's other work to notice; as root the kernel does not count.
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: needs another user to be counted as");
        return;
    }
    start.user = Some(b"54399".to_vec());
    start.rlimits = vec![cosm_proto::agent::Rlimit {
        kind: cosm_proto::agent::RlimitKind::Nproc,
        soft: 200,
        hard: 200,
    }];
    let begun = Instant::now();
    let done = run(&agent, start).await;
    assert!(
        done.exit.report.timed_out && !done.exit.report.leftovers,
        "{:?}",
        done.exit
    );
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    let left = run(&agent, shell("ps -o pid= -u 54399 | wc -l")).await;
    assert_eq!(String::from_utf8_lossy(&left.stdout).trim(), "0");
}

#[tokio::test]
async fn the_whole_guest_can_be_signalled_and_counted() {
    let agent = Agent::start();
    let session = agent
        .client
        .exec(shell("trap 'exit 9' TERM; sleep 1000.91 & wait"))
        .await
        .expect("start");
    run(&agent, shell("setsid sleep 1000.91 >/dev/null 2>&1 &")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stats = agent.client.stats().await.expect("stats");
    assert_eq!(stats.processes, 3, "a shell and two sleeps");
    assert!(stats.resident > 100_000);
    agent.client.signal_all(15).await.expect("signal");
    let done = session.output.collect(0).await.expect("end");
    assert_eq!(done.exit.report.status, ExitStatus::Code(9));
    assert!(gone("1000.91").await);
    assert!(agent.client.signal_all(99).await.is_err());
    agent
        .client
        .ping()
        .await
        .expect("the agent itself took no notice");
}

#[tokio::test]
async fn no_zombies_stay() {
    let agent = Agent::start();
    for _ in 0..50 {
        run(&agent, shell("sleep 0 & sleep 0 & true")).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let children = std::process::Command::new("ps")
        .args(["--ppid", &agent.pid().to_string(), "-o", "pid="])
        .output()
        .expect("ps");
    assert_eq!(String::from_utf8_lossy(&children.stdout).trim(), "");
}

#[tokio::test]
async fn a_killed_handler_takes_its_command_along() {
    let agent = Agent::start();
    let session = agent
        .client
        .exec(shell("exec sleep 1000.95"))
        .await
        .expect("start");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", session.pid)).expect("it runs");
    let handler = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(1))
        .expect("a parent");
    assert_ne!(handler, agent.pid().to_string());
    let killed = std::process::Command::new("kill")
        .args(["-9", handler])
        .status()
        .expect("kill");
    assert!(killed.success());
    assert!(matches!(
        session.output.collect(0).await,
        Err(cosm_agent_client::AgentError::Lost)
    ));
    assert!(gone("1000.95").await);
    agent.client.ping().await.expect("others took no notice");
}

/// Also what whoever was forked twice used, for whom no parent but the handler is left to wait.
#[tokio::test]
async fn usage_is_of_the_whole_tree() {
    let agent = Agent::start();
    let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let spent = async |script: String| {
        let usage = run(&agent, shell(&script)).await.exit.report.usage;
        assert_eq!(usage.source, cosm_proto::agent::UsageSource::Rusage);
        usage.user_us.unwrap_or(0) + usage.system_us.unwrap_or(0)
    };
    // The pipe ends with the grandchild, whose parent has gone by then.
    let twice = format!("(setsid sh -c '{burn}' & exit 0) | cat");
    let itself = spent(burn.to_owned()).await;
    let child = spent(format!("sh -c '{burn}'; true")).await;
    let grandchild = spent(twice).await;
    let nobody = spent("true".to_owned()).await;
    for (who, time) in [
        ("itself", itself),
        ("child", child),
        ("grandchild", grandchild),
    ] {
        assert!(
            time > 5 * nobody.max(2_000),
            "{who}: {time} us, of nobody {nobody} us"
        );
    }
}
