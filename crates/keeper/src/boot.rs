//! From a launched guest to one that is ready: the agent answers, the working directory is there, the main command runs.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cosm_agent_client::wire::halves;
use cosm_agent_client::{AgentClient, AgentError, Deadlines};
use cosm_base::{ByteString, ErrorKind};
use cosm_proto::agent::{
    self, ExecStart, FileFailure, FileKind, FileOp, FileReply, FileRequest, Hello, Request, Stdio,
    WindowSize,
};
use cosm_proto::keeper::{Failure, JobStart};
use cosm_spec::{Lifetime, SandboxSpec};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::failure;
use crate::jobs::MAIN;
use crate::shared::Shared;

const WORKDIR: &str = "working directory";
const MAIN_COMMAND: &str = "main command";

/// Whether there is nothing to wait for.
///
/// The driver has seen the agent's program start, and the socket was listening before that. Where the creator is there
/// and all that it wants is to run commands, its first command finds out whether the agent answers, and gets the same
/// error.
pub(crate) fn is_nothing(spec: &SandboxSpec, main: bool) -> bool {
    spec.remove_on_exit && spec.lifetime == Lifetime::Leased && !main && spec.workdir.is_none()
}

/// The client for the guest of a sandbox with this spec.
pub(crate) fn client(socket: std::path::PathBuf, spec: &SandboxSpec) -> AgentClient {
    let usual = Deadlines::default();
    AgentClient::new(socket).with_deadlines(Deadlines {
        answer: spec.timeouts.boot.min(usual.answer),
        ..usual
    })
}

/// Waits until the guest is ready, and starts its main command if `main` says so.
pub(crate) async fn finish(
    shared: Rc<Shared>,
    spec: Rc<SandboxSpec>,
    main: bool,
) -> Result<(), Failure> {
    let limit = spec.timeouts.boot;
    let step = Cell::new("agent");
    match timeout(limit, steps(&shared, &spec, main, &step)).await {
        Ok(done) => done,
        Err(_) => Err(too_slow(step.get(), limit)),
    }
}

fn too_slow(phase: &str, limit: Duration) -> Failure {
    let what = match phase {
        WORKDIR => "its working directory was looked for",
        MAIN_COMMAND => "its main command was started",
        _ => "its agent was waited for",
    };
    Failure {
        phase: Some(phase.to_owned()),
        ..failure::plain(
            ErrorKind::TimedOut,
            format!(
                "the guest was not ready within {} s: {what}",
                limit.as_secs_f64()
            ),
        )
    }
}

async fn steps(
    shared: &Rc<Shared>,
    spec: &SandboxSpec,
    main: bool,
    step: &Cell<&'static str>,
) -> Result<(), Failure> {
    match &spec.workdir {
        Some(path) => {
            step.set(WORKDIR);
            check_workdir(&shared.agent, path).await?;
        }
        None if !main => shared
            .agent
            .ping()
            .await
            .map_err(|error| failure::boot("agent", error))?,
        // The main command's start is an answer too.
        None => {}
    }
    match &spec.command {
        Some(command) if main => {
            step.set(MAIN_COMMAND);
            start_main(shared, spec, command).await
        }
        _ => Ok(()),
    }
}

async fn start_main(
    shared: &Rc<Shared>,
    spec: &SandboxSpec,
    command: &[ByteString],
) -> Result<(), Failure> {
    let stdio = match spec.tty {
        true => Stdio::Terminal {
            size: WindowSize::DEFAULT,
        },
        false => Stdio::Framed { stdin: false },
    };
    let start = JobStart {
        id: Some(MAIN.to_owned()),
        exec: ExecStart {
            argv: command.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
            env: Vec::new(),
            cwd: None,
            user: None,
            stdio,
            rlimits: Vec::new(),
            timeout_ms: None,
            kill_leftovers: false,
            ends_guest: false,
        },
    };
    match shared.jobs.start(shared, start).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(Failure {
            phase: failure.phase.or_else(|| Some(MAIN_COMMAND.to_owned())),
            ..failure
        }),
    }
}

async fn check_workdir(agent: &AgentClient, path: &ByteString) -> Result<(), Failure> {
    let wrong = |what: &str| Failure {
        phase: Some(WORKDIR.to_owned()),
        ..failure::plain(
            ErrorKind::InvalidInput,
            format!(
                "the working directory {} {what} in the sandbox",
                path.display()
            ),
        )
    };
    match kind_of(agent, path).await {
        Ok(FileKind::Directory) => Ok(()),
        Ok(_) => Err(wrong("is not a folder")),
        Err(AgentError::File(FileFailure { errno, .. }))
            if errno == rustix::io::Errno::NOENT.raw_os_error() =>
        {
            Err(wrong("does not exist"))
        }
        // It is there, as far as the guest's user may know; a command says more.
        Err(AgentError::File(_)) => Ok(()),
        Err(error) => Err(failure::boot("agent", error)),
    }
}

async fn kind_of(agent: &AgentClient, path: &ByteString) -> Result<FileKind, AgentError> {
    let stream = UnixStream::connect(agent.socket())
        .await
        .map_err(AgentError::Connect)?;
    let (mut reader, writer) = halves(stream);
    let hello = Hello {
        version: agent::VERSION,
        request: Request::File(FileRequest {
            user: None,
            op: FileOp::Stat {
                path: path.as_bytes().to_vec(),
                follow: true,
            },
        }),
    };
    writer.message(&hello).await?;
    match reader.message().await? {
        FileReply::Entry(entry) => Ok(entry.kind),
        FileReply::Failed(failure) => Err(AgentError::File(failure)),
        _ => Err(AgentError::Lost),
    }
}
