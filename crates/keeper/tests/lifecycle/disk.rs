//! What a guest keeps is bounded though no file system bounds it.

use std::time::Duration;

use cosm_proto::keeper::{EndReason, Reply, Request};
use cosm_state::SandboxStatus;

use crate::Trial;
use crate::bench::{Bench, Keeper, shell, until};

pub(crate) const TRIALS: &[Trial] = &[
    ("the_disk_runs_out", the_disk_runs_out),
    (
        "removed_files_count_while_open",
        removed_files_count_while_open,
    ),
    ("what_fits_is_left_alone", what_fits_is_left_alone),
    ("an_idle_guest_wakes_nobody", an_idle_guest_wakes_nobody),
];

/// Room for twice the default that is to be exceeded.
const WANTED: u64 = 20 << 30;

/// A sandbox with this main command; none where no file of 9 GiB can be made at once.
fn with_command(bench: &Bench, trial: &str, script: &str) -> Option<Keeper> {
    if bench.needs_namespaces(trial) {
        return None;
    }
    let place = bench.folder.path();
    let found = rustix::fs::statvfs(place).expect("statvfs");
    let probe = std::fs::File::create(place.join("probe")).expect("a file");
    let can = rustix::fs::fallocate(&probe, rustix::fs::FallocateFlags::empty(), 0, 1 << 20);
    std::fs::remove_file(place.join("probe")).expect("removed");
    if found.f_bavail * found.f_frsize < WANTED || can.is_err() {
        println!("{trial}: skipped, there is no room for it");
        return None;
    }
    let mut spec = bench.spec("d");
    spec.command = Some(shell(script));
    Some(bench.running(&spec))
}

fn runs_out(bench: &Bench, trial: &str, script: &str) {
    let Some(keeper) = with_command(bench, trial, script) else {
        return;
    };
    let mut end = None;
    until("its end", || {
        end = bench.last_end(keeper.id);
        end.is_some()
    });
    let end = end.expect("just seen");
    assert_eq!(
        (end.reason, end.killed),
        (EndReason::OutOfDisk, true),
        "{end:?}"
    );
    let log = std::fs::read_to_string(bench.home.sandbox(keeper.id).keeper_log()).expect("a log");
    assert!(log.contains("more than the 8 GiB that they may"), "{log}");
    keeper.gone();
}

fn the_disk_runs_out(bench: &Bench) {
    let script = "fallocate -l 9G $PLACE/much; sleep 60";
    runs_out(bench, "the_disk_runs_out", script);
}

fn removed_files_count_while_open(bench: &Bench) {
    let script = "exec 7>$PLACE/much; rm $PLACE/much; fallocate -l 9G /proc/self/fd/7; sleep 60";
    runs_out(bench, "removed_files_count_while_open", script);
}

/// The control: less than the limit is fine.
fn what_fits_is_left_alone(bench: &Bench) {
    let script = "fallocate -l 7G $PLACE/much; sleep 60";
    let Some(keeper) = with_command(bench, "what_fits_is_left_alone", script) else {
        return;
    };
    // Longer than it takes to look and to count.
    std::thread::sleep(Duration::from_secs(5));
    assert!(matches!(bench.status(keeper.id), SandboxStatus::Running));
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn an_idle_guest_wakes_nobody(bench: &Bench) {
    if bench.needs_namespaces("an_idle_guest_wakes_nobody") {
        return;
    }
    let keeper = bench.running(&bench.spec("i"));
    // An operation begins and ends: it looks once more, and then not.
    drop(bench.send(keeper.id, Request::Hold));
    std::thread::sleep(Duration::from_secs(4));
    let before = switches(&keeper);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(switches(&keeper), before, "it slept");
    // The control: what asks it something wakes it.
    let Reply::Status(_) = bench.call(keeper.id, Request::Status) else {
        panic!("no status");
    };
    until("it to sleep again", || switches(&keeper) > before);
    bench.stop(keeper.id, 0);
    keeper.gone();
}

/// How often the keeper has gone to sleep.
fn switches(keeper: &Keeper) -> u64 {
    let status = std::fs::read_to_string(format!(
        "/proc/{}/status",
        keeper.process.pid.as_raw_nonzero()
    ))
    .expect("the keeper is there");
    status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .and_then(|count| count.trim().parse().ok())
        .expect("a number")
}
