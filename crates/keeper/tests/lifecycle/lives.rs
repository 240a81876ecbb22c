//! Creating, starting, stopping, removing.

use std::time::{Duration, Instant};

use cosm_base::ErrorKind;
use cosm_proto::agent::ExitStatus;
use cosm_proto::keeper::{EndReason, Reply, Request, Task};
use cosm_spec::{Lifetime, SandboxSpec};
use cosm_state::{Filter, Page, SandboxStatus};

use crate::Trial;
use crate::bench::{Bench, id, run_id, shell};

pub(crate) const TRIALS: &[Trial] = &[
    ("a_life", a_life),
    ("an_ephemeral_life", an_ephemeral_life),
    ("a_name_is_taken_once", a_name_is_taken_once),
    ("two_starts_start_one", two_starts_start_one),
    ("created_and_not_started", created_and_not_started),
    ("failed_boots_leave_nothing", failed_boots_leave_nothing),
    (
        "a_failed_start_changes_nothing",
        a_failed_start_changes_nothing,
    ),
    ("scripts_are_there", scripts_are_there),
    ("labels_select", labels_select),
    ("root_ranges_differ", root_ranges_differ),
];

fn a_life(bench: &Bench) {
    let keeper = bench.running(&bench.spec("a"));
    assert_eq!(bench.status(keeper.id), SandboxStatus::Running);
    let Reply::Status(status) = bench.call(keeper.id, Request::Status) else {
        panic!("no status");
    };
    assert_eq!(
        (status.state.as_str(), status.holds, status.jobs),
        ("running", 0, 0)
    );
    bench.job(keeper.id, Some("w"), "echo kept >$PLACE/file");
    assert_eq!(bench.job_end(keeper.id, "w").status, ExitStatus::Code(0));
    let end = bench.stop(keeper.id, 3000);
    assert_eq!((end.reason, end.killed), (EndReason::Stopped, false));
    // As soon as the answer is there, all is.
    assert_eq!(bench.last_end(keeper.id), Some(end));
    let (again, started) = bench.start(keeper.id);
    started.expect("it starts again");
    bench.job(keeper.id, Some("r"), "test $(cat $PLACE/file) = kept");
    assert_eq!(bench.job_end(keeper.id, "r").status, ExitStatus::Code(0));
    let end = bench.end(keeper.id, Request::Kill);
    assert_eq!((end.reason, end.killed), (EndReason::Killed, true));
    let runs = bench.reader().runs(keeper.id, 10).expect("history");
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run.end.is_some()));
    let id = keeper.id;
    keeper.gone();
    again.gone();
    bench.short(id, Task::Remove).expect("removed");
    bench.assert_empty();
    let failure = bench.short(id, Task::Remove).expect_err("it is gone");
    assert_eq!(failure.kind, ErrorKind::NotFound);
}

fn an_ephemeral_life(bench: &Bench) {
    let spec = SandboxSpec {
        remove_on_exit: true,
        lifetime: Lifetime::Leased,
        ..bench.spec("e")
    };
    let keeper = bench.running(&spec);
    assert_eq!(bench.status(keeper.id), SandboxStatus::Running);
    let begun = Instant::now();
    let end = bench.stop(keeper.id, 0);
    assert!(begun.elapsed() < Duration::from_millis(500));
    assert_eq!(end.reason, EndReason::Stopped);
    bench.assert_empty();
    keeper.gone();
    // One that nobody named is listed as well while it is there.
    let id = id();
    let mut unnamed = spec;
    unnamed.name = Some(id.to_string().parse().expect("an id is a name"));
    let task = Task::Create {
        spec: unnamed.to_stored(),
        run: run_id(),
        lease: Some(std::process::id() as i32),
        start: true,
        hold: false,
    };
    let mut keeper = bench.keeper(id, task, true);
    keeper.result().expect("it starts");
    let listed = bench.reader().list(&Filter::default(), Page::default());
    assert_eq!(
        listed
            .expect("list")
            .iter()
            .map(|row| row.id)
            .collect::<Vec<_>>(),
        [id]
    );
    assert_eq!(bench.status(id), SandboxStatus::Running);
    bench.stop(id, 0);
    bench.assert_empty();
    keeper.gone();
}

