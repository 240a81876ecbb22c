//! Descriptors that a process was started with, taken over by number.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Takes over the descriptor that whoever started this process left at `number`, and marks it as closed by exec.
///
/// To be called at the start of the program and once for each number: from then on the result owns it.
///
/// # Errors
/// Nothing is open there (`EBADF`), or it is one of the standard streams (`InvalidInput`).
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: no memory is involved, and a number that is not open is an error.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and by the contract above nothing else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
