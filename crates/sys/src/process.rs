//! Making, watching and ending processes.

use std::ffi::CStr;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::raw::syscall;

/// Namespaces that a new process gets for itself: the kernel's `CLONE_NEW*` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces(u64);

impl Namespaces {
    pub const CGROUP: Self = Self(libc::CLONE_NEWCGROUP as u64);
    pub const IPC: Self = Self(libc::CLONE_NEWIPC as u64);
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);
    pub const NET: Self = Self(libc::CLONE_NEWNET as u64);
    pub const PID: Self = Self(libc::CLONE_NEWPID as u64);
    pub const TIME: Self = Self(0x80);
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
    pub const UTS: Self = Self(libc::CLONE_NEWUTS as u64);

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// These, without those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    /// Whether all of `other` are among these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How [`fork`] makes a process.
#[derive(Debug, Default)]
pub struct CloneArgs<'a> {
    pub namespaces: Namespaces,
    /// A cgroup v2 folder that the process is born into.
    pub cgroup: Option<BorrowedFd<'a>>,
}

#[repr(C)]
#[derive(Default)]
struct RawCloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// A child process. Dropping it neither kills nor reaps it.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It ended by itself with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Child {
    /// Its pid in this process's pid namespace.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Takes the pidfd out.
    pub fn into_pidfd(self) -> OwnedFd {
        self.pidfd
    }

    /// Waits for its end and reaps it.
    ///
    /// # Errors
    /// It was reaped already (`ECHILD`).
    pub fn wait(&self) -> Result<Exit> {
        wait(self.pidfd.as_fd())
    }

    /// Kills it and reaps it. One that ended already is no error.
    ///
    /// # Errors
    /// It was reaped already (`ECHILD`).
    pub fn kill_and_wait(&self) -> Result<Exit> {
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => self.wait(),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Makes a copy of this process (as `fork` does) that runs `child` and ends with the code it returns.
///
/// No handler that libc or others registered for `fork` runs. Where this process has other threads, `child` must not
/// allocate: one of them may hold the allocator's lock, and the copy would wait for it for ever.
///
/// # Errors
/// `clone3`'s: no namespace may be made (`EPERM`, `ENOSPC`), too many processes (`EAGAIN`), a namespace that the kernel
/// does not have (`EINVAL`).
pub fn fork<F: FnOnce() -> i32>(args: &CloneArgs<'_>, child: F) -> Result<Child> {
    let mut pidfd: i32 = -1;
    let mut raw = RawCloneArgs {
        flags: args.namespaces.0 | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..RawCloneArgs::default()
    };
    if let Some(cgroup) = args.cgroup {
        // CLONE_INTO_CGROUP
        raw.flags |= 0x2_0000_0000;
        raw.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: `raw` is a valid `clone_args` of the size given; without CLONE_VM the child runs on its own copy of the
    // memory and the stack.
    let pid = unsafe {
        syscall(
            libc::SYS_clone3,
            [
                &raw const raw as usize,
                size_of::<RawCloneArgs>(),
                0,
                0,
                0,
                0,
            ],
        )
    }?;
    match Pid::from_raw(pid as i32) {
        None => {
            // A panic must not unwind into the caller's frames, which are a copy here.
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
            exit_now(code)
        }
        Some(pid) => {
            // SAFETY: the kernel stored a new descriptor that nothing else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Child { pid, pidfd })
        }
    }
}

/// Ends this process at once, without running what was registered for its end.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any code and does not return.
    unsafe { libc::_exit(code) }
}

/// Opens a pidfd of a process, which is readable once it has ended.
///
/// # Errors
/// There is no such process (`ESRCH`).
pub fn pidfd_open(pid: Pid) -> Result<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// Sends a signal to the process that a pidfd names.
///
/// # Errors
/// It has ended and been reaped (`ESRCH`), or may not be signalled (`EPERM`).
pub fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<()> {
    rustix::process::pidfd_send_signal(pidfd, signal)
}

/// Waits for the end of a child named by its pidfd, and reaps it.
///
/// # Errors
/// It is not a child of this process, or was reaped already (`ECHILD`).
pub fn wait(pidfd: BorrowedFd<'_>) -> Result<Exit> {
    loop {
        match rustix::process::waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED) {
            Ok(Some(status)) => {
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, signal) => Exit::Signal(signal.unwrap_or(0)),
                });
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What a process and those of its descendants that were waited for have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Processor time, microseconds.
    pub cpu_us: u64,
    /// The most memory that one of them had at once, bytes.
    pub peak_memory: u64,
}

