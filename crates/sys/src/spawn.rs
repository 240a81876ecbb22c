//! Starting a helper program cleanly: only the descriptors named, only the environment given, a session of its own.
//!
//! The child borrows this process's memory until it has executed the program (as `vfork` does), so that starting one
//! costs the same however big this process is.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::Pid;

use crate::process;
use crate::raw::syscall;

/// What to start, and with what.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// Path of the program.
    pub program: &'a CStr,
    /// Its arguments, the program's own name first.
    pub args: &'a [&'a CStr],
    /// Its environment, `NAME=value` each.
    pub env: &'a [&'a CStr],
    /// Which descriptor becomes which number. Every other one from 3 on is closed. Numbers 0 to 2 that are not named are
    /// `/dev/null`.
    pub fds: &'a [(BorrowedFd<'a>, RawFd)],
    /// The folder it starts in; `None` is this process's.
    pub workdir: Option<&'a CStr>,
    /// Whether it leads a session of its own, away from this process's terminal.
    pub new_session: bool,
}

/// A program that was started. Dropping it neither kills nor reaps it.
#[derive(Debug)]
pub struct Spawned {
    pub pid: Pid,
    pub pidfd: OwnedFd,
}

const STACK: usize = 64 * 1024;
/// More descriptors than this are not handed to a helper.
const MAX_FDS: usize = 16;

struct Task<'a> {
    program: *const c_char,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    null: BorrowedFd<'a>,
    spawn: &'a Spawn<'a>,
    /// Where the child says what went wrong: its memory is ours.
    failure: Option<Errno>,
}

/// Starts a program, and returns once it has been executed.
///
/// # Errors
/// Why it could not be: the program is missing or not executable, or there are too many processes.
pub fn spawn(what: &Spawn<'_>) -> io::Result<Spawned> {
    if what.fds.len() > MAX_FDS
        || what
            .fds
            .iter()
            .any(|(_, number)| *number < 0 || *number >= 64)
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let pointers = |list: &[&CStr]| {
        list.iter()
            .map(|c| c.as_ptr())
            .chain([std::ptr::null()])
            .collect::<Vec<_>>()
    };
    let mut task = Task {
        program: what.program.as_ptr(),
        argv: pointers(what.args),
        envp: pointers(what.env),
        null: null.as_fd(),
        spawn: what,
        failure: None,
    };
    // A stack of the allocator's: never executed, 16-byte aligned below.
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end;
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let masked = MaskedSignals::new()?;
    // SAFETY: the child runs `child` on a stack of its own while this thread is suspended (CLONE_VFORK), so `task`, the
    // stack and the strings outlive its use of them; it makes only raw system calls; no signal handler can run in it.
    let pid = unsafe {
        libc::clone(
            child,
            top.cast(),
            flags,
            (&raw mut task).cast::<c_void>(),
            &raw mut pidfd,
        )
    };
    let error = io::Error::last_os_error();
    drop(masked);
    let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else {
        return Err(error);
    };
    // SAFETY: the kernel stored a new descriptor that nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    match task.failure {
        None => Ok(Spawned { pid, pidfd }),
        Some(errno) => {
            process::wait(pidfd.as_fd())?;
            Err(errno.into())
        }
    }
}

