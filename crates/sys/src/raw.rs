//! System calls that neither rustix nor the standard library has.
//!
//! Made with the `syscall` instruction rather than through libc: libc stores the error in thread-local storage, and a
//! child made by `clone3` must not touch what its libc believes about the thread.

use rustix::io::Errno;

/// Makes a system call with six arguments.
///
/// # Safety
/// The arguments must be what the kernel expects of this call.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn syscall(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel clobbers only rax, rcx and r11.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
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
    check(result)
}

/// Makes a system call with six arguments.
///
/// # Safety
/// The arguments must be what the kernel expects of this call.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) unsafe fn syscall(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel clobbers only x0.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    check(result)
}

fn check(result: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&result) {
        Err(Errno::from_raw_os_error(-result as i32))
    } else {
        Ok(result as usize)
    }
}
