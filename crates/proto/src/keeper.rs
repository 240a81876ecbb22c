//! What a keeper is told, and what it says.
//!
//! A keeper is started with a [`Plan`] on descriptor 3 and reports [`Event`]s on descriptor 4 until it is `Ready` or has
//! `Failed`. After that it answers [`Request`]s on its control socket: one request a connection.
//!
//! | request | keeper answers |
//! |---|---|
//! | `Hold` | `Held` or `Refused`; the hold lasts as long as the connection |
//! | `AttachJob` | `Attached`, then the frames of an exec ([`crate::agent::ExecOut`], `Stdout`, `Stderr`) and `Lost` as [`JobNotice`]; the viewer sends [`crate::agent::ExecIn`] and `Stdin` frames |
//! | `RunJob` | as `AttachJob`, once the job runs |
//! | `Stop`, `Kill`, `Drain`, `Wait`, `WaitJob` | one reply, once it is so |
//! | others | one reply |

use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

use cosm_base::{ErrorKind, RunId, SandboxId};
use serde::{Deserialize, Serialize};

use crate::agent::{Bytes, ExecStart, ExitReport, ExitStatus, SpawnFailure, WindowSize};

/// The version of these messages. A keeper lives on when the program is replaced by a newer one, so both ends check.
pub const VERSION: u16 = 2;

/// What a keeper process is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`VERSION`].
    pub version: u16,
    /// The state folder.
    pub home: Bytes,
    /// The folder for sockets (of this state folder).
    pub runtime: Bytes,
    /// The sandbox.
    pub id: SandboxId,
    /// The ranges of the host's ids that root's sandboxes get; not used by others.
    pub ids: IdSlots,
    /// What to do.
    pub task: Task,
}

/// Where the ranges of ids for root's sandboxes lie on this host, 65,536 ids each.
///
/// The default starts at 0x7000_0000, above what `useradd` hands out from `/etc/subuid` and above systemd's containers,
/// and ends below systemd's range for foreign images (0x7ffe_0000): 4094 sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdSlots {
    /// The first id.
    pub first: u32,
    /// How many ranges.
    pub count: u32,
}

impl Default for IdSlots {
    fn default() -> Self {
        Self {
            first: 0x7000_0000,
            count: 4094,
        }
    }
}

/// The tasks of a keeper process. Each takes the sandbox's lock first and keeps it to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Make the sandbox and keep it.
    Create {
        /// The stored form of its spec, with a name.
        spec: Vec<u8>,
        /// Its start's id.
        run: RunId,
        /// The creator's process number on this host, for a lease: the keeper checks that it is its parent.
        lease: Option<i32>,
        /// Start it; else it is only made.
        start: bool,
        /// Leave the start of the main command to the creator, who runs it as the job `main` with `RunJob`.
        hold: bool,
    },
    /// Start a stopped sandbox from its stored spec.
    Start {
        /// The start's id.
        run: RunId,
        /// As in `Create`.
        lease: Option<i32>,
    },
    /// Remove a stopped or crashed sandbox with all that is left of it.
    Remove,
    /// Clean up after a keeper that was killed; removes the sandbox if it was to be removed on exit or never got
    /// as far as a row.
    Reap,
}

/// The phase from which on a new guest's sockets take connections, though nobody answers them yet: a first command may
/// be sent ahead. Told only where nothing else has to happen before that command.
pub const LISTENING: &str = "listening";

/// What a keeper reports to its starter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// It is at this phase: [`LISTENING`], or one that takes long enough for somebody to wonder.
    Phase(String),
    /// The task is done; for `Create` and `Start`: the guest runs and the control socket answers.
    Ready(ReadyReport),
    /// It failed, and nothing is left behind.
    Failed(Failure),
}

/// A guest that runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReadyReport {
    /// Where the time went, in order: a name and microseconds.
    pub timings: Vec<(String, u64)>,
    /// Things worth a warning: defaults that could not be enforced.
    pub notes: Vec<String>,
}

/// Something that failed, as it crosses a process boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind.
    pub kind: ErrorKind,
    /// The phase, for a boot.
    pub phase: Option<String>,
    /// The sentence, with its causes.
    pub message: String,
    /// What would help.
    pub hints: Vec<String>,
    /// The end of the log.
    pub log_tail: Bytes,
    /// How a command failed to start, where it was that.
    pub spawn: Option<Box<SpawnFailure>>,
}

/// The first frame on the control socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// [`VERSION`].
    pub version: u16,
    /// The request.
    pub request: Request,
}

