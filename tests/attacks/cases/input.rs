//! Bytes in.

use std::process::Stdio;
use std::time::Duration;

use cosm_attacks::{Case, House, Noise, Running, Verdict, fingerprint};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(input::none_is_end_of_file, 30),
    case!(input::closed, 30),
    case!(input::open_but_silent, 30),
    case!(input::sixty_four_mebibytes, 120),
    case!(input::command_stops_reading, 60),
    case!(input::one_byte_at_a_time, 30),
];

fn none_is_end_of_file(house: &House) -> Verdict {
    let mut command = house.cosm(["run", "--", "cat"]);
    command.stdin(Stdio::piped());
    let done = Running::start(command).done(Duration::from_secs(10));
    assert_eq!((done.code(), done.stdout.len()), (Some(0), 0), "{done:?}");
    Verdict::Passed
}

/// The program is started without the descriptors 0, 1 and 2.
fn closed(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let program = house.program().to_str().expect("a plain path").to_owned();
    for redirect in ["<&-", "<&- >&-", "<&- >&- 2>&-", ">&- 2>&-"] {
        let mut shell = std::process::Command::new("/bin/sh");
        house.furnish(&mut shell);
        shell.args(["-c", &format!("\"$0\" exec -i box -- sh -c 'echo $(ls -l /proc/self/fd | grep -c cosm)' {redirect}"), &program]);
        let done = Running::start(shell).done(Duration::from_secs(20));
        if redirect == "<&-" {
            assert_eq!(
                (done.code(), done.text().as_str()),
                (Some(0), "0"),
                "{done:?}"
            );
        }
        assert!(!done.said().contains("panicked"), "{done:?}");
    }
    assert_eq!(house.shell("box", "echo on").text(), "on");
    house.remove("box");
    Verdict::Passed
}

/// An input that never ends does not hold up a command that has ended.
fn open_but_silent(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    for interactive in [&["-i"][..], &[]] {
        let words = ["box", "--", "echo", "hi"];
        let mut command = house.cosm(["exec"].iter().chain(interactive).chain(&words));
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        let held = running.stdin();
        let done = running.done(Duration::from_secs(10));
        assert_eq!(
            (done.code(), done.text().as_str()),
            (Some(0), "hi"),
            "{done:?}"
        );
        assert!(done.took < Duration::from_secs(1), "{done:?}");
        drop(held);
    }
    let mut command = house.cosm(["exec", "-i", "--timeout", "300ms", "box", "--", "cat"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let held = running.stdin();
    let done = running.done(Duration::from_secs(10));
    assert_eq!(
        done.code(),
        Some(124),
        "its time-out covers the wait for input: {done:?}"
    );
    drop(held);
    house.remove("box");
    Verdict::Passed
}

fn sixty_four_mebibytes(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let block = Noise::new(3).bytes(1 << 20);
    let bytes: Vec<u8> = block.iter().copied().cycle().take(64 << 20).collect();
    let mut command = house.cosm(["exec", "-i", "box", "--", "cat"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    running.feed(bytes.clone());
    let done = running.done(Duration::from_secs(60));
    assert_eq!((done.code(), done.stdout.len()), (Some(0), bytes.len()));
    assert_eq!(fingerprint(&done.stdout), fingerprint(&bytes));
    house.remove("box");
    Verdict::Passed
}

fn command_stops_reading(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    for script in [
        "exit 4",
        "head -c 10 >/dev/null; exit 4",
        "exec <&-; sleep 0.2; exit 4",
    ] {
        let mut command = house.cosm(["exec", "-i", "box", "--", "/bin/sh", "-c", script]);
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        running.feed(vec![b'x'; 64 << 20]);
        let done = running.done(Duration::from_secs(20));
        assert_eq!(done.code(), Some(4), "{done:?}");
    }
    house.remove("box");
    Verdict::Passed
}

fn one_byte_at_a_time(house: &House) -> Verdict {
    use std::io::Write as _;
    let mut command = house.cosm(["run", "-i", "--", "cat"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut stdin = running.stdin().expect("a pipe");
    let bytes = Noise::new(9).bytes(3000);
    for byte in &bytes {
        stdin.write_all(&[*byte]).expect("cat reads");
    }
    drop(stdin);
    let done = running.done(Duration::from_secs(20));
    assert_eq!(done.stdout, bytes);
    Verdict::Passed
}
