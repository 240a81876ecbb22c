//! What is said of wrong arguments: exit code, output and error output.

use crate::common::{Cosm, show};

fn snapshot(name: &str, args: &[&str]) {
    let cosm = Cosm::new();
    let output = cosm
        .command(args)
        .current_dir("/")
        .output()
        .expect("the program starts");
    let home = cosm.home().display().to_string();
    insta::assert_snapshot!(
        name,
        format!(
            "$ cosm {}\n{}",
            args.join(" "),
            show(&output).replace(&home, "$COSM_HOME")
        )
    );
}

#[test]
fn wrong_arguments_are_explained() {
    for (name, args) in [
        ("no_command", &[][..]),
        ("unknown_command", &["foo"]),
        ("similar_command", &["exce"]),
        ("bad_size", &["run", "--memory", "lots", "--", "true"]),
        ("bad_time", &["run", "--timeout", "soon", "--", "true"]),
        ("bad_name", &["run", "--name", "../x", "--", "true"]),
        ("bad_mount", &["run", "--mount", "/a:/b:rx", "--", "true"]),
        ("bad_rlimit", &["run", "--rlimit", "files=3", "--", "true"]),
        ("bad_keys", &["attach", "--detach-keys", "ctrl-1", "x"]),
        ("bad_label", &["run", "--label", "x", "--", "true"]),
        ("detach_and_tty", &["run", "-d", "-t", "--", "true"]),
        ("exec_without_command", &["exec", "box"]),
        ("image_by_reference", &["run", "alpine:3", "--", "true"]),
        (
            "image_missing",
            &["run", "./no-such-rootfs-here", "--", "true"],
        ),
        ("image_is_a_file", &["run", "/etc/passwd", "--", "true"]),
        ("run_without_command", &["run"]),
        ("no_dashes", &["run", "--here", "python3", "x.py"]),
        ("no_dashes_and_a_flag", &["create", "python3", "-c", "1"]),
        ("relative_workdir", &["run", "-w", "a/b", "--", "true"]),
        (
            "conf_missing",
            &["run", "--conf", "/no/such.yaml", "--", "true"],
        ),
        ("bad_state", &["ls", "--state", "happy"]),
        ("unknown_sandbox", &["exec", "nobody", "--", "true"]),
        (
            "unknown_sandbox_hostile",
            &["exec", "a\u{1b}[2Jb", "--", "true"],
        ),
        ("remove_unknown", &["rm", "nobody"]),
        ("empty_list", &["ls"]),
        ("empty_list_json", &["ls", "--json"]),
    ] {
        snapshot(name, args);
    }
}

#[test]
fn the_reference_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    // Its first line says what makes it.
    let text = committed.split_once("-->").map_or("", |(_, text)| text);
    assert!(
        text.trim() == cosm_cli::reference().trim(),
        "docs/cli.md is not what the program says: cargo xtask gen"
    );
}

#[test]
fn a_settings_file_is_strict() {
    let cosm = Cosm::new();
    let file = cosm.home().join("sandbox.yaml");
    std::fs::write(&file, "memroy: 1g\n").expect("write");
    let said = cosm.fails(
        125,
        ["run", "--conf", file.to_str().expect("text"), "--", "true"],
    );
    assert!(said.contains("memroy"), "{said}");
    std::fs::write(&file, "memory: ${NOT_SET_ANYWHERE}\n").expect("write");
    let said = cosm.fails(
        125,
        ["run", "--conf", file.to_str().expect("text"), "--", "true"],
    );
    assert!(
        said.contains("memory") && said.contains("${NOT_SET_ANYWHERE}"),
        "{said}"
    );
    std::fs::write(&file, "net: everything\n").expect("write");
    let said = cosm.fails(
        125,
        ["run", "--conf", file.to_str().expect("text"), "--", "true"],
    );
    assert!(said.contains("none, host"), "{said}");
}

#[test]
fn a_folder_for_sockets_that_others_may_change_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let cosm = Cosm::new();
    let shared = crate::common::private_dir("cr");
    let inside = shared.path().join("cosm");
    std::fs::create_dir(&inside).expect("mkdir");
    std::fs::set_permissions(&inside, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let output = cosm
        .command(["ls"])
        .env("XDG_RUNTIME_DIR", shared.path())
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(125), "{}", show(&output));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("can be written to by others"),
        "{}",
        show(&output)
    );
}
