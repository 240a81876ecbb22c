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
mod inside;
mod launch;
mod limits;
mod maps;
mod measure;
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
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
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
    stock: Stock,
}

/// What every launch needs in the same form, made at the first one or before it.
#[derive(Debug, Default)]
struct Stock {
    /// The system call filter of a guest that asks for nothing special.
    filter: OnceCell<Vec<cosm_sys::seccomp::Instruction>>,
    /// The agent as a sealed program, and the bytes that it was made of.
    agent: OnceCell<(&'static [u8], OwnedFd)>,
}

impl NsDriver {
    /// Nothing is looked at until it is asked for.
    pub const fn new() -> Self {
        Self {
            host: OnceCell::new(),
            capabilities: OnceCell::new(),
            stock: Stock {
                filter: OnceCell::new(),
                agent: OnceCell::new(),
            },
        }
    }

    /// Does what can be done before it is known what to launch: for a process that has to wait for that anyway. What
    /// fails here fails again, and is told, when it is needed.
    pub fn get_ready(&self, agent: &'static [u8]) {
        let host = self.host();
        if host.caller == host::Caller::Root {
            drop(host.layout());
        }
        drop(self.stock.filter());
        drop(self.stock.agent(agent));
    }

    fn host(&self) -> &host::Host {
        self.host.get_or_init(host::Host::look)
    }
}

impl Stock {
    fn filter(&self) -> Result<&[cosm_sys::seccomp::Instruction], seccomp::PolicyError> {
        if self.filter.get().is_none() {
            let made = seccomp::program(false)?;
            return Ok(self.filter.get_or_init(|| made));
        }
        Ok(self.filter.get().map_or(&[], Vec::as_slice))
    }

    fn agent(&self, program: &'static [u8]) -> io::Result<BorrowedFd<'_>> {
        if self.agent.get().is_none() {
            let made = cosm_sys::memfd::sealed_program(c"cosm-agent", program)?;
            drop(self.agent.set((program, made)));
        }
        match self.agent.get() {
            Some((known, made)) if std::ptr::eq(*known, program) => Ok(made.as_fd()),
            // A process has one agent.
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
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
        launch::launch(self.host(), &self.stock, plan).await
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
