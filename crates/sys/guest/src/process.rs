//! Fork, exec, wait.

use alloc::vec::Vec;
use core::ffi::{CStr, c_char};

pub use alloc::ffi::CString;

use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::kernel::{number, syscall};

const WNOHANG: usize = 1;
const WALL: usize = 0x4000_0000;

/// Which of the two a process is after a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// The new one.
    Child,
    /// The old one, and the number of the new one.
    Parent(Pid),
}

fn forked(answer: usize) -> Fork {
    Pid::from_raw(answer as i32).map_or(Fork::Child, Fork::Parent)
}

/// Doubles this process, which has one thread: another's locks would never be released in the child.
///
/// # Errors
/// `EAGAIN` at a limit of processes, `ENOMEM`.
pub fn fork() -> Result<Fork> {
    // SAFETY: without CLONE_VM the child has a copy of everything, its stack too; no address is passed.
    let answer = unsafe {
        syscall(
            number::CLONE,
            [crate::signals::CHILD as usize, 0, 0, 0, 0, 0],
        )
    }?;
    Ok(forked(answer))
}

/// Becomes another program. Returns only to say why not.
pub fn execve(program: &CStr, argv: &[CString], envp: &[CString]) -> Errno {
    let pointers = |list: &[CString]| -> Vec<*const c_char> {
        list.iter()
            .map(|text| text.as_ptr())
            .chain([core::ptr::null()])
            .collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    // SAFETY: NUL-terminated strings and NULL-terminated arrays of such, all alive during the call.
    let answer = unsafe {
        syscall(
            number::EXECVE,
            [
                program.as_ptr() as usize,
                argv.as_ptr() as usize,
                envp.as_ptr() as usize,
                0,
                0,
                0,
            ],
        )
    };
    answer.err().unwrap_or(Errno::IO)
}

/// Ends this process.
pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: it does not return.
        unsafe { syscall(number::EXIT_GROUP, [code as usize, 0, 0, 0, 0, 0]) }
            .map(drop)
            .unwrap_or_default();
    }
}

/// A child that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// Its number, free from now on.
    pub pid: Pid,
    /// Its code, if it returned one.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// What it and the descendants that it waited for used.
    pub usage: Usage,
}

/// What the kernel counted for processes that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processor time in their own code, microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, microseconds.
    pub system_us: u64,
    /// The largest resident set of one of them, bytes.
    pub max_resident: u64,
    /// Read from block devices, bytes.
    pub read_bytes: u64,
    /// Written to block devices, bytes.
    pub write_bytes: u64,
}

impl Usage {
    /// Of nobody.
    pub const NOTHING: Self = Self {
        user_us: 0,
        system_us: 0,
        max_resident: 0,
        read_bytes: 0,
        write_bytes: 0,
    };

    /// Adds what somebody else used. The largest resident set is the larger one.
    pub fn add(&mut self, other: &Self) {
        self.user_us = self.user_us.saturating_add(other.user_us);
        self.system_us = self.system_us.saturating_add(other.system_us);
        self.max_resident = self.max_resident.max(other.max_resident);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(other.write_bytes);
    }

    /// `struct rusage`: two timevals, then maxrss (KiB) and thirteen more counters. Blocks are of 512 bytes.
    fn from_raw(raw: &[i64; 18]) -> Self {
        let positive = |value: i64| u64::try_from(value).unwrap_or(0);
        let micros = |at: usize| {
            positive(raw[at])
                .saturating_mul(1_000_000)
                .saturating_add(positive(raw[at + 1]))
        };
        Self {
            user_us: micros(0),
            system_us: micros(2),
            max_resident: positive(raw[4]).saturating_mul(1024),
            read_bytes: positive(raw[11]).saturating_mul(512),
            write_bytes: positive(raw[12]).saturating_mul(512),
        }
    }
}

/// Waits for a child to end: for this one, or for any. With `block` false, `None` means that none has ended yet.
///
/// # Errors
/// `ECHILD` if there is none.
pub fn wait(child: Option<Pid>, block: bool) -> Result<Option<Reaped>> {
    let which = child.map_or(-1_isize, |pid| pid.as_raw_nonzero().get() as isize) as usize;
    let options = WALL | if block { 0 } else { WNOHANG };
    let mut status = 0_i32;
    let mut raw = [0_i64; 18];
    let answer = loop {
        // SAFETY: the kernel writes one `int` and one `struct rusage` (144 bytes).
        let answer = unsafe {
            syscall(
                number::WAIT4,
                [
                    which,
                    &raw mut status as usize,
                    options,
                    &raw mut raw as usize,
                    0,
                    0,
                ],
            )
        };
        match answer {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let Some(pid) = Pid::from_raw(answer as i32) else {
        return Ok(None);
    };
    let signal = status & 0x7f;
    let code = (signal == 0).then_some((status >> 8) & 0xff);
    Ok(Some(Reaped {
        pid,
        code,
        signal: (signal != 0).then_some(signal),
        usage: Usage::from_raw(&raw),
    }))
}
