//! One connection, from its request to its end.

use cosm_proto::agent::Request;
use rustix::fd::OwnedFd;

use crate::boot::Guest;
use crate::link::{Broken, Link};
use crate::{exec, files, system};

/// Serves one connection; answers the handler's exit code, which nobody reads.
pub(crate) fn handle(guest: &Guest, connection: OwnedFd) -> i32 {
    i32::from(serve(guest, Link::new(connection)).is_err())
}

fn serve(guest: &Guest, mut link: Link) -> Result<(), Broken> {
    let (hello, fds) = link.hello()?;
    match hello.request {
        Request::Exec(start) => exec::run(guest, link, start, fds),
        Request::System(request) => link.send(&system::answer(&request)),
        Request::File(request) => files::serve(guest, link, request),
    }
}
