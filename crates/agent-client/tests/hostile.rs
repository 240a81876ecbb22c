//! A guest that does not play by the rules.

mod common;

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use common::{Agent, command, framed, impatient, run, shell};
use cosm_agent_client::{AgentClient, AgentError};
use cosm_proto::agent::{ExecOut, ExitReport, ExitStatus, Hello, Usage};
use cosm_proto::frame::{self, HEADER, Kind};

/// A fake agent: does this with each connection.
struct Fake {
    _folder: tempfile::TempDir,
    client: AgentClient,
}

fn fake(serve: impl Fn(UnixStream) + Send + 'static) -> Fake {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).expect("bind");
    // Ends with the test's process.
    std::thread::spawn(move || {
        listener
            .incoming()
            .for_each(|stream| serve(stream.expect("accept")))
    });
    Fake {
        _folder: folder,
        client: AgentClient::new(&socket).with_deadlines(impatient()),
    }
}

fn read_hello(stream: &mut UnixStream) -> Hello {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).expect("a header");
    let (_, length) = frame::parse_header(header).expect("a frame");
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).expect("a payload");
    frame::parse(&payload).expect("a hello")
}

fn say(stream: &mut UnixStream, what: &ExecOut) {
    stream
        .write_all(&frame::message(what).expect("it fits"))
        .expect("write");
}

fn exit() -> ExecOut {
    ExecOut::Exit(ExitReport {
        status: ExitStatus::Code(0),
        timed_out: false,
        oom: false,
        leftovers: false,
        usage: Usage::default(),
    })
}

async fn outcome(fake: &Fake) -> Result<i32, AgentError> {
    outcome_of(fake, command(&["true"])).await
}

