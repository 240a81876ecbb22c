//! What the host and the agent say to each other.
//!
//! One connection is one operation. The host sends a [`Hello`] whose [`Request`] says which; the rest of the
//! conversation depends on it:
//!
//! The agent may answer any of them with a `Refused` frame and close.
//!
//! | request | host sends after it | agent answers |
//! |---|---|---|
//! | `Exec` | [`ExecIn`], `Stdin` frames | [`ExecOut`], `Stdout`/`Stderr` frames; `Exit` or `Failed` is last |
//! | `File` | depends on the operation, see [`FileRequest`] | [`FileReply`], `Data` frames; `Done` or `Failed` is last |
//! | `System` | nothing | one [`SystemReply`] |

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// The version of this protocol. Host and agent are always built together; the number catches a socket that leads
/// somewhere else.
pub const VERSION: u16 = 1;

/// How many bytes of `Stdin` frames may be on their way: sent, and not yet told of by [`ExecOut::StdinTaken`].
pub const STDIN_WINDOW: usize = 256 << 10;

/// Any bytes: arguments, paths, names. Never assumed to be UTF-8.
pub type Bytes = Vec<u8>;

/// What the driver tells the agent before it starts, on descriptor 4 (a sealed memfd), as one postcard value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentBoot {
    /// [`VERSION`].
    pub version: u16,
    /// The environment that every command starts from; `PATH` is always there.
    pub env: Vec<(Bytes, Bytes)>,
    /// The working directory of a command that names none.
    pub workdir: Bytes,
    /// The user of a command that names none: `name`, `id`, with `:group` after it; `None` is root.
    pub user: Option<Bytes>,
    /// The shell for scripts; `None` is `/bin/sh`.
    pub shell: Option<Bytes>,
    /// Limits that every command gets unless it names its own.
    pub rlimits: Vec<Rlimit>,
    /// A writable cgroup v2 folder in the guest for commands' own. This version's agent makes none.
    pub cgroup: Option<Bytes>,
    /// True when the agent may not change its ids (no capabilities): every command runs as the agent does.
    pub fixed_user: bool,
}

/// The first frame of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u16,
    /// What the connection is for.
    pub request: Request,
}

/// What a connection is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Run a command.
    Exec(ExecStart),
    /// Work on files.
    File(FileRequest),
    /// Ask or tell the guest as a whole.
    System(SystemRequest),
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStart {
    /// The program and its arguments, as `execve` gets them. The program is looked up on the command's PATH unless
    /// it has a slash.
    pub argv: Vec<Bytes>,
    /// Added to the sandbox's environment, by name.
    pub env: Vec<(Bytes, Bytes)>,
    /// The working directory; `None` is the sandbox's.
    pub cwd: Option<Bytes>,
    /// The user; `None` is the sandbox's.
    pub user: Option<Bytes>,
    /// Where standard input, output and error come from and go to.
    pub stdio: Stdio,
    /// Limits, over the sandbox's.
    pub rlimits: Vec<Rlimit>,
    /// Kill the whole tree after this many milliseconds.
    pub timeout_ms: Option<u64>,
    /// When the command itself has ended: kill what it left running instead of letting it live on.
    pub kill_leftovers: bool,
    /// When it has returned 0 and left nothing running: end the guest, once the host knows. A guest that is made for one
    /// command need not wait to be told.
    pub ends_guest: bool,
}

/// How a command's standard streams reach the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// Descriptors came with the `Hello` frame (SCM_RIGHTS), in this order: standard input's reading end if
    /// `stdin`, standard output's writing end, standard error's writing end.
    Passed {
        /// Whether a descriptor for standard input came; else it is `/dev/null`.
        stdin: bool,
    },
    /// `Stdin`, `Stdout` and `Stderr` frames on this connection.
    Framed {
        /// Whether `Stdin` frames will come; else standard input is `/dev/null`.
        stdin: bool,
    },
    /// A new terminal is all three; its output comes as `Stdout` frames, its input goes as `Stdin` frames.
    Terminal {
        /// Its first size.
        size: WindowSize,
    },
}

/// A terminal's size in characters. `0` is allowed and means unknown, as in `TIOCSWINSZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

impl WindowSize {
    /// The size where nobody gives one.
    pub const DEFAULT: Self = Self { rows: 24, cols: 80 };
}

/// Which of the 16 POSIX resource limits; the numbers are those of `setrlimit` on Linux (all architectures we
/// build for).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are setrlimit(2)'s own")]
pub enum RlimitKind {
    Cpu = 0,
    Fsize = 1,
    Data = 2,
    Stack = 3,
    Core = 4,
    Rss = 5,
    Nproc = 6,
    Nofile = 7,
    Memlock = 8,
    As = 9,
    Locks = 10,
    Sigpending = 11,
    Msgqueue = 12,
    Nice = 13,
    Rtprio = 14,
    Rttime = 15,
}

