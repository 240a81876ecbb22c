//! Jobs, their logs and their viewers.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cosm_base::{ErrorKind, SandboxId};
use cosm_proto::agent::{ExecIn, ExecOut, ExitStatus, Stdio, WindowSize};
use cosm_proto::frame::{self, Kind};
use cosm_proto::keeper::{JobNotice, JobStart, Reply, Request};
use cosm_state::joblog::{LogReader, Since, Stream};

use crate::Trial;
use crate::bench::{Bench, exec, read, read_frame, until, write};

pub(crate) const TRIALS: &[Trial] = &[
    ("output_is_logged_by_stream", output_is_logged_by_stream),
    ("logs_are_bounded", logs_are_bounded),
    (
        "jobs_are_listed_and_signalled",
        jobs_are_listed_and_signalled,
    ),
    (
        "a_job_that_cannot_start_says_why",
        a_job_that_cannot_start_says_why,
    ),
    ("viewers_come_and_go", viewers_come_and_go),
    ("input_reaches_the_job", input_reaches_the_job),
    (
        "a_terminal_has_the_viewers_size",
        a_terminal_has_the_viewers_size,
    ),
    (
        "a_slow_viewer_is_told_what_it_lost",
        a_slow_viewer_is_told_what_it_lost,
    ),
    (
        "a_lossless_viewer_misses_nothing",
        a_lossless_viewer_misses_nothing,
    ),
];

/// What a log holds of a stream.
fn logged(bench: &Bench, id: SandboxId, job: &str, stream: Stream) -> Vec<u8> {
    let dir = bench.home.sandbox(id);
    let mut reader = LogReader::open(&dir, job, Since::Start).expect("a job's id");
    let mut bytes = Vec::new();
    while let Some(piece) = reader.next().expect("a whole log") {
        if piece.stream == stream {
            bytes.extend(piece.bytes);
        }
    }
    bytes
}

fn start(bench: &Bench, id: SandboxId, job: &str, script: &str, stdio: Stdio) {
    let start = JobStart {
        id: Some(job.to_owned()),
        exec: exec(script, stdio),
    };
    let reply = bench.call(id, Request::StartJob(start));
    assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
}

struct Viewer {
    stream: UnixStream,
}

/// What a viewer saw.
#[derive(Default)]
struct Seen {
    bytes: Vec<u8>,
    lost: u64,
    exit: Option<ExitStatus>,
}

impl Viewer {
    fn attach(bench: &Bench, id: SandboxId, job: &str, lossless: bool, replay: bool) -> Self {
        Self::attach_sized(bench, id, job, lossless, replay, None)
    }

    fn attach_sized(
        bench: &Bench,
        id: SandboxId,
        job: &str,
        lossless: bool,
        replay: bool,
        size: Option<WindowSize>,
    ) -> Self {
        let request = Request::AttachJob {
            job: job.to_owned(),
            lossless,
            replay,
            size,
        };
        let mut stream = bench.send(id, request);
        assert!(matches!(read(&mut stream), Some(Reply::Attached(_))));
        Self { stream }
    }

    fn say(&mut self, what: &ExecIn) {
        write(&mut self.stream, what);
    }

    fn input(&mut self, bytes: &[u8]) {
        let header = frame::header(Kind::Stdin, bytes.len() as u32);
        self.stream.write_all(&header).expect("write");
        self.stream.write_all(bytes).expect("write");
    }

    /// Looks until this is so, or the job has ended.
    fn look_until(&mut self, seen: &mut Seen, so: impl Fn(&Seen) -> bool) {
        while !so(seen) {
            let Some((kind, payload)) = read_frame(&mut self.stream) else {
                return;
            };
            match kind {
                Kind::Message => match frame::parse(&payload).expect("a notice") {
                    JobNotice::Lost(bytes) => seen.lost += bytes,
                    JobNotice::Exec(ExecOut::Exit(report)) => seen.exit = Some(report.status),
                    JobNotice::Exec(_) => {}
                },
                _ => seen.bytes.extend(payload),
            }
        }
    }

