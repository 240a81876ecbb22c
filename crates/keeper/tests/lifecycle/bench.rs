//! A state folder of its own, keepers started in it, and calls to them.

use std::ffi::CString;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cosm_base::{Home, RunId, RuntimeDir, SandboxId};
use cosm_driver::{Driver as _, Support};
use cosm_proto::agent::{ExecStart, ExitReport, Stdio};
use cosm_proto::frame::{self, HEADER, Kind};
use cosm_proto::keeper::{
    Call, EndReport, Event, Failure, IdSlots, JobReport, JobStart, Plan, ReadyReport, Reply,
    Request, Task, VERSION,
};
use cosm_spec::{Lifetime, SandboxSpec};
use cosm_state::{Reader, SandboxStatus};
use cosm_sys::spawn::{Spawn, Spawned, spawn};
use serde::de::DeserializeOwned;

/// The first argument of this program where it plays a creator.
pub(crate) const HELPER: &str = "__creator";
/// The first argument of this program where it is a keeper of guests that are not isolated.
pub(crate) const FAKE: &str = "__keeper-fake";
/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) fake: bool,
    pub(crate) home: Home,
    pub(crate) runtime: RuntimeDir,
}

/// A keeper process that was started.
pub(crate) struct Keeper {
    pub(crate) id: SandboxId,
    pub(crate) process: Spawned,
    pub(crate) lease: Option<OwnedFd>,
    events: UnixStream,
}

pub(crate) fn id() -> SandboxId {
    SandboxId::from_random(random())
}

pub(crate) fn run_id() -> RunId {
    RunId::from_random(random())
}

fn random() -> [u8; 8] {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random");
    bytes
}

/// Whether guests can be started here.
pub(crate) fn namespaces_work() -> Result<(), String> {
    match cosm_driver_ns::NsDriver::new()
        .capabilities()
        .launch
        .clone()
    {
        Support::Yes { .. } => Ok(()),
        Support::No { why, .. } => Err(why),
    }
}

pub(crate) fn shell(script: &str) -> Vec<cosm_base::ByteString> {
    ["/bin/sh", "-c", script].map(Into::into).to_vec()
}

