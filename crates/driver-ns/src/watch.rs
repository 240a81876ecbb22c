//! Waiting for a process's end without blocking.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Returns once the process that a pidfd names has ended.
pub(crate) async fn until_ended(pidfd: OwnedFd) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; an OwnedFd keeps all that it demands"
    )]
    let watched = AsyncFd::with_interest(pidfd, Interest::READABLE)?;
    watched.readable().await?.retain_ready();
    Ok(())
}