extern "C" fn child(task: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to a `Task` that outlives this child's use of it, and is suspended meanwhile.
    let task = unsafe { &mut *task.cast::<Task<'_>>() };
    let Err(errno) = prepare(task) else { return 0 };
    task.failure = Some(errno);
    127
}

fn prepare(task: &Task<'_>) -> rustix::io::Result<()> {
    let what = task.spawn;
    if what.new_session {
        rustix::process::setsid()?;
    }
    if let Some(folder) = what.workdir {
        rustix::process::chdir(folder)?;
    }
    // First out of the way of each other, then in place.
    let mut parked = [0_i32; MAX_FDS];
    for (slot, (fd, _)) in parked.iter_mut().zip(what.fds) {
        *slot = duplicate_above(fd.as_raw_fd(), 64)?;
    }
    let null = duplicate_above(task.null.as_raw_fd(), 64)?;
    for number in 0..3 {
        // SAFETY: this process's table of descriptors is its own, and it ends or executes next.
        process::place_fd(unsafe { BorrowedFd::borrow_raw(null) }, number)?;
    }
    let mut first_free = 3;
    for (slot, (_, number)) in parked.iter().zip(what.fds) {
        // SAFETY: as above.
        process::place_fd(unsafe { BorrowedFd::borrow_raw(*slot) }, *number)?;
        first_free = first_free.max(*number as u32 + 1);
    }
    process::close_from(first_free)?;
    for number in 3..first_free as i32 {
        if !what.fds.iter().any(|(_, wanted)| *wanted == number) {
            // SAFETY: as above.
            match unsafe { syscall(libc::SYS_close, [number as usize, 0, 0, 0, 0, 0]) } {
                Ok(_) | Err(Errno::BADF) => {}
                Err(error) => return Err(error),
            }
        }
    }
    process::default_signals()?;
    // SAFETY: NUL-terminated strings and NULL-terminated arrays that outlive the call.
    unsafe {
        syscall(
            libc::SYS_execve,
            [
                task.program as usize,
                task.argv.as_ptr() as usize,
                task.envp.as_ptr() as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

fn duplicate_above(fd: RawFd, least: i32) -> rustix::io::Result<RawFd> {
    // SAFETY: no memory is involved.
    unsafe {
        syscall(
            libc::SYS_fcntl,
            [
                fd as usize,
                libc::F_DUPFD_CLOEXEC as usize,
                least as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(|fd| fd as RawFd)
}

/// All signals blocked in this thread for as long as this lives.
struct MaskedSignals {
    before: libc::sigset_t,
}

impl MaskedSignals {
    fn new() -> io::Result<Self> {
        // SAFETY: both sets are valid places to write a set to.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) {
                0 => Ok(Self { before }),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }
}

impl Drop for MaskedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` is the set that `new` stored.
        let code = unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
        debug_assert_eq!(code, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn run(script: &CStr, fds: &[(BorrowedFd<'_>, RawFd)]) -> process::Exit {
        let args = [c"sh", c"-c", script];
        let what = Spawn {
            program: c"/bin/sh",
            args: &args,
            env: &[c"A=1"],
            fds,
            workdir: Some(c"/"),
            new_session: true,
        };
        let started = spawn(&what).expect("spawn");
        process::wait(started.pidfd.as_fd()).expect("wait")
    }

    #[test]
    fn only_what_was_named_is_there() {
        let (mut reader, writer) = io::pipe().expect("pipe");
        let leaked = std::fs::File::open("/dev/zero").expect("open");
        // A descriptor that a careless host program left open for its children.
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).expect("fcntl");
        let script = c"echo $A $PWD $(ls -l /proc/$$/fd | grep -c zero) $(readlink /proc/$$/fd/0) >&5; exec >&5; \
            awk '{exit !($1==$6)}' /proc/$$/stat && echo leads";
        assert_eq!(run(script, &[(writer.as_fd(), 5)]), process::Exit::Code(0));
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).expect("read");
        assert_eq!(said, "1 / 0 /dev/null\nleads\n");
    }

    #[test]
    fn numbers_that_cross_are_kept_apart() {
        let (one, two) = (
            std::fs::File::open("/dev/zero").expect("open"),
            std::fs::File::open("/dev/full").expect("open"),
        );
        let crossed = [
            (one.as_fd(), two.as_raw_fd().min(9)),
            (two.as_fd(), one.as_raw_fd().min(8)),
        ];
        let script = std::ffi::CString::new(format!(
            "test $(readlink /proc/$$/fd/{}) = /dev/zero && test $(readlink /proc/$$/fd/{}) = /dev/full",
            crossed[0].1, crossed[1].1
        ))
        .expect("no NUL");
        assert_eq!(run(&script, &crossed), process::Exit::Code(0));
    }

    #[test]
    fn a_missing_program_is_an_error_and_leaves_nothing() {
        let what = Spawn {
            program: c"/nonexistent",
            args: &[c"x"],
            env: &[],
            fds: &[],
            workdir: None,
            new_session: false,
        };
        assert_eq!(
            spawn(&what).expect_err("not there").kind(),
            io::ErrorKind::NotFound
        );
    }
}