fn a_name_is_taken_once(bench: &Bench) {
    let first = bench.running(&bench.spec("n"));
    let (second, result) = bench.create(&bench.spec("n"));
    let failure = result.expect_err("the name is taken");
    assert_eq!(failure.kind, ErrorKind::AlreadyExists);
    assert!(
        failure.message.contains("already exists"),
        "{}",
        failure.message
    );
    second.gone();
    // Many at once: one wins.
    let tasks = |name: &str| Task::Create {
        spec: bench.spec(name).to_stored(),
        run: run_id(),
        lease: None,
        start: true,
        hold: false,
    };
    let mut keepers: Vec<_> = (0..8)
        .map(|_| bench.keeper(id(), tasks("m"), false))
        .collect();
    let results: Vec<_> = keepers.iter_mut().map(|k| (k.id, k.result())).collect();
    let winners: Vec<_> = results.iter().filter(|(_, r)| r.is_ok()).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    assert!(
        results
            .iter()
            .filter_map(|(_, r)| r.as_ref().err())
            .all(|f| f.kind == ErrorKind::AlreadyExists)
    );
    bench.end(winners[0].0, Request::Kill);
    bench.end(first.id, Request::Kill);
    first.gone();
    keepers.into_iter().for_each(|k| k.gone());
    // The losers left nothing: two sandboxes, two folders.
    let folders = std::fs::read_dir(bench.home.sandboxes()).expect("folders");
    assert_eq!(folders.count(), 2);
}

fn two_starts_start_one(bench: &Bench) {
    let keeper = bench.running(&bench.spec("s"));
    let (loser, result) = bench.start(keeper.id);
    assert_eq!(result.expect_err("it runs").kind, ErrorKind::WrongState);
    loser.gone();
    let removed = bench.short(keeper.id, Task::Remove);
    assert_eq!(removed.expect_err("it runs").kind, ErrorKind::WrongState);
    bench.stop(keeper.id, 1000);
    let sandbox = keeper.id;
    keeper.gone();
    let task = || Task::Start {
        run: run_id(),
        lease: None,
    };
    let mut keepers: Vec<_> = (0..8)
        .map(|_| bench.keeper(sandbox, task(), false))
        .collect();
    let results: Vec<_> = keepers.iter_mut().map(|k| k.result()).collect();
    assert_eq!(
        results.iter().filter(|r| r.is_ok()).count(),
        1,
        "{results:?}"
    );
    assert!(
        results
            .iter()
            .filter_map(|r| r.as_ref().err())
            .all(|f| f.kind == ErrorKind::WrongState)
    );
    assert_eq!(bench.status(sandbox), SandboxStatus::Running);
    bench.end(sandbox, Request::Kill);
    keepers.into_iter().for_each(|k| k.gone());
}

fn created_and_not_started(bench: &Bench) {
    let task = Task::Create {
        spec: bench.spec("c").to_stored(),
        run: run_id(),
        lease: None,
        start: false,
        hold: false,
    };
    let id = id();
    bench.short(id, task).expect("made");
    assert_eq!(bench.status(id), SandboxStatus::Created);
    assert_eq!(bench.reader().leftovers().expect("leftovers"), []);
    let (keeper, started) = bench.start(id);
    started.expect("it starts");
    bench.stop(id, 1000);
    keeper.gone();
}

fn failed_boots_leave_nothing(bench: &Bench) {
    let no_workdir = SandboxSpec {
        workdir: Some("/no/such".into()),
        ..bench.spec("f")
    };
    let no_command = SandboxSpec {
        command: Some(vec!["/no/such/program".into()]),
        ..bench.spec("f")
    };
    let no_folder = SandboxSpec {
        image: cosm_spec::ImageSource::Folder("/no/such/rootfs".into()),
        ..bench.spec("f")
    };
    for (spec, kind, phase, word) in [
        (
            no_workdir,
            ErrorKind::InvalidInput,
            "working directory",
            "/no/such does not exist",
        ),
        (
            no_command,
            ErrorKind::SpawnFailed,
            "main command",
            "/no/such/program",
        ),
        (
            no_folder,
            ErrorKind::InvalidInput,
            "prepare",
            "/no/such/rootfs",
        ),
    ] {
        // What is not isolated has no root file system.
        if bench.fake && word.ends_with("rootfs") {
            continue;
        }
        let (keeper, result) = bench.create(&spec);
        let failure = result.expect_err("it can't start");
        assert_eq!(failure.kind, kind, "{failure:?}");
        assert_eq!(failure.phase.as_deref(), Some(phase), "{failure:?}");
        assert!(failure.message.contains(word), "{failure:?}");
        assert!(failure.log_tail.is_empty(), "{failure:?}");
        bench.assert_empty();
        keeper.gone();
    }
}

