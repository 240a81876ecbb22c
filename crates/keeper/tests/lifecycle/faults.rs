//! What breaks: keepers that are killed, callers that lie, state that is not what it was.

use std::io::Write as _;
use std::time::Duration;

use cosm_base::ErrorKind;
use cosm_proto::keeper::{Call, EndReason, Reply, Request, Task, VERSION};
use cosm_spec::{Lifetime, SandboxSpec};
use cosm_state::SandboxStatus;

use crate::Trial;
use crate::bench::{Bench, id, read, run_id, shell, write};

pub(crate) const TRIALS: &[Trial] = &[
    (
        "a_killed_keeper_reads_as_crashed",
        a_killed_keeper_reads_as_crashed,
    ),
    ("a_killed_ephemeral_is_swept", a_killed_ephemeral_is_swept),
    (
        "a_keeper_killed_anywhere_leaves_nothing",
        a_keeper_killed_anywhere_leaves_nothing,
    ),
    (
        "garbage_on_the_control_socket",
        garbage_on_the_control_socket,
    ),
    ("many_calls_at_once", many_calls_at_once),
    ("a_newer_catalogue_is_refused", a_newer_catalogue_is_refused),
    (
        "a_damaged_catalogue_is_refused",
        a_damaged_catalogue_is_refused,
    ),
    ("a_log_is_read_after_a_crash", a_log_is_read_after_a_crash),
];

fn a_killed_keeper_reads_as_crashed(bench: &Bench) {
    if bench.needs_namespaces("a_killed_keeper_reads_as_crashed") {
        return;
    }
    let keeper = bench.running(&bench.spec("c"));
    bench.job(keeper.id, Some("j"), "sleep 100");
    keeper.kill();
    let id = keeper.id;
    keeper.gone();
    assert_eq!(bench.status(id), SandboxStatus::Crashed);
    assert_eq!(bench.reader().leftovers().expect("leftovers"), [id]);
    bench.short(id, Task::Reap).expect("reaped");
    // It is cleaned up, and it is still said what happened.
    assert_eq!(bench.status(id), SandboxStatus::Crashed);
    assert_eq!(bench.reader().leftovers().expect("leftovers"), []);
    let runs = bench.reader().runs(id, 1).expect("history");
    assert_eq!(
        runs[0].end.as_ref().expect("its end").reason,
        EndReason::KeeperLost
    );
    // It can be started again, also without having been reaped.
    for _ in 0..2 {
        let (keeper, started) = bench.start(id);
        started.expect("it starts");
        assert_eq!(bench.status(id), SandboxStatus::Running);
        keeper.kill();
        keeper.gone();
    }
}

fn a_killed_ephemeral_is_swept(bench: &Bench) {
    let spec = SandboxSpec {
        lifetime: Lifetime::Leased,
        remove_on_exit: true,
        ..bench.spec("e")
    };
    let keeper = bench.running(&spec);
    keeper.kill();
    let id = keeper.id;
    keeper.gone();
    assert_eq!(bench.reader().leftovers().expect("leftovers"), [id]);
    bench.short(id, Task::Reap).expect("reaped");
    bench.assert_empty();
}

