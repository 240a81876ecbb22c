//! Names and labels made to break paths, SQL and terminals.

use cosm_attacks::{Case, House, Verdict};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(names::of_sandboxes, 60),
    case!(names::of_labels, 60),
    case!(names::of_other_things, 60),
];

fn of_sandboxes(house: &House) -> Verdict {
    let long = "x".repeat(129);
    let bad = [
        "",
        ".",
        "..",
        "../../x",
        "/etc",
        "a/b",
        "a b",
        "-rf",
        "--force",
        "_x",
        ".x",
        "a\nb",
        "a\x1b[31mb",
        "a\u{202e}b",
        "ä",
        "x'; DROP TABLE sandboxes; --",
        "a:b",
        "$(id)",
        "a\u{7f}",
        &long,
    ];
    house.sandbox("canary", &[]);
    for name in bad {
        house.run(["create", &format!("--name={name}")]).refused();
        for command in [
            "start", "stop", "kill", "rm", "inspect", "exec", "logs", "wait",
        ] {
            let mut args = vec![command, "--", name];
            if command == "exec" {
                args.push("true");
            }
            house.run(args).refused();
        }
        assert_eq!(house.names(), ["canary"], "after {name:?}");
    }
    for good in ["a", "A.b_c-9", &"x".repeat(128), "0"] {
        house.sandbox(good, &[]);
        assert_eq!(house.shell(good, "echo on").text(), "on", "{good}");
        house.remove(good);
    }
    house.remove("canary");
    Verdict::Passed
}

fn of_labels(house: &House) -> Verdict {
    let values = [
        "plain",
        "'; DROP TABLE labels; --",
        "100%",
        "_",
        "a=b",
        "\u{1b}[2J\u{1b}]0;owned\u{7}",
        "ü\u{202e}",
        "",
    ];
    for (n, value) in values.iter().enumerate() {
        let label = format!("key={value}");
        let done = house.run(["create", "--name", &format!("box{n}"), "--label", &label]);
        if done.code() != Some(0) {
            done.refused();
            continue;
        }
        let found = house.ok(["ls", "-q", "--label", &label]);
        assert_eq!(
            found.text(),
            format!("box{n}"),
            "{value:?} finds its own and nothing else"
        );
        let json = house.ok(["inspect", &format!("box{n}")]);
        serde_json::from_slice::<serde_json::Value>(&json.stdout).expect("JSON");
        for listing in [house.ok(["ls"]), house.ok(["ps"]), json] {
            let bad = listing
                .stdout
                .iter()
                .find(|byte| **byte < 0x20 && !matches!(byte, b'\n' | b'\t'));
            assert_eq!(bad, None, "a terminal would obey {listing:?}");
        }
        house.remove(&format!("box{n}"));
    }
    assert!(house.names().is_empty());
    Verdict::Passed
}

fn of_other_things(house: &House) -> Verdict {
    let long = "x".repeat(70_000);
    let tries: &[&[&str]] = &[
        &["--hostname", "a b"],
        &["--hostname", "a\nb"],
        &["--hostname", &long],
        &["--workdir", "relative"],
        &["--env", "=x"],
        &["--user", "\u{1b}[31m"],
        &["--memory", "-1"],
        &["--memory", "999999999999999999999"],
        &["--memory", "12parsecs"],
        &["--cpus", "nan"],
        &["--cpus", "-1"],
        &["--pids", "0"],
        &["--mount", "/:/"],
        &["--mount", "/tmp:relative"],
        &["--tmpfs", "/"],
        &["--rlimit", "nofile=2:1"],
        &["--rlimit", "bogus=1"],
        &["--timeout", "soon"],
        &["--device", "/etc/passwd"],
        &["--mount", "/tmp:/a/../../b"],
    ];
    for options in tries {
        let done = house.run(["run"].iter().chain(*options).chain(&["--", "true"]));
        assert_ne!(done.code(), Some(0), "{options:?} was taken: {done:?}");
        done.refused();
    }
    let done = house.run(["run", "--", "true", &"x".repeat(100_000)]);
    assert_eq!(
        done.code(),
        Some(0),
        "long arguments are no attack: {done:?}"
    );
    let hidden = house.run(["run", "--", "/no/such/\u{1b}[31mprogram"]);
    assert_eq!(hidden.code(), Some(127), "{hidden:?}");
    assert!(!hidden.stderr.contains(&0x1b), "{hidden:?}");
    assert_eq!(house.run(["run", "--", "/etc"]).code(), Some(126));
    Verdict::Passed
}
