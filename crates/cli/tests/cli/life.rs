//! Sandboxes with names: create, exec, start, stop, kill, drain, wait, remove, replace; how they are shown.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Cosm, show, until};

#[test]
fn a_life() {
    let cosm = Cosm::new();
    assert_eq!(
        cosm.ok(["create", "--name", "box", "-e", "A=1", "--label", "team=ci"]),
        "box\n"
    );
    assert_eq!(
        cosm.ok([
            "exec",
            "box",
            "--",
            "sh",
            "-c",
            "echo $A > /root/kept; cat /root/kept"
        ]),
        "1\n"
    );
    let listed = cosm.json(["ls", "--json"]);
    assert_eq!(listed["sandboxes"][0]["name"], "box");
    assert_eq!(listed["sandboxes"][0]["state"], "running");
    assert_eq!(listed["sandboxes"][0]["labels"]["team"], "ci");
    assert_eq!(cosm.json(["ps", "box", "--json"])[0]["state"], "running");

    let said = cosm.fails(125, ["rm", "box"]);
    assert!(
        said.contains("running") && said.contains("cosm stop box"),
        "{said}"
    );
    let said = cosm.fails(125, ["start", "box"]);
    assert!(said.contains("running"), "{said}");

    cosm.ok(["stop", "box"]);
    assert_eq!(
        cosm.json(["ls", "--json"])["sandboxes"][0]["state"],
        "stopped"
    );
    cosm.fails(125, ["exec", "box", "--", "true"]);
    cosm.ok(["stop", "box"]);

    cosm.ok(["start", "box"]);
    assert_eq!(
        cosm.ok(["exec", "box", "--", "cat", "/root/kept"]),
        "1\n",
        "what it wrote is there"
    );
    cosm.ok(["restart", "box"]);
    cosm.ok(["kill", "box"]);
    cosm.ok(["rm", "box"]);
    assert_eq!(cosm.ok(["ls", "-q"]), "");
    cosm.fails(125, ["rm", "box"]);
}

#[test]
fn names_are_taken_once_and_can_be_replaced() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let first = cosm.json(["inspect", "box"])["id"].clone();
    let said = cosm.fails(125, ["create", "--name", "box"]);
    assert!(
        said.contains("already exists") && said.contains("--replace"),
        "{said}"
    );
    assert_eq!(
        cosm.json(["inspect", "box"])["id"],
        first,
        "it did not notice"
    );
    cosm.ok(["create", "--name", "box", "--replace=0"]);
    assert_ne!(cosm.json(["inspect", "box"])["id"], first);
    assert_eq!(cosm.ok(["ls", "-q"]), "box\n");
}

#[test]
fn the_main_command_is_a_job() {
    let cosm = Cosm::new();
    cosm.ok([
        "run",
        "-d",
        "--name",
        "web",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; sleep 0.3; exit 5",
    ]);
    cosm.fails(5, ["wait", "web"]);
    assert_eq!(
        cosm.json(["ls", "--json"])["sandboxes"][0]["end"]["code"],
        5
    );
    let output = cosm.output(["logs", "web"]);
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..]),
        "{}",
        show(&output)
    );
    assert_eq!(
        cosm.ok(["logs", "web", "--stream", "stderr", "--tail", "1"]),
        ""
    );
}

#[test]
fn jobs_are_started_listed_signalled_and_waited_for() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let job = cosm.ok([
        "exec",
        "-d",
        "box",
        "--",
        "sh",
        "-c",
        "echo hello; exec sleep 1000",
    ]);
    let job = job.trim_end();
    until("it is logged", || {
        cosm.output(["logs", "box", job]).stdout == b"hello\n"
    });
    assert_eq!(cosm.json(["jobs", "box", "--json"])[0]["running"], true);
    let follower = cosm
        .command(["logs", "-f", "box", job])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    cosm.ok(["jobs", "box", "--signal", "TERM", job]);
    cosm.fails(143, ["jobs", "box", "--wait", job]);
    assert_eq!(
        follower.wait_with_output().expect("ends").stdout,
        b"hello\n"
    );
    cosm.fails(125, ["jobs", "box", "--signal", "TERM", "no-such-job"]);
}

#[test]
fn attach_shows_a_job_and_its_end() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let job = cosm.ok([
        "exec",
        "-d",
        "box",
        "--",
        "sh",
        "-c",
        "echo begin; sleep 0.5; echo end; exit 3",
    ]);
    let output = cosm.output(["attach", "box", job.trim_end()]);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(3), &b"begin\nend\n"[..]),
        "{}",
        show(&output)
    );
}