async fn outcome_of(fake: &Fake, start: cosm_proto::agent::ExecStart) -> Result<i32, AgentError> {
    let all = async {
        let session = fake.client.exec(start).await?;
        match session.output.collect(1000).await?.exit.report.status {
            ExitStatus::Code(code) => Ok(code),
            ExitStatus::Signal(signal) => Ok(128 + signal),
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all)
        .await
        .expect("no call hangs")
}

#[tokio::test]
async fn nobody_there() {
    let client = AgentClient::new("/no/such/socket");
    assert!(matches!(client.ping().await, Err(AgentError::Connect(_))));
}

#[tokio::test]
async fn silence() {
    let silent = fake(std::mem::forget);
    assert!(matches!(
        outcome(&silent).await,
        Err(AgentError::Silent { .. })
    ));
    assert!(matches!(
        silent.client.ping().await,
        Err(AgentError::Silent { .. })
    ));
    assert!(matches!(
        silent.client.files().read("/x", 1).await,
        Err(AgentError::Silent { .. })
    ));
    let files = silent.client.files();
    let copy = files.copy_out_to("/x", std::path::Path::new("/tmp/never"), Default::default());
    assert!(matches!(copy.await, Err(AgentError::Silent { .. })));
}

#[tokio::test]
async fn silence_after_the_time_out() {
    let silent = fake(|mut stream| {
        read_hello(&mut stream);
        say(&mut stream, &ExecOut::Started { pid: 7 });
        std::mem::forget(stream);
    });
    let mut start = command(&["true"]);
    start.timeout_ms = Some(50);
    assert!(matches!(
        outcome_of(&silent, start).await,
        Err(AgentError::Silent { .. })
    ));
}

#[tokio::test]
async fn a_flood_does_not_put_off_the_time_out() {
    let flooder = fake(|mut stream| {
        read_hello(&mut stream);
        say(&mut stream, &ExecOut::Started { pid: 7 });
        let mut chunk = frame::header(Kind::Stdout, 1000).to_vec();
        chunk.resize(HEADER + 1000, 0);
        while stream.write_all(&chunk).is_ok() {}
    });
    let mut start = framed(command(&["true"]));
    start.timeout_ms = Some(50);
    assert!(matches!(
        outcome_of(&flooder, start).await,
        Err(AgentError::Silent { .. })
    ));
}

#[tokio::test]
async fn garbage() {
    for garbage in [
        &[0xff; 64][..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0; 64],
        &[1, 0, 0, 0, 9, 0],
        &[1, 0, 0, 0, 0, 0xff],
    ] {
        let garbage = garbage.to_vec();
        let liar = fake(move |mut stream| {
            read_hello(&mut stream);
            stream.write_all(&garbage).unwrap_or_default();
        });
        assert!(matches!(
            outcome(&liar).await,
            Err(AgentError::Protocol(_) | AgentError::Lost)
        ));
        assert!(matches!(
            liar.client.ping().await,
            Err(AgentError::Protocol(_) | AgentError::Lost)
        ));
    }
}

#[tokio::test]
async fn no_exit_is_never_success() {
    let quitter = fake(|mut stream| {
        read_hello(&mut stream);
        say(&mut stream, &ExecOut::Started { pid: 7 });
    });
    assert!(matches!(outcome(&quitter).await, Err(AgentError::Lost)));
    let closer = fake(drop);
    assert!(matches!(outcome(&closer).await, Err(AgentError::Lost)));
    let half = fake(|mut stream| {
        read_hello(&mut stream);
        say(&mut stream, &ExecOut::Started { pid: 7 });
        let bytes = frame::message(&exit()).expect("it fits");
        stream.write_all(&bytes[..bytes.len() - 1]).expect("write");
    });
    assert!(matches!(outcome(&half).await, Err(AgentError::Lost)));
}

#[tokio::test]
async fn frames_out_of_place() {
    let table: Vec<Vec<u8>> = vec![
        frame::message(&exit()).expect("it fits"),
        [
            frame::message(&ExecOut::Started { pid: 1 }),
            frame::message(&ExecOut::Started { pid: 1 }),
        ]
        .map(Result::unwrap)
        .concat(),
        [
            frame::message(&ExecOut::Started { pid: 1 }),
            frame::message(&ExecOut::StdinTaken(5)),
        ]
        .map(Result::unwrap)
        .concat(),
        [
            frame::message(&ExecOut::Started { pid: 1 }).expect("fits"),
            frame::header(Kind::Data, 0).to_vec(),
        ]
        .concat(),
        // Output as frames where pipes were passed.
        [
            frame::message(&ExecOut::Started { pid: 1 }).expect("fits"),
            frame::header(Kind::Stdout, 1).to_vec(),
            vec![b'x'],
        ]
        .concat(),
        frame::header(Kind::Stdout, 0).to_vec(),
    ];
    for (index, bytes) in table.into_iter().enumerate() {
        let liar = fake(move |mut stream| {
            read_hello(&mut stream);
            stream.write_all(&bytes).expect("write");
            std::mem::forget(stream);
        });
        assert!(
            matches!(outcome(&liar).await, Err(AgentError::Protocol(_))),
            "case {index}"
        );
    }
}

#[tokio::test]
async fn descriptors_from_a_guest_are_not_taken() {
    let giver = fake(|mut stream| {
        read_hello(&mut stream);
        let bytes = [
            frame::message(&ExecOut::Started { pid: 1 }),
            frame::message(&exit()),
        ]
        .map(Result::unwrap)
        .concat();
        let gift = std::fs::File::open("/dev/zero").expect("open");
        let gifts = [gift.as_fd(), gift.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&gifts)));
        let parts = [std::io::IoSlice::new(&bytes)];
        rustix::net::sendmsg(
            &stream,
            &parts,
            &mut control,
            rustix::net::SendFlags::empty(),
        )
        .expect("send");
    });
    assert_eq!(outcome(&giver).await.expect("the frames are fine"), 0);
    let taken = || {
        std::fs::read_dir("/proc/self/fd")
            .expect("/proc")
            .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .filter(|target| target == std::path::Path::new("/dev/zero"))
            .count()
    };
    // The giver is a thread of this process, and may not have closed its own yet.
    let begun = Instant::now();
    while taken() > 0 && begun.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(taken(), 0);
}

