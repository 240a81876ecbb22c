//! Where the program begins, and where it ends when it panics.

use core::fmt::Write as _;

use rustix::fd::BorrowedFd;

use super::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Names the function that the program starts with: `fn() -> i32`, whose answer is the exit code.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        /// Where `_start` goes.
        // SAFETY: only `_start` knows this name, and expects this type.
        #[unsafe(no_mangle)]
        extern "C" fn cosm_program() -> ! {
            let main: fn() -> i32 = $main;
            $crate::exit(main())
        }
    };
}

unsafe extern "C" {
    fn cosm_program() -> !;
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {main}",
    "ud2",
    ".size _start, . - _start",
    main = sym cosm_program,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl _start",
    ".type _start, %function",
    "_start:",
    "mov x29, xzr",
    "mov x30, xzr",
    "bl {main}",
    "brk #1",
    ".size _start, . - _start",
    main = sym cosm_program,
);

struct Stderr;

impl core::fmt::Write for Stderr {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // SAFETY: whether 2 is open or not, writing to it breaks nothing: this process ends.
        let stderr = unsafe { BorrowedFd::borrow_raw(2) };
        rustix::io::write(stderr, text.as_bytes())
            .map(drop)
            .map_err(|_| core::fmt::Error)
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // Nobody is left to tell if this fails.
    writeln!(Stderr, "cosm-agent: {info}").unwrap_or_default();
    crate::exit(101)
}

/// What the compiler's own helpers for atomics ask on this machine: which instructions the processor has. Nought is
/// always right, if not always the fastest.
#[cfg(target_arch = "aarch64")]
// SAFETY: the name and the type are the C library's, and there is none here.
#[unsafe(no_mangle)]
extern "C" fn getauxval(_kind: core::ffi::c_ulong) -> core::ffi::c_ulong {
    0
}