#[test]
fn an_exec_has_its_own_everything() {
    let cosm = Cosm::new();
    cosm.ok([
        "create",
        "--name",
        "box",
        "-e",
        "A=sandbox",
        "-e",
        "B=sandbox",
        "-w",
        "/usr",
    ]);
    assert_eq!(
        cosm.ok([
            "exec",
            "-e",
            "B=exec",
            "box",
            "--",
            "sh",
            "-c",
            "echo $A $B $PWD"
        ]),
        "sandbox exec /usr\n"
    );
    assert_eq!(cosm.ok(["exec", "-w", "/tmp", "box", "pwd"]), "/tmp\n");
    assert_eq!(
        cosm.ok([
            "exec",
            "--rlimit",
            "nofile=77",
            "box",
            "--",
            "sh",
            "-c",
            "ulimit -n"
        ]),
        "77\n"
    );
    assert_eq!(cosm.ok(["shell", "box", "echo $((6 * 7))"]), "42\n");
    let output = cosm.with_input(["shell", "box"], b"echo from a pipe\n");
    assert_eq!(output.stdout, b"from a pipe\n", "{}", show(&output));
    let begin = Instant::now();
    cosm.fails(
        124,
        [
            "exec",
            "--timeout",
            "200ms",
            "box",
            "--",
            "sh",
            "-c",
            "setsid sleep 1000 & sleep 1000",
        ],
    );
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(
        cosm.fails(127, ["exec", "box", "--", "no-such-program"])
            .lines()
            .count(),
        1
    );
    let said = cosm.fails(125, ["exec", "-u", "no-such-user", "box", "--", "true"]);
    assert!(said.contains("no-such-user"), "{said}");
}

#[test]
fn a_terminal_has_a_size_and_a_name() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    assert_eq!(
        cosm.ok([
            "exec",
            "-t",
            "box",
            "--",
            "sh",
            "-c",
            "stty size; echo $TERM"
        ]),
        "24 80\r\nxterm\r\n"
    );
}

#[test]
fn drain_lets_what_runs_finish() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let running = cosm
        .command([
            "exec",
            "box",
            "--",
            "sh",
            "-c",
            "echo begun; sleep 1; echo finished",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    until("it runs", || {
        cosm.json(["ps", "box", "--json"])[0]["open"] != 0
    });
    let mut drain = cosm
        .command(["drain", "box"])
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    until("it drains", || {
        cosm.json(["ls", "--json"])["sandboxes"][0]["state"] == "draining"
    });
    cosm.fails(125, ["exec", "box", "--", "true"]);
    assert_eq!(
        running.wait_with_output().expect("ends").stdout,
        b"begun\nfinished\n"
    );
    assert!(drain.wait().expect("ends").success());
    assert_eq!(
        cosm.json(["ls", "--json"])["sandboxes"][0]["end"]["reason"],
        "drained"
    );
}

#[test]
fn labels_select() {
    let cosm = Cosm::new();
    for (name, team) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        cosm.ok(["create", "--name", name, "--label", &format!("team={team}")]);
    }
    assert_eq!(cosm.ok(["ls", "-q"]), "c\nb\na\n", "newest first");
    assert_eq!(cosm.ok(["ls", "-q", "--label", "team=red"]), "c\na\n");
    let page = cosm.json(["ls", "--json", "--limit", "2"]);
    assert_eq!(page["sandboxes"].as_array().map(Vec::len), Some(2));
    let rest = cosm.json([
        "ls",
        "--json",
        "--after",
        page["next"].as_str().expect("a place"),
    ]);
    assert_eq!(rest["sandboxes"][0]["name"], "a");
    cosm.ok(["rm", "--force", "--label", "team=red"]);
    assert_eq!(cosm.ok(["ls", "-q"]), "b\n");
}

#[test]
fn secrets_are_not_shown() {
    let cosm = Cosm::new();
    cosm.ok([
        "create",
        "--name",
        "box",
        "-e",
        "GITHUB_TOKEN=hunter2",
        "-e",
        "A=visible",
    ]);
    let shown = cosm.ok(["inspect", "box"]);
    assert!(
        !shown.contains("hunter2") && shown.contains("visible"),
        "{shown}"
    );
    assert!(
        cosm.ok(["inspect", "--show-secrets", "box"])
            .contains("hunter2")
    );
}

#[test]
fn metrics_and_usage() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let sample = cosm.json(["metrics", "--json"]);
    assert_eq!(sample[0]["name"], "box", "{sample}");
    assert!(cosm.ok(["metrics", "box"]).starts_with("NAME"));
}

#[test]
fn doctor_says_what_works() {
    let cosm = Cosm::new();
    let found = cosm.json(["doctor", "--json"]);
    assert_eq!(found["ok"], true, "{found}");
}

#[test]
fn a_name_that_is_nearly_right_is_asked_about() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "builder"]);
    for near in ["bulider", "build"] {
        let text = cosm.fails(125, ["exec", near, "--", "true"]);
        assert!(text.contains("did you mean builder?"), "{text}");
        for command in ["inspect", "rm", "stop", "start", "logs"] {
            let text = cosm.fails(125, [command, near]);
            assert!(text.contains("did you mean builder?"), "{command}: {text}");
        }
    }
    let text = cosm.fails(125, ["exec", "elsewhere", "--", "true"]);
    assert!(!text.contains("did you mean"), "{text}");
}
