//! The little that a network namespace of its own needs.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Result;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::raw::syscall;

/// Brings the loopback interface of this network namespace up; the kernel then gives it 127.0.0.1 and ::1.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the namespace.
pub fn loopback_up() -> Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(
        rustix::fd::AsFd::as_fd(&socket),
        libc::SIOCSIFFLAGS as usize,
        &raw const request as usize,
    )
}

fn ioctl(fd: BorrowedFd<'_>, request: usize, argument: usize) -> Result<()> {
    // SAFETY: the caller in this file passes a valid structure for the request.
    unsafe {
        syscall(
            libc::SYS_ioctl,
            [fd.as_raw_fd() as usize, request, argument, 0, 0, 0],
        )
    }
    .map(drop)
}
