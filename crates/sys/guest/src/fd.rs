//! Descriptors by number.

use rustix::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use rustix::io::{Errno, Result};

use crate::kernel::{number, syscall};

const F_GETFD: usize = 1;
const F_SETFD: usize = 2;
const FD_CLOEXEC: usize = 1;

/// Takes ownership of a descriptor that this process was started with, and makes it close on exec. Each number may be
/// taken once.
///
/// # Errors
/// `EBADF` if there is none.
pub fn inherited(number: RawFd) -> Result<OwnedFd> {
    let raw = usize::try_from(number).map_err(|_| Errno::BADF)?;
    // SAFETY: no memory is involved; a number that is not open is an error.
    unsafe { syscall(number::FCNTL, [raw, F_GETFD, 0, 0, 0, 0]) }?;
    // SAFETY: as above.
    unsafe { syscall(number::FCNTL, [raw, F_SETFD, FD_CLOEXEC, 0, 0, 0]) }?;
    // SAFETY: it is open, and by this function's contract nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes `number` mean what `fd` means, across an exec. For a process that executes or exits next: whoever owned the
/// old meaning of `number` would be wrong afterwards.
///
/// # Errors
/// `dup3`'s.
pub fn place(fd: BorrowedFd<'_>, number: RawFd) -> Result<()> {
    let raw = fd.as_raw_fd() as usize;
    if fd.as_raw_fd() == number {
        // SAFETY: no memory is involved.
        return unsafe { syscall(number::FCNTL, [raw, F_SETFD, 0, 0, 0, 0]) }.map(drop);
    }
    // SAFETY: no memory is involved; the contract says that nobody relies on `number` any more.
    unsafe { syscall(number::DUP3, [raw, number as usize, 0, 0, 0, 0]) }.map(drop)
}

/// Closes every descriptor from this number on. For a process that owns none of them, such as one that starts.
///
/// # Errors
/// `ENOSYS` before Linux 5.9.
pub fn close_from(first: u32) -> Result<()> {
    // SAFETY: no memory is involved; the contract says that nobody owns these.
    unsafe {
        syscall(
            number::CLOSE_RANGE,
            [first as usize, u32::MAX as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Closes a file and tells what the kernel says then, which a mere drop does not.
///
/// # Errors
/// `close`'s: `EIO`, `ENOSPC`, `EDQUOT` of a write that was put off. The descriptor is closed all the same.
pub fn close(fd: OwnedFd) -> Result<()> {
    let raw = fd.into_raw_fd() as usize;
    // SAFETY: it was owned by this function's caller, who gave it away.
    unsafe { syscall(number::CLOSE, [raw, 0, 0, 0, 0, 0]) }.map(drop)
}
