//! What bounds a guest: control groups where this host has them for us, else what the kernel offers without.

mod prepared;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cosm_driver::{LaunchError, LaunchFacts, LaunchPhase, ReapError, RunRecord, Support};
use cosm_spec::{Defaults, Lifetime, Limit, SandboxSpec};
use cosm_sys::cgroup::{self, Hierarchy, Layout, v1, v2};
use cosm_sys::mount::on_overlay;

use crate::host::{Caller, Host};
use crate::systemd;

pub(crate) use prepared::Prepared;
use prepared::name_of;

/// The controllers of v1 that a limit or a count needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Memory,
    Cpu,
    CpuCount,
    Pids,
}

impl Role {
    const fn controller(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::CpuCount => "cpuacct",
            Self::Pids => "pids",
        }
    }
}

/// By what means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Means {
    /// No control group.
    None,
    /// A group in each of these hierarchies, below these folders.
    V1(Vec<(Role, PathBuf)>),
    /// A group below this folder, into which the guest is born.
    V2(PathBuf),
    /// A scope of the user's systemd manager.
    Scope { uid: u32 },
}

/// What is going to bound a guest on this host.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    memory: Option<u64>,
    cpus: Option<f64>,
    pids: Option<u64>,
    means: Means,
    /// Groups of v1 for the defaults, which the guest joins once it has run for [`LATE`].
    late: Vec<(Role, PathBuf)>,
    /// Where a group of v1 can be made in which the guest is stopped, once that is asked for.
    freezer: Option<PathBuf>,
    /// The layout, for people.
    layout: &'static str,
    notes: Vec<String>,
}

/// Joining a group of v1 makes the kernel wait for all processors, longer than everything else that a start takes. Limits
/// that nobody asked for are not worth that to a command that is over by then; what lives longer gets them then.
pub(crate) const LATE: Duration = Duration::from_millis(100);

/// The magic number of a cgroup v2 file system.
const CGROUP2: i64 = 0x6367_7270;

/// Whether v2 is the whole layout: cheap to find out, unlike the rest.
fn only_v2() -> bool {
    rustix::fs::statfs("/sys/fs/cgroup").is_ok_and(|s| s.f_type == CGROUP2)
}

impl Limits {
    /// Decides, without changing anything.
    pub(crate) fn decide(host: &Host, spec: &SandboxSpec) -> Result<Self, LaunchError> {
        let asked = &spec.resources;
        let was_asked =
            asked.memory.was_asked() || asked.cpus.was_asked() || asked.pids.was_asked();
        let mut limits = Self {
            memory: asked.memory.or(Defaults::MEMORY).map(|size| size.0),
            cpus: match asked.cpus {
                Limit::At(cpus) => Some(cpus),
                Limit::Default | Limit::Unlimited => None,
            },
            pids: asked.pids.or(Defaults::PIDS),
            means: Means::None,
            late: Vec::new(),
            freezer: freezer(host),
            layout: "none",
            notes: Vec::new(),
        };
        let nothing = limits.memory.is_none() && limits.cpus.is_none() && limits.pids.is_none();
        let v2_alone = only_v2();
        let outlives = spec.lifetime == Lifetime::Persistent && systemd_can(host);
        let born_into_one = v2_alone && host.caller == Caller::Root && !nothing;
        if !(was_asked || outlives || born_into_one) {
            limits.defaults_later(host);
            limits.without_a_count(host);
            return Ok(limits);
        }
        let layout = host
            .layout()
            .map_err(|e| failed("finding control groups", e))?;
        limits.layout = layout.name();
        limits.means = means(host, layout, &limits, asked.memory.was_asked(), outlives);
        limits.check(host, spec)?;
        Ok(limits)
    }

    fn defaults_later(&mut self, host: &Host) {
        if host.caller == Caller::Root
            && let Some(memory) = self.memory
            && let Ok(layout) = host.layout()
            && let Means::V1(groups) = means(host, layout, self, true, false)
            && groups.iter().any(|(role, _)| *role == Role::Memory)
        {
            self.layout = layout.name();
            self.late = groups;
            self.notes.push(format!(
                "the defaults ({memory} bytes of memory) are in force from {} ms after the start on",
                LATE.as_millis()
            ));
        } else {
            self.without_groups(false);
        }
    }

    fn without_groups(&mut self, memory_asked: bool) {
        if self.memory.is_some() && !memory_asked {
            self.memory = None;
            self.notes.push(
                "memory is not limited: say how much it may be, and a control group is made for it"
                    .to_owned(),
            );
        }
    }

