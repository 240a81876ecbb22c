//! Sandboxes whose keeper was killed.

use std::process::Stdio;

use crate::common::{Cosm, show, until};

fn kill_keeper(cosm: &Cosm, name: &str) {
    let keeper = cosm.json(["inspect", name])["keeper_pid"]
        .as_i64()
        .expect("a pid");
    let keeper = rustix::process::Pid::from_raw(keeper as i32).expect("a pid");
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).expect("kill");
}

#[test]
fn a_keeper_that_was_killed_leaves_a_crashed_sandbox_and_nothing_else() {
    let cosm = Cosm::new();
    cosm.ok([
        "create",
        "--name",
        "box",
        "--",
        "sh",
        "-c",
        "echo said; exec sleep 1000",
    ]);
    until("it speaks", || cosm.ok(["logs", "box"]) == "said\n");
    kill_keeper(&cosm, "box");
    until("it is seen", || {
        cosm.json(["ls", "--json"])["sandboxes"][0]["state"] == "crashed"
    });
    for args in [
        &["exec", "box", "--", "true"][..],
        &["shell", "box"],
        &["jobs", "box"],
        &["metrics", "box"],
        &["attach", "box", "main"],
        &["logs", "-f", "box"],
        &["wait", "box"],
        &["cp", "box:/etc/passwd", "/nonexistent"],
    ] {
        let text = cosm.fails(125, args);
        assert!(
            text.contains("sandbox box has crashed: its keeper"),
            "{args:?}: {text}"
        );
        assert!(text.contains("cosm start box"), "{args:?}: {text}");
    }
    assert_eq!(cosm.ok(["logs", "box"]), "said\n");
    cosm.ok(["start", "box"]);
    assert_eq!(cosm.ok(["exec", "box", "--", "echo", "again"]), "again\n");
}

/// Nobody who was in it takes the silence for an end.
#[test]
fn what_a_killed_keeper_cuts_off_says_that_it_crashed() {
    let cosm = Cosm::new();
    let main = "echo said; exec sleep 1000";
    cosm.ok(["create", "--name", "box", "--", "sh", "-c", main]);
    let running: Vec<_> = [
        &[
            "exec",
            "box",
            "--",
            "sh",
            "-c",
            "echo said; exec sleep 1000",
        ][..],
        &["shell", "box", "echo said; exec sleep 1000"],
        &["attach", "box", "main"],
        &["logs", "-f", "box"],
    ]
    .into_iter()
    .map(|args| {
        let mut command = cosm.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        // It is in there when it has heard of something.
        let mut first = [0; 5];
        let stdout = child.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(stdout, &mut first).expect("output");
        (args, child)
    })
    .collect();
    kill_keeper(&cosm, "box");
    for (args, child) in running {
        let output = child.wait_with_output().expect("it ends");
        let shown = show(&output);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {shown}");
        assert!(
            shown.contains("sandbox box has crashed: its keeper"),
            "{args:?}: {shown}"
        );
    }
}
