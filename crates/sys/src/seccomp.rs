//! Installing a system call filter. What it says is its maker's business.

use rustix::io::Result;

use crate::raw::syscall;

/// One instruction of a classic BPF program.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub value: u32,
}

#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

/// Filters all later system calls of this process, and of what it starts, for good.
///
/// # Errors
/// `EINVAL` for a program that is not valid or is too long, `EACCES` before [`crate::caps::no_new_privileges`] in a
/// process without `CAP_SYS_ADMIN`.
pub fn install(program: &[Instruction]) -> Result<()> {
    const SECCOMP_SET_MODE_FILTER: usize = 1;
    let length = u16::try_from(program.len()).map_err(|_| rustix::io::Errno::INVAL)?;
    let program = Program {
        length,
        instructions: program.as_ptr(),
    };
    // SAFETY: `program` is a valid `sock_fprog` whose instructions outlive the call.
    unsafe {
        syscall(
            libc::SYS_seccomp,
            [
                SECCOMP_SET_MODE_FILTER,
                0,
                &raw const program as usize,
                0,
                0,
                0,
            ],
        )
    }
    .map(drop)
}