#[tokio::test]
async fn a_tree_that_points_elsewhere() {
    use cosm_proto::agent::{Entry, FileKind, FileReply};
    let evil = |path: &'static [u8]| {
        fake(move |mut stream| {
            read_hello(&mut stream);
            let folder = Entry {
                path: Vec::new(),
                kind: FileKind::Directory,
                mode: 0o755,
                uid: 0,
                gid: 0,
                size: 0,
                allocated: 0,
                mtime: (0, 0),
                target: None,
                hard_link: None,
            };
            let file = Entry {
                path: path.to_vec(),
                kind: FileKind::File,
                ..folder.clone()
            };
            for reply in [
                FileReply::Entry(folder),
                FileReply::Entry(file),
                FileReply::Done,
            ] {
                stream
                    .write_all(&frame::message(&reply).expect("it fits"))
                    .unwrap_or_default();
            }
        })
    };
    let place = tempfile::tempdir().expect("a temporary folder");
    for path in [
        &b"../evil"[..],
        b"/tmp/evil",
        b"a/../../evil",
        b"..",
        b"",
        b"no/folder",
        b"e\0vil",
    ] {
        let fake = evil(path);
        let copy = fake
            .client
            .files()
            .copy_out_to("/x", &place.path().join("out"), Default::default())
            .await;
        assert!(
            matches!(copy, Err(AgentError::Protocol(_))),
            "{path:?}: {copy:?}"
        );
    }
    let names: Vec<_> = std::fs::read_dir(place.path())
        .expect("list")
        .map(|e| e.expect("entry").file_name())
        .collect();
    assert_eq!(names, ["out"]);
    let listing = evil(b"x/../../y");
    assert!(matches!(
        listing.client.files().list("/").await,
        Err(AgentError::Protocol(_))
    ));
}

/// The other side: what the agent endures.
#[tokio::test]
async fn the_agent_endures_broken_hosts() {
    let agent = Agent::start();
    let connect = || UnixStream::connect(agent.client.socket()).expect("connect");
    let mut silent = Vec::new();
    for bytes in [
        &b""[..],
        b"\xff\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        &[3, 0, 0, 0, 0, 1, 2, 3],
        &[3, 0, 0, 0, 0, 1],
    ] {
        for _ in 0..20 {
            let mut stream = connect();
            stream.write_all(bytes).expect("write");
            silent.push(stream);
        }
    }
    // Without a word, and at once.
    for _ in 0..200 {
        drop(connect());
    }
    let begun = Instant::now();
    assert_eq!(run(&agent, shell("echo fine")).await.stdout, b"fine\n");
    assert!(begun.elapsed() < Duration::from_secs(9));
    for stream in &silent[20..40] {
        stream
            .set_read_timeout(Some(Duration::from_secs(2)))
            .expect("set");
        let read = (&*stream).read(&mut [0]);
        assert!(!matches!(read, Ok(1)), "a broken frame gets no answer");
    }
}

#[tokio::test]
async fn the_agent_refuses_what_it_has_no_process_for() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: needs another user to be counted as");
        return;
    }
    // The agent runs as a user that may have no process but this one.
    let agent = Agent::start_limited();
    let error = agent.client.ping().await.expect_err("no process");
    assert!(matches!(&error, AgentError::Refused(_)), "{error:?}");
    assert_eq!(error.errno(), Some(rustix::io::Errno::AGAIN.raw_os_error()));
}

#[tokio::test]
async fn the_agent_endures_running_out_of_descriptors() {
    let agent = Agent::start();
    agent.client.ping().await.expect("it has begun");
    let limit = |limit: &str| {
        let pid = agent.pid().to_string();
        let set = std::process::Command::new("prlimit")
            .args(["--pid", &pid, limit])
            .status();
        set.is_ok_and(|status| status.success())
    };
    if !limit("--nofile=4:1024") {
        eprintln!("skipped: no prlimit program here");
        return;
    }
    let impatient = agent.client.clone().with_deadlines(impatient());
    // An accept that waited when the limit fell has its descriptor, so the first may still get through.
    let first = impatient.ping().await;
    let second = impatient.ping().await;
    assert!(
        matches!(first, Ok(()) | Err(AgentError::Silent { .. })),
        "{first:?}"
    );
    assert!(
        matches!(second, Err(AgentError::Silent { .. })),
        "{second:?}"
    );
    assert!(limit("--nofile=1024:1024"));
    agent.client.ping().await.expect("it tries again");
}
