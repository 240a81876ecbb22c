//! Process 1's whole work: accept, fork.

use core::time::Duration;

use cosm_proto::frame::{self, Kind};
use cosm_sys_guest::{self as sys, Fork};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, send};
use rustix::process::{getpid, set_child_subreaper};
use rustix::thread::{NanosleepRelativeResult, nanosleep};

use crate::boot::Guest;
use crate::clock::Moment;
use crate::handler;

/// How long to wait when there is no descriptor or memory for one more connection.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) fn serve(guest: &Guest, listener: OwnedFd) -> i32 {
    if let Err(errno) = sys::ignore_child_exits() {
        return errno.raw_os_error();
    }
    // Outside a pid namespace of its own (in tests) orphans would leave the agent's tree.
    if !getpid().is_init()
        && let Err(errno) = set_child_subreaper(Some(getpid()))
    {
        return errno.raw_os_error();
    }
    // Finds out once, for all handlers to come, where the kernel keeps its clock.
    Moment::now();
    loop {
        match accept_with(&listener, SocketFlags::CLOEXEC) {
            Ok(connection) => match sys::fork() {
                Ok(Fork::Child) => {
                    sys::exit(handler::handle(guest, listener, connection));
                }
                Ok(Fork::Parent(_)) => {}
                Err(errno) => refuse(&connection, errno),
            },
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => pause(),
            // The host is gone before it was served, and the like.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::AGAIN | Errno::PROTO | Errno::PERM) => {}
            // A handler has shut it: the guest is over.
            Err(Errno::INVAL) => return 0,
            // The socket itself is broken: without it this guest is of no use.
            Err(errno) => return errno.raw_os_error(),
        }
    }
}

/// Tells the host that there is no process for its request. It learns of a failure to tell by the close.
fn refuse(connection: &OwnedFd, errno: Errno) {
    let mut bytes = [0; frame::HEADER + 4];
    bytes[..frame::HEADER].copy_from_slice(&frame::header(Kind::Refused, 4));
    bytes[frame::HEADER..].copy_from_slice(&errno.raw_os_error().to_le_bytes());
    send(
        connection,
        &bytes,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )
    .unwrap_or_default();
}

fn pause() {
    let wait = rustix::thread::Timespec {
        tv_sec: 0,
        tv_nsec: PAUSE.as_nanos() as _,
    };
    match nanosleep(&wait) {
        NanosleepRelativeResult::Ok
        | NanosleepRelativeResult::Interrupted(_)
        | NanosleepRelativeResult::Err(_) => {}
    }
}
