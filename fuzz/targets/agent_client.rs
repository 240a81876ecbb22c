//! Whole operations with an agent that answers with these bytes and closes. The first byte chooses the operation.
//!
//! None may hang or panic, a command whose end was not told has not ended well, and a copy makes nothing outside of the
//! one name that it was given.

#![no_main]

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use cosm_agent_client::{AgentClient, AgentError, Deadlines, TreeLimits};
use cosm_proto::agent::{ExecOut, ExecStart, Stdio, WindowSize};
use cosm_proto::frame::{self, HEADER, Kind};

const SECOND: Duration = Duration::from_secs(1);

/// What all trials share: an agent that says what it is told to, and a folder to copy to.
struct Stage {
    folder: tempfile::TempDir,
    client: AgentClient,
    answers: std::sync::Mutex<Sender<Vec<u8>>>,
    runtime: tokio::runtime::Runtime,
}

static STAGE: OnceLock<Stage> = OnceLock::new();

fn stage() -> Stage {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let (answers, told) = channel();
    std::thread::spawn(move || serve(&listener, &told));
    let deadlines = Deadlines {
        connect: SECOND,
        start: SECOND,
        answer: SECOND,
        after_timeout: SECOND,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    Stage {
        client: AgentClient::new(socket).with_deadlines(deadlines),
        folder,
        answers: answers.into(),
        runtime,
    }
}

fn serve(listener: &UnixListener, answers: &Receiver<Vec<u8>>) {
    for answer in answers {
        let Ok((mut stream, _)) = listener.accept() else {
            return;
        };
        // A client that has seen enough closes.
        drop(stream.set_write_timeout(Some(SECOND)));
        drop(stream.set_read_timeout(Some(SECOND)));
        drop(stream.write_all(&answer));
        drop(stream.shutdown(Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((choice, answer)) = input.split_first() else {
        return;
    };
    let stage = STAGE.get_or_init(stage);
    stage
        .answers
        .lock()
        .expect("nobody panics while it is held")
        .send(answer.to_vec())
        .expect("the agent lives");
    let done = async {
        let trial = tokio::time::timeout(5 * SECOND, operate(stage, *choice, answer));
        trial.await.expect("every operation ends in time");
    };
    stage.runtime.block_on(done);
});

async fn operate(stage: &Stage, choice: u8, answer: &[u8]) {
    let client = &stage.client;
    let files = client.files();
    match choice % 10 {
        0 => exec(client, Stdio::Passed { stdin: true }, answer).await,
        1 => exec(client, Stdio::Framed { stdin: true }, answer).await,
        2 => {
            let size = WindowSize { rows: 24, cols: 80 };
            exec(client, Stdio::Terminal { size }, answer).await;
        }
        3 => {
            if let Ok(bytes) = files.read("/x", 1000).await {
                assert!(bytes.len() <= 1000);
            }
        }
        4 => drop(files.list("/x").await),
        5 => drop(files.stat("/x", false).await),
        6 => {
            if let Ok(mut watch) = files.watch("/x").await {
                while watch.next().await.is_ok() {}
            }
        }
        7 => drop(client.stats().await),
        8 => drop(files.write("/x", b"bytes", Default::default()).await),
        _ => copy(stage).await,
    }
}

async fn exec(client: &AgentClient, stdio: Stdio, answer: &[u8]) {
    let start = ExecStart {
        argv: vec![b"x".to_vec()],
        env: Vec::new(),
        cwd: None,
        user: None,
        stdio,
        rlimits: Vec::new(),
        timeout_ms: None,
        kill_leftovers: true,
        ends_guest: false,
    };
    let Ok(session) = client.exec(start).await else {
        return;
    };
    if session.output.collect(1000).await.is_ok() {
        assert!(tells_an_exit(answer), "an exit that nobody told");
    }
}

fn tells_an_exit(mut bytes: &[u8]) -> bool {
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
        let Ok((kind, length)) = frame::parse_header(*header) else {
            return false;
        };
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return false;
        };
        if kind == Kind::Message && matches!(frame::parse(payload), Ok(ExecOut::Exit(_))) {
            return true;
        }
        bytes = rest;
    }
    false
}

async fn copy(stage: &Stage) {
    let yard = stage.folder.path().join("yard");
    let into = yard.join("into");
    fs::create_dir_all(&into).expect("a folder");
    let folder: OwnedFd = fs::File::open(&into).expect("a folder").into();
    let limits = TreeLimits {
        bytes: 1 << 20,
        entries: 100,
        depth: 8,
    };
    let files = stage.client.files();
    let copied = files
        .copy_out("/x", false, folder, OsStr::new("name"), limits)
        .await;
    if let Ok(report) = &copied {
        assert!(report.entries <= limits.entries && report.bytes <= limits.bytes);
    }
    assert!(
        !matches!(copied, Err(AgentError::Host { ref source, .. }) if source.kind() == std::io::ErrorKind::NotFound),
        "what the copy itself made is not there: {copied:?}"
    );
    let only = |folder: &Path, name: &str| {
        fs::read_dir(folder)
            .expect("a folder")
            .all(|entry| entry.expect("an entry").file_name() == name)
    };
    assert!(only(&into, "name"), "something beside the copy");
    assert!(only(&yard, "into"), "something beside the folder");
    assert!(
        fs::read_dir(stage.folder.path()).expect("a folder").count() == 2,
        "something outside of all"
    );
    sweep(&yard);
}

/// Removes the copy, whose folders may be closed to us.
fn sweep(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let open = fs::Permissions::from_mode(0o700);
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            fs::set_permissions(entry.path(), open.clone()).expect("it is ours");
            sweep(&entry.path());
        } else {
            fs::remove_file(entry.path()).expect("it is ours");
        }
    }
    fs::remove_dir(folder).expect("it is empty and ours");
}
