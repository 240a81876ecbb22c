//! Ending what a run left when its keeper is gone.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use cosm_driver::{ProcessRecord, ReapError, RunRecord};
use cosm_sys::{process, procfs};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::host::boot_id;

/// How long a killed process may take to be gone before that is an error.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn run(record: &RunRecord) -> Result<(), ReapError> {
    crate::limits::thaw_left(record);
    if let Some(init) = &record.init {
        end(init).await.map_err(|source| ReapError {
            what: format!("ending process {}", init.pid),
            source,
        })?;
    }
    crate::limits::remove_left(record)
}

/// Kills a guest's first process, and with it all others, if it still is the one that was recorded.
async fn end(init: &ProcessRecord) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(init.pid) else {
        return Ok(());
    };
    // The descriptor first: whatever is checked after it is checked of the process that it names.
    let pidfd = match process::pidfd_open(pid) {
        Err(Errno::SRCH) => return Ok(()),
        other => other?,
    };
    if !is_recorded(init) {
        return Ok(());
    }
    match process::pidfd_signal(pidfd.as_fd(), Signal::KILL) {
        Err(Errno::SRCH) => return Ok(()),
        other => other?,
    }
    match tokio::time::timeout(PATIENCE, crate::watch::until_ended(pidfd)).await {
        Ok(ended) => ended,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Whether the process with this number is the one recorded: same boot, same start, same namespaces.
fn is_recorded(init: &ProcessRecord) -> bool {
    let same_start = procfs::stat(init.pid)
        .is_ok_and(|stat| stat.start_time == init.start_ticks && stat.state != b'Z');
    // A namespace that may not be looked at proves nothing against it; the start time to the tick does for it.
    let same = |kind, inode| procfs::namespace(init.pid, kind).map_or(true, |found| found == inode);
    boot_id() == init.boot
        && same_start
        && same("pid", init.pid_namespace)
        && same("user", init.user_namespace)
}
