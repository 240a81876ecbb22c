//! A named sandbox's command in the foreground: it is the main job, and who started it misses nothing.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Cosm, show, until};

fn in_the_background(cosm: &Cosm, script: &str) -> Child {
    cosm.command(["run", "--name", "box", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

fn signal(child: &Child, signal: Signal) {
    let id = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(id, signal).expect("kill");
}

/// Reads one byte, which says that the command runs.
fn says_something(child: &mut Child) {
    let out = child.stdout.as_mut().expect("a pipe");
    out.read_exact(&mut [0]).expect("output");
}

fn state(cosm: &Cosm) -> serde_json::Value {
    cosm.json(["ls", "--json"])["sandboxes"][0].clone()
}

#[test]
fn it_is_listed_logged_and_run_again() {
    let cosm = Cosm::new();
    let script = "echo out; echo err >&2; cat; sleep 0.5; exit 5";
    let mut child = in_the_background(&cosm, script);
    says_something(&mut child);
    let jobs = cosm.json(["jobs", "box", "--json"]);
    assert_eq!(
        (&jobs[0]["id"], &jobs[0]["running"]),
        (&"main".into(), &true.into()),
        "{jobs}"
    );
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(5), "{}", show(&output));
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"ut\n"[..], &b"err\n"[..])
    );
    let seen = state(&cosm);
    assert_eq!(
        (&seen["state"], &seen["end"]["code"], &seen["end"]["reason"]),
        (&"stopped".into(), &5.into(), &"exited".into())
    );
    // As one that was detached from the beginning.
    cosm.ok(["start", "box"]);
    cosm.fails(5, ["wait", "box"]);
    let logs = cosm.output(["logs", "box"]);
    assert_eq!(
        (logs.stdout.as_slice(), logs.stderr.as_slice()),
        (&b"out\nout\n"[..], &b"err\nerr\n"[..]),
        "{}",
        show(&logs)
    );
}

