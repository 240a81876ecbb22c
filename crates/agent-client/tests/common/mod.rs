//! A real agent as an ordinary process: not process 1, in no namespace, but otherwise what a guest runs.

#![expect(dead_code, reason = "each test program uses a part of this")]

use std::fs::{File, Permissions};
use std::io::{Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio as ProcessStdio};
use std::time::Duration;

use cosm_agent_client::{AgentClient, Collected, Deadlines};
use cosm_proto::agent::{self, AgentBoot, ExecStart, Stdio};

/// A running agent. Dropping it kills it; commands that it still ran go with their connections.
pub(crate) struct Agent {
    process: Child,
    folder: tempfile::TempDir,
    pub(crate) client: AgentClient,
}

pub(crate) fn boot() -> AgentBoot {
    AgentBoot {
        version: agent::VERSION,
        env: vec![(b"PATH".to_vec(), b"/usr/local/bin:/usr/bin:/bin".to_vec())],
        workdir: b"/".to_vec(),
        user: None,
        shell: None,
        rlimits: Vec::new(),
        cgroup: None,
        // The tests may run as anybody; those that need root say so.
        fixed_user: !rustix::process::getuid().is_root(),
    }
}

impl Agent {
    pub(crate) fn start() -> Self {
        Self::start_with(&boot())
    }

    pub(crate) fn start_with(boot: &AgentBoot) -> Self {
        Self::start_by(boot, "")
    }

    /// One whose user may have no process but the agent itself. Needs root.
    pub(crate) fn start_limited() -> Self {
        let boot = AgentBoot {
            fixed_user: true,
            ..boot()
        };
        Self::start_by(
            &boot,
            "set -- --reuid 54398 --clear-groups; prlimit --nproc=1 --pid $$;",
        )
    }

    fn start_by(boot: &AgentBoot, first: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = folder.path().join("agent");
        // `qemu-aarch64 PATH`, say: another processor's agent, emulated.
        match std::env::var("COSM_TEST_AGENT") {
            Ok(command) => std::fs::write(&program, format!("#!/bin/sh\nexec {command}\n")),
            Err(_) => std::fs::write(&program, cosm_agent_image::AGENT),
        }
        .expect("write the agent");
        for path in [program.as_path(), folder.path()] {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("chmod");
        }
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("bind");
        rustix::net::listen(&listener, 4096).expect("listen");
        let mut message = tempfile::tempfile().expect("a temporary file");
        message
            .write_all(&postcard::to_allocvec(boot).expect("encode"))
            .expect("write");
        message.rewind().expect("rewind");
        // The shell puts the two descriptors where the agent looks for them; `setpriv` ties its life to this thread's.
        let script = format!(
            "exec 3<&0 4<&1 0</dev/null 1>/dev/null; {first} \
            if command -v setpriv >/dev/null; then exec setpriv --pdeathsig KILL \"$@\" \"$0\"; else exec \"$0\"; fi"
        );
        let process = Command::new("sh")
            .args(["-c", &script])
            .arg(&program)
            .stdin(ProcessStdio::from(OwnedFd::from(listener)))
            .stdout(ProcessStdio::from(message))
            .spawn()
            .expect("start the agent");
        let client = AgentClient::new(&socket);
        Self {
            process,
            folder,
            client,
        }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.process.kill().expect("kill the agent");
        self.process.wait().expect("wait for the agent");
        // What its commands left behind lives on without it, as in a guest it could not.
        for pid in running(&self.folder.path().join("agent")) {
            kill_tree(pid);
        }
    }
}

/// `(pid, parent)` of every process.
fn processes() -> Vec<(i32, i32)> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let parse = |name: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        let parent = stat
            .rsplit(')')
            .next()?
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()?;
        Some((name.parse().ok()?, parent))
    };
    entries
        .filter_map(|entry| parse(entry.ok()?.file_name().to_str()?))
        .collect()
}

/// Processes of this program.
fn running(program: &std::path::Path) -> Vec<i32> {
    let is =
        |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    processes()
        .into_iter()
        .map(|(pid, _)| pid)
        .filter(|pid| is(*pid))
        .collect()
}

fn kill_tree(root: i32) {
    for (pid, parent) in processes() {
        if parent == root {
            kill_tree(pid);
        }
    }
    if let Some(pid) = rustix::process::Pid::from_raw(root) {
        // It may have ended meanwhile.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap_or_default();
    }
}

/// A command without input, its output in pipes.
pub(crate) fn command(argv: &[&str]) -> ExecStart {
    ExecStart {
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        env: Vec::new(),
        cwd: None,
        user: None,
        stdio: Stdio::Passed { stdin: false },
        rlimits: Vec::new(),
        timeout_ms: None,
        kill_leftovers: false,
        ends_guest: false,
    }
}

pub(crate) fn shell(script: &str) -> ExecStart {
    command(&["/bin/sh", "-c", script])
}

pub(crate) const FRAMED: Stdio = Stdio::Framed { stdin: false };

pub(crate) fn framed(mut start: ExecStart) -> ExecStart {
    start.stdio = FRAMED;
    start
}

pub(crate) async fn run(agent: &Agent, start: ExecStart) -> Collected {
    let session = agent.client.exec(start).await.expect("it starts");
    session.output.collect(64 << 20).await.expect("it ends")
}

pub(crate) fn impatient() -> Deadlines {
    let short = Duration::from_millis(300);
    Deadlines {
        connect: short,
        start: short,
        answer: short,
        after_timeout: short,
    }
}

pub(crate) fn file_at(path: &std::path::Path) -> File {
    File::open(path).expect("open")
}
