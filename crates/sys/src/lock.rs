//! POSIX record locks: held by a process, asked by others, gone with the holder whatever ends it.
//!
//! `flock` and open-file-description locks are inherited by `fork`, so a forked child would keep a dead holder's lock.
//! POSIX locks are not; their trap is that closing *any* descriptor of the file drops all the process's locks on it.
//! So a holder opens the lock file once, through [`LockFile`], and keeps it open for as long as it lives.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What came of asking for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryLock {
    /// This process holds it now (or did already).
    Taken,
    /// Another process holds it.
    Held,
}

/// An open lock file, each byte of which is a lock.
#[derive(Debug)]
pub struct LockFile {
    file: File,
}

impl LockFile {
    /// Opens the lock file, creating it with mode 0600.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        Ok(Self { file })
    }

    /// Opens an existing lock file only to ask who holds what.
    ///
    /// A process that holds locks on the same file through another [`LockFile`] must not use this: dropping the result
    /// would drop those locks.
    ///
    /// # Errors
    /// The file is not there or cannot be read.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
        })
    }

    /// Takes the lock at `offset` for this process, without waiting.
    ///
    /// # Errors
    /// The file system has no locks (`ENOLCK`, `EOPNOTSUPP`), or `offset` is negative.
    pub fn try_lock(&self, offset: i64) -> io::Result<TryLock> {
        let lock = record(libc::F_WRLCK, offset);
        // SAFETY: the descriptor is open and `lock` is a valid `flock` that outlives the call.
        let result = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
        if result == 0 {
            return Ok(TryLock::Taken);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EAGAIN) => Ok(TryLock::Held),
            _ => Err(error),
        }
    }

    /// Gives the lock at `offset` back. A lock that is not held is no error.
    ///
    /// # Errors
    /// As for [`LockFile::try_lock`].
    pub fn unlock(&self, offset: i64) -> io::Result<()> {
        let lock = record(libc::F_UNLCK, offset);
        // SAFETY: as in `try_lock`.
        let result = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The pid of the other process that holds the lock at `offset`, `None` where no other does.
    ///
    /// The kernel answers in this process's pid namespace: a holder outside of it is pid 0.
    ///
    /// # Errors
    /// As for [`LockFile::try_lock`].
    pub fn holder(&self, offset: i64) -> io::Result<Option<i32>> {
        let mut lock = record(libc::F_WRLCK, offset);
        // SAFETY: as in `try_lock`; the kernel writes the answer into `lock`.
        let result = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid))
    }
}

impl AsFd for LockFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn record(kind: i32, offset: i64) -> libc::flock {
    // SAFETY: all zeroes is a valid `flock`; some targets have padding fields that cannot be named.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset;
    lock.l_len = 1;
    lock
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{self, CloneArgs};
    use std::io::{Read as _, Write as _};

    #[test]
    fn another_process_sees_the_holder_and_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("locks");
        let lock = LockFile::open(&path).expect("open");
        let far = i64::MAX >> 1;
        assert_eq!(lock.try_lock(far).expect("lock"), TryLock::Taken);
        assert_eq!(lock.try_lock(far).expect("again"), TryLock::Taken);
        let me = std::process::id() as i32;
        let (mut reader, mut writer) = std::io::pipe().expect("pipe");
        let child = process::fork(&CloneArgs::default(), || {
            let other = LockFile::open_read_only(&path).and_then(|l| l.holder(far));
            let refused = LockFile::open(&path).and_then(|l| l.try_lock(far));
            let free = LockFile::open(&path).and_then(|l| l.try_lock(3));
            let good = other.is_ok_and(|p| p == Some(me))
                && refused.is_ok_and(|r| r == TryLock::Held)
                && free.is_ok_and(|r| r == TryLock::Taken);
            let told = writer.write_all(if good { b"y" } else { b"n" });
            i32::from(told.is_err())
        })
        .expect("fork");
        let mut answer = [0];
        reader.read_exact(&mut answer).expect("the child answers");
        assert_eq!(&answer, b"y");
        child.wait().expect("wait");
        assert_eq!(
            lock.holder(3).expect("ask"),
            None,
            "a lock ends with its process"
        );
        lock.unlock(far).expect("unlock");
    }
}
