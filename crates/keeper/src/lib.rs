//! One sandbox's life: a process that starts a guest, holds what it needs, answers for it, and cleans up after it.
//!
//! A keeper is the `cosm` program entered by a hidden subcommand. It is told what to do by a plan on descriptor 3, takes
//! the sandbox's lock before it touches anything, and tells its starter on descriptor 4 how it went. From then on it is
//! reached through the sandbox's control socket. Whatever kills it, the kernel ends the guest with it and gives the lock
//! back, and the next keeper of the sandbox (task `Reap`, `Start` or `Remove`) cleans up by what was recorded before any
//! of the guest's code ran.
//!
//! | room | what it does |
//! |---|---|
//! | `keep` | the tasks, from plan to end |
//! | `start`, `boot` | making a sandbox, launching its guest, waiting until it is ready |
//! | `machine` | the life of a run as a pure function |
//! | `life` | the loop that feeds the machine and carries out its effects |
//! | `control` | the control socket |
//! | `jobs` | commands that outlive who started them |
//! | `disk` | watches what the guest keeps on disk |
//! | `clean` | leaving nothing behind |
//!
//! One thread, always: the guest's first process is cloned from it.

mod ask;
mod boot;
mod clean;
mod clock;
mod context;
mod control;
mod disk;
mod failure;
mod jobs;
mod journal;
mod keep;
mod lease;
mod life;
mod machine;
mod report;
mod shared;
mod start;
mod told;
mod unborn;
mod wire;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use cosm_base::ErrorKind;
use cosm_driver::Driver;
pub use cosm_driver::{Capabilities, Finding, Level, Support};
use cosm_driver_ns::NsDriver;
use cosm_proto::keeper::{Failure, Plan, Task, VERSION};
use cosm_sys::{inherit, memfd};

use crate::clock::Timings;
use crate::lease::Lease;
use crate::report::Report;

/// The hidden subcommand that makes the `cosm` program a keeper.
pub const SUBCOMMAND: &str = "__keeper";

const PLAN: i32 = 3;
const EVENTS: i32 = 4;
const LEASE: i32 = 5;
/// A plan is not longer than a frame.
const MAX_PLAN: u64 = 1 << 20;

/// Keeps a sandbox. To be called before anything else in the program, when its first argument is [`SUBCOMMAND`].
pub fn main() -> ExitCode {
    serve(&NsDriver::new())
}

/// A keeper that has done what can be done before it has a plan.
#[derive(Debug)]
pub struct ReadyKeeper(NsDriver);

impl ReadyKeeper {
    /// Does that, for a process that has to wait for its plan anyway.
    pub fn new() -> Self {
        let driver = NsDriver::new();
        driver.get_ready(cosm_agent_image::AGENT);
        Self(driver)
    }

    /// As [`main`].
    pub fn serve(self) -> ExitCode {
        serve(&self.0)
    }
}

impl Default for ReadyKeeper {
    fn default() -> Self {
        Self::new()
    }
}

/// What works on this host, for `doctor`.
pub fn capabilities() -> Capabilities {
    NsDriver::new().capabilities().clone()
}

/// As [`main`], with this driver.
pub fn serve(driver: &impl Driver) -> ExitCode {
    let timings = Timings::start();
    let (plan, events) = match (inherit::take(PLAN), inherit::take(EVENTS)) {
        (Ok(plan), Ok(events)) => (plan, events),
        _ => {
            eprintln!("cosm starts this by itself; there is nothing to be done with it by hand");
            return ExitCode::from(cosm_base::exit::COSM_FAILED);
        }
    };
    let report = Report::new(events);
    let done = prepare(plan).and_then(|(plan, lease)| {
        // Files are this user's alone unless somebody says otherwise.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(failure::os("starting the keeper"))?;
        Ok((plan, lease, runtime))
    });
    let (plan, lease, runtime) = match done {
        Ok(ready) => ready,
        Err(failure) => {
            report.failed(failure);
            return ExitCode::FAILURE;
        }
    };
    let work = keep::carry_out(driver, plan, lease, report, timings);
    let worked = tokio::task::LocalSet::new().block_on(&runtime, work);
    match worked {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn prepare(fd: OwnedFd) -> Result<(Plan, Option<Lease>), Failure> {
    let plan = read_plan(fd).map_err(failure::os("reading the plan"))?;
    if plan.version != VERSION {
        return Err(failure::plain(
            ErrorKind::Protocol,
            format!(
                "this program speaks version {VERSION} with its keepers, and was asked in version {}",
                plan.version
            ),
        ));
    }
    let creator = match &plan.task {
        Task::Create { lease, .. } | Task::Start { lease, .. } => *lease,
        Task::Remove | Task::Reap => None,
    };
    let Some(creator) = creator else {
        return Ok((plan, None));
    };
    let lease = inherit::take(LEASE)
        .and_then(|pipe| Lease::take(pipe, creator))
        .map_err(failure::os("taking the lease"))?;
    match lease {
        Some(lease) => Ok((plan, Some(lease))),
        None => Err(failure::plain(
            ErrorKind::Cancelled,
            "whoever asked for the sandbox has ended",
        )),
    }
}

fn read_plan(fd: OwnedFd) -> io::Result<Plan> {
    if !memfd::is_sealed(&fd) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    File::from(fd).take(MAX_PLAN + 1).read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}