/// One resource limit; `u64::MAX` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Which.
    pub kind: RlimitKind,
    /// What the command is held to.
    pub soft: u64,
    /// How far it may raise that itself.
    pub hard: u64,
}

/// What the host says to a running command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecIn {
    /// No more input will come (`Framed`). For a terminal this sends its end-of-file character.
    StdinEof,
    /// The terminal's new size.
    Resize(WindowSize),
    /// Send this signal to the command; with `tree`, to all its descendants.
    Signal {
        /// The signal's number.
        signal: i32,
        /// All descendants too.
        tree: bool,
    },
    /// Kill the whole tree now.
    Kill,
}

/// What the agent says of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecOut {
    /// It runs, as this process in the guest.
    Started {
        /// The process's number in the guest.
        pid: i32,
    },
    /// It could not be started. Last.
    Failed(SpawnFailure),
    /// So many more bytes of `Stdin` frames reached the command (`Framed`, `Terminal`). The host never has more than
    /// [`STDIN_WINDOW`] bytes on their way, so that a command that does not read can still be signalled.
    StdinTaken(u32),
    /// It no longer reads its input; what was sent after this point is lost (`Framed`).
    StdinClosed,
    /// It ended. Last, always sent.
    Exit(ExitReport),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// Its code or its signal.
    pub status: ExitStatus,
    /// Its time was over, so the tree was killed.
    pub timed_out: bool,
    /// The kernel killed something in it for want of memory, as far as can be told.
    pub oom: bool,
    /// Descendants of it still run.
    pub leftovers: bool,
    /// What it used.
    pub usage: Usage,
}

/// A code or a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// What a command used. Fields that can't be told are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Where the numbers come from.
    pub source: UsageSource,
    /// Time on a processor in its own code, microseconds.
    pub user_us: Option<u64>,
    /// Time on a processor in the kernel, microseconds.
    pub system_us: Option<u64>,
    /// The most memory at any moment, bytes: of the whole cgroup, or (`Rusage`) of the largest process.
    pub peak_memory: Option<u64>,
    /// Bytes read from block devices.
    pub read_bytes: Option<u64>,
    /// Bytes written to block devices.
    pub write_bytes: Option<u64>,
    /// From start to exit, microseconds.
    pub wall_us: u64,
}

/// Where usage numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// `wait4`: the command and all of its tree who had ended by then.
    #[default]
    Rusage,
    /// A cgroup of its own: everything in it. No agent of this version says so.
    Cgroup,
}

/// Why a command could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnFailure {
    /// The kind.
    pub reason: SpawnReason,
    /// The system's error number; 0 where there is none.
    pub errno: i32,
    /// What it was about: the program, the folder, the user.
    pub subject: Bytes,
}

/// The kinds of failure to start a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnReason {
    /// No such program.
    NotFound,
    /// The program may not be executed.
    PermissionDenied,
    /// It is no program that this kernel can execute, or its interpreter is missing.
    NotExecutable,
    /// The working directory is missing or not one.
    BadCwd,
    /// No such user or group, or the guest has no such id.
    BadUser,
    /// Processes, memory or descriptors ran out, or a limit could not be set.
    ResourceLimit,
    /// The arguments and the environment are too long.
    ArgumentsTooLong,
    /// The request itself is wrong.
    BadRequest,
    /// Anything else; the error number says.
    Other,
}

/// Work on files. Paths are the guest's; the agent resolves them as the guest sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRequest {
    /// Act as this user; `None` is the sandbox's.
    pub user: Option<Bytes>,
    /// What to do.
    pub op: FileOp,
}

