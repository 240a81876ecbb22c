//! Signals.

use rustix::fd::{FromRawFd as _, OwnedFd};
use rustix::io::Result;
use rustix::process::Pid;

use crate::kernel::{number, syscall};
use crate::signals;

const SIG_SETMASK: usize = 2;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;
const SFD_NONBLOCK: usize = 0o4000;
const SFD_CLOEXEC: usize = 0o2000000;
const SET_SIZE: usize = size_of::<u64>();

/// The kernel's `struct sigaction`. The order of what follows the handler differs between machines; here it is all zero.
#[repr(C)]
struct Action {
    handler: usize,
    rest: [usize; 3],
}

fn set_mask(mask: u64) -> Result<()> {
    // SAFETY: the kernel reads SET_SIZE bytes at `mask`.
    unsafe {
        syscall(
            number::RT_SIGPROCMASK,
            [SIG_SETMASK, &raw const mask as usize, 0, SET_SIZE, 0, 0],
        )
    }
    .map(drop)
}

fn set_action(signal: i32, handler: usize) -> Result<()> {
    let action = Action {
        handler,
        rest: [0; 3],
    };
    // SAFETY: the kernel reads one `Action`; the handler is one of the two that are no code.
    unsafe {
        syscall(
            number::RT_SIGACTION,
            [
                signal as usize,
                &raw const action as usize,
                0,
                SET_SIZE,
                0,
                0,
            ],
        )
    }
    .map(drop)
}

/// Holds back every signal that can be held back.
///
/// # Errors
/// None on a working kernel.
pub fn block_all() -> Result<()> {
    set_mask(u64::MAX)
}

/// Lets every signal through.
///
/// # Errors
/// None on a working kernel.
pub fn unblock_all() -> Result<()> {
    set_mask(0)
}

/// Gives every signal its default effect, whatever this process was started with.
pub fn default_all() {
    for signal in 1..=64 {
        if signal != signals::KILL && signal != signals::STOP {
            // A filter that forbids this would have forbidden the program that set the dispositions too.
            set_action(signal, SIG_DFL).unwrap_or_default();
        }
    }
}

/// Lets the kernel reap this process's children, without a word.
///
/// # Errors
/// None on a working kernel.
pub fn ignore_child_exits() -> Result<()> {
    set_action(signals::CHILD, SIG_IGN)
}

/// Keeps ended children until they are waited for.
///
/// # Errors
/// None on a working kernel.
pub fn notice_child_exits() -> Result<()> {
    set_action(signals::CHILD, SIG_DFL)
}

/// A descriptor that is readable while this blocked signal is pending. Reads from it never block.
///
/// # Errors
/// Out of descriptors or memory.
pub fn signalfd(signal: i32) -> Result<OwnedFd> {
    let mask = 1_u64 << (signal - 1);
    // SAFETY: the kernel reads SET_SIZE bytes at `mask`.
    let fd = unsafe {
        syscall(
            number::SIGNALFD4,
            [
                usize::MAX,
                &raw const mask as usize,
                SET_SIZE,
                SFD_NONBLOCK | SFD_CLOEXEC,
                0,
                0,
            ],
        )
    }?;
    // SAFETY: the kernel just made it, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends any signal, real-time ones too, to one process. `0` asks whether it is there.
///
/// # Errors
/// `kill`'s.
pub fn send(to: Pid, signal: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    unsafe {
        syscall(
            number::KILL,
            [
                to.as_raw_nonzero().get() as usize,
                signal as usize,
                0,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}
