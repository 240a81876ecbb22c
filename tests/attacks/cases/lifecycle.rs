//! Lives that hang on other lives, and many hands at one name.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::time::{Duration, Instant};

use cosm_attacks::{Case, House, Running, Verdict, eventually, skip};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(lifecycle::creator_dies, 30),
    case!(lifecycle::creator_dies_and_its_fork_lives_on, 30),
    case!(lifecycle::ignored_term, 60),
    case!(lifecycle::tree_dies_at_its_timeout, 60),
    case!(lifecycle::two_creates_of_one_name, 60),
    case!(lifecycle::two_starts_of_one_name, 60),
    case!(lifecycle::two_removes_of_one_name, 60),
    case!(lifecycle::kill_while_another_waits, 60),
    case!(lifecycle::failed_create_leaves_nothing, 60),
    case!(lifecycle::maximal_age_and_idleness, 60),
    case!(lifecycle::clock_jumps, 500),
];

fn gone(house: &House) -> bool {
    house.keepers().is_empty() && house.processes().iter().all(|process| !process.is_agent())
}

fn started(house: &House) -> bool {
    house
        .processes()
        .iter()
        .any(|process| process.command == "sleep 1000")
}

fn creator_dies(house: &House) -> Verdict {
    let mut creator = Running::start(house.cosm(["run", "--", "sleep", "1000"]));
    assert!(eventually(Duration::from_secs(10), || started(house)));
    creator.kill();
    let since = Instant::now();
    assert!(
        eventually(Duration::from_secs(5), || gone(house)),
        "{:#?}",
        house.processes()
    );
    assert!(
        since.elapsed() < Duration::from_millis(2500),
        "a second is enough, not {:?}",
        since.elapsed()
    );
    Verdict::Passed
}

/// A forked child of the creator keeps every descriptor, so the lease's pipe never reads as closed. Here that child
/// is this process: it takes its own copies of the creator's pipes out of /proc.
fn creator_dies_and_its_fork_lives_on(house: &House) -> Verdict {
    let mut creator = Running::start(house.cosm(["run", "--", "sleep", "1000"]));
    assert!(eventually(Duration::from_secs(10), || started(house)));
    let mut kept = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", creator.pid()))
        .into_iter()
        .flatten()
        .flatten()
    {
        let is_pipe = fs::metadata(entry.path()).is_ok_and(|meta| meta.file_type().is_fifo());
        let writes = fs::OpenOptions::new().write(true).open(entry.path());
        if let (true, Ok(file)) = (is_pipe, writes) {
            kept.push(file);
        }
    }
    if kept.is_empty() {
        return skip("the creator's descriptors can't be copied here");
    }
    creator.kill();
    let since = Instant::now();
    assert!(
        eventually(Duration::from_secs(5), || gone(house)),
        "{:#?}",
        house.processes()
    );
    assert!(
        since.elapsed() < Duration::from_millis(2500),
        "a second is enough, not {:?}",
        since.elapsed()
    );
    drop(kept);
    Verdict::Passed
}

fn ignored_term(house: &House) -> Verdict {
    house.sandbox(
        "deaf",
        &[
            "--",
            "/bin/sh",
            "-c",
            "trap '' TERM INT HUP; while :; do sleep 1; done",
        ],
    );
    house.sandbox(
        "hears",
        &[
            "--",
            "/bin/sh",
            "-c",
            "trap 'exit 3' TERM; while :; do sleep 0.1; done",
        ],
    );
    std::thread::sleep(Duration::from_millis(200));
    let deaf = house.run(["stop", "--time", "1s", "--no-kill", "deaf"]);
    assert_ne!(
        deaf.code(),
        Some(0),
        "it was not to be killed, and it does not end: {deaf:?}"
    );
    assert_eq!(house.shell("deaf", "echo on").text(), "on", "it runs on");
    let deaf = house.ok(["stop", "--time", "1s", "deaf"]);
    assert!(deaf.took < Duration::from_secs(6), "{deaf:?}");
    let hears = house.ok(["stop", "--time", "30s", "hears"]);
    assert!(
        hears.took < Duration::from_secs(10),
        "control: one that hears ends at once: {hears:?}"
    );
    assert_eq!(house.run(["wait", "hears"]).code(), Some(3));
    assert_eq!(house.run(["wait", "deaf"]).code(), Some(137));
    house.ok(["rm", "deaf", "hears"]);
    Verdict::Passed
}