impl Bench {
    pub(crate) fn new(fake: bool) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ck")
            .tempdir()
            .expect("a temporary folder");
        let home = Home::new(folder.path().join("home"));
        let runtime = RuntimeDir::new(&folder.path().join("run"), &home);
        let home = home.passing_in(&runtime);
        std::fs::create_dir(folder.path().join("place")).expect("a folder");
        Self {
            folder,
            fake,
            home,
            runtime,
        }
    }

    /// Whether this trial can't be done here, which is said.
    pub(crate) fn needs_namespaces(&self, trial: &str) -> bool {
        if self.fake {
            println!("fake/{trial}: skipped, it needs a guest that is isolated");
        }
        self.fake
    }

    /// A persistent sandbox with this name that ends quickly when it is stopped. `$PLACE` is a folder that the guest may
    /// write to and that it finds again.
    pub(crate) fn spec(&self, name: &str) -> SandboxSpec {
        let place = match self.fake {
            true => self.folder.path().join("place"),
            false => PathBuf::from("/root"),
        };
        let place = place.into_os_string().into_encoded_bytes();
        let mut spec = SandboxSpec {
            name: Some(name.parse().expect("a name")),
            lifetime: Lifetime::Persistent,
            env: vec![("PLACE".into(), place.into())],
            ..SandboxSpec::default()
        };
        spec.timeouts.stop = Duration::from_secs(3);
        spec
    }

    /// The state folder of a creator that another process plays.
    pub(crate) fn at(folder: &str) -> (Home, RuntimeDir) {
        let folder = PathBuf::from(folder);
        let home = Home::new(folder.join("home"));
        let runtime = RuntimeDir::new(&folder.join("run"), &home);
        (home.passing_in(&runtime), runtime)
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn keeper(&self, id: SandboxId, task: Task, leased: bool) -> Keeper {
        start_keeper(&self.home, &self.runtime, id, task, leased, self.fake)
    }

    /// Starts a sandbox; with `Lifetime::Leased` it hangs on this process.
    pub(crate) fn create(&self, spec: &SandboxSpec) -> (Keeper, Result<ReadyReport, Failure>) {
        let leased = spec.lifetime == Lifetime::Leased;
        let task = Task::Create {
            spec: spec.to_stored(),
            run: run_id(),
            lease: leased.then(|| std::process::id() as i32),
            start: true,
            hold: false,
        };
        let mut keeper = self.keeper(id(), task, leased);
        let result = keeper.result();
        (keeper, result)
    }

    pub(crate) fn running(&self, spec: &SandboxSpec) -> Keeper {
        let (keeper, result) = self.create(spec);
        result.expect("it starts");
        keeper
    }

    /// Does something to a sandbox that does not run.
    pub(crate) fn short(&self, id: SandboxId, task: Task) -> Result<ReadyReport, Failure> {
        let mut keeper = self.keeper(id, task, false);
        let result = keeper.result();
        keeper.gone();
        result
    }

    pub(crate) fn start(&self, id: SandboxId) -> (Keeper, Result<ReadyReport, Failure>) {
        let task = Task::Start {
            run: run_id(),
            lease: None,
        };
        let mut keeper = self.keeper(id, task, false);
        let result = keeper.result();
        (keeper, result)
    }

    pub(crate) fn connect(&self, id: SandboxId) -> UnixStream {
        let stream = UnixStream::connect(self.runtime.control(id)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("time-out");
        stream
    }

    pub(crate) fn send(&self, id: SandboxId, request: Request) -> UnixStream {
        let mut stream = self.connect(id);
        let call = Call {
            version: VERSION,
            request,
        };
        write(&mut stream, &call);
        stream
    }

    pub(crate) fn call(&self, id: SandboxId, request: Request) -> Reply {
        read(&mut self.send(id, request)).expect("an answer")
    }

    pub(crate) fn hold(&self, id: SandboxId) -> UnixStream {
        let mut stream = self.send(id, Request::Hold);
        assert_eq!(read::<Reply>(&mut stream), Some(Reply::Held));
        stream
    }

    /// Stops, kills, drains or waits.
    pub(crate) fn end(&self, id: SandboxId, request: Request) -> EndReport {
        match self.call(id, request) {
            Reply::Ended(report) => report,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn stop(&self, id: SandboxId, grace_ms: u64) -> EndReport {
        self.end(id, stop(grace_ms))
    }

    pub(crate) fn job(&self, id: SandboxId, job: Option<&str>, script: &str) -> JobReport {
        let start = JobStart {
            id: job.map(str::to_owned),
            exec: exec(script, Stdio::Framed { stdin: false }),
        };
        match self.call(id, Request::StartJob(start)) {
            Reply::Job(report) => report,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn job_end(&self, id: SandboxId, job: &str) -> ExitReport {
        let request = Request::WaitJob {
            job: job.to_owned(),
        };
        match self.call(id, request) {
            Reply::Job(report) => report.exit.expect("its end"),
            other => panic!("{other:?}"),
        }
    }

    /// How its last run ended, once it has stopped.
    pub(crate) fn last_end(&self, id: SandboxId) -> Option<EndReport> {
        let (status, record) = self.reader().details(id).expect("a status");
        let stopped = record.filter(|_| status == SandboxStatus::Stopped);
        stopped.and_then(|record| record.end)
    }

    pub(crate) fn status(&self, id: SandboxId) -> SandboxStatus {
        Reader::new(&self.home).status(id).expect("a status")
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::new(&self.home)
    }

    /// Removes every sandbox that is still there, and checks that nothing of any is left.
    pub(crate) fn assert_nothing_left(&self) {
        let reader = self.reader();
        for id in reader.leftovers().expect("leftovers") {
            self.short(id, Task::Reap).expect("reap");
        }
        let rows = reader.list(&<_>::default(), <_>::default()).expect("list");
        for row in rows {
            match self.short(row.id, Task::Remove) {
                Ok(_) => {}
                Err(_) => {
                    self.end(row.id, Request::Kill);
                    // It may have been one that removes itself.
                    drop(self.short(row.id, Task::Remove));
                }
            }
        }
        self.assert_empty();
    }

    pub(crate) fn assert_empty(&self) {
        let rows = self.reader().list(&<_>::default(), <_>::default());
        assert_eq!(rows.expect("list"), []);
        for folder in [self.home.sandboxes(), self.runtime.path().to_owned()] {
            if let Ok(entries) = std::fs::read_dir(&folder) {
                let left: Vec<_> = entries.map(|e| e.expect("entry").path()).collect();
                assert!(left.is_empty(), "left behind: {left:?}");
            }
        }
        let mine = self.folder.path().as_os_str().as_bytes();
        for pid in cosm_sys::procfs::pids().expect("pids") {
            if let Ok(mounts) = std::fs::read(format!("/proc/{pid}/mountinfo")) {
                let held = mounts.windows(mine.len()).any(|part| part == mine);
                assert!(!held, "process {pid} still has a mount of this");
            }
        }
    }
}

pub(crate) fn exec(script: &str, stdio: Stdio) -> ExecStart {
    ExecStart {
        argv: ["/bin/sh", "-c", script]
            .map(|a| a.as_bytes().to_vec())
            .to_vec(),
        env: Vec::new(),
        cwd: None,
        user: None,
        stdio,
        rlimits: Vec::new(),
        timeout_ms: None,
        kill_leftovers: false,
        ends_guest: false,
    }
}

pub(crate) fn stop(grace_ms: u64) -> Request {
    Request::Stop {
        grace_ms: Some(grace_ms),
        kill: true,
        replaced: false,
    }
}

pub(crate) fn start_keeper(
    home: &Home,
    runtime: &RuntimeDir,
    id: SandboxId,
    task: Task,
    leased: bool,
    fake: bool,
) -> Keeper {
    let plan = Plan {
        version: VERSION,
        home: home.root().as_os_str().as_bytes().to_vec(),
        runtime: runtime.path().as_os_str().as_bytes().to_vec(),
        id,
        ids: IdSlots::default(),
        task,
    };
    let plan = frame::message(&plan).expect("a plan");
    let plan = cosm_sys::memfd::sealed(c"plan", &plan[HEADER..]).expect("memfd");
    let (events, theirs) = UnixStream::pair().expect("pair");
    events.set_read_timeout(Some(PATIENCE)).expect("time-out");
    let lease = leased.then(|| std::io::pipe().expect("pipe"));
    // What a keeper panics about shows here.
    let complaints = std::io::stderr();
    let mut fds = vec![
        (complaints.as_fd(), 2),
        (plan.as_fd(), 3),
        (theirs.as_fd(), 4),
    ];
    if let Some((reader, _)) = &lease {
        fds.push((reader.as_fd(), 5));
    }
    let program = std::env::current_exe().expect("this program");
    let program = CString::new(program.as_os_str().as_bytes()).expect("a path");
    let process = spawn(&Spawn {
        program: &program,
        args: &[c"keeper", if fake { c"__keeper-fake" } else { c"__keeper" }],
        env: &[],
        fds: &fds,
        workdir: Some(c"/"),
        new_session: true,
    })
    .expect("spawn");
    Keeper {
        id,
        process,
        events,
        lease: lease.map(|(_, writer)| writer.into()),
    }
}

impl Keeper {
    pub(crate) fn result(&mut self) -> Result<ReadyReport, Failure> {
        loop {
            match read(&mut self.events).expect("the keeper answers") {
                Event::Phase(_) => {}
                Event::Ready(report) => return Ok(report),
                Event::Failed(failure) => return Err(failure),
            }
        }
    }

    pub(crate) fn kill(&self) {
        let killed =
            rustix::process::pidfd_send_signal(&self.process.pidfd, rustix::process::Signal::KILL);
        assert!(
            matches!(killed, Ok(()) | Err(rustix::io::Errno::SRCH)),
            "{killed:?}"
        );
    }

    /// Waits for the process's end and reaps it.
    pub(crate) fn gone(self) {
        cosm_sys::process::wait(self.process.pidfd.as_fd()).expect("wait");
    }
}

pub(crate) fn write<T: serde::Serialize>(stream: &mut UnixStream, value: &T) {
    let bytes = frame::message(value).expect("a message");
    stream.write_all(&bytes).expect("write");
}

pub(crate) fn read_frame(stream: &mut UnixStream) -> Option<(Kind, Vec<u8>)> {
    let mut header = [0; HEADER];
    match stream.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return None,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
        Err(error) => panic!("{error}"),
    }
    let (kind, length) = frame::parse_header(header).expect("a header");
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).expect("a payload");
    Some((kind, payload))
}

pub(crate) fn read<T: DeserializeOwned>(stream: &mut UnixStream) -> Option<T> {
    let (kind, payload) = read_frame(stream)?;
    assert_eq!(kind, Kind::Message);
    Some(frame::parse(&payload).expect("a message"))
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
