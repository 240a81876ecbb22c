//! From a resolved command to a running one.

use alloc::vec::Vec;

use cosm_proto::agent::{Rlimit as LimitRequest, RlimitKind, SpawnFailure, SpawnReason};
use cosm_sys_guest::{self as sys, Fork};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Resource, Rlimit, Signal, chdir, ioctl_tiocsctty, set_parent_process_death_signal, setrlimit,
    setsid,
};

use super::command::Command;
use super::failure;
use super::stdio::{self, Ours, Theirs};
use super::tree::Tree;

/// A command on its way.
pub(super) struct Spawned {
    pub(super) tree: Tree,
    pub(super) ours: Ours,
    /// Says why the command could not begin; closes without a word once it has.
    pub(super) verdict: OwnedFd,
    /// Names what a verdict may be about.
    pub(super) subjects: Subjects,
}

/// What failures are about.
#[derive(Debug)]
pub(super) struct Subjects {
    program: Vec<u8>,
    cwd: Vec<u8>,
    user: Vec<u8>,
}

/// Which step failed, as the child tells it: one byte for the step, four for the error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    Prepare = 1,
    Limits = 2,
    User = 3,
    Cwd = 4,
    Exec = 5,
    /// The file is there, but executing it says that there is no such file: its interpreter is missing.
    Interpreter = 6,
}

pub(super) const VERDICT: usize = 5;

pub(super) fn spawn(
    command: &Command,
    ours: Ours,
    theirs: Theirs,
    exits: OwnedFd,
) -> core::result::Result<Spawned, SpawnFailure> {
    let out = |errno| failure(SpawnReason::ResourceLimit, errno, command.program());
    let (verdict, speak) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(out)?;
    let subjects = Subjects {
        program: command.program().to_vec(),
        cwd: command.cwd.to_bytes().to_vec(),
        user: command.user_text.clone(),
    };
    match sys::fork().map_err(out)? {
        Fork::Child => {
            let (stage, errno) = become_command(command, &theirs);
            let mut bytes = [stage as u8, 0, 0, 0, 0];
            bytes[1..].copy_from_slice(&errno.raw_os_error().to_le_bytes());
            // An empty pipe takes five bytes; the parent reads it whatever happens.
            rustix::io::write(&speak, &bytes).unwrap_or_default();
            sys::exit(127)
        }
        Fork::Parent(child) => Ok(Spawned {
            tree: Tree::new(child, exits),
            ours,
            verdict,
            subjects,
        }),
    }
}

impl Subjects {
    /// What the child's last words mean.
    pub(super) fn failure(&self, words: [u8; VERDICT]) -> SpawnFailure {
        let errno =
            Errno::from_raw_os_error(i32::from_le_bytes([words[1], words[2], words[3], words[4]]));
        let (reason, subject) = match words[0] {
            stage if stage == Stage::Limits as u8 => (SpawnReason::ResourceLimit, &b"rlimit"[..]),
            stage if stage == Stage::User as u8 => (SpawnReason::BadUser, self.user.as_slice()),
            stage if stage == Stage::Cwd as u8 => (SpawnReason::BadCwd, self.cwd.as_slice()),
            stage if stage == Stage::Exec as u8 => (exec_reason(errno), self.program.as_slice()),
            stage if stage == Stage::Interpreter as u8 => {
                (SpawnReason::NotExecutable, self.program.as_slice())
            }
            _ => (SpawnReason::Other, self.program.as_slice()),
        };
        failure(reason, errno, subject)
    }
}

fn exec_reason(errno: Errno) -> SpawnReason {
    match errno {
        Errno::NOENT | Errno::NOTDIR => SpawnReason::NotFound,
        Errno::ACCESS | Errno::PERM | Errno::ISDIR => SpawnReason::PermissionDenied,
        Errno::NOEXEC | Errno::INVAL | Errno::LIBBAD => SpawnReason::NotExecutable,
        Errno::TOOBIG => SpawnReason::ArgumentsTooLong,
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE => SpawnReason::ResourceLimit,
        _ => SpawnReason::Other,
    }
}

