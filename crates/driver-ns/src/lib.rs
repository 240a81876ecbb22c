//! Linux namespaces, as an ordinary user or as root: the default driver, and the fastest.
//!
//! A launch is one `clone3` for all namespaces. The parent decides everything beforehand and writes it down as data (the
//! private `tree` module); the child only carries it out, gives up every right that the guest does not get, and
//! executes the agent from a sealed memory file. Meanwhile the parent maps the ids, sets the limits and records the run.

mod boot;
mod child;
mod copy;
mod disk;
mod explain;
mod facts;
mod guest;
mod host;
mod ids;
mod launch;
mod limits;
mod maps;
mod probe;
mod reap;
mod remove;
mod rights;
mod rootfs;
pub mod seccomp;
mod steps;
mod systemd;
mod tree;
mod users;
mod watch;

use std::cell::OnceCell;
use std::path::Path;

use cosm_driver::{
    Capabilities, Driver, DriverKind, IdMap, LaunchError, LaunchPlan, Launched, ReapError,
    RunRecord,
};

pub use guest::NsGuest;

/// The driver.
#[derive(Debug)]
pub struct NsDriver {
    host: OnceCell<host::Host>,
    capabilities: OnceCell<Capabilities>,
}

impl NsDriver {
    /// Nothing is looked at until it is asked for.
    pub const fn new() -> Self {
        Self {
            host: OnceCell::new(),
            capabilities: OnceCell::new(),
        }
    }

    fn host(&self) -> &host::Host {
        self.host.get_or_init(host::Host::look)
    }
}

impl Default for NsDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl Driver for NsDriver {
    type Guest = NsGuest;

    fn kind(&self) -> DriverKind {
        DriverKind::Namespaces
    }

    fn capabilities(&self) -> &Capabilities {
        self.capabilities
            .get_or_init(|| probe::capabilities(self.host()))
    }

    async fn launch(&self, plan: LaunchPlan) -> Result<Launched<NsGuest>, LaunchError> {
        launch::launch(self.host(), plan).await
    }

    async fn reap(&self, record: &RunRecord) -> Result<(), ReapError> {
        reap::run(record).await
    }

    async fn remove_tree(&self, path: &Path, ids: Option<&IdMap>) -> Result<(), ReapError> {
        remove::with_ids(path, ids, &self.host().caller).map_err(|source| ReapError {
            what: format!("removing {}", rootfs::show(path)),
            source,
        })
    }
}
