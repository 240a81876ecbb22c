//! `cosm run`: one command in a sandbox of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Cosm, show, until};

#[test]
fn the_commands_output_and_code_pass_through() {
    let cosm = Cosm::new();
    let output = cosm.output(["run", "--", "sh", "-c", "echo out; echo err >&2; exit 42"]);
    assert_eq!(output.status.code(), Some(42), "{}", show(&output));
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(cosm.ok(["ls", "-q"]), "", "an unnamed sandbox is gone");
}

#[test]
fn exit_codes_are_as_shells_have_them() {
    let cosm = Cosm::new();
    cosm.fails(143, ["run", "--", "sh", "-c", "kill -TERM $$"]);
    cosm.fails(127, ["run", "--", "no-such-program"]);
    cosm.fails(126, ["run", "--", "/etc/passwd"]);
    let begin = Instant::now();
    cosm.fails(
        124,
        [
            "run",
            "--timeout",
            "300ms",
            "--",
            "sh",
            "-c",
            "setsid sleep 1000 & sleep 1000",
        ],
    );
    assert!(begin.elapsed() < Duration::from_secs(10));
    cosm.fails(125, ["run", "-w", "/no/such/folder", "--", "true"]);
}

#[test]
fn input_is_the_end_of_file_unless_asked_for() {
    let cosm = Cosm::new();
    let output = cosm.with_input(["run", "--", "cat"], b"not for it\n");
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(0), 0),
        "{}",
        show(&output)
    );
    let input: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let output = cosm.with_input(["run", "-i", "--", "cat"], &input);
    assert!(
        output.stdout == input,
        "{} bytes of {} came back",
        output.stdout.len(),
        input.len()
    );
}

#[test]
fn an_input_that_never_ends_delays_nothing() {
    let cosm = Cosm::new();
    for args in [
        &["run", "--", "echo", "hi"][..],
        &["run", "-i", "--", "echo", "hi"],
    ] {
        let mut endless = std::process::Command::new("sleep")
            .arg("1000")
            .stdout(Stdio::piped())
            .spawn()
            .expect("sleep");
        let begin = Instant::now();
        let output = cosm
            .command(args)
            .stdin(endless.stdout.take().expect("a pipe"))
            .output()
            .expect("starts");
        endless
            .kill()
            .and_then(|()| endless.wait())
            .expect("sleep ends");
        assert_eq!(output.stdout, b"hi\n", "{}", show(&output));
        assert!(begin.elapsed() < Duration::from_secs(5), "{args:?}");
    }
}