    /// What was asked for and can't be had is an error; a default that can't be had is a note.
    fn check(&mut self, host: &Host, spec: &SandboxSpec) -> Result<(), LaunchError> {
        let asked = &spec.resources;
        let can = |role: Role| match &self.means {
            Means::V2(_) | Means::Scope { .. } => true,
            Means::V1(groups) => groups.iter().any(|(r, _)| *r == role),
            Means::None => false,
        };
        let (memory, cpus) = (can(Role::Memory), can(Role::Cpu));
        if asked.memory.was_asked() && !memory {
            return Err(self.refuse(host, "a memory limit"));
        }
        if self.cpus.is_some() && !cpus {
            return Err(self.refuse(host, "a limit on processors"));
        }
        if asked.pids.was_asked() && !self.pids_by_group() && !host.counts_processes() {
            return Err(self.refuse(host, "a limit on processes"));
        }
        if !memory {
            self.without_groups(false);
        }
        self.without_a_count(host);
        Ok(())
    }

    fn without_a_count(&mut self, host: &Host) {
        if self.pids.is_some() && !self.pids_by_group() && !host.counts_processes() {
            self.pids = None;
            self.notes.push(
                "processes are not limited: the kernel does not count those of root".to_owned(),
            );
        }
    }

    fn refuse(&self, host: &Host, what: &str) -> LaunchError {
        let (why, help) = refusal(host, self.layout);
        LaunchError::Unsupported {
            what: what.to_owned(),
            why,
            help,
        }
    }

    fn pids_by_group(&self) -> bool {
        match &self.means {
            Means::None => false,
            Means::V1(groups) => groups.iter().any(|(role, _)| *role == Role::Pids),
            Means::V2(_) | Means::Scope { .. } => true,
        }
    }

    /// The memory limit that will be in force, bytes.
    pub(crate) const fn memory(&self) -> Option<u64> {
        self.memory
    }

    pub(crate) fn describe(&self, facts: &mut LaunchFacts) {
        facts.memory = self.memory;
        facts.cpus = self.cpus;
        facts.pids = self.pids;
        facts.cgroup = Some(match self.means {
            Means::None if self.late.is_empty() => "none".to_owned(),
            Means::Scope { .. } => "systemd".to_owned(),
            _ => self.layout.to_owned(),
        });
        facts.notes.extend(self.notes.iter().cloned());
        if self.pids.is_some() && !self.pids_by_group() {
            facts.notes.push(
                "processes are counted for each user of the guest, not for all together".to_owned(),
            );
        }
    }
}

/// The folder of v1's freezer, where groups may be made in it.
fn freezer(host: &Host) -> Option<PathBuf> {
    if host.caller != Caller::Root {
        return None;
    }
    let own = &host.layout().ok()?.v1("freezer")?.own;
    Hierarchy::may_make_in(own).then(|| own.clone())
}

/// Lets a guest run again that was stopped when its keeper was killed: until then it can't end.
pub(crate) fn thaw_left(record: &RunRecord) {
    let name = name_of(record.run);
    let groups = record.cgroups.iter().map(Path::new);
    for path in groups.filter(|path| path.ends_with(&name) && path.starts_with("/sys/fs/cgroup")) {
        if path.join("freezer.state").exists() {
            // What stays frozen is told of by the end that it does not come to.
            v1::freezer::freeze(path, false).unwrap_or_default();
        }
    }
}

fn systemd_can(host: &Host) -> bool {
    matches!(host.caller, Caller::User { uid, .. } if systemd::is_there(uid))
}

fn means(
    host: &Host,
    layout: &Layout,
    limits: &Limits,
    memory_asked: bool,
    outlives: bool,
) -> Means {
    if let Caller::User { uid, .. } = host.caller {
        let useful = layout.v2().is_some() || outlives;
        return if useful && systemd::is_there(uid) {
            Means::Scope { uid }
        } else {
            Means::None
        };
    }
    if let Some(hierarchy) = layout.v2() {
        // The top group alone may have both processes and groups with controllers; in a container it is no top group,
        // and the kernel says so.
        let top = &hierarchy.top;
        if Hierarchy::may_make_in(top) && v2::delegate_controllers(top).is_ok() {
            return Means::V2(top.clone());
        }
    }
    let wanted = [
        (Role::Memory, memory_asked && limits.memory.is_some()),
        (Role::Cpu, limits.cpus.is_some()),
        (Role::CpuCount, true),
        (Role::Pids, limits.pids.is_some()),
    ];
    let groups: Vec<(Role, PathBuf)> = wanted
        .into_iter()
        .filter(|(_, wanted)| *wanted)
        .filter_map(|(role, _)| Some((role, layout.v1(role.controller())?.own.clone())))
        .filter(|(_, folder)| Hierarchy::may_make_in(folder))
        .collect();
    if groups.iter().any(|(role, _)| *role != Role::CpuCount) {
        Means::V1(groups)
    } else {
        Means::None
    }
}

