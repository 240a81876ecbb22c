//! One connection, from its request to its end.

use cosm_proto::agent::Request;
use rustix::fd::OwnedFd;

use crate::boot::Guest;
use crate::link::{Broken, Link};
use crate::{exec, files, system};

/// Serves one connection; answers the handler's exit code, which nobody reads.
pub(crate) fn handle(guest: &Guest, listener: OwnedFd, connection: OwnedFd) -> i32 {
    i32::from(serve(guest, listener, Link::new(connection)).is_err())
}

fn serve(guest: &Guest, listener: OwnedFd, mut link: Link) -> Result<(), Broken> {
    let (hello, fds) = link.hello()?;
    match hello.request {
        Request::Exec(start) => {
            let listener = start.ends_guest.then_some(listener);
            let Some(ended) = exec::run(guest, link, start, fds)? else {
                return Ok(());
            };
            if let Some(listener) = listener.filter(|_| ended.is_clean()) {
                // Process 1 waits at this socket, and can't be signalled.
                rustix::net::shutdown(listener, rustix::net::Shutdown::Both)?;
            }
            ended.see_off()
        }
        Request::System(request) => link.send(&system::answer(&request)),
        Request::File(request) => files::serve(guest, link, request),
    }
}