/// The file operations. Where not said otherwise the answer is `Done` or `Failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOp {
    /// Answer: `Data` frames, then `Done`.
    Read {
        /// The file.
        path: Bytes,
        /// From this byte.
        offset: u64,
        /// At most this many bytes; `u64::MAX` is all.
        length: u64,
    },
    /// The host sends `Data` frames and then an empty one. `Done` comes after the file is closed.
    Write {
        /// The file.
        path: Bytes,
        /// Permissions of a new file; `None` is 0644.
        mode: Option<u32>,
        /// Add to its end instead of replacing its content.
        append: bool,
        /// Fail if it exists.
        create_new: bool,
    },
    /// Answer: `Entry` for each, then `Done`.
    List {
        /// The folder.
        path: Bytes,
    },
    /// Answer: `Entry`, then `Done`.
    Stat {
        /// The path.
        path: Bytes,
        /// Of what a link points to, rather than of the link.
        follow: bool,
    },
    /// Makes a folder.
    Mkdir {
        /// The folder.
        path: Bytes,
        /// Permissions; `None` is 0755.
        mode: Option<u32>,
        /// Its parents too, and none of it need be new.
        parents: bool,
    },
    /// Removes a file, a link or (with `recursive`) a tree. An empty folder needs no `recursive`.
    Remove {
        /// The path.
        path: Bytes,
        /// With all that is below.
        recursive: bool,
    },
    /// Copies within the guest.
    Copy {
        /// From.
        from: Bytes,
        /// To.
        to: Bytes,
        /// Trees too.
        recursive: bool,
    },
    /// Renames within the guest.
    Rename {
        /// From.
        from: Bytes,
        /// To.
        to: Bytes,
    },
    /// Makes a symbolic link.
    Symlink {
        /// What the link says.
        target: Bytes,
        /// The link.
        path: Bytes,
    },
    /// Answer: `Link`, then `Done`.
    Readlink {
        /// The link.
        path: Bytes,
    },
    /// Sets permissions.
    Chmod {
        /// The path.
        path: Bytes,
        /// The low 12 bits of the mode.
        mode: u32,
    },
    /// Sets owners; `None` leaves one as it is.
    Chown {
        /// The path.
        path: Bytes,
        /// The user's id in the guest.
        uid: Option<u32>,
        /// The group's id in the guest.
        gid: Option<u32>,
        /// The link itself rather than what it points to.
        link: bool,
    },
    /// Answer: `Done` once the watch is set, then `Changed` for each change until the host closes.
    Watch {
        /// A file or a folder (its direct children).
        path: Bytes,
    },
    /// Sends a file or a tree: `Entry` (path relative to the root, empty for the root itself) and, for each regular
    /// file, `Chunk` + `Data` pairs in rising order with holes left out; `Done`.
    SendTree {
        /// The root.
        path: Bytes,
        /// Follow the root if it is a link.
        follow: bool,
    },
    /// Receives what `SendTree` sends: the host sends [`TreeItem`]s. Nothing is ever written outside `path`.
    ReceiveTree {
        /// The root to make.
        path: Bytes,
    },
}

/// What the agent says of work on files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    /// It is done. Last (but see `Watch`).
    Done,
    /// It failed. Last.
    Failed(FileFailure),
    /// A file.
    Entry(Entry),
    /// What a link says.
    Link(Bytes),
    /// The next `Data` frame belongs at this offset of the last entry.
    Chunk {
        /// The offset in bytes.
        offset: u64,
    },
    /// Something changed.
    Changed(Change),
}

/// What the host sends to `ReceiveTree`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeItem {
    /// The next file; its path is relative to the root.
    Entry(Entry),
    /// The next `Data` frame belongs at this offset of the last entry.
    Chunk {
        /// The offset in bytes.
        offset: u64,
    },
    /// That was all.
    End,
}

/// A failed file operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFailure {
    /// The system's error number.
    pub errno: i32,
    /// The path it was about.
    pub path: Bytes,
}

/// A file as `stat` sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name in a listing, its relative path in a tree, as asked in a `stat`.
    pub path: Bytes,
    /// What it is.
    pub kind: FileKind,
    /// The low 12 bits of its mode.
    pub mode: u32,
    /// Its owner in the guest.
    pub uid: u32,
    /// Its group in the guest.
    pub gid: u32,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes on disk.
    pub allocated: u64,
    /// Its last change, seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
    /// What it says, if it is a symbolic link.
    pub target: Option<Bytes>,
    /// In a tree: an earlier entry's path that this is another name of.
    pub hard_link: Option<Bytes>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// A change that a watch saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The child's name, or empty for the watched path itself.
    pub name: Bytes,
}

/// What happened to a watched path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ChangeKind {
    Created,
    Modified,
    Attributes,
    Removed,
    MovedFrom,
    MovedTo,
    /// Changes were lost: the kernel's queue was full. Look again.
    Overflow,
}

/// About the guest as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemRequest {
    /// Are you there?
    Ping,
    /// Send this signal to every process but the agent and its handlers.
    SignalAll(i32),
    /// What the guest's own files say of its use.
    Stats,
}

/// The answer to a [`SystemRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemReply {
    /// Yes; or done.
    Ok,
    /// It failed with this error number.
    Failed(i32),
    /// The guest's use.
    Stats(GuestStats),
}

/// The guest's use, as it sees itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GuestStats {
    /// Processes, the agent's own left out.
    pub processes: u32,
    /// Resident memory of those processes, bytes (shared pages count once per process).
    pub resident: u64,
    /// Their time on a processor, microseconds.
    pub cpu_us: u64,
}