/// Why this host has no groups for us, and what would help.
pub(crate) fn refusal(host: &Host, layout: &str) -> (String, Option<String>) {
    // A machine that was made of a container's image has the first file, too, but not a container's root.
    let stacked = || std::fs::File::open("/").is_ok_and(|root| on_overlay(root).unwrap_or(false));
    let container = (Path::new("/.dockerenv").exists() && stacked())
        || Path::new("/run/.containerenv").exists();
    match (&host.caller, layout) {
        _ if container => (
            "a container may not change its own control groups".to_owned(),
            Some("limit the container itself: `docker run --memory 1g --cpus 2 --pids-limit 500`".to_owned()),
        ),
        (Caller::User { uid, .. }, "v2") if !systemd::is_there(*uid) => (
            "an ordinary user gets control groups from the user's systemd manager, and none answers".to_owned(),
            Some("log in with systemd (pam_systemd), or run `sudo loginctl enable-linger $USER`".to_owned()),
        ),
        (Caller::User { .. }, "v1" | "hybrid") => (
            "this host's control groups are of version 1, which an ordinary user can't have".to_owned(),
            Some("run cosm as root, or boot with systemd.unified_cgroup_hierarchy=1".to_owned()),
        ),
        (_, "none") => ("no control groups are mounted here".to_owned(), Some("mount -t cgroup2 none /sys/fs/cgroup".to_owned())),
        _ => ("no groups may be made here".to_owned(), None),
    }
}

/// What can be bounded on this host.
pub(crate) struct Supports {
    pub memory: Support,
    pub cpus: Support,
    pub pids: Support,
    pub freeze: Support,
}

/// Finds out what could be bounded, if it were asked for.
pub(crate) fn supports(host: &Host) -> Supports {
    let nowhere = Layout::default();
    let layout = host.layout().unwrap_or(&nowhere);
    let all = Limits {
        memory: Some(Defaults::MEMORY.0),
        cpus: Some(1.0),
        pids: Some(Defaults::PIDS),
        means: Means::None,
        late: Vec::new(),
        freezer: freezer(host),
        layout: layout.name(),
        notes: Vec::new(),
    };
    let means = means(host, layout, &all, true, false);
    let (why, help) = refusal(host, layout.name());
    let role = |role: Role| match &means {
        Means::V2(_) => Support::Yes {
            by: "cgroup v2".to_owned(),
        },
        Means::Scope { .. } => Support::Yes {
            by: "cgroup v2 by systemd".to_owned(),
        },
        Means::V1(groups) if groups.iter().any(|(r, _)| *r == role) => Support::Yes {
            by: "cgroup v1".to_owned(),
        },
        _ => Support::No {
            why: why.clone(),
            help: help.clone(),
        },
    };
    let pids = match role(Role::Pids) {
        Support::No { .. } if host.counts_processes() => Support::Yes {
            by: "RLIMIT_NPROC, for each user of the guest".to_owned(),
        },
        by_group => by_group,
    };
    let freeze = match &means {
        Means::V2(_) | Means::Scope { .. } => role(Role::Memory),
        _ if all.freezer.is_some() => Support::Yes {
            by: "cgroup v1, joined at the first pause".to_owned(),
        },
        _ => Support::No {
            why: "only control groups can be stopped, and none with a freezer may be made here"
                .to_owned(),
            help: help.clone(),
        },
    };
    Supports {
        memory: role(Role::Memory),
        cpus: role(Role::Cpu),
        pids,
        freeze,
    }
}

fn failed(what: &str, source: io::Error) -> LaunchError {
    LaunchError::Os {
        phase: LaunchPhase::Limits,
        what: what.to_owned(),
        source,
        help: None,
    }
}

/// Ends what still runs in the groups that a run left, and removes them.
pub(crate) fn remove_left(record: &RunRecord) -> Result<(), ReapError> {
    let name = name_of(record.run);
    for folder in &record.cgroups {
        let path = Path::new(folder);
        // Whatever a damaged record says, only a group of this run's is touched.
        let ours = path.components().any(|part| {
            let part = part.as_os_str().to_string_lossy();
            part == *name || part == format!("{name}.scope")
        });
        if !ours || !path.starts_with("/sys/fs/cgroup") {
            continue;
        }
        cgroup::kill(path)
            .and_then(|()| cgroup::remove(path))
            .map_err(|source| ReapError {
                what: format!("removing the control group {folder}"),
                source,
            })?;
    }
    Ok(())
}
