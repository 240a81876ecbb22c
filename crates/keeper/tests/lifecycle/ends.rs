//! All the ways in which a sandbox can end.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cosm_base::ErrorKind;
use cosm_proto::agent::ExitStatus;
use cosm_proto::keeper::{EndReason, EndReport, Reply, Request, Task};
use cosm_spec::{Lifetime, SandboxSpec};
use cosm_state::SandboxStatus;

use crate::Trial;
use crate::bench::{Bench, HELPER, id, read, run_id, shell, start_keeper, stop, until};

pub(crate) const TRIALS: &[Trial] = &[
    ("the_main_command_is_its_life", the_main_command_is_its_life),
    ("term_is_heard", term_is_heard),
    ("ignored_term_is_killed", ignored_term_is_killed),
    ("stop_without_kill_gives_up", stop_without_kill_gives_up),
    ("the_stop_signal_is_the_specs", the_stop_signal_is_the_specs),
    ("kill_works_while_others_wait", kill_works_while_others_wait),
    ("drain_finishes_what_runs", drain_finishes_what_runs),
    (
        "idle_time_counts_only_idleness",
        idle_time_counts_only_idleness,
    ),
    ("max_duration_ends", max_duration_ends),
    ("the_lease_ends_it", the_lease_ends_it),
    (
        "detached_it_outlives_the_lease",
        detached_it_outlives_the_lease,
    ),
    (
        "a_forked_child_does_not_keep_it",
        a_forked_child_does_not_keep_it,
    ),
    ("replaced_is_told", replaced_is_told),
    ("a_dead_guest_is_noticed", a_dead_guest_is_noticed),
    ("pause_and_resume", pause_and_resume),
    ("memory_runs_out", memory_runs_out),
    ("usage_is_counted", usage_is_counted),
];

/// Starts it with this main command.
fn with_command(bench: &Bench, script: &str) -> crate::bench::Keeper {
    let mut spec = bench.spec("m");
    spec.command = Some(shell(script));
    bench.running(&spec)
}

fn ended(bench: &Bench, id: cosm_base::SandboxId) -> EndReport {
    let mut end = None;
    until("its end", || {
        end = bench.last_end(id);
        end.is_some()
    });
    end.expect("set above")
}

fn the_main_command_is_its_life(bench: &Bench) {
    for (script, status) in [
        ("exit 7", ExitStatus::Code(7)),
        ("sleep 0.3; kill -USR1 $$", ExitStatus::Signal(10)),
    ] {
        let keeper = with_command(bench, script);
        let end = ended(bench, keeper.id);
        assert_eq!(
            (end.reason, end.status, end.killed),
            (EndReason::Exited, Some(status), false)
        );
        let id = keeper.id;
        keeper.gone();
        bench.short(id, Task::Remove).expect("removed");
    }
}

fn term_is_heard(bench: &Bench) {
    let script = "trap 'echo bye >$PLACE/bye; exit 3' TERM; while :; do sleep 0.05; done";
    let keeper = with_command(bench, script);
    let begun = Instant::now();
    let end = bench.stop(keeper.id, 5000);
    assert_eq!(
        (end.reason, end.status, end.killed),
        (EndReason::Stopped, Some(ExitStatus::Code(3)), false)
    );
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    keeper.gone();
    // Also what is not the main command.
    let keeper = bench.running(&bench.spec("t"));
    bench.job(
        keeper.id,
        None,
        "trap 'exit 4' TERM; while :; do sleep 0.05; done",
    );
    let mut wait = bench.send(keeper.id, Request::WaitJob { job: "1".into() });
    let end = bench.stop(keeper.id, 5000);
    assert!(!end.killed);
    match read::<Reply>(&mut wait) {
        Some(Reply::Job(job)) => {
            assert_eq!(job.exit.expect("its end").status, ExitStatus::Code(4));
        }
        other => panic!("{other:?}"),
    }
    keeper.gone();
}

fn ignored_term_is_killed(bench: &Bench) {
    let keeper = with_command(bench, "trap '' TERM; while :; do sleep 0.05; done");
    let begun = Instant::now();
    let end = bench.stop(keeper.id, 400);
    let took = begun.elapsed();
    assert_eq!((end.reason, end.killed), (EndReason::Stopped, true));
    assert!(
        took >= Duration::from_millis(400) && took < Duration::from_secs(3),
        "{took:?}"
    );
    keeper.gone();
}

