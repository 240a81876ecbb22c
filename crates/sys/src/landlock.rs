//! Landlock scopes. The mounts already say which files a guest has; what they cannot say is that abstract Unix sockets of
//! a network namespace that the guest shares with the host are not the guest's.

use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Result;

use crate::raw::syscall;

/// The kernel's Landlock version; an error where it has none or it is switched off.
///
/// # Errors
/// `ENOSYS` or `EOPNOTSUPP`.
pub fn version() -> Result<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: usize = 1;
    // SAFETY: with this flag the kernel takes no structure.
    unsafe {
        syscall(
            libc::SYS_landlock_create_ruleset,
            [0, 0, LANDLOCK_CREATE_RULESET_VERSION, 0, 0, 0],
        )
    }
    .map(|v| v as u32)
}

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// A ruleset under which a process can connect only to those abstract Unix sockets that were made under it too.
///
/// # Errors
/// The kernel's Landlock is older than version 6 (`E2BIG` or `EINVAL`), or there is none.
pub fn scope_abstract_sockets() -> Result<OwnedFd> {
    const LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
    let attr = RulesetAttr {
        handled_access_fs: 0,
        handled_access_net: 0,
        scoped: LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET,
    };
    // SAFETY: `attr` is a valid `landlock_ruleset_attr` of the size given.
    let fd = unsafe {
        syscall(
            libc::SYS_landlock_create_ruleset,
            [
                &raw const attr as usize,
                size_of::<RulesetAttr>(),
                0,
                0,
                0,
                0,
            ],
        )
    }?;
    // SAFETY: the kernel returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Puts this thread and what it starts under a ruleset for good.
///
/// # Errors
/// `EPERM` before [`crate::caps::no_new_privileges`] in a process without `CAP_SYS_ADMIN`.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: no memory is involved.
    unsafe {
        syscall(
            libc::SYS_landlock_restrict_self,
            [ruleset.as_raw_fd() as usize, 0, 0, 0, 0, 0],
        )
    }
    .map(drop)
}
