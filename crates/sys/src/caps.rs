//! Capabilities, and what else a process may gain.

use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// A set of capabilities: bit `n` is capability number `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps(pub u64);

/// The highest number a capability can have: the kernel's sets hold 64 bits.
const LAST: u32 = 63;

/// Drops every capability that is not in `keep` from the bounding set for good, and empties the ambient set.
///
/// # Errors
/// `EPERM` without `CAP_SETPCAP`.
pub fn drop_bounding(keep: Caps) -> Result<()> {
    for number in 0..=LAST {
        if keep.0 & (1 << number) != 0 {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(
            1 << number,
        )) {
            Ok(()) => {}
            // The kernel knows no capability of this or a higher number.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Leaves exactly `keep`, so far as this process has them, effective and permitted; nothing is inheritable.
///
/// # Errors
/// None on a known kernel.
pub fn limit_to(keep: Caps) -> Result<()> {
    let have = rustix::thread::capabilities(None)?;
    let left = have.permitted & CapabilitySet::from_bits_retain(keep.0);
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: left,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// The effective capabilities of this process.
///
/// # Errors
/// None on a known kernel.
pub fn effective() -> Result<Caps> {
    Ok(Caps(rustix::thread::capabilities(None)?.effective.bits()))
}

/// From here on no program gains rights by being executed: set-user-id bits and file capabilities have no effect.
///
/// # Errors
/// None on a known kernel.
pub fn no_new_privileges() -> Result<()> {
    rustix::thread::set_no_new_privs(true)
}

/// Ends this process with `SIGKILL` when the thread that made it ends.
///
/// # Errors
/// None on a known kernel.
pub fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
}

/// Becomes user `uid` and group `gid` of its user namespace, with no supplementary groups where those may be changed.
///
/// # Errors
/// `EINVAL` where an id is not mapped, `EPERM` without the capabilities.
pub fn become_user(uid: u32, gid: u32, clear_groups: bool) -> Result<()> {
    use rustix::process::{Gid, Uid};
    if clear_groups {
        rustix::thread::set_thread_groups(&[])?;
    }
    rustix::thread::set_thread_res_gid(Gid::from_raw(gid), Gid::from_raw(gid), Gid::from_raw(gid))?;
    rustix::thread::set_thread_res_uid(Uid::from_raw(uid), Uid::from_raw(uid), Uid::from_raw(uid))
}