    fn look_to_the_end(&mut self) -> Seen {
        let mut seen = Seen::default();
        self.look_until(&mut seen, |_| false);
        seen
    }
}

fn output_is_logged_by_stream(bench: &Bench) {
    let keeper = bench.running(&bench.spec("o"));
    let script = "printf 'a\\377\\0b'; printf err >&2; printf c";
    bench.job(keeper.id, Some("out"), script);
    bench.job_end(keeper.id, "out");
    assert_eq!(
        logged(bench, keeper.id, "out", Stream::Stdout),
        b"a\xff\0bc"
    );
    assert_eq!(logged(bench, keeper.id, "out", Stream::Stderr), b"err");
    bench.stop(keeper.id, 0);
    // A second run adds to it, and says where it begins.
    let (again, started) = bench.start(keeper.id);
    started.expect("it starts");
    bench.job(keeper.id, Some("out"), "printf d");
    bench.job_end(keeper.id, "out");
    bench.stop(keeper.id, 0);
    assert_eq!(
        logged(bench, keeper.id, "out", Stream::Stdout),
        b"a\xff\0bcd"
    );
    assert_eq!(logged(bench, keeper.id, "out", Stream::Mark).len(), 2 * 13);
    keeper.gone();
    again.gone();
}

fn logs_are_bounded(bench: &Bench) {
    let mut spec = bench.spec("b");
    spec.resources.log = cosm_spec::Limit::At(cosm_base::units::ByteSize(256 << 10));
    let keeper = bench.running(&spec);
    bench.job(
        keeper.id,
        Some("big"),
        "head -c 3000000 /dev/zero; printf end",
    );
    assert_eq!(bench.job_end(keeper.id, "big").status, ExitStatus::Code(0));
    let logs = bench.home.sandbox(keeper.id).logs();
    let size: u64 = std::fs::read_dir(logs)
        .expect("logs")
        .map(|e| e.expect("a log").metadata().expect("its size").len())
        .sum();
    assert!(size <= 256 << 10, "{size}");
    let kept = logged(bench, keeper.id, "big", Stream::Stdout);
    assert!(
        kept.len() >= 100 << 10 && kept.ends_with(b"\0end"),
        "{}",
        kept.len()
    );
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn jobs_are_listed_and_signalled(bench: &Bench) {
    let keeper = bench.running(&bench.spec("j"));
    let first = bench.job(keeper.id, None, "sleep 60");
    let second = bench.job(keeper.id, None, "exit 9");
    assert_eq!((first.id.as_str(), second.id.as_str()), ("1", "2"));
    assert_eq!(bench.job_end(keeper.id, "2").status, ExitStatus::Code(9));
    let Reply::Jobs(jobs) = bench.call(keeper.id, Request::ListJobs) else {
        panic!("no list");
    };
    let ends: Vec<_> = jobs
        .iter()
        .map(|j| (j.id.as_str(), j.exit.is_some()))
        .collect();
    assert_eq!(ends, [("1", false), ("2", true)]);
    assert!(jobs[0].pid.is_some_and(|pid| pid > 0));
    let signal = |job: &str| Request::SignalJob {
        job: job.to_owned(),
        signal: 12,
        tree: false,
    };
    assert_eq!(bench.call(keeper.id, signal("1")), Reply::Ok);
    assert_eq!(bench.job_end(keeper.id, "1").status, ExitStatus::Signal(12));
    let refused = |request| match bench.call(keeper.id, request) {
        Reply::Refused(failure) => failure.kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(signal("1")), ErrorKind::WrongState);
    assert_eq!(refused(signal("7")), ErrorKind::NotFound);
    let named = |id: &str| {
        Request::StartJob(JobStart {
            id: Some(id.to_owned()),
            exec: exec("exit 0", Stdio::Framed { stdin: false }),
        })
    };
    assert_eq!(refused(named("1")), ErrorKind::AlreadyExists);
    for bad in ["../x", "", ".x", "a/b", "a\n", &"x".repeat(65)] {
        assert_eq!(refused(named(bad)), ErrorKind::InvalidInput, "{bad:?}");
    }
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn a_job_that_cannot_start_says_why(bench: &Bench) {
    let keeper = bench.running(&bench.spec("w"));
    let mut start = exec("", Stdio::Framed { stdin: false });
    start.argv = vec![b"/no/such".to_vec()];
    let request = Request::StartJob(JobStart {
        id: None,
        exec: start,
    });
    let Reply::Refused(failure) = bench.call(keeper.id, request) else {
        panic!("it started");
    };
    assert_eq!(failure.kind, ErrorKind::SpawnFailed);
    assert!(failure.spawn.is_some());
    let passed = Request::StartJob(JobStart {
        id: None,
        exec: exec("", Stdio::Passed { stdin: false }),
    });
    assert!(
        matches!(bench.call(keeper.id, passed), Reply::Refused(f) if f.kind == ErrorKind::InvalidInput)
    );
    let Reply::Status(status) = bench.call(keeper.id, Request::Status) else {
        panic!("no status");
    };
    assert_eq!(status.jobs, 0);
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn viewers_come_and_go(bench: &Bench) {
    let keeper = bench.running(&bench.spec("v"));
    let script = "echo one; while ! test -e $PLACE/go; do sleep 0.02; done; echo two; exit 3";
    bench.job(keeper.id, Some("v"), script);
    let mut first = Viewer::attach(bench, keeper.id, "v", false, true);
    let mut seen = Seen::default();
    first.look_until(&mut seen, |s| s.bytes.ends_with(b"one\n"));
    drop(first);
    let mut second = Viewer::attach(bench, keeper.id, "v", false, true);
    let mut third = Viewer::attach(bench, keeper.id, "v", true, false);
    bench.job(keeper.id, None, "touch $PLACE/go");
    let seen = second.look_to_the_end();
    assert_eq!(seen.bytes, b"one\ntwo\n");
    assert_eq!(seen.exit, Some(ExitStatus::Code(3)));
    assert!(third.look_to_the_end().bytes.ends_with(b"two\n"));
    // After its end too.
    let mut late = Viewer::attach(bench, keeper.id, "v", false, true);
    let seen = late.look_to_the_end();
    assert_eq!(
        (seen.bytes.as_slice(), seen.exit),
        (&b"one\ntwo\n"[..], Some(ExitStatus::Code(3)))
    );
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn input_reaches_the_job(bench: &Bench) {
    let keeper = bench.running(&bench.spec("i"));
    start(
        bench,
        keeper.id,
        "cat",
        "cat; echo over",
        Stdio::Framed { stdin: true },
    );
    let mut viewer = Viewer::attach(bench, keeper.id, "cat", true, true);
    viewer.input(b"hello ");
    let mut seen = Seen::default();
    viewer.look_until(&mut seen, |s| s.bytes == b"hello ");
    // Leaving is no end of file.
    drop(viewer);
    std::thread::sleep(Duration::from_millis(100));
    let mut viewer = Viewer::attach(bench, keeper.id, "cat", true, true);
    viewer.input(b"again");
    viewer.say(&ExecIn::StdinEof);
    let seen = viewer.look_to_the_end();
    assert_eq!(seen.bytes, b"hello againover\n");
    assert_eq!(seen.exit, Some(ExitStatus::Code(0)));
    // Much of it, to a command that does not read all.
    start(
        bench,
        keeper.id,
        "head",
        "head -c 5 >/dev/null; sleep 0.3",
        Stdio::Framed { stdin: true },
    );
    let mut viewer = Viewer::attach(bench, keeper.id, "head", true, true);
    for _ in 0..20 {
        viewer.input(&[b'x'; 10_000]);
    }
    assert_eq!(viewer.look_to_the_end().exit, Some(ExitStatus::Code(0)));
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn a_terminal_has_the_viewers_size(bench: &Bench) {
    let keeper = bench.running(&bench.spec("t"));
    let size = WindowSize { rows: 5, cols: 6 };
    let script = "read go; stty size; read go; stty size";
    start(bench, keeper.id, "tty", script, Stdio::Terminal { size });
    let size = WindowSize { rows: 31, cols: 99 };
    let mut viewer = Viewer::attach_sized(bench, keeper.id, "tty", false, true, Some(size));
    viewer.input(b"\n");
    let mut seen = Seen::default();
    viewer.look_until(&mut seen, |s| {
        String::from_utf8_lossy(&s.bytes).contains("31 99")
    });
    viewer.say(&ExecIn::Resize(WindowSize { rows: 7, cols: 8 }));
    viewer.input(b"\n");
    let seen = viewer.look_to_the_end();
    assert!(
        String::from_utf8_lossy(&seen.bytes).contains("7 8"),
        "{:?}",
        seen.bytes
    );
    assert_eq!(seen.exit, Some(ExitStatus::Code(0)));
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn a_slow_viewer_is_told_what_it_lost(bench: &Bench) {
    let keeper = bench.running(&bench.spec("l"));
    let script = "while ! test -e $PLACE/go; do sleep 0.02; done; head -c 4000000 /dev/zero";
    bench.job(keeper.id, Some("fast"), script);
    let mut viewer = Viewer::attach(bench, keeper.id, "fast", false, false);
    bench.job(keeper.id, None, "touch $PLACE/go");
    // It does not look, and the job ends all the same.
    assert_eq!(bench.job_end(keeper.id, "fast").status, ExitStatus::Code(0));
    let seen = viewer.look_to_the_end();
    assert!(seen.lost > 0);
    assert_eq!(seen.bytes.len() as u64 + seen.lost, 4_000_000);
    assert_eq!(seen.exit, Some(ExitStatus::Code(0)));
    bench.stop(keeper.id, 0);
    keeper.gone();
}

fn a_lossless_viewer_misses_nothing(bench: &Bench) {
    let keeper = bench.running(&bench.spec("k"));
    let script = "while ! test -e $PLACE/go; do sleep 0.02; done; head -c 4000000 /dev/zero";
    bench.job(keeper.id, Some("fast"), script);
    let mut viewer = Viewer::attach(bench, keeper.id, "fast", true, false);
    bench.job(keeper.id, Some("go"), "touch $PLACE/go");
    bench.job_end(keeper.id, "go");
    std::thread::sleep(Duration::from_millis(300));
    let report = |bench: &Bench| match bench.call(keeper.id, Request::ListJobs) {
        Reply::Jobs(jobs) => jobs.into_iter().find(|j| j.id == "fast").expect("the job"),
        other => panic!("{other:?}"),
    };
    assert_eq!(report(bench).exit, None, "it waits for its viewer");
    let seen = viewer.look_to_the_end();
    assert_eq!((seen.bytes.len(), seen.lost), (4_000_000, 0));
    // One that goes away is not waited for.
    let script = "while ! test -e $PLACE/go2; do sleep 0.02; done; head -c 4000000 /dev/zero";
    bench.job(keeper.id, Some("again"), script);
    let viewer = Viewer::attach(bench, keeper.id, "again", true, false);
    bench.job(keeper.id, None, "touch $PLACE/go2");
    std::thread::sleep(Duration::from_millis(200));
    drop(viewer);
    until("the job's end", || {
        bench.job_end(keeper.id, "again").status == ExitStatus::Code(0)
    });
    bench.stop(keeper.id, 0);
    keeper.gone();
}
