//! Starts that fail.

use crate::common::Cosm;

#[test]
fn a_start_that_fails_says_where_and_why_and_leaves_nothing() {
    let cosm = Cosm::new();
    let image = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(image.path().join("proc"), "").expect("write");
    let image = image.path().to_str().expect("text").to_owned();
    let nowhere = format!("{image}/no/such");
    for (code, phase, words, args) in [
        (
            125,
            "working directory",
            "the working directory /no/such does not exist in the sandbox",
            &["--workdir", "/no/such", "--", "true"][..],
        ),
        (
            127,
            "main command",
            "no-such-program: command not found in the sandbox",
            &["--", "no-such-program"],
        ),
        (
            126,
            "main command",
            "/etc/passwd: permission denied",
            &["--", "/etc/passwd"],
        ),
        (
            125,
            "mounts",
            "mounting the guest's proc on /proc",
            &[&image],
        ),
        (
            125,
            "prepare",
            "mount path does not exist",
            &["--mount", &nowhere],
        ),
        (
            125,
            "prepare",
            "the image has no user \"nobody-at-all\"",
            &["--user", "nobody-at-all"],
        ),
    ] {
        let text = cosm.fails(code, [&["create", "--name", "box"], args].concat());
        assert!(text.contains(words), "{args:?}: {text}");
        assert!(
            text.contains(&format!("in phase: {phase}\n")),
            "{args:?}: {text}"
        );
        assert!(!text.contains("log:"), "{args:?}: {text}");
        assert_eq!(cosm.ok(["ls", "-q"]), "", "{args:?}");
    }
}

/// One that was there before stays, and knows what the last start met.
#[test]
fn a_restart_that_fails_is_remembered_without_a_log_that_is_none() {
    let cosm = Cosm::new();
    let bait = tempfile::tempdir().expect("a temporary folder");
    let source = bait.path().join("source");
    std::fs::create_dir(&source).expect("mkdir");
    let mount = format!("{}:/mnt/x", source.display());
    cosm.ok(["create", "--name", "box", "--mount", &mount]);
    cosm.ok(["stop", "box"]);
    std::fs::remove_dir(&source).expect("rmdir");
    let text = cosm.fails(125, ["start", "box"]);
    assert!(text.contains("in phase: prepare"), "{text}");
    let failure = &cosm.json(["inspect", "box"])["failure"];
    assert_eq!(failure["phase"], "prepare", "{failure}");
    assert_eq!(failure["kind"], "invalid_input", "{failure}");
    assert!(failure["log_tail"].is_null(), "{failure}");
}