#[test]
fn no_byte_of_much_output_is_lost() {
    let cosm = Cosm::new();
    let output = cosm.output([
        "run",
        "--",
        "sh",
        "-c",
        "head -c 20000000 /dev/zero; head -c 1000001 /dev/zero >&2",
    ]);
    assert_eq!(
        (output.stdout.len(), output.stderr.len()),
        (20_000_000, 1_000_001)
    );
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let cosm = Cosm::new();
    let mut child = cosm
        .command(["run", "--", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    use std::io::Read as _;
    let mut some = [0; 1000];
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_exact(&mut some)
        .expect("output");
    let output = child.wait_with_output().expect("ends");
    assert!(output.stderr.is_empty(), "{}", show(&output));
}

#[test]
fn a_child_that_keeps_the_output_open_is_not_waited_for() {
    let cosm = Cosm::new();
    let begin = Instant::now();
    assert_eq!(
        cosm.ok(["run", "--", "sh", "-c", "sleep 1000 & echo done"]),
        "done\n"
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn arguments_and_environment_are_bytes() {
    let cosm = Cosm::new();
    let odd = OsStr::from_bytes(b"a\xff b\n");
    let mut variable = b"ODD=".to_vec();
    variable.extend_from_slice(odd.as_bytes());
    let mut args: Vec<&OsStr> = vec![
        OsStr::new("run"),
        OsStr::new("-e"),
        OsStr::from_bytes(&variable),
    ];
    for arg in ["--", "sh", "-c", "printf '%s|%s' \"$ODD\" \"$1\"", "sh"] {
        args.push(OsStr::new(arg));
    }
    args.push(odd);
    let output = cosm.output(args);
    assert_eq!(output.stdout, b"a\xff b\n|a\xff b\n", "{}", show(&output));
}

#[test]
fn here_is_read_only_unless_asked_for() {
    let cosm = Cosm::new();
    let work = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(work.path().join("x.sh"), "echo from $PWD").expect("write");
    let run = |args: &[&str]| {
        cosm.command(args)
            .current_dir(work.path())
            .output()
            .expect("starts")
    };

    let output = run(&["run", "--", "sh", "x.sh"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("x.sh exists on the host but not in the sandbox: add --here or --mount"),
        "{said}"
    );

    let elsewhere = cosm.home().join("y.sh");
    std::fs::write(&elsewhere, "echo").expect("write");
    let elsewhere = elsewhere.display().to_string();
    let output = run(&["run", "--here", "--", "sh", &elsewhere]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&format!("add --mount {elsewhere}\n")),
        "{said}"
    );

    let output = run(&["run", "--here", "--", "sh", "x.sh"]);
    let real = work.path().canonicalize().expect("a path");
    assert_eq!(
        output.stdout,
        format!("from {}\n", real.display()).as_bytes(),
        "{}",
        show(&output)
    );

    let output = run(&["run", "--here", "--", "touch", "new"]);
    assert_ne!(output.status.code(), Some(0), "{}", show(&output));
    assert!(!work.path().join("new").exists());

    let output = run(&["run", "--here=rw", "--", "touch", "new"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    use std::os::unix::fs::MetadataExt as _;
    let (folder, file) = (
        work.path().metadata().expect("stat"),
        work.path().join("new").metadata().expect("stat"),
    );
    assert_eq!(
        folder.uid(),
        file.uid(),
        "what is made belongs to the folder's owner"
    );
}

#[test]
fn a_program_that_is_only_outside_gets_a_hint() {
    let cosm = Cosm::new();
    let bin = tempfile::tempdir().expect("a temporary folder");
    let tool = bin.path().join("my-own-tool");
    std::fs::write(&tool, "#!/bin/sh\necho it works\n").expect("write");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let path = format!("{}:/usr/bin:/bin", bin.path().display());
    let output = cosm
        .command(["run", "--", "my-own-tool"])
        .env("PATH", &path)
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(127), "{}", show(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("my-own-tool exists on the host but not in the sandbox"),
        "{said}"
    );

    let bin = bin.path().join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    std::fs::rename(&tool, bin.join("my-own-tool")).expect("rename");
    let output = cosm
        .command(["run", "--", "my-own-tool"])
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .output()
        .expect("starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let wanted = format!(
        "add --mount-prefix {}\n",
        bin.parent().expect("one").display()
    );
    assert!(said.contains(&wanted), "{said}");
}

#[test]
fn a_prefix_is_mounted_with_its_programs_on_the_path() {
    let cosm = Cosm::new();
    let prefix = tempfile::tempdir().expect("a temporary folder");
    let bin = prefix.path().join("bin");
    std::fs::create_dir(&bin).expect("mkdir");
    let tool = bin.join("my-own-tool");
    std::fs::write(&tool, "#!/bin/sh\necho it works\n").expect("write");
    for path in [prefix.path(), &bin, &tool] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    }
    let path = prefix.path().to_str().expect("text");
    assert_eq!(
        cosm.ok(["run", "--mount-prefix", path, "--", "my-own-tool"]),
        "it works\n"
    );
}

#[test]
fn a_signal_ends_the_sandbox_too() {
    let cosm = Cosm::new();
    let mut child = cosm
        .command(["run", "--", "sleep", "1000"])
        .spawn()
        .expect("starts");
    until("it runs", || {
        !cosm.ok(["ls", "-q", "--state", "running"]).is_empty()
    });
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("kill");
    use std::os::unix::process::ExitStatusExt as _;
    let status = child.wait().expect("ends");
    // Before the command runs the signal ends the program as it ends any.
    assert!(
        status.code() == Some(143) || status.signal() == Some(15),
        "{status}"
    );
    until("it is gone", || cosm.ok(["ls", "-q"]).is_empty());
}

#[test]
fn the_death_of_the_program_ends_the_sandbox_too() {
    let cosm = Cosm::new();
    let mut child = cosm
        .command(["run", "--", "sleep", "1000"])
        .spawn()
        .expect("starts");
    until("it runs", || {
        !cosm.ok(["ls", "-q", "--state", "running"]).is_empty()
    });
    child.kill().and_then(|()| child.wait()).expect("killed");
    let begin = Instant::now();
    until("it is gone", || cosm.ok(["ls", "-q"]).is_empty());
    assert!(begin.elapsed() < Duration::from_secs(3));
}

#[test]
fn an_interrupt_reaches_the_command() {
    let cosm = Cosm::new();
    let child = cosm
        .command([
            "run",
            "--",
            "sh",
            "-c",
            "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    std::thread::sleep(Duration::from_millis(700));
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("kill");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(7), &b"ready\ncaught\n"[..]),
        "{}",
        show(&output)
    );
}

#[test]
fn settings_come_from_a_file_and_flags_win() {
    let cosm = Cosm::new();
    let file = cosm.home().join("sandbox.yaml");
    std::fs::write(
        &file,
        "command: [sh, -c, 'echo $A $B $(hostname) $(pwd) $(hello)']\nenv: {A: file, B: \"${FROM_OUTSIDE}\"}\n\
         hostname: of-the-file\nworkdir: /tmp\nscripts:\n  hello: |\n    #!/bin/sh\n    echo hello\n",
    )
    .expect("write");
    let conf = file.to_str().expect("text");
    let output = cosm
        .command([
            "run",
            "--conf",
            conf,
            "-e",
            "A=flag",
            "--hostname",
            "of-the-flag",
        ])
        .env("FROM_OUTSIDE", "outside")
        .output()
        .expect("starts");
    assert_eq!(
        output.stdout,
        b"flag outside of-the-flag /tmp hello\n",
        "{}",
        show(&output)
    );
}

/// Processes that name this state folder in their arguments.
fn processes_of(cosm: &Cosm) -> Vec<i32> {
    let home = cosm.home().to_str().expect("text");
    let names_it = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| String::from_utf8_lossy(&words).contains(home))
    };
    cosm_sys::procfs::pids()
        .expect("proc")
        .into_iter()
        .filter(names_it)
        .collect()
}

#[test]
fn a_run_that_comes_to_nothing_leaves_no_process() {
    let cosm = Cosm::new();
    let conf = cosm.home().join("missing.yaml");
    let conf = conf.to_str().expect("text");
    cosm.fails(125, ["run", "--conf", conf, "--", "true"]);
    until("what was made in advance is gone", || {
        processes_of(&cosm).is_empty()
    });
    let mut child = cosm
        .command(["run", "-e", &format!("A={conf}"), "--", "sleep", "1000"])
        .spawn()
        .expect("starts");
    until("it runs", || !processes_of(&cosm).is_empty());
    child.kill().and_then(|()| child.wait()).expect("killed");
    until("the keeper is gone", || processes_of(&cosm).is_empty());
}

#[test]
fn timings_tell_where_the_time_went() {
    let cosm = Cosm::new();
    let output = cosm.output(["run", "--timings", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("ms  create") && said.contains("ms  in all"),
        "{said}"
    );
}