#[test]
fn no_byte_is_lost_and_the_log_has_them_all() {
    let cosm = Cosm::new();
    // Its last bytes are in no pipe's buffer of ours when it exits.
    let script = "head -c 10485760 /dev/urandom | tee /dev/stderr; exit 7";
    let output = cosm.output(["run", "--name", "box", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout.len(), 10 << 20);
    assert!(output.stdout == output.stderr, "the bytes are not the same");
    cosm.ok(["rm", "box"]);

    let script = "head -c 10485760 /dev/urandom";
    let output = cosm.output(["run", "--name", "box", "--", "sh", "-c", script]);
    let logs = cosm.output(["logs", "box"]);
    assert_eq!(logs.stdout.len(), 10 << 20);
    assert!(logs.stdout == output.stdout, "the bytes are not the same");
}

#[test]
fn a_slow_reader_is_waited_for_longer_than_the_sandbox_lives() {
    let cosm = Cosm::new();
    let mut child = in_the_background(&cosm, "head -c 400000 /dev/zero");
    until("the sandbox has stopped", || {
        state(&cosm)["state"] == "stopped"
    });
    // Longer than a keeper gives others for their last answer.
    std::thread::sleep(Duration::from_secs(11));
    let mut all = Vec::new();
    let out = child.stdout.as_mut().expect("a pipe");
    out.read_to_end(&mut all).expect("output");
    assert_eq!(all.len(), 400_000);
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

#[test]
fn much_input_arrives_whole() {
    let cosm = Cosm::new();
    let input: Vec<u8> = (0..64_u32 << 20).map(|n| (n ^ (n >> 13)) as u8).collect();
    let output = cosm.with_input(
        [
            "run",
            "-i",
            "--name",
            "box",
            "--log-size",
            "1m",
            "--",
            "cat",
        ],
        &input,
    );
    assert_eq!(output.status.code(), Some(0), "{}", output.status);
    assert!(output.stdout == input, "{} bytes", output.stdout.len());
    // Nobody is there when it is started again: it reads the end of file.
    cosm.ok(["start", "box"]);
    cosm.ok(["wait", "box"]);
}

#[test]
fn signals_reach_it_past_its_input() {
    let cosm = Cosm::new();
    let mut child = cosm
        .command(["run", "-i", "--name", "box", "--", "sh", "-c"])
        .arg("trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done")
        .stdin(std::fs::File::open("/dev/zero").expect("opens"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    says_something(&mut child);
    signal(&child, Signal::INT);
    let output = child.wait_with_output().expect("ends");
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(7), &b"eady\ncaught\n"[..])
    );
}

#[test]
fn told_to_end_it_stops_the_sandbox_also_while_nobody_reads() {
    let cosm = Cosm::new();
    let mut child = in_the_background(&cosm, "yes & yes");
    says_something(&mut child);
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().expect("ends").code(), Some(143));
    let seen = state(&cosm);
    assert_eq!(
        (&seen["state"], &seen["end"]["reason"]),
        (&"stopped".into(), &"stopped".into())
    );
}

#[test]
fn killed_with_its_starter_it_is_stopped_and_can_be_started() {
    let cosm = Cosm::new();
    let mut child = in_the_background(&cosm, "echo one; sleep 1000");
    says_something(&mut child);
    child.kill().and_then(|()| child.wait()).expect("killed");
    let begin = Instant::now();
    until("it has stopped", || state(&cosm)["state"] == "stopped");
    assert!(begin.elapsed() < Duration::from_secs(3));
    assert_eq!(state(&cosm)["end"]["reason"], "lease_ended");
    assert_eq!(cosm.ok(["logs", "box"]), "one\n");
    cosm.ok(["start", "box"]);
    until("it runs again", || cosm.ok(["logs", "box"]) == "one\none\n");
}

#[test]
fn one_that_does_not_start_leaves_nothing() {
    let cosm = Cosm::new();
    let text = cosm.fails(127, ["run", "--name", "box", "--", "no-such-program"]);
    assert!(text.contains("command not found"), "{text}");
    cosm.fails(126, ["run", "--name", "box", "--", "/etc/passwd"]);
    assert_eq!(cosm.ok(["ls", "-q"]), "");
}

#[test]
fn a_reader_that_leaves_ends_it() {
    let cosm = Cosm::new();
    let mut child = in_the_background(&cosm, "exec yes");
    says_something(&mut child);
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(141), "{}", show(&output));
    assert!(output.stderr.is_empty(), "{}", show(&output));
    cosm.ok(["rm", "box"]);
    // One that does not care about the signal has its output closed all the same.
    let mut child = in_the_background(&cosm, "trap '' PIPE; yes");
    says_something(&mut child);
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("ends").code(), Some(137));
}

#[test]
fn a_time_out_ends_it_and_bounds_the_next_start() {
    let cosm = Cosm::new();
    let run = ["run", "--name", "box", "--timeout", "400ms", "--"];
    let command = ["sh", "-c", "echo begun; sleep 1000"];
    cosm.fails(124, run.iter().chain(&command));
    cosm.ok(["start", "box"]);
    until("it has stopped", || state(&cosm)["state"] == "stopped");
    assert_eq!(state(&cosm)["end"]["reason"], "max_duration");
    assert_eq!(cosm.ok(["logs", "box"]), "begun\nbegun\n");
}

#[test]
fn removed_on_exit_it_is_a_job_for_as_long_as_it_lives() {
    let cosm = Cosm::new();
    let mut child = cosm
        .command(["run", "--rm", "--name", "box", "--", "sh", "-c"])
        .arg("echo out; sleep 0.5; exit 3")
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    says_something(&mut child);
    assert_eq!(cosm.ok(["logs", "box"]), "out\n");
    assert_eq!(child.wait().expect("ends").code(), Some(3));
    assert_eq!(cosm.ok(["ls", "-q"]), "");
}
