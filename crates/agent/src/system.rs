//! The guest as a whole.

use cosm_proto::agent::{GuestStats, SystemReply, SystemRequest};
use cosm_sys_guest as sys;
use rustix::io::{Errno, Result};
use rustix::process::{Pid, getpid, getppid};

use crate::procs::{self, Stat};
use crate::text::{digits, proc_path};

/// The clock tick of `/proc/PID/stat` on every machine that we build for, in microseconds.
const TICK_US: u64 = 10_000;
const PAGE: u64 = 4096;

pub(crate) fn answer(request: &SystemRequest) -> SystemReply {
    let answer = match request {
        SystemRequest::Ping => Ok(SystemReply::Ok),
        SystemRequest::SignalAll(signal) => signal_all(*signal).map(|()| SystemReply::Ok),
        SystemRequest::Stats => stats().map(SystemReply::Stats),
    };
    answer.unwrap_or_else(|errno| SystemReply::Failed(errno.raw_os_error()))
}

/// The guest's processes without the agent's own: all others of this pid namespace, or, where the agent shares one
/// with others (in tests), those below it.
fn foreign() -> Result<impl Iterator<Item = Stat>> {
    let agent = getppid().unwrap_or(Pid::INIT).as_raw_nonzero().get() as u32;
    let own = getpid().as_raw_nonzero().get() as u32;
    let all = procs::all()?;
    let below = (agent != 1).then(|| procs::tree_of(agent, &all));
    Ok(all.into_iter().filter(move |stat| {
        let here = below.as_ref().is_none_or(|tree| tree.contains(&stat.pid));
        here && stat.pid != agent && stat.pid != own && !stat.zombie && !is_handler(stat, agent)
    }))
}

/// A handler is a child of the agent that runs the agent's own program.
fn is_handler(stat: &Stat, agent: u32) -> bool {
    let exe = |pid: u32| {
        rustix::fs::stat(proc_path(&[&digits(pid), b"exe"]))
            .map(|found| (found.st_dev, found.st_ino))
    };
    stat.parent == agent && stat.forked_only && exe(stat.pid) == exe(agent)
}

/// Never by `kill(-1)`: that would reach the handlers, and in a shared pid namespace everybody.
fn signal_all(signal: i32) -> Result<()> {
    if !(0..=64).contains(&signal) {
        return Err(Errno::INVAL);
    }
    for stat in foreign()? {
        let Some(pid) = Pid::from_raw(stat.pid as i32) else {
            continue;
        };
        match sys::send(pid, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn stats() -> Result<GuestStats> {
    Ok(
        foreign()?.fold(GuestStats::default(), |sum, stat| GuestStats {
            processes: sum.processes + 1,
            resident: sum.resident.saturating_add(stat.pages.saturating_mul(PAGE)),
            cpu_us: sum
                .cpu_us
                .saturating_add(stat.ticks.saturating_mul(TICK_US)),
        }),
    )
}
