//! The keeper's messages, byte by byte. A keeper may be older or newer than who speaks to it, so that these never
//! change without a new `VERSION`.
//!
//! `keeper-2.golden` holds one line each: a name and the bytes. `COSM_BLESS=1` writes it anew.

use std::fmt::Write as _;

use cosm_base::{ErrorKind, RunId, SandboxId};
use cosm_proto::agent::{
    ExecOut, ExecStart, ExitReport, ExitStatus, SpawnFailure, SpawnReason, Stdio, Usage, WindowSize,
};
use cosm_proto::keeper::{
    Call, EndReason, EndReport, Event, Failure, GuestUsage, IdSlots, JobNotice, JobReport,
    JobStart, Plan, ReadyReport, Reply, Request, StatusReport, Task, VERSION,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

const GOLDEN: &str = include_str!("keeper-2.golden");

/// Collects what is compared.
#[derive(Default)]
struct Book {
    text: String,
}

impl Book {
    fn page<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
        &mut self,
        name: &str,
        value: &T,
    ) {
        let bytes = postcard::to_allocvec(value).expect("it can be written");
        let mut hex = String::new();
        for byte in &bytes {
            write!(hex, "{byte:02x}").expect("a string");
        }
        writeln!(self.text, "{name} {hex}").expect("a string");
        // What older programs wrote reads as it was meant.
        if let Some(line) = GOLDEN.lines().find(|l| l.split(' ').next() == Some(name)) {
            let hex = line.split(' ').nth(1).unwrap_or_default();
            let golden: Vec<u8> = (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex"))
                .collect();
            let read: T = cosm_proto::frame::parse(&golden).expect("it can be read");
            assert_eq!(&read, value, "{name}");
            for cut in 0..golden.len() {
                assert!(
                    cosm_proto::frame::parse::<T>(&golden[..cut]).is_err(),
                    "{name} cut at {cut}"
                );
            }
        }
    }
}

fn sandbox() -> SandboxId {
    "0123456789abc".parse().expect("an id")
}

fn run() -> RunId {
    "00000000000zz".parse().expect("an id")
}

fn exec() -> ExecStart {
    ExecStart {
        argv: vec![b"sh".to_vec(), b"\xff".to_vec()],
        env: vec![(b"A".to_vec(), b"1".to_vec())],
        cwd: Some(b"/".to_vec()),
        user: None,
        stdio: Stdio::Framed { stdin: true },
        rlimits: Vec::new(),
        timeout_ms: Some(1500),
        kill_leftovers: false,
        ends_guest: false,
    }
}

fn exit() -> ExitReport {
    ExitReport {
        status: ExitStatus::Code(3),
        timed_out: false,
        oom: true,
        leftovers: false,
        usage: Usage::default(),
    }
}

fn failure() -> Failure {
    Failure {
        kind: ErrorKind::BootFailed,
        phase: Some("rootfs".to_owned()),
        message: "no".to_owned(),
        hints: vec!["try".to_owned()],
        log_tail: b"tail".to_vec(),
        spawn: Some(Box::new(SpawnFailure {
            reason: SpawnReason::NotFound,
            errno: 2,
            subject: b"x".to_vec(),
        })),
    }
}

fn job() -> JobReport {
    JobReport {
        id: "main".to_owned(),
        argv: vec![b"a".to_vec()],
        pid: Some(7),
        tty: true,
        started_ms: 300,
        exit: Some(exit()),
        failed: Some(failure()),
    }
}

fn usage() -> GuestUsage {
    GuestUsage {
        cpu_us: Some(1),
        memory: Some(2),
        peak_memory: Some(3),
        memory_limit: None,
        pids: Some(4),
        pids_limit: Some(5),
        read_bytes: None,
        write_bytes: Some(300),
        oom_kills: Some(0),
    }
}

fn end(reason: EndReason) -> EndReport {
    EndReport {
        status: Some(ExitStatus::Signal(9)),
        reason,
        killed: true,
        usage: usage(),
    }
}

fn plans(book: &mut Book) {
    let plan = |task| Plan {
        version: VERSION,
        home: b"/home".to_vec(),
        runtime: b"/run/x".to_vec(),
        id: sandbox(),
        ids: IdSlots::default(),
        task,
    };
    let create = Task::Create {
        spec: b"{}".to_vec(),
        run: run(),
        lease: Some(-1),
        start: true,
        hold: false,
    };
    book.page("plan.create", &plan(create));
    let start = Task::Start {
        run: run(),
        lease: None,
    };
    book.page("plan.start", &plan(start));
    book.page("plan.remove", &plan(Task::Remove));
    book.page("plan.reap", &plan(Task::Reap));
}

fn events(book: &mut Book) {
    book.page("event.phase", &Event::Phase("x".to_owned()));
    let report = ReadyReport {
        timings: vec![("a".to_owned(), 1000)],
        notes: vec!["n".to_owned()],
    };
    book.page("event.ready", &Event::Ready(report));
    book.page("event.failed", &Event::Failed(failure()));
}

fn requests(book: &mut Book) {
    let job = || "main".to_owned();
    let requests = [
        ("status", Request::Status),
        ("hold", Request::Hold),
        (
            "stop",
            Request::Stop {
                grace_ms: Some(1000),
                kill: true,
                replaced: false,
            },
        ),
        ("kill", Request::Kill),
        ("drain", Request::Drain),
        ("wait", Request::Wait),
        ("detach", Request::Detach),
        ("freeze", Request::Freeze(true)),
        (
            "start_job",
            Request::StartJob(JobStart {
                id: None,
                exec: exec(),
            }),
        ),
        ("list_jobs", Request::ListJobs),
        (
            "attach_job",
            Request::AttachJob {
                job: job(),
                lossless: true,
                replay: false,
                size: Some(WindowSize::DEFAULT),
            },
        ),
        (
            "signal_job",
            Request::SignalJob {
                job: job(),
                signal: 15,
                tree: true,
            },
        ),
        ("wait_job", Request::WaitJob { job: job() }),
        ("usage", Request::Usage),
        (
            "run_job",
            Request::RunJob(JobStart {
                id: Some(job()),
                exec: exec(),
            }),
        ),
    ];
    for (name, request) in requests {
        let call = Call {
            version: VERSION,
            request,
        };
        book.page(&format!("call.{name}"), &call);
    }
}

fn replies(book: &mut Book) {
    let status = StatusReport {
        run: run(),
        state: "running".to_owned(),
        uptime_ms: 500,
        holds: 1,
        jobs: 2,
    };
    for (name, reply) in [
        ("ok", Reply::Ok),
        ("held", Reply::Held),
        ("refused", Reply::Refused(failure())),
        ("status", Reply::Status(status)),
        ("ended", Reply::Ended(end(EndReason::Stopped))),
        ("timed_out", Reply::TimedOut),
        ("job", Reply::Job(job())),
        ("jobs", Reply::Jobs(vec![job()])),
        ("attached", Reply::Attached(job())),
        ("usage", Reply::Usage(usage())),
    ] {
        book.page(&format!("reply.{name}"), &reply);
    }
    for reason in [
        EndReason::Exited,
        EndReason::Stopped,
        EndReason::Killed,
        EndReason::Drained,
        EndReason::Replaced,
        EndReason::LeaseEnded,
        EndReason::MaxDuration,
        EndReason::Idle,
        EndReason::OutOfMemory,
        EndReason::GuestDied,
        EndReason::KeeperLost,
        EndReason::KeeperSignalled,
        EndReason::OutOfDisk,
    ] {
        book.page(&format!("reason.{reason:?}"), &reason);
    }
    book.page("notice.lost", &JobNotice::Lost(70_000));
    book.page("notice.exit", &JobNotice::Exec(ExecOut::Exit(exit())));
    book.page(
        "notice.stdin_closed",
        &JobNotice::Exec(ExecOut::StdinClosed),
    );
}

#[test]
fn the_bytes_are_these() {
    let mut book = Book::default();
    plans(&mut book);
    events(&mut book);
    requests(&mut book);
    replies(&mut book);
    if std::env::var_os("COSM_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/keeper-2.golden");
        std::fs::write(path, &book.text).expect("written");
        return;
    }
    for (ours, golden) in book.text.lines().zip(GOLDEN.lines()) {
        assert_eq!(ours, golden);
    }
    assert_eq!(book.text.lines().count(), GOLDEN.lines().count());
}