/// Grandchildren in sessions of their own die with the command at its time-out, with or without a cgroup.
fn tree_dies_at_its_timeout(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let script =
        "setsid sh -c 'sleep 1001 & sleep 1002' & setsid sleep 1003 & (sleep 1004 &) ; sleep 1005";
    let done = house.run([
        "exec",
        "--timeout",
        "500ms",
        "box",
        "--",
        "/bin/sh",
        "-c",
        script,
    ]);
    assert_eq!(done.code(), Some(124), "{done:?}");
    assert!(done.took < Duration::from_secs(5), "{done:?}");
    let sleepers = || {
        house
            .processes()
            .into_iter()
            .filter(|p| p.command.starts_with("sleep 100"))
            .collect::<Vec<_>>()
    };
    assert!(
        eventually(Duration::from_secs(2), || sleepers().is_empty()),
        "{:#?}",
        sleepers()
    );
    // Control: without a time-out, what was put into the background lives on.
    house.ok([
        "exec",
        "box",
        "--",
        "/bin/sh",
        "-c",
        "setsid sleep 1006 >/dev/null 2>&1 &",
    ]);
    let one = || sleepers().len() == 1;
    assert!(
        eventually(Duration::from_secs(2), one),
        "{:#?}",
        house.processes()
    );
    let forked = "i=0; while [ $i -lt 200 ]; do setsid sh -c 'sleep 1007 & sleep 1008 &' & i=$((i+1)); done; sleep 1009";
    let done = house.run([
        "exec",
        "--timeout",
        "400ms",
        "box",
        "--",
        "/bin/sh",
        "-c",
        forked,
    ]);
    assert_eq!(done.code(), Some(124), "{done:?}");
    assert!(
        eventually(Duration::from_secs(3), || sleepers().len() <= 1),
        "{} are left",
        sleepers().len()
    );
    house.remove("box");
    Verdict::Passed
}

fn at_once(house: &House, count: usize, args: &[&str]) -> Vec<cosm_attacks::Done> {
    let all: Vec<Running> = (0..count)
        .map(|_| Running::start(house.cosm(args)))
        .collect();
    all.into_iter()
        .map(|running| running.done(Duration::from_secs(60)))
        .collect()
}

fn two_creates_of_one_name(house: &House) -> Verdict {
    for _ in 0..5 {
        let done = at_once(house, 6, &["create", "--name", "one"]);
        assert_eq!(
            done.iter().filter(|d| d.code() == Some(0)).count(),
            1,
            "{done:#?}"
        );
        for loser in done.iter().filter(|d| d.code() != Some(0)) {
            assert!(
                loser.refused().said().contains("already exists"),
                "{loser:?}"
            );
        }
        assert_eq!(house.names(), ["one"]);
        assert_eq!(house.keepers().len(), 1);
        house.remove("one");
    }
    Verdict::Passed
}

fn two_starts_of_one_name(house: &House) -> Verdict {
    house.sandbox("one", &[]);
    for _ in 0..5 {
        house.ok(["stop", "one"]);
        let done = at_once(house, 6, &["start", "one"]);
        assert_eq!(
            done.iter().filter(|d| d.code() == Some(0)).count(),
            1,
            "{done:#?}"
        );
        assert_eq!(house.keepers().len(), 1);
        assert_eq!(house.shell("one", "echo 1").text(), "1");
    }
    house.remove("one");
    Verdict::Passed
}

fn two_removes_of_one_name(house: &House) -> Verdict {
    for force in [true, false] {
        house.sandbox("one", &[]);
        if !force {
            house.ok(["stop", "one"]);
        }
        let args: &[&str] = if force {
            &["rm", "--force", "one"]
        } else {
            &["rm", "one"]
        };
        let done = at_once(house, 6, args);
        assert!(done.iter().any(|d| d.code() == Some(0)), "{done:#?}");
        for other in done.iter().filter(|d| d.code() != Some(0)) {
            other.refused();
        }
        assert!(house.names().is_empty());
        assert!(house.keepers().is_empty());
    }
    Verdict::Passed
}

fn kill_while_another_waits(house: &House) -> Verdict {
    house.sandbox(
        "box",
        &[
            "--stop-timeout",
            "60s",
            "--",
            "/bin/sh",
            "-c",
            "trap '' TERM; while :; do sleep 1; done",
        ],
    );
    std::thread::sleep(Duration::from_millis(200));
    let waiting = Running::start(house.cosm(["wait", "box"]));
    let stopping = Running::start(house.cosm(["stop", "box"]));
    let draining = Running::start(house.cosm(["drain", "box"]));
    std::thread::sleep(Duration::from_millis(300));
    let killed = house.ok(["kill", "box"]);
    assert!(killed.took < Duration::from_secs(5), "{killed:?}");
    assert_eq!(waiting.done(Duration::from_secs(10)).code(), Some(137));
    stopping.done(Duration::from_secs(10));
    draining.done(Duration::from_secs(10));
    house.remove("box");
    Verdict::Passed
}

fn failed_create_leaves_nothing(house: &House) -> Verdict {
    let folder = house.folder().join("no-such-folder");
    let folder = folder.to_str().expect("a plain path");
    house.run(["create", "--name", "x", folder]).refused();
    house
        .run([
            "create",
            "--name",
            "x",
            "--mount",
            &format!("{folder}:/mnt"),
        ])
        .refused();
    house.run(["create", "--name", "x", "--workdir", "/no/such/folder"]);
    house.run(["create", "--name", "x", "--user", "nobody-of-this-name"]);
    for left in house.names() {
        house.remove(&left);
    }
    assert!(house.keepers().is_empty(), "{:#?}", house.keepers());
    Verdict::Passed
}