fn stop_without_kill_gives_up(bench: &Bench) {
    let keeper = with_command(bench, "trap '' TERM; while :; do sleep 0.05; done");
    let request = Request::Stop {
        grace_ms: Some(200),
        kill: false,
        replaced: false,
    };
    assert_eq!(bench.call(keeper.id, request), Reply::TimedOut);
    assert_eq!(bench.status(keeper.id), SandboxStatus::Running);
    bench.hold(keeper.id);
    let end = bench.end(keeper.id, Request::Kill);
    assert_eq!((end.reason, end.killed), (EndReason::Killed, true));
    keeper.gone();
}

fn the_stop_signal_is_the_specs(bench: &Bench) {
    let mut spec = bench.spec("q");
    spec.command = Some(shell(
        "trap 'exit 5' INT; trap 'exit 6' TERM; while :; do sleep 0.05; done",
    ));
    spec.stop_signal = Some(2);
    let keeper = bench.running(&spec);
    std::thread::sleep(Duration::from_millis(200));
    let end = bench.stop(keeper.id, 5000);
    assert_eq!((end.status, end.killed), (Some(ExitStatus::Code(5)), false));
    keeper.gone();
}

fn kill_works_while_others_wait(bench: &Bench) {
    let keeper = with_command(bench, "trap '' TERM; while :; do sleep 0.05; done");
    let mut waiting = bench.send(keeper.id, Request::Wait);
    let mut stopping = bench.send(keeper.id, stop(60_000));
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    let end = bench.end(keeper.id, Request::Kill);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(end.killed);
    for stream in [&mut waiting, &mut stopping] {
        assert_eq!(read(stream), Some(Reply::Ended(end.clone())));
    }
    keeper.gone();
}

fn drain_finishes_what_runs(bench: &Bench) {
    let keeper = bench.running(&bench.spec("d"));
    let hold = bench.hold(keeper.id);
    bench.job(keeper.id, Some("slow"), "sleep 0.4; echo done >$PLACE/done");
    let mut draining = bench.send(keeper.id, Request::Drain);
    until("draining", || {
        bench.status(keeper.id) == SandboxStatus::Draining
    });
    let Reply::Refused(refused) = bench.call(keeper.id, Request::Hold) else {
        panic!("it took a hold");
    };
    assert_eq!(refused.kind, ErrorKind::WrongState);
    assert_eq!(bench.job_end(keeper.id, "slow").status, ExitStatus::Code(0));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(bench.status(keeper.id), SandboxStatus::Draining);
    drop(hold);
    match read(&mut draining) {
        Some(Reply::Ended(end)) => {
            assert_eq!((end.reason, end.killed), (EndReason::Drained, false));
        }
        other => panic!("{other:?}"),
    }
    keeper.gone();
}

fn idle_time_counts_only_idleness(bench: &Bench) {
    let mut spec = bench.spec("i");
    spec.timeouts.idle = Some(Duration::from_millis(400));
    let keeper = bench.running(&spec);
    let hold = bench.hold(keeper.id);
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(bench.status(keeper.id), SandboxStatus::Running);
    drop(hold);
    bench.job(keeper.id, None, "sleep 0.9");
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(bench.status(keeper.id), SandboxStatus::Running);
    let begun = Instant::now();
    let end = ended(bench, keeper.id);
    assert_eq!((end.reason, end.killed), (EndReason::Idle, false));
    assert!(begun.elapsed() < Duration::from_secs(3));
    keeper.gone();
}

fn max_duration_ends(bench: &Bench) {
    let mut spec = bench.spec("x");
    spec.timeouts.max_duration = Some(Duration::from_millis(500));
    spec.timeouts.stop = Duration::from_millis(300);
    spec.command = Some(shell("trap '' TERM; while :; do sleep 0.05; done"));
    let keeper = bench.running(&spec);
    let end = bench.end(keeper.id, Request::Wait);
    assert_eq!((end.reason, end.killed), (EndReason::MaxDuration, true));
    keeper.gone();
}

fn leased(bench: &Bench, name: &str, remove_on_exit: bool) -> SandboxSpec {
    SandboxSpec {
        lifetime: Lifetime::Leased,
        remove_on_exit,
        ..bench.spec(name)
    }
}

