//! Guests that take all they can get. Each has its control: with room enough, the same does no harm.

use std::time::Duration;

use cosm_attacks::{Case, Done, House, Running, Verdict, skip};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(bombs::forks, 90),
    case!(bombs::memory, 90),
    case!(bombs::disk, 90),
    case!(bombs::descriptors, 60),
    case!(bombs::processor, 60),
];

/// If cosm says that this host can't enforce a limit, the limit can't be tried; an error is what it owes us then.
fn unenforceable(done: &Done) -> Option<String> {
    let said = done.said();
    let refused = done.code() == Some(125) && said.contains(" limit");
    refused.then(|| said.lines().next().unwrap_or_default().to_owned())
}

fn forks(house: &House) -> Verdict {
    house.sandbox("bystander", &[]);
    let many = "i=0; while [ $i -lt 100 ]; do sleep 3 & i=$((i+1)); done; echo made $i; kill $(jobs -p) 2>/dev/null";
    let few = house.try_script(&["--pids", "32"], many);
    if let Some(why) = unenforceable(&few) {
        house.remove("bystander");
        return skip(why);
    }
    assert!(
        !few.text().contains("made 100"),
        "100 processes do not fit in 32: {few:?}"
    );
    let enough = house.try_script(&["--pids", "400"], many);
    assert!(
        enough.text().contains("made 100"),
        "control: they fit in 400: {enough:?}"
    );
    let bomb = "f() { f | f & }; f; sleep 2; exit 0";
    let running = Running::start(house.cosm([
        "run",
        "--pids",
        "64",
        "--timeout",
        "4s",
        "--",
        "/bin/sh",
        "-c",
        bomb,
    ]));
    std::thread::sleep(Duration::from_secs(2));
    let guests = house.processes().len();
    assert!(guests < 64 + 20, "{guests} processes");
    let other = house.shell("bystander", "echo on");
    assert_eq!(other.text(), "on", "{other:?}");
    running.done(Duration::from_secs(30));
    house.remove("bystander");
    Verdict::Passed
}

fn memory(house: &House) -> Verdict {
    house.sandbox("bystander", &[]);
    // tail keeps the last line, and there is only one.
    let hog = "head -c 300000000 /dev/zero | tail -n 1 | wc -c";
    let tight = house.try_script(&["--memory", "64m"], hog);
    if let Some(why) = unenforceable(&tight) {
        house.remove("bystander");
        return skip(why);
    }
    assert_ne!(
        tight.text(),
        "300000000",
        "300 MB do not fit in 64 MiB: {tight:?}"
    );
    let roomy = house.try_script(&["--memory", "1g"], hog);
    assert_eq!(
        roomy.text(),
        "300000000",
        "control: they fit in 1 GiB: {roomy:?}"
    );
    // Memory in files counts, too.
    let file = house.try_script(
        &["--memory", "64m", "--tmpfs", "/m:1g"],
        "head -c 300000000 /dev/zero > /m/x && echo fits",
    );
    assert_ne!(file.text(), "fits", "{file:?}");
    assert_eq!(house.shell("bystander", "echo on").text(), "on");
    // The sandbox that was hit can still be used or removed.
    house.sandbox("hit", &["--memory", "64m"]);
    house.shell("hit", hog);
    house.run(["exec", "hit", "--", "true"]);
    house.remove("hit");
    house.remove("bystander");
    Verdict::Passed
}

fn disk(house: &House) -> Verdict {
    let fill = "for d in /tmp /root /home /run /var/tmp; do head -c 60000000 /dev/zero > $d/fill 2>/dev/null && echo $d; done";
    let tight = house.try_script(&["--disk", "16m"], fill);
    if let Some(why) = unenforceable(&tight) {
        return skip(why);
    }
    assert_eq!(tight.text(), "", "60 MB fit nowhere in 16 MiB: {tight:?}");
    let roomy = house.try_script(&["--disk", "600m"], fill);
    assert!(
        roomy.text().contains("/tmp"),
        "control: they fit in 600 MiB: {roomy:?}"
    );
    let shm = house.try_script(
        &["--memory", "256m"],
        "head -c 900000000 /dev/zero > /dev/shm/fill && echo fits",
    );
    if unenforceable(&shm).is_none() {
        assert_ne!(shm.text(), "fits", "shared memory is no way round: {shm:?}");
    }
    Verdict::Passed
}

fn descriptors(house: &House) -> Verdict {
    house.sandbox("box", &["--rlimit", "nofile=64"]);
    let open = "i=3; while [ $i -lt 200 ]; do eval \"exec $i</dev/null\" || break; i=$((i+1)); done; echo $i";
    let done = house.run(["exec", "box", "--", "/bin/bash", "-c", open]);
    if done.code() == Some(127) {
        house.remove("box");
        return skip("there is no bash");
    }
    let reached: u32 = done.text().parse().unwrap_or(0);
    assert!(reached <= 64, "{done:?}");
    let more = house.run([
        "exec",
        "--rlimit",
        "nofile=64:64",
        "box",
        "--",
        "/bin/sh",
        "-c",
        "ulimit -n; ulimit -Hn",
    ]);
    assert_eq!(more.text(), "64\n64");
    house.remove("box");
    Verdict::Passed
}

/// One that only burns time is ended on time.
fn processor(house: &House) -> Verdict {
    let burn = "while :; do :; done & while :; do :; done & while :; do :; done";
    let done = Running::start(house.cosm(["run", "--timeout", "1s", "--", "/bin/sh", "-c", burn]))
        .done(Duration::from_secs(20));
    assert_eq!(done.code(), Some(124), "{done:?}");
    assert!(done.took < Duration::from_secs(6), "{done:?}");
    Verdict::Passed
}
