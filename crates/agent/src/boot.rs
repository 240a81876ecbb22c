//! What the agent starts with.

use alloc::vec::Vec;

use cosm_proto::agent::{AgentBoot, VERSION};
use cosm_sys_guest as sys;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

const LISTENER: i32 = 3;
const BOOT: i32 = 4;
const FIRST_FREE: u32 = 5;
/// What a new file's permissions are held to, whatever this process was started with.
const UMASK: Mode = Mode::from_raw_mode(0o022);
/// A boot message is a few kilobytes; more than this is none.
const MAX_BOOT: usize = 4 << 20;

/// What holds for every command and file operation in this guest.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) boot: AgentBoot,
}

impl Guest {
    /// Takes what this process was started with, and closes what it should not have been.
    pub(crate) fn inherit() -> Result<(Self, OwnedFd)> {
        sys::block_all()?;
        sys::default_all();
        rustix::process::umask(UMASK);
        let listener = sys::inherited(LISTENER)?;
        // A command must not have it.
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC)?;
        let message = sys::inherited(BOOT)?;
        match sys::close_from(FIRST_FREE) {
            // An old kernel: then the driver's own care has to do.
            Ok(()) | Err(Errno::NOSYS) => {}
            Err(errno) => return Err(errno),
        }
        occupy_standard_streams(&message)?;
        let boot: AgentBoot =
            postcard::from_bytes(&read_all(&message)?).map_err(|_| Errno::BADMSG)?;
        if boot.version != VERSION {
            return Err(Errno::PROTONOSUPPORT);
        }
        Ok((Self { boot }, listener))
    }
}

fn read_all(file: &OwnedFd) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::pread(file, &mut chunk, bytes.len() as u64)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&chunk[..count]),
        }
        if bytes.len() > MAX_BOOT {
            return Err(Errno::FBIG);
        }
    }
}

/// Descriptors 0 to 2 must be taken: commands get theirs by number, so none of ours may lie there.
fn occupy_standard_streams(spare: &OwnedFd) -> Result<()> {
    loop {
        let fd = match rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        {
            Ok(fd) => fd,
            Err(_) => rustix::io::fcntl_dupfd_cloexec(spare.as_fd(), 0)?,
        };
        if rustix::fd::AsRawFd::as_raw_fd(&fd) > 2 {
            return Ok(());
        }
        // Kept open for this process's whole life.
        core::mem::forget(fd);
    }
}