/// Kills keepers at all moments of a start and of an end.
fn a_keeper_killed_anywhere_leaves_nothing(bench: &Bench) {
    if bench.needs_namespaces("a_keeper_killed_anywhere_leaves_nothing") {
        return;
    }
    let rounds: u64 = std::env::var("COSM_TEST_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(60);
    let bystander = bench.running(&bench.spec("bystander"));
    for round in 0..rounds {
        let ephemeral = round % 2 == 0;
        let victim = id();
        let mut spec = SandboxSpec {
            remove_on_exit: ephemeral,
            lifetime: if ephemeral {
                Lifetime::Leased
            } else {
                Lifetime::Persistent
            },
            ..bench.spec("victim")
        };
        if round % 3 == 0 {
            spec.command = Some(shell("while :; do sleep 0.01; done"));
        }
        if round % 6 < 2 {
            // Nobody gave it a name, so that an ephemeral one leaves the catalogue alone.
            spec.name = Some(victim.to_string().parse().expect("an id is a name"));
        }
        let task = Task::Create {
            spec: spec.to_stored(),
            run: run_id(),
            lease: ephemeral.then(|| std::process::id() as i32),
            start: true,
            hold: false,
        };
        let mut keeper = bench.keeper(victim, task, ephemeral);
        let late = round % 4 == 3;
        if late {
            keeper.result().expect("it starts");
            drop(bench.send(keeper.id, Request::Kill));
        }
        std::thread::sleep(Duration::from_micros(round * 700 % 25_000));
        keeper.kill();
        let id = keeper.id;
        keeper.gone();
        for leftover in bench.reader().leftovers().expect("leftovers") {
            assert_eq!(leftover, id);
            bench.short(id, Task::Reap).expect("reaped");
        }
        if bench.reader().by_id(id).expect("find").is_some() {
            assert!(!ephemeral, "round {round}: an ephemeral one is swept whole");
            bench.short(id, Task::Remove).expect("removed");
        }
        assert!(!bench.home.sandbox(id).path().exists(), "round {round}");
        assert!(!bench.runtime.agent(id).exists(), "round {round}");
        assert!(!bench.runtime.control(id).exists(), "round {round}");
        assert_eq!(bench.status(bystander.id), SandboxStatus::Running);
    }
    bench.stop(bystander.id, 0);
    bystander.gone();
}

fn garbage_on_the_control_socket(bench: &Bench) {
    let keeper = bench.running(&bench.spec("g"));
    let mut silent = Vec::new();
    for garbage in [
        &[0xff; 100][..],
        &[0, 0, 0, 0, 0],
        &[1, 0, 0, 0, 9, 9],
        &[5, 0, 0, 0, 0, 1, 2, 3, 4, 5],
        &[0xff, 0xff, 0x0f, 0, 0],
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = bench.connect(keeper.id);
        stream.write_all(garbage).expect("write");
        silent.push(stream);
    }
    let mut newer = bench.connect(keeper.id);
    let call = Call {
        version: VERSION + 1,
        request: Request::Status,
    };
    write(&mut newer, &call);
    match read(&mut newer) {
        Some(Reply::Refused(failure)) => assert_eq!(failure.kind, ErrorKind::Protocol),
        other => panic!("{other:?}"),
    }
    // A hold that talks on is still one hold.
    let mut hold = bench.hold(keeper.id);
    hold.write_all(&[0xff; 5000]).expect("write");
    let Reply::Status(status) = bench.call(keeper.id, Request::Status) else {
        panic!("no status");
    };
    assert_eq!((status.state.as_str(), status.holds), ("running", 1));
    drop(silent);
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn many_calls_at_once(bench: &Bench) {
    let keeper = bench.running(&bench.spec("m"));
    let mut holds: Vec<_> = (0..500)
        .map(|_| bench.send(keeper.id, Request::Hold))
        .collect();
    for hold in &mut holds {
        assert_eq!(read::<Reply>(hold), Some(Reply::Held));
    }
    let Reply::Status(status) = bench.call(keeper.id, Request::Status) else {
        panic!("no status");
    };
    assert_eq!(status.holds, 500);
    drop(holds);
    crate::bench::until(
        "all are dropped",
        || matches!(bench.call(keeper.id, Request::Status), Reply::Status(s) if s.holds == 0),
    );
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn create_stopped(bench: &Bench, name: &str) -> Result<(), cosm_proto::keeper::Failure> {
    let task = Task::Create {
        spec: bench.spec(name).to_stored(),
        run: run_id(),
        lease: None,
        start: false,
        hold: false,
    };
    bench.short(id(), task).map(drop)
}

fn a_newer_catalogue_is_refused(bench: &Bench) {
    create_stopped(bench, "old").expect("made");
    let version = |number: i64| {
        let db = rusqlite::Connection::open(bench.home.catalogue()).expect("open");
        db.pragma_update(None, "user_version", number).expect("set");
    };
    version(999);
    let failure = create_stopped(bench, "new").expect_err("it is newer");
    assert_eq!(failure.kind, ErrorKind::State);
    assert!(failure.message.contains("999"), "{}", failure.message);
    // Neither did it leave a folder.
    assert_eq!(
        std::fs::read_dir(bench.home.sandboxes())
            .expect("folders")
            .count(),
        1
    );
    version(1);
}

fn a_damaged_catalogue_is_refused(bench: &Bench) {
    cosm_state::prepare_home(&bench.home).expect("folders");
    std::fs::write(bench.home.catalogue(), [7; 8192]).expect("written");
    let failure = create_stopped(bench, "x").expect_err("it is damaged");
    assert_eq!(failure.kind, ErrorKind::State);
    assert!(failure.message.contains("damaged"), "{}", failure.message);
    assert_eq!(
        std::fs::read_dir(bench.home.sandboxes())
            .expect("folders")
            .count(),
        0
    );
    std::fs::remove_file(bench.home.catalogue()).expect("removed");
}

fn a_log_is_read_after_a_crash(bench: &Bench) {
    if bench.needs_namespaces("a_log_is_read_after_a_crash") {
        return;
    }
    use cosm_state::joblog::{LogReader, Since};
    let keeper = bench.running(&bench.spec("l"));
    bench.job(keeper.id, Some("p"), "while :; do echo line; done");
    let log = bench.home.sandbox(keeper.id).logs().join("p.log");
    crate::bench::until("some output", || {
        std::fs::metadata(&log).is_ok_and(|m| m.len() > 10_000)
    });
    keeper.kill();
    let id = keeper.id;
    keeper.gone();
    let mut reader = LogReader::open(&bench.home.sandbox(id), "p", Since::Start).expect("an id");
    let mut bytes = 0;
    while let Some(piece) = reader.next().expect("it can be read") {
        bytes += piece.bytes.len();
    }
    assert!(bytes > 5_000, "{bytes}");
    // The next run writes on behind what is whole.
    let (again, started) = bench.start(id);
    started.expect("it starts");
    bench.job(id, Some("p"), "echo last");
    bench.job_end(id, "p");
    bench.stop(id, 0);
    again.gone();
    let mut last = None;
    let mut reader = LogReader::open(&bench.home.sandbox(id), "p", Since::Start).expect("an id");
    while let Some(piece) = reader.next().expect("it can be read") {
        last = Some(piece.bytes);
    }
    assert_eq!(last.as_deref(), Some(&b"last\n"[..]));
}
