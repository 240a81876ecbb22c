//! System calls by number.

use rustix::io::{Errno, Result};

#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const RT_SIGACTION: usize = 13;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const CLONE: usize = 56;
    pub(crate) const EXECVE: usize = 59;
    pub(crate) const WAIT4: usize = 61;
    pub(crate) const KILL: usize = 62;
    pub(crate) const FCNTL: usize = 72;
    pub(crate) const EXIT_GROUP: usize = 231;
    pub(crate) const SIGNALFD4: usize = 289;
    pub(crate) const DUP3: usize = 292;
    pub(crate) const CLOSE_RANGE: usize = 436;
}

#[cfg(target_arch = "aarch64")]
pub(crate) mod number {
    pub(crate) const CLOSE: usize = 57;
    pub(crate) const RT_SIGACTION: usize = 134;
    pub(crate) const RT_SIGPROCMASK: usize = 135;
    pub(crate) const CLONE: usize = 220;
    pub(crate) const EXECVE: usize = 221;
    pub(crate) const WAIT4: usize = 260;
    pub(crate) const KILL: usize = 129;
    pub(crate) const FCNTL: usize = 25;
    pub(crate) const EXIT_GROUP: usize = 94;
    pub(crate) const SIGNALFD4: usize = 74;
    pub(crate) const DUP3: usize = 24;
    pub(crate) const CLOSE_RANGE: usize = 436;
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the agent knows the system calls of x86_64 and aarch64 only");

/// Makes a system call.
///
/// # Safety
/// As the call with this number asks.
pub(crate) unsafe fn syscall(number: usize, args: [usize; 6]) -> Result<usize> {
    let answer: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention; it changes rcx, r11 and rax only. What the call does to memory is the
    // caller's promise.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention; it changes x0 only. What the call does to memory is the caller's
    // promise.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => answer,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    if (-4095..0).contains(&answer) {
        Err(Errno::from_raw_os_error(-answer as i32))
    } else {
        Ok(answer as usize)
    }
}