fn the_lease_ends_it(bench: &Bench) {
    let mut keeper = bench.running(&leased(bench, "l", false));
    let mut waiting = bench.send(keeper.id, Request::Wait);
    let begun = Instant::now();
    drop(keeper.lease.take());
    match read(&mut waiting) {
        Some(Reply::Ended(end)) => assert_eq!(end.reason, EndReason::LeaseEnded),
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
    keeper.gone();
    let mut keeper = bench.running(&leased(bench, "k", true));
    drop(keeper.lease.take());
    keeper.gone();
    assert!(bench.reader().find("k").expect("find").is_none());
    // A lease that is not its parent's is none.
    let task = Task::Create {
        spec: leased(bench, "p", true).to_stored(),
        run: run_id(),
        lease: Some(1),
        start: true,
        hold: false,
    };
    let mut keeper = bench.keeper(id(), task, true);
    assert_eq!(
        keeper.result().expect_err("refused").kind,
        ErrorKind::Cancelled
    );
    keeper.gone();
}

fn detached_it_outlives_the_lease(bench: &Bench) {
    let mut keeper = bench.running(&leased(bench, "o", false));
    assert_eq!(bench.call(keeper.id, Request::Detach), Reply::Ok);
    assert_eq!(bench.call(keeper.id, Request::Detach), Reply::Ok);
    drop(keeper.lease.take());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(bench.status(keeper.id), SandboxStatus::Running);
    let row = bench
        .reader()
        .by_id(keeper.id)
        .expect("find")
        .expect("a row");
    let stored = SandboxSpec::from_stored(&row.spec).expect("a spec");
    assert_eq!(stored.lifetime, Lifetime::Persistent);
    bench.stop(keeper.id, 500);
    keeper.gone();
}

/// A creator in another process, with a child that inherits everything and lives on.
pub(crate) fn helper(mut args: impl Iterator<Item = String>) -> ExitCode {
    let (folder, fake) = (args.next().expect("a folder"), args.next().is_some());
    let (home, runtime) = Bench::at(&folder);
    let spec = SandboxSpec {
        name: Some("h".parse().expect("a name")),
        ..SandboxSpec::default()
    };
    let task = Task::Create {
        spec: spec.to_stored(),
        run: run_id(),
        lease: Some(std::process::id() as i32),
        start: true,
        hold: false,
    };
    let mut keeper = start_keeper(&home, &runtime, id(), task, true, fake);
    keeper.result().expect("it starts");
    let child = cosm_sys::process::fork(&<_>::default(), || {
        std::thread::sleep(Duration::from_secs(30));
        0
    })
    .expect("fork");
    let mut out = std::io::stdout();
    writeln!(out, "{} {}", keeper.id, child.pid().as_raw_nonzero()).expect("told");
    out.flush().expect("told");
    std::thread::sleep(Duration::from_secs(30));
    ExitCode::SUCCESS
}

fn a_forked_child_does_not_keep_it(bench: &Bench) {
    use std::io::BufRead as _;
    let mut creator = std::process::Command::new(std::env::current_exe().expect("this program"))
        .arg(HELPER)
        .arg(bench.folder())
        .args(bench.fake.then_some("fake"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut line = String::new();
    std::io::BufReader::new(creator.stdout.take().expect("stdout"))
        .read_line(&mut line)
        .expect("a line");
    let (sandbox, child) = line.trim().split_once(' ').expect("two words");
    let sandbox = sandbox.parse().expect("an id");
    let child = rustix::process::Pid::from_raw(child.parse().expect("a pid")).expect("a pid");
    let child = cosm_sys::process::pidfd_open(child).expect("the child lives");
    assert_eq!(bench.status(sandbox), SandboxStatus::Running);
    creator.kill().expect("killed");
    creator.wait().expect("reaped");
    let begun = Instant::now();
    let end = ended(bench, sandbox);
    assert_eq!(end.reason, EndReason::LeaseEnded);
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    // Control: the child really lived on.
    cosm_sys::process::pidfd_signal(child.as_fd(), rustix::process::Signal::KILL)
        .expect("the child still lives");
}

fn replaced_is_told(bench: &Bench) {
    let keeper = bench.running(&bench.spec("r"));
    let mut waiting = bench.send(keeper.id, Request::Wait);
    let request = Request::Stop {
        grace_ms: Some(0),
        kill: true,
        replaced: true,
    };
    assert_eq!(bench.end(keeper.id, request).reason, EndReason::Replaced);
    match read(&mut waiting) {
        Some(Reply::Ended(end)) => assert_eq!(end.reason, EndReason::Replaced),
        other => panic!("{other:?}"),
    }
    keeper.gone();
}

fn a_dead_guest_is_noticed(bench: &Bench) {
    let keeper = bench.running(&bench.spec("g"));
    let mut waiting = bench.send(keeper.id, Request::Wait);
    let record = cosm_state::read_run(&bench.home.sandbox(keeper.id)).expect("reads");
    let record = record.expect("a record");
    let record: cosm_driver::RunRecord = serde_json::from_slice(&record).expect("a record");
    let pid = record.init.expect("process 1").pid;
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    match read(&mut waiting) {
        Some(Reply::Ended(end)) => assert_eq!(
            (end.reason, end.status),
            (EndReason::GuestDied, Some(ExitStatus::Signal(9)))
        ),
        other => panic!("{other:?}"),
    }
    keeper.gone();
}

/// A sandbox in a cgroup of its own, or why there is none here.
fn bounded(
    bench: &Bench,
    trial: &str,
    change: impl FnOnce(&mut SandboxSpec),
) -> Option<crate::bench::Keeper> {
    if bench.needs_namespaces(trial) {
        return None;
    }
    let mut spec = bench.spec("z");
    spec.resources.memory = cosm_spec::Limit::At(cosm_base::units::ByteSize::mib(64));
    change(&mut spec);
    match bench.create(&spec) {
        (keeper, Ok(_)) => Some(keeper),
        (keeper, Err(failure)) if failure.kind == ErrorKind::Unsupported => {
            println!("{trial}: skipped, {}", failure.message);
            keeper.gone();
            None
        }
        (_, Err(failure)) => panic!("{failure:?}"),
    }
}

fn memory_runs_out(bench: &Bench) {
    let hog = |spec: &mut SandboxSpec| {
        spec.command = Some(shell(
            "x=$(head -c 300000000 /dev/zero | tr '\\0' x); sleep 1",
        ));
    };
    let Some(keeper) = bounded(bench, "memory_runs_out", hog) else {
        return;
    };
    let end = ended(bench, keeper.id);
    assert_eq!(
        (end.reason, end.killed),
        (EndReason::OutOfMemory, false),
        "{end:?}"
    );
    assert!(
        end.usage.peak_memory.is_some_and(|peak| peak >= 32 << 20),
        "{end:?}"
    );
    keeper.gone();
}

fn usage_is_counted(bench: &Bench) {
    let Some(keeper) = bounded(bench, "usage_is_counted", |_| ()) else {
        return;
    };
    let Reply::Usage(usage) = bench.call(keeper.id, Request::Usage) else {
        panic!("no usage");
    };
    assert_eq!(usage.memory_limit, Some(64 << 20), "{usage:?}");
    assert!(usage.memory.is_some_and(|memory| memory > 0), "{usage:?}");
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn pause_and_resume(bench: &Bench) {
    let keeper = match bench.fake {
        true => Some(bench.running(&bench.spec("z"))),
        false => bounded(bench, "pause_and_resume", |_| ()),
    };
    let Some(keeper) = keeper else { return };
    match bench.call(keeper.id, Request::Freeze(true)) {
        Reply::Ok => {}
        Reply::Refused(refused) if refused.kind == ErrorKind::Unsupported => {
            println!("pause_and_resume: skipped, {}", refused.message);
            bench.stop(keeper.id, 0);
            return keeper.gone();
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.status(keeper.id), SandboxStatus::Paused);
    assert!(matches!(
        bench.call(keeper.id, Request::Hold),
        Reply::Refused(_)
    ));
    assert_eq!(bench.call(keeper.id, Request::Freeze(false)), Reply::Ok);
    assert_eq!(bench.status(keeper.id), SandboxStatus::Running);
    bench.job(keeper.id, Some("j"), "exit 0");
    bench.job_end(keeper.id, "j");
    assert_eq!(bench.call(keeper.id, Request::Freeze(true)), Reply::Ok);
    let begun = Instant::now();
    let end = bench.stop(keeper.id, 3000);
    assert!(begun.elapsed() < Duration::from_secs(2), "{end:?}");
    keeper.gone();
}
