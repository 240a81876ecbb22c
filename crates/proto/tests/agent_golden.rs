//! The agent's messages, byte for byte. A change here is a change of the protocol: raise `agent::VERSION` with it.
//!
//! `COSM_GOLDEN=write` writes the file anew.

use std::fmt::Write as _;

use cosm_proto::agent::*;
use cosm_proto::frame::{self, HEADER, Kind};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/agent.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// One line, after checking that the bytes read back as the same message.
fn line<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    name: &str,
    message: &T,
) -> String {
    let bytes = frame::message(message).expect("it fits");
    assert_eq!(
        &frame::parse::<T>(&bytes[HEADER..]).expect("it reads back"),
        message
    );
    format!("{name} {}\n", hex(&bytes))
}

fn exec() -> ExecStart {
    ExecStart {
        argv: vec![b"sh".to_vec(), b"-c".to_vec(), b"\xff".to_vec()],
        env: vec![(b"A".to_vec(), b"1".to_vec())],
        cwd: Some(b"/tmp".to_vec()),
        user: Some(b"1000:10".to_vec()),
        stdio: Stdio::Terminal {
            size: WindowSize { rows: 24, cols: 80 },
        },
        rlimits: vec![Rlimit {
            kind: RlimitKind::Nofile,
            soft: 1024,
            hard: u64::MAX,
        }],
        timeout_ms: Some(1500),
        kill_leftovers: true,
        ends_guest: true,
    }
}

fn entry() -> Entry {
    Entry {
        path: b"a/b".to_vec(),
        kind: FileKind::Symlink,
        mode: 0o777,
        uid: 1,
        gid: 2,
        size: 3,
        allocated: 4096,
        mtime: (-1, 999_999_999),
        target: Some(b"../c".to_vec()),
        hard_link: None,
    }
}

fn report() -> ExitReport {
    ExitReport {
        status: ExitStatus::Signal(9),
        timed_out: true,
        oom: false,
        leftovers: true,
        usage: Usage {
            source: UsageSource::Cgroup,
            user_us: Some(1),
            system_us: Some(2),
            peak_memory: None,
            read_bytes: Some(0),
            write_bytes: Some(4096),
            wall_us: 77,
        },
    }
}

fn boot() -> AgentBoot {
    AgentBoot {
        version: VERSION,
        env: vec![(b"PATH".to_vec(), b"/bin".to_vec())],
        workdir: b"/".to_vec(),
        user: None,
        shell: Some(b"/bin/bash".to_vec()),
        rlimits: vec![Rlimit {
            kind: RlimitKind::Rttime,
            soft: 0,
            hard: 1,
        }],
        cgroup: Some(b"/sys/fs/cgroup/x".to_vec()),
        fixed_user: false,
    }
}

fn requests() -> Vec<(&'static str, FileOp)> {
    let path = b"/p".to_vec();
    vec![
        (
            "read",
            FileOp::Read {
                path: path.clone(),
                offset: 1,
                length: u64::MAX,
            },
        ),
        (
            "write",
            FileOp::Write {
                path: path.clone(),
                mode: Some(0o600),
                append: false,
                create_new: true,
            },
        ),
        ("list", FileOp::List { path: path.clone() }),
        (
            "stat",
            FileOp::Stat {
                path: path.clone(),
                follow: true,
            },
        ),
        (
            "mkdir",
            FileOp::Mkdir {
                path: path.clone(),
                mode: None,
                parents: true,
            },
        ),
        (
            "remove",
            FileOp::Remove {
                path: path.clone(),
                recursive: true,
            },
        ),
        (
            "copy",
            FileOp::Copy {
                from: path.clone(),
                to: b"q".to_vec(),
                recursive: false,
            },
        ),
        (
            "rename",
            FileOp::Rename {
                from: path.clone(),
                to: b"q".to_vec(),
            },
        ),
        (
            "symlink",
            FileOp::Symlink {
                target: b"t".to_vec(),
                path: path.clone(),
            },
        ),
        ("readlink", FileOp::Readlink { path: path.clone() }),
        (
            "chmod",
            FileOp::Chmod {
                path: path.clone(),
                mode: 0o4755,
            },
        ),
        (
            "chown",
            FileOp::Chown {
                path: path.clone(),
                uid: Some(1),
                gid: None,
                link: true,
            },
        ),
        ("watch", FileOp::Watch { path: path.clone() }),
        (
            "send-tree",
            FileOp::SendTree {
                path: path.clone(),
                follow: false,
            },
        ),
        ("receive-tree", FileOp::ReceiveTree { path }),
    ]
}

