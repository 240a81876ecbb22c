//! Anonymous files in memory, sealed: what a peer may read but neither change nor shrink under the reader.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};

/// A sealed file in memory with these contents, closed on exec, its offset at the start.
///
/// # Errors
/// Out of memory or descriptors.
pub fn sealed(name: &CStr, contents: &[u8]) -> Result<OwnedFd> {
    make(
        name,
        contents,
        MemfdFlags::CLOEXEC
            | MemfdFlags::ALLOW_SEALING
            | MemfdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL),
    )
}

/// As [`sealed`], for a program that is to be executed from it.
///
/// # Errors
/// As for [`sealed`]; `EACCES` where the sysctl `vm.memfd_noexec` is 2.
pub fn sealed_program(name: &CStr, contents: &[u8]) -> Result<OwnedFd> {
    make(
        name,
        contents,
        MemfdFlags::CLOEXEC
            | MemfdFlags::ALLOW_SEALING
            | MemfdFlags::from_bits_retain(libc::MFD_EXEC),
    )
}

fn make(name: &CStr, contents: &[u8], flags: MemfdFlags) -> Result<OwnedFd> {
    let file = match rustix::fs::memfd_create(name, flags) {
        // A kernel before 6.3 knows neither MFD_EXEC nor MFD_NOEXEC_SEAL.
        Err(Errno::INVAL) => {
            rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?
        }
        other => other?,
    };
    let mut done = 0;
    while let Some(rest) = contents.get(done..).filter(|rest| !rest.is_empty()) {
        done += rustix::io::pwrite(&file, rest, done as u64)?;
    }
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    Ok(file)
}

/// Whether a descriptor is a memory file that can neither shrink nor grow nor be written any more.
pub fn is_sealed(file: impl AsFd) -> bool {
    rustix::fs::fcntl_get_seals(file)
        .is_ok_and(|s| s.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_what_is_sealed() {
        let file = sealed(c"test", b"contents").expect("memfd");
        assert!(is_sealed(&file));
        assert_eq!(rustix::fs::ftruncate(&file, 0), Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::PERM));
        let mut buffer = [0; 16];
        assert_eq!(rustix::io::read(&file, &mut buffer), Ok(8));
        assert_eq!(&buffer[..8], b"contents");
    }
}