/// As [`wait`], with what the child used.
///
/// # Errors
/// As for [`wait`].
pub fn wait_with_usage(pidfd: BorrowedFd<'_>) -> Result<(Exit, Spent)> {
    const P_PIDFD: usize = 3;
    loop {
        // SAFETY: all zeroes is a valid value of both.
        let (mut info, mut usage): (libc::siginfo_t, libc::rusage) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: the kernel writes a `siginfo_t` and a `rusage` into the places given.
        let waited = unsafe {
            syscall(
                libc::SYS_waitid,
                [
                    P_PIDFD,
                    pidfd.as_raw_fd() as usize,
                    &raw mut info as usize,
                    libc::WEXITED as usize,
                    &raw mut usage as usize,
                    0,
                ],
            )
        };
        match waited {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        }
        // SAFETY: after a successful `waitid` the structure holds a child's status.
        let status = unsafe { info.si_status() };
        let exit = if info.si_code == libc::CLD_EXITED {
            Exit::Code(status)
        } else {
            Exit::Signal(status)
        };
        let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
        let spent = Spent {
            cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
            peak_memory: usage.ru_maxrss as u64 * 1024,
        };
        return Ok((exit, spent));
    }
}

/// Closes this process's copy of a descriptor that a parent's value still owns: for a child of [`fork`], which never
/// drops the values it has copies of.
pub fn close_copy(fd: BorrowedFd<'_>) {
    // SAFETY: no memory is involved; see above for ownership. Closing an open descriptor can't fail in a way that
    // leaves it open.
    let closed = unsafe { syscall(libc::SYS_close, [fd.as_raw_fd() as usize, 0, 0, 0, 0, 0]) };
    debug_assert!(closed.is_ok());
}

/// Replaces this process by the program that an open descriptor holds, with an empty environment.
///
/// Returns only where that failed.
pub fn exec_fd(program: BorrowedFd<'_>, argv: &[Option<&CStr>]) -> Errno {
    if argv.last().is_none_or(Option::is_some) {
        return Errno::INVAL;
    }
    let env: [usize; 1] = [0];
    // `Option<&CStr>` is a fat pointer; the kernel wants thin ones. Eight are plenty for what is started so.
    let mut pointers = [0_usize; 8];
    if argv.len() > pointers.len() {
        return Errno::TOOBIG;
    }
    for (slot, argument) in pointers.iter_mut().zip(argv) {
        *slot = argument.map_or(0, |a| a.as_ptr() as usize);
    }
    // SAFETY: all pointers are to NUL-terminated strings or NULL-terminated arrays that outlive the call.
    let result = unsafe {
        syscall(
            libc::SYS_execveat,
            [
                program.as_raw_fd() as usize,
                c"".as_ptr() as usize,
                pointers.as_ptr() as usize,
                env.as_ptr() as usize,
                libc::AT_EMPTY_PATH as usize,
                0,
            ],
        )
    };
    result.err().unwrap_or(Errno::NOEXEC)
}