fn all() -> String {
    let hello = |request| Hello {
        version: VERSION,
        request,
    };
    let mut text = String::new();
    text += &line("boot", &boot());
    text += &line("hello-exec", &hello(Request::Exec(exec())));
    for (name, op) in requests() {
        let request = FileRequest {
            user: Some(b"u".to_vec()),
            op,
        };
        text += &line(&format!("hello-{name}"), &hello(Request::File(request)));
    }
    for (name, request) in [
        ("ping", SystemRequest::Ping),
        ("signal-all", SystemRequest::SignalAll(15)),
        ("stats", SystemRequest::Stats),
    ] {
        text += &line(&format!("hello-{name}"), &hello(Request::System(request)));
    }
    text += &line("stdin-eof", &ExecIn::StdinEof);
    text += &line("resize", &ExecIn::Resize(WindowSize::DEFAULT));
    text += &line(
        "signal",
        &ExecIn::Signal {
            signal: 15,
            tree: true,
        },
    );
    text += &line("kill", &ExecIn::Kill);
    text += &line("started", &ExecOut::Started { pid: 12 });
    let failure = SpawnFailure {
        reason: SpawnReason::NotExecutable,
        errno: 8,
        subject: b"/x".to_vec(),
    };
    text += &line("spawn-failed", &ExecOut::Failed(failure));
    text += &line("stdin-taken", &ExecOut::StdinTaken(65_536));
    text += &line("stdin-closed", &ExecOut::StdinClosed);
    text += &line("exit", &ExecOut::Exit(report()));
    text += &line("done", &FileReply::Done);
    text += &line(
        "file-failed",
        &FileReply::Failed(FileFailure {
            errno: 2,
            path: b"/p".to_vec(),
        }),
    );
    text += &line("entry", &FileReply::Entry(entry()));
    text += &line("link", &FileReply::Link(b"t".to_vec()));
    text += &line("chunk", &FileReply::Chunk { offset: 1 << 40 });
    text += &line(
        "changed",
        &FileReply::Changed(Change {
            kind: ChangeKind::Overflow,
            name: Vec::new(),
        }),
    );
    text += &line("tree-entry", &TreeItem::Entry(entry()));
    text += &line("tree-chunk", &TreeItem::Chunk { offset: 0 });
    text += &line("tree-end", &TreeItem::End);
    text += &line("ok", &SystemReply::Ok);
    text += &line("system-failed", &SystemReply::Failed(22));
    let stats = GuestStats {
        processes: 3,
        resident: 1 << 20,
        cpu_us: 5,
    };
    text += &line("guest-stats", &SystemReply::Stats(stats));
    text
}

#[test]
fn the_bytes_are_what_they_were() {
    let now = all();
    if std::env::var("COSM_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(GOLDEN, &now).expect("write the golden file");
    }
    let golden = std::fs::read_to_string(GOLDEN).expect("the golden file is there");
    for (old, new) in golden.lines().zip(now.lines()) {
        assert_eq!(old, new);
    }
    assert_eq!(golden.lines().count(), now.lines().count());
}

fn nothing_panics<T: DeserializeOwned>(bytes: &[u8]) {
    // Whether it can be read is of no interest here.
    drop(frame::parse::<T>(bytes));
}

proptest! {
    #[test]
    fn no_bytes_of_a_peer_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        nothing_panics::<AgentBoot>(&bytes);
        nothing_panics::<Hello>(&bytes);
        nothing_panics::<ExecIn>(&bytes);
        nothing_panics::<ExecOut>(&bytes);
        nothing_panics::<FileReply>(&bytes);
        nothing_panics::<TreeItem>(&bytes);
        nothing_panics::<SystemReply>(&bytes);
    }

    /// A message with a byte flipped is another message or none, never a crash; and one cut short or continued is none.
    #[test]
    fn damage_is_noticed_or_harmless(at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let whole = frame::message(&Hello { version: VERSION, request: Request::Exec(exec()) }).expect("it fits");
        let mut payload = whole[HEADER..].to_vec();
        let at = at.index(payload.len());
        prop_assert!(frame::parse::<Hello>(&payload[..at]).is_err());
        payload.push(flip);
        prop_assert!(frame::parse::<Hello>(&payload).is_err());
        payload.pop();
        payload[at] ^= flip;
        nothing_panics::<Hello>(&payload);
    }

    #[test]
    fn headers_read_back_or_are_refused(length in any::<u32>(), kind in any::<u8>()) {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4] = kind;
        match frame::parse_header(header) {
            Ok((kind, length)) => prop_assert_eq!(frame::header(kind, length as u32), header),
            Err(_) => prop_assert!(length as usize > frame::MAX_PAYLOAD || Kind::from_byte(kind).is_none()),
        }
    }
}