/// The child's whole life before it is the command. Returns only if that failed.
fn become_command(command: &Command, theirs: &Theirs) -> (Stage, Errno) {
    if let Err(errno) = enter(command, theirs) {
        return (Stage::Prepare, errno);
    }
    if let Err(errno) = command.rlimits.iter().try_for_each(limit) {
        return (Stage::Limits, errno);
    }
    if let Err(errno) = command.user.assume() {
        return (Stage::User, errno);
    }
    // Set after the change of ids, which clears it: without its handler nobody would hold the command to anything.
    if let Err(errno) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return (Stage::Prepare, errno);
    }
    if let Err(errno) = chdir(command.cwd.as_c_str()) {
        return (Stage::Cwd, errno);
    }
    if let Err(errno) = sys::notice_child_exits().and_then(|()| sys::unblock_all()) {
        return (Stage::Prepare, errno);
    }
    execute(command)
}

/// A session of its own, with these streams.
fn enter(command: &Command, theirs: &Theirs) -> Result<()> {
    setsid()?;
    match theirs {
        Theirs::Streams {
            stdin,
            stdout,
            stderr,
        } => {
            match stdin {
                Some(stdin) => sys::place(stdin.as_fd(), 0)?,
                None => sys::place(stdio::null()?.as_fd(), 0)?,
            }
            sys::place(stdout.as_fd(), 1)?;
            sys::place(stderr.as_fd(), 2)
        }
        Theirs::Terminal(terminal) => {
            ioctl_tiocsctty(terminal)?;
            if command.user.change {
                let owner = rustix::process::Uid::from_raw(command.user.uid);
                // Where the guest maps no such id, becoming that user fails next, and says so.
                rustix::fs::fchown(terminal, Some(owner), None).unwrap_or_default();
            }
            (0..3).try_for_each(|number| sys::place(terminal.as_fd(), number))
        }
    }
}

fn limit(request: &LimitRequest) -> Result<()> {
    let bound = |value: u64| (value != u64::MAX).then_some(value);
    setrlimit(
        resource(request.kind),
        Rlimit {
            current: bound(request.soft),
            maximum: bound(request.hard),
        },
    )
}

const fn resource(kind: RlimitKind) -> Resource {
    match kind {
        RlimitKind::Cpu => Resource::Cpu,
        RlimitKind::Fsize => Resource::Fsize,
        RlimitKind::Data => Resource::Data,
        RlimitKind::Stack => Resource::Stack,
        RlimitKind::Core => Resource::Core,
        RlimitKind::Rss => Resource::Rss,
        RlimitKind::Nproc => Resource::Nproc,
        RlimitKind::Nofile => Resource::Nofile,
        RlimitKind::Memlock => Resource::Memlock,
        RlimitKind::As => Resource::As,
        RlimitKind::Locks => Resource::Locks,
        RlimitKind::Sigpending => Resource::Sigpending,
        RlimitKind::Msgqueue => Resource::Msgqueue,
        RlimitKind::Nice => Resource::Nice,
        RlimitKind::Rtprio => Resource::Rtprio,
        RlimitKind::Rttime => Resource::Rttime,
    }
}

/// Tries each candidate as `execvp` does: a folder of PATH without the program is no error, and one that may not be
/// looked into is only if no later one has it.
fn execute(command: &Command) -> (Stage, Errno) {
    let mut worst = (Stage::Exec, Errno::NOENT);
    for candidate in &command.candidates {
        let errno = sys::execve(candidate, &command.argv, &command.env);
        match errno {
            Errno::NOENT if rustix::fs::stat(candidate.as_c_str()).is_ok() => {
                return (Stage::Interpreter, errno);
            }
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => worst = (Stage::Exec, errno),
            _ => return (Stage::Exec, errno),
        }
    }
    worst
}