/// What can be asked of a keeper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// How is it?
    Status,
    /// An operation is about to use the guest. Counts as activity; refused while draining.
    Hold,
    /// End the guest: ask, wait, kill.
    Stop {
        /// Between asking and killing; `None` is the spec's. 0 kills at once.
        grace_ms: Option<u64>,
        /// Whether to kill when it is over; else the answer is `TimedOut` and the guest runs on.
        kill: bool,
        /// The sandbox is being replaced by another of its name.
        replaced: bool,
    },
    /// End the guest now.
    Kill,
    /// Accept nothing new, wait for what runs, then stop.
    Drain,
    /// Wait for the end.
    Wait,
    /// Give up the lease: the sandbox becomes persistent.
    Detach,
    /// Stop or resume all processes.
    Freeze(bool),
    /// Run a command as a job.
    StartJob(JobStart),
    /// All jobs, ended ones too.
    ListJobs,
    /// See and steer a job.
    AttachJob {
        /// Its id.
        job: String,
        /// The viewer must miss nothing: the job waits for it.
        lossless: bool,
        /// Send what the ring still holds first.
        replay: bool,
        /// The viewer's terminal, for a job with one.
        size: Option<WindowSize>,
    },
    /// Send a signal to a job.
    SignalJob {
        /// Its id.
        job: String,
        /// The signal's number.
        signal: i32,
        /// To all its descendants.
        tree: bool,
    },
    /// Wait for a job's end.
    WaitJob {
        /// Its id.
        job: String,
    },
    /// One sample of what the guest uses, as the host counts.
    Usage,
    /// Run a command as a job and see it from its first byte: the job waits for this viewer, and so does the keeper
    /// after the guest's end.
    RunJob(JobStart),
}

/// A command to run as a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobStart {
    /// Its id; `None` gets the next number.
    pub id: Option<String>,
    /// The command. Its `stdio` is `Framed` or `Terminal`.
    pub exec: ExecStart,
}

/// A keeper's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It was done.
    Ok,
    /// The hold is there.
    Held,
    /// It can't be done now, or at all.
    Refused(Failure),
    /// How it is.
    Status(StatusReport),
    /// It ended.
    Ended(EndReport),
    /// The time was over and the guest runs on.
    TimedOut,
    /// The job runs.
    Job(JobReport),
    /// All jobs.
    Jobs(Vec<JobReport>),
    /// The viewer is attached; frames follow.
    Attached(JobReport),
    /// What the guest uses.
    Usage(GuestUsage),
}

/// What a viewer is told besides the frames of an exec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobNotice {
    /// This many bytes of output went by too fast for this viewer.
    Lost(u64),
    /// What an exec says.
    Exec(crate::agent::ExecOut),
}

/// How a sandbox is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The run.
    pub run: RunId,
    /// `starting`, `running`, `draining`, `paused` or `stopping`.
    pub state: String,
    /// Since it runs, milliseconds.
    pub uptime_ms: u64,
    /// Operations that use the guest now.
    pub holds: u32,
    /// Jobs that run.
    pub jobs: u32,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndReport {
    /// The main command's end, else process 1's.
    pub status: Option<ExitStatus>,
    /// Why it ended.
    pub reason: EndReason,
    /// It had to be killed.
    pub killed: bool,
    /// What it used, as the host counts.
    pub usage: GuestUsage,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The main command ended, or the one command that the guest was made for.
    Exited,
    /// Somebody stopped it.
    Stopped,
    /// Somebody killed it.
    Killed,
    /// It was drained.
    Drained,
    /// Another sandbox took its name.
    Replaced,
    /// Its creator ended.
    LeaseEnded,
    /// It had run as long as it may.
    MaxDuration,
    /// It had been idle for as long as it may.
    Idle,
    /// Memory ran out.
    OutOfMemory,
    /// Process 1 ended by itself: the guest broke.
    GuestDied,
    /// Its keeper was killed, so nobody saw the end.
    KeeperLost,
    /// Its keeper was told to end, by a signal.
    KeeperSignalled,
    /// Its files took more of the disk than they may.
    OutOfDisk,
}

/// What a guest uses and has used, as the host counts. `None` where the host can't tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuestUsage {
    /// Processor time in all, microseconds.
    pub cpu_us: Option<u64>,
    /// Memory now, bytes.
    pub memory: Option<u64>,
    /// The most memory so far, bytes.
    pub peak_memory: Option<u64>,
    /// The limit on memory, bytes.
    pub memory_limit: Option<u64>,
    /// Processes and threads now.
    pub pids: Option<u64>,
    /// The limit on them.
    pub pids_limit: Option<u64>,
    /// Bytes read from block devices.
    pub read_bytes: Option<u64>,
    /// Bytes written to block devices.
    pub write_bytes: Option<u64>,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// Its id: `main` or a number, or as asked.
    pub id: String,
    /// The program and its arguments.
    pub argv: Vec<Bytes>,
    /// Its process in the guest, once started.
    pub pid: Option<i32>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Started, milliseconds since 1970.
    pub started_ms: u64,
    /// Its end, if it has ended.
    pub exit: Option<ExitReport>,
    /// Why it could not start.
    pub failed: Option<Failure>,
}
