//! What bounds a guest.

use std::os::fd::BorrowedFd;

use cosm_base::RunId;
use cosm_driver::{GuestUsage, LaunchError, LaunchFacts};
use cosm_spec::{Defaults, Resources};
use rustix::process::Pid;

use crate::host::Host;

/// What is going to bound a guest on this host.
#[derive(Debug)]
pub(crate) struct Limits {
    max_processes: Option<u64>,
}

impl Limits {
    pub(crate) fn decide(_host: &Host, asked: &Resources) -> Result<Self, LaunchError> {
        Ok(Self {
            max_processes: asked.pids.or(Defaults::PIDS),
        })
    }

    pub(crate) fn prepare(&self, _run: RunId) -> Result<Prepared, LaunchError> {
        Ok(Prepared {
            max_processes: self.max_processes,
        })
    }

    pub(crate) fn describe(&self, facts: &mut LaunchFacts) {
        facts.pids = self.max_processes;
        facts.cgroup = Some("none".to_owned());
    }
}

/// The limits of one run.
#[derive(Debug)]
pub(crate) struct Prepared {
    max_processes: Option<u64>,
}

impl Prepared {
    pub(crate) fn max_processes(&self) -> Option<u64> {
        self.max_processes
    }
    pub(crate) fn born_into(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    pub(crate) fn guest_folder(&self) -> Option<&str> {
        None
    }
    pub(crate) fn admit(&mut self, _pid: Pid) -> Result<(), LaunchError> {
        Ok(())
    }
    pub(crate) fn folders(&self) -> Vec<String> {
        Vec::new()
    }
    pub(crate) fn unit(&self) -> Option<String> {
        None
    }
    pub(crate) fn usage(&self) -> GuestUsage {
        GuestUsage::default()
    }
    pub(crate) fn freeze(&mut self, _frozen: bool) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    pub(crate) fn remove(&mut self) {}
}

/// Removes the folders that a run left in the cgroup file systems.
pub(crate) async fn remove_left(
    _record: &cosm_driver::RunRecord,
) -> Result<(), cosm_driver::ReapError> {
    Ok(())
}