fn maximal_age_and_idleness(house: &House) -> Verdict {
    house.sandbox("old", &["--max-duration", "1s", "--", "sleep", "1000"]);
    house.sandbox("idle", &["--idle-timeout", "1s"]);
    house.sandbox("busy", &["--idle-timeout", "1s"]);
    // It is silent, and that is not idleness.
    let work = Running::start(house.cosm(["exec", "busy", "--", "sleep", "4"]));
    assert!(
        eventually(Duration::from_secs(8), || house.keepers().len() == 1),
        "{:#?}",
        house.keepers()
    );
    assert_eq!(
        work.done(Duration::from_secs(20)).code(),
        Some(0),
        "an open exec is activity"
    );
    assert!(
        eventually(Duration::from_secs(8), || house.keepers().is_empty()),
        "control: then it is idle"
    );
    house.ok(["rm", "old", "idle", "busy"]);
    Verdict::Passed
}

/// Sets the clock of the whole machine by an hour and a year, ahead and back, so it has to be asked for.
fn clock_jumps(house: &House) -> Verdict {
    if std::env::var_os("COSM_TEST_CLOCK").is_none() {
        return skip("it sets the machine's clock: COSM_TEST_CLOCK=1 allows it");
    }
    let clock = Clock::new();
    if !clock.set(0) {
        return skip("the clock can't be set here");
    }
    let minutes = ["--idle-timeout", "20m", "--max-duration", "40m"];
    house.sandbox("box", &minutes);
    let count = "n=0; while sleep 0.1; do n=$((n+1)); echo $n; done";
    let job = house
        .ok(["exec", "-d", "box", "--", "/bin/sh", "-c", count])
        .text();
    let follower = Running::start(house.cosm(["logs", "-f", "--since", "1m", "box", &job]));
    let long = Running::start(house.cosm(["exec", "--timeout", "30m", "box", "--", "sleep", "60"]));
    const HOUR: i64 = 3600;
    for jump in [HOUR, 365 * 24 * HOUR, -HOUR, -365 * 24 * HOUR] {
        one_clock_jump(house, &clock, jump, &job);
    }
    assert_eq!(long.done(Duration::from_secs(300)).code(), Some(0));
    house.ok(["jobs", "box", "--signal", "KILL", &job]);
    let seen = follower.done(Duration::from_secs(300));
    let numbers: Vec<u64> = seen
        .text()
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let wanted: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, wanted, "what follows a log sees each line once");
    house.remove("box");
    Verdict::Passed
}

/// The clock jumps under times that run, and then back.
fn one_clock_jump(house: &House, clock: &Clock, jump: i64, job: &str) {
    house.sandbox(
        "short",
        &["--max-duration", "12s", "--", "/bin/sleep", "1000"],
    );
    let end = Running::start(house.cosm(["wait", "short"]));
    let timed = ["exec", "--timeout", "4s", "box", "--", "sleep", "1000"];
    let timed = Running::start(house.cosm(timed));
    std::thread::sleep(Duration::from_secs(1));
    assert!(clock.set(jump), "the clock could be set once");
    std::thread::sleep(Duration::from_secs(1));
    let last = house.ok(["logs", "--tail", "1", "box", job]);
    let since = house.ok(["logs", "--since", "1m", "box", job]);
    let number = |line: Option<&str>| line.and_then(|line| line.parse::<u64>().ok());
    assert!(
        number(since.text().lines().last()) >= number(Some(&last.text())),
        "the youngest lines, {jump} s off: {since:?}, {last:?}"
    );
    assert_eq!(house.shell("box", "echo on").text(), "on");
    let timed = timed.done(Duration::from_secs(50));
    assert_eq!(timed.code(), Some(124), "{jump} s off: {timed:?}");
    assert!(timed.took >= Duration::from_secs(4), "{jump}: {timed:?}");
    let end = end.done(Duration::from_secs(50));
    assert!(end.took >= Duration::from_secs(5), "{jump}: {end:?}");
    assert_eq!(house.keepers().len(), 1, "box alone, {jump} s off");
    assert!(clock.set(0), "the clock could be set once");
    house.remove("short");
}

/// The machine's clock, by the one that nobody sets.
struct Clock {
    since: Instant,
    then: Duration,
}

impl Clock {
    fn new() -> Self {
        let then = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
        Self {
            since: Instant::now(),
            then,
        }
    }

    /// Sets the clock so many seconds off the right time.
    fn set(&self, off: i64) -> bool {
        let now = (self.then + self.since.elapsed()).as_secs_f64() + off as f64;
        std::process::Command::new("date")
            .args(["-s", &format!("@{now:.3}")])
            .output()
            .is_ok_and(|done| done.status.success())
    }
}