/// The sandbox is as it was, and knows why.
fn a_failed_start_changes_nothing(bench: &Bench) {
    if bench.needs_namespaces("a_failed_start_changes_nothing") {
        return;
    }
    let folder = bench.folder().join("rootfs");
    std::fs::create_dir(&folder).expect("a folder");
    let mut spec = bench.spec("g");
    // It must still run when it is killed: the end of the main command is the sandbox's.
    spec.command = Some(shell("sleep 1000"));
    spec.mounts = vec![cosm_spec::Mount {
        target: "/mnt/x".into(),
        source: cosm_spec::MountSource::Bind(folder.as_os_str().as_encoded_bytes().to_vec().into()),
        read_only: true,
    }];
    let keeper = bench.running(&spec);
    bench.end(keeper.id, Request::Kill);
    std::fs::remove_dir(&folder).expect("removed");
    let (again, result) = bench.start(keeper.id);
    result.expect_err("its mount is gone");
    again.gone();
    let (status, record) = bench.reader().details(keeper.id).expect("details");
    assert_eq!(status, SandboxStatus::Stopped);
    assert!(record.expect("a record").failure.is_some());
    keeper.gone();
}

fn scripts_are_there(bench: &Bench) {
    let mut spec = bench.spec("p");
    spec.scripts
        .insert("hello".into(), "echo hello $1 >$PLACE/out".into());
    spec.command = Some(vec!["hello".into(), "you".into()]);
    let keeper = bench.create(&spec).0;
    // The main command's end is the sandbox's.
    crate::bench::until("its end", || {
        bench.last_end(keeper.id).is_some_and(|end| {
            end.reason == EndReason::Exited && end.status == Some(ExitStatus::Code(0))
        })
    });
    keeper.gone();
}

fn labels_select(bench: &Bench) {
    let make = |name: &str, labels: &[(&str, &str)]| {
        let mut spec = bench.spec(name);
        for (key, value) in labels {
            spec.labels.insert((*key).to_owned(), (*value).to_owned());
        }
        let task = Task::Create {
            spec: spec.to_stored(),
            run: run_id(),
            lease: None,
            start: false,
            hold: false,
        };
        bench.short(id(), task).expect("made");
    };
    make(
        "one",
        &[
            ("team", "a"),
            ("odd'--", "%\u{1b}[2J\"; DROP TABLE sandbox"),
        ],
    );
    make("two", &[("team", "b")]);
    make("three", &[("team", "a")]);
    let names = |labels: &[(&str, Option<&str>)]| {
        let filter = Filter {
            labels: labels
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned)))
                .collect(),
        };
        let rows = bench.reader().list(&filter, Page::default()).expect("list");
        rows.into_iter()
            .map(|row| row.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["three", "two", "one"]);
    assert_eq!(names(&[("team", Some("a"))]), ["three", "one"]);
    assert_eq!(names(&[("team", Some("a")), ("odd'--", None)]), ["one"]);
    assert_eq!(names(&[("team", Some("%"))]), [] as [&str; 0]);
    let page = Page {
        before: None,
        limit: 2,
    };
    let first = bench.reader().list(&Filter::default(), page).expect("list");
    let page = Page {
        before: first.last().map(|row| row.seq),
        limit: 2,
    };
    let second = bench.reader().list(&Filter::default(), page).expect("list");
    assert_eq!((first.len(), second.len()), (2, 1));
}

fn root_ranges_differ(bench: &Bench) {
    let rows = |bench: &Bench| {
        bench
            .reader()
            .list(&Filter::default(), Page::default())
            .expect("list")
    };
    for name in ["r1", "r2"] {
        let task = Task::Create {
            spec: bench.spec(name).to_stored(),
            run: run_id(),
            lease: None,
            start: false,
            hold: false,
        };
        bench.short(id(), task).expect("made");
    }
    let slots: Vec<_> = rows(bench).iter().map(|row| row.id_slot).collect();
    if !rustix::process::geteuid().is_root() {
        assert_eq!(slots, [None, None]);
        return;
    }
    assert!(slots[0].is_some() && slots[1].is_some() && slots[0] != slots[1]);
    let gone = rows(bench)[0].id;
    bench.short(gone, Task::Remove).expect("removed");
    let task = Task::Create {
        spec: bench.spec("r3").to_stored(),
        run: run_id(),
        lease: None,
        start: false,
        hold: false,
    };
    bench.short(id(), task).expect("made");
    assert_eq!(
        rows(bench)[0].id_slot,
        slots[0],
        "a released range is used again"
    );
}
