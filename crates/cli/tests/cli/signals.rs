//! Being told to end, at any moment: a clean exit that says so, and nothing half-made.

use std::io::{BufRead as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Cosm, until};

const MOMENTS: u64 = 24;
const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];

fn started(cosm: &Cosm, args: &[&str]) -> Child {
    let mut command = cosm.command(args);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("starts")
}

fn told(mut child: Child, after: Duration, signal: Signal) -> ExitStatus {
    std::thread::sleep(after);
    kill_process(Pid::from_child(&child), signal).expect("kill");
    child.wait().expect("ends")
}

/// Whether it ended because it was told to. Before it has begun to make anything the signal ends it as it ends any
/// program.
fn gave_up(status: ExitStatus, signal: Signal) -> bool {
    let number = signal.as_raw();
    let gave_up = status.code() == Some(128 + number) || status.signal() == Some(number);
    assert!(gave_up || status.code() == Some(0), "{status}");
    gave_up
}

/// Each signal at moments that lie close together, over the time that making a sandbox takes.
fn at_all_moments(mut trial: impl FnMut(Duration, Signal)) {
    for moment in 0..MOMENTS {
        for signal in SIGNALS {
            trial(Duration::from_micros(1500 * moment), signal);
        }
    }
}

#[test]
fn nothing_is_half_created() {
    let cosm = Cosm::new();
    let mut given_up = 0;
    at_all_moments(|after, signal| {
        let child = started(&cosm, &["create", "--name", "box"]);
        if gave_up(told(child, after, signal), signal) {
            given_up += 1;
            assert_eq!(cosm.ok(["ls", "-q"]), "", "{after:?}");
        } else {
            cosm.ok(["rm", "--force", "box"]);
        }
    });
    assert!(given_up > 4, "it was always too late");
}

#[test]
fn nothing_is_half_run() {
    let cosm = Cosm::new();
    for args in [
        &["run", "--", "sleep", "1000"][..],
        &["run", "--rm", "--name", "box", "--", "sleep", "1000"],
    ] {
        at_all_moments(|after, signal| {
            let mut child = started(&cosm, args);
            std::thread::sleep(after);
            // The command, once it runs, gets an interrupt itself, and ends by it.
            kill_process(Pid::from_child(&child), signal).expect("kill");
            let status = child.wait().expect("ends");
            assert!(gave_up(status, signal), "{status}");
            until("it is gone", || cosm.ok(["ls", "-q"]).is_empty());
        });
    }
}

#[test]
fn nothing_is_half_detached() {
    let cosm = Cosm::new();
    let run = ["run", "-d", "--name", "box", "--", "sleep", "1000"];
    at_all_moments(|after, signal| {
        if gave_up(told(started(&cosm, &run), after, signal), signal) {
            assert_eq!(cosm.ok(["ls", "-q"]), "", "{after:?}");
        } else {
            cosm.ok(["rm", "--force", "box"]);
        }
    });
}

#[test]
fn nothing_is_half_started() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    at_all_moments(|after, signal| {
        cosm.ok(["stop", "--time", "0", "box"]);
        let child = started(&cosm, &["start", "box"]);
        let gave_up = gave_up(told(child, after, signal), signal);
        let state = cosm.json(["inspect", "box"])["state"].clone();
        match gave_up {
            true => assert_eq!(state, "stopped", "{after:?}"),
            false => assert_eq!(state, "running", "{after:?}"),
        }
    });
}

#[test]
fn a_keeper_that_is_told_to_end_stops_its_guest() {
    let cosm = Cosm::new();
    for signal in SIGNALS {
        let script = "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.05; done";
        cosm.ok(["run", "-d", "--name", "box", "--", "sh", "-c", script]);
        until("it is up", || cosm.ok(["logs", "box"]) == "up\n");
        let keeper = cosm.json(["inspect", "box"])["keeper_pid"].as_i64();
        let keeper = keeper.and_then(|pid| Pid::from_raw(pid as i32));
        kill_process(keeper.expect("a keeper"), signal).expect("kill");
        cosm.fails(3, ["wait", "box"]);
        let seen = cosm.json(["ls", "--json"])["sandboxes"][0].clone();
        assert_eq!(
            (&seen["state"], &seen["end"]["reason"], &seen["end"]["code"]),
            (&"stopped".into(), &"keeper_signalled".into(), &3.into())
        );
        assert_eq!(cosm.ok(["logs", "box"]), "up\nasked\n");
        cosm.ok(["rm", "box"]);
    }
}

#[test]
fn a_keeper_that_is_told_so_twice_does_not_wait() {
    let cosm = Cosm::new();
    let script = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    cosm.ok(["run", "-d", "--name", "box", "--", "sh", "-c", script]);
    until("it is up", || cosm.ok(["logs", "box"]) == "up\n");
    let keeper = cosm.json(["inspect", "box"])["keeper_pid"].as_i64();
    let keeper = keeper
        .and_then(|pid| Pid::from_raw(pid as i32))
        .expect("a keeper");
    kill_process(keeper, Signal::TERM).expect("kill");
    until("it is stopping", || {
        cosm.json(["inspect", "box"])["state"] == "stopping"
    });
    kill_process(keeper, Signal::TERM).expect("kill");
    let begun = std::time::Instant::now();
    cosm.fails(137, ["wait", "box"]);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_is_ignored_from_the_start_ends_nothing() {
    let cosm = Cosm::new();
    for signal in [Signal::HUP, Signal::INT] {
        let mut command = std::process::Command::new("sh");
        let script = format!("trap '' {}; exec \"$@\"", signal.as_raw());
        let talk = "echo up; read -r word; echo $word";
        let run = cosm.command(["run", "-i", "--", "sh", "-c", talk]);
        command.args(["-c", &script, "sh"]).arg(run.get_program());
        command.args(run.get_args());
        command.env_clear();
        command.envs(
            run.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut output = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("readable");
        assert_eq!(line, "up\n");
        kill_process(Pid::from_child(&child), signal).expect("kill");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"on\n").expect("it reads on");
        line.clear();
        output.read_line(&mut line).expect("readable");
        assert_eq!(line, "on\n", "{signal:?}");
        assert!(child.wait().expect("ends").success(), "{signal:?}");
    }
}