/// Leaves namespaces for new ones of this process's own.
///
/// # Errors
/// `EPERM` without the rights, `EINVAL` where the kernel has no such namespace.
pub fn unshare(namespaces: Namespaces) -> Result<()> {
    // SAFETY: no memory is involved; a `CLONE_NEW*` bit shares nothing that Rust relies on.
    unsafe { syscall(libc::SYS_unshare, [namespaces.0 as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

/// A copy of a descriptor with a number of at least `least`, closed on exec.
///
/// # Errors
/// Too many descriptors (`EMFILE`).
pub fn duplicate_above(fd: BorrowedFd<'_>, least: i32) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, least)
}

/// Sets the number of processes that this process's user may have; it can never be raised again.
///
/// # Errors
/// `setrlimit`'s.
pub fn limit_processes(limit: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    setrlimit(
        Resource::Nproc,
        Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        },
    )
}

/// Closes every descriptor from `first` on.
///
/// The caller must not use any of them afterwards, whoever owns them: meant for a child that will exec next.
///
/// # Errors
/// The kernel has no `close_range` (before 5.9).
pub fn close_from(first: u32) -> Result<()> {
    // SAFETY: no memory is involved; see above for ownership.
    unsafe {
        syscall(
            libc::SYS_close_range,
            [first as usize, u32::MAX as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Marks every descriptor from `first` on as closed by exec.
///
/// # Errors
/// The kernel cannot (before 5.11).
pub fn cloexec_from(first: u32) -> Result<()> {
    const CLOSE_RANGE_CLOEXEC: usize = 4;
    // SAFETY: no memory is involved.
    unsafe {
        syscall(
            libc::SYS_close_range,
            [
                first as usize,
                u32::MAX as usize,
                CLOSE_RANGE_CLOEXEC,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// Makes `fd` be descriptor `number` of this process, replacing what was there, without close-on-exec.
///
/// For a child that will exec next: whoever owned `number` does so no more.
///
/// # Errors
/// `dup3`'s and `fcntl`'s.
pub fn place_fd(fd: BorrowedFd<'_>, number: i32) -> Result<()> {
    if fd.as_raw_fd() == number {
        return rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty());
    }
    // SAFETY: no memory is involved.
    unsafe {
        syscall(
            libc::SYS_dup3,
            [fd.as_raw_fd() as usize, number as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// What a signal does, in the kernel's layout.
#[repr(C)]
struct KernelSigaction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

static DEFAULT_ACTION: KernelSigaction = KernelSigaction {
    handler: libc::SIG_DFL,
    flags: 0,
    restorer: 0,
    mask: 0,
};

/// Whether this process ignores a signal, as one does that `nohup` or a shell without job control has started.
///
/// # Errors
/// There is no such signal.
pub fn is_ignored(signal: i32) -> Result<bool> {
    let mut found = KernelSigaction { ..DEFAULT_ACTION };
    let number = usize::try_from(signal).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes one `struct sigaction` of its layout, and changes nothing.
    unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [number, 0, &raw mut found as usize, 8, 0, 0],
        )
    }?;
    Ok(found.handler == libc::SIG_IGN)
}

/// Gives a signal its default action.
///
/// # Errors
/// There is no such signal, or it can't be changed.
pub fn default_signal(signal: i32) -> Result<()> {
    let number = usize::try_from(signal).map_err(|_| Errno::INVAL)?;
    // SAFETY: `DEFAULT_ACTION` is a valid `struct sigaction` of the kernel's layout and installs no handler.
    unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [number, &raw const DEFAULT_ACTION as usize, 0, 8, 0, 0],
        )
    }?;
    Ok(())
}

/// Resets every signal to its default action and unblocks all: for a child that will exec next.
///
/// # Errors
/// None on a known kernel.
pub fn default_signals() -> Result<()> {
    for signal in 1..=64 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            default_signal(signal)?;
        }
    }
    let none: u64 = 0;
    // SAFETY: `none` is a valid signal set of the size given.
    unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as usize,
                &raw const none as usize,
                0,
                8,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_signals_are_told_apart() {
        let child = fork(&CloneArgs::default(), || 7).expect("fork");
        assert_eq!(child.wait(), Ok(Exit::Code(7)));
        let child = fork(&CloneArgs::default(), || {
            loop {
                std::hint::spin_loop();
            }
        })
        .expect("fork");
        assert_eq!(child.kill_and_wait(), Ok(Exit::Signal(9)));
        assert_eq!(child.wait(), Err(Errno::CHILD));
    }

    #[test]
    fn a_panic_stays_in_the_child() {
        let child = fork(&CloneArgs::default(), || {
            std::panic::resume_unwind(Box::new(()))
        })
        .expect("fork");
        assert_eq!(child.wait(), Ok(Exit::Code(101)));
    }
}
