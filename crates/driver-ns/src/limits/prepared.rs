//! The control groups of one run.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cosm_base::RunId;
use cosm_driver::{GuestUsage, LaunchError};
use cosm_sys::cgroup::{self, Layout, v1, v2};
use rustix::process::Pid;

use super::{Limits, Means, Role, failed};
use crate::systemd;

impl Limits {
    /// Makes the groups with their limits; the guest is not in them yet.
    pub(crate) async fn prepare(&self, run: RunId) -> Result<Prepared, LaunchError> {
        let mut prepared = Prepared {
            groups: Vec::new(),
            born_into: None,
            unit: None,
            max_processes: self.pids.filter(|_| !self.pids_by_group()),
            pid: None,
            late: self
                .late
                .iter()
                .map(|(role, parent)| (*role, parent.join(name_of(run))))
                .collect(),
            freezer: self.freezer.as_ref().map(|folder| Freezer {
                path: folder.join(name_of(run)),
                joined: false,
            }),
            limits: self.clone(),
        };
        let made = match &self.means {
            Means::None => Ok(()),
            Means::V1(places) => prepared.make_v1(places, run),
            Means::V2(parent) => prepared.make_v2(parent, run),
            Means::Scope { uid } => return prepared.make_scope(*uid, run).await,
        };
        match made {
            Ok(()) => Ok(prepared),
            Err(error) => {
                prepared.remove();
                Err(failed("making control groups", error))
            }
        }
    }
}

/// The limits of one run.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The groups that were made. `None` is the one group of v2.
    groups: Vec<(Option<Role>, PathBuf)>,
    born_into: Option<OwnedFd>,
    unit: Option<String>,
    max_processes: Option<u64>,
    pid: Option<i32>,
    /// Groups that are still to be made and joined.
    late: Vec<(Role, PathBuf)>,
    freezer: Option<Freezer>,
    limits: Limits,
}

/// A group of v1 to stop the guest in. It is made and joined at the first pause: a start would pay for it with more than all
/// else takes, and few sandboxes are ever paused.
#[derive(Debug)]
struct Freezer {
    path: PathBuf,
    joined: bool,
}

impl Freezer {
    fn freeze(&mut self, init: i32, frozen: bool) -> io::Result<()> {
        if !self.joined {
            if !frozen {
                return Ok(());
            }
            std::fs::create_dir(&self.path)?;
            self.joined = true;
            if let Err(error) = join(&self.path, init) {
                self.remove();
                return Err(error);
            }
        }
        v1::freezer::freeze(&self.path, frozen)
    }

    /// What can't be removed is found again by the run's record.
    fn remove(&mut self) {
        self.joined &= cgroup::remove(&self.path).is_err();
    }
}

/// Process 1 first, whose later children are born where it is; then those that it had, until there is none outside.
fn join(group: &Path, init: i32) -> io::Result<()> {
    cgroup::add(group, init)?;
    loop {
        let inside = cgroup::members(group)?;
        let outside: Vec<i32> = cosm_sys::procfs::descendants(init)
            .into_iter()
            .filter(|pid| !inside.contains(pid))
            .collect();
        // One that is ending can't be moved and needs no limit.
        let moved = outside
            .into_iter()
            .filter(|pid| cgroup::add(group, *pid).is_ok())
            .count();
        if moved == 0 {
            return Ok(());
        }
    }
}

/// The name of a run's groups.
pub(super) fn name_of(run: RunId) -> String {
    format!("cosm-{run}")
}

impl Prepared {
    fn make(&mut self, role: Option<Role>, path: PathBuf) -> io::Result<PathBuf> {
        std::fs::create_dir(&path)?;
        self.groups.push((role, path.clone()));
        Ok(path)
    }

    fn make_v1(&mut self, places: &[(Role, PathBuf)], run: RunId) -> io::Result<()> {
        for (role, parent) in places {
            self.make_one(*role, parent.join(name_of(run)))?;
        }
        Ok(())
    }

    fn make_one(&mut self, role: Role, path: PathBuf) -> io::Result<()> {
        // Two controllers may share a hierarchy, and then a group.
        if !path.is_dir() {
            std::fs::create_dir(&path)?;
        }
        self.groups.push((Some(role), path.clone()));
        match role {
            Role::Memory => self
                .limits
                .memory
                .map_or(Ok(()), |bytes| v1::memory::limit(&path, bytes)),
            Role::Cpu => self
                .limits
                .cpus
                .map_or(Ok(()), |cpus| v1::cpu::limit(&path, cpus)),
            Role::Pids => self
                .limits
                .pids
                .map_or(Ok(()), |count| v1::pids::limit(&path, count)),
            Role::CpuCount => Ok(()),
        }
    }

    /// Whether there are limits that the guest is to get once it has run for a while.
    pub(crate) const fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Puts the running guest into the groups of the default limits. Takes some milliseconds.
    ///
    /// # Errors
    /// Then there are no such limits, and no groups.
    pub(crate) fn enforce_late(&mut self) -> io::Result<()> {
        let late = std::mem::take(&mut self.late);
        let Some(init) = self.pid else { return Ok(()) };
        let made = late
            .into_iter()
            .try_for_each(|(role, path)| self.make_one(role, path));
        let joined = made.and_then(|()| self.join_all(init));
        if joined.is_err() {
            self.groups
                .retain(|(_, path)| cgroup::remove_now(path).is_err());
        }
        joined
    }

    fn join_all(&self, init: i32) -> io::Result<()> {
        self.groups
            .iter()
            .try_for_each(|(_, group)| join(group, init))
    }

    fn make_v2(&mut self, parent: &Path, run: RunId) -> io::Result<()> {
        let group = self.make(None, parent.join(name_of(run)))?;
        self.limit_v2(&group)?;
        self.born_into = Some(open_group(&group)?);
        Ok(())
    }

    fn limit_v2(&self, group: &Path) -> io::Result<()> {
        if let Some(bytes) = self.limits.memory {
            v2::memory::limit(group, bytes)?;
        }
        if let Some(cpus) = self.limits.cpus {
            v2::cpu::limit(group, cpus)?;
        }
        if let Some(count) = self.limits.pids {
            v2::pids::limit(group, count)?;
        }
        Ok(())
    }

    async fn make_scope(mut self, uid: u32, run: RunId) -> Result<Self, LaunchError> {
        let unit = format!("{}.scope", name_of(run));
        systemd::delegated_scope(uid, &unit, std::process::id())
            .await
            .map_err(|e| {
                failed(
                    "asking the user's systemd manager for a group",
                    io::Error::other(e),
                )
            })?;
        self.unit = Some(unit);
        match self.make_in_scope() {
            Ok(()) => Ok(self),
            Err(error) => {
                self.remove();
                Err(failed("making control groups in the scope", error))
            }
        }
    }

    /// A group of v2 with controllers for the groups below it can't have processes itself, so that the keeper moves into
    /// one of its own beside the guest's.
    fn make_in_scope(&mut self) -> io::Result<()> {
        let layout = Layout::find()?;
        let scope = layout.v2().ok_or(io::ErrorKind::NotFound)?.own.clone();
        let leaf = scope.join("keeper");
        std::fs::create_dir(&leaf)?;
        cgroup::add(&leaf, 0)?;
        v2::delegate_controllers(&scope)?;
        let group = self.make(None, scope.join("guest"))?;
        self.limit_v2(&group)?;
        self.born_into = Some(open_group(&group)?);
        Ok(())
    }

    pub(crate) const fn max_processes(&self) -> Option<u64> {
        self.max_processes
    }

    /// The group into which the guest's first process is born.
    pub(crate) fn born_into(&self) -> Option<BorrowedFd<'_>> {
        self.born_into.as_ref().map(OwnedFd::as_fd)
    }

    /// Puts the guest's first process, which has no child yet, into the groups of v1. The moves follow each other at
    /// once: the kernel waits for all processors at the first and not again for a while.
    pub(crate) fn admit(&mut self, pid: Pid) -> Result<(), LaunchError> {
        let number = pid.as_raw_nonzero().get();
        self.pid = Some(number);
        if self.born_into.is_some() {
            return Ok(());
        }
        let mut joined: Vec<&Path> = Vec::with_capacity(self.groups.len());
        for (_, group) in &self.groups {
            if !joined.contains(&group.as_path()) {
                cgroup::add(group, number)
                    .map_err(|e| failed("moving the guest into its control groups", e))?;
                joined.push(group);
            }
        }
        Ok(())
    }

    pub(crate) fn folders(&self) -> Vec<String> {
        let late = self.late.iter().map(|(_, path)| path);
        let made = self.groups.iter().map(|(_, path)| path);
        let freezer = self.freezer.iter().map(|freezer| &freezer.path);
        made.chain(late)
            .chain(freezer)
            .map(|path| path.display().to_string())
            .collect()
    }

    pub(crate) fn unit(&self) -> Option<String> {
        self.unit.clone()
    }

    fn of(&self, role: Role) -> Option<&Path> {
        self.groups
            .iter()
            .find(|(r, _)| *r == Some(role))
            .map(|(_, path)| path.as_path())
    }

    pub(crate) fn usage(&self) -> GuestUsage {
        let mut usage = GuestUsage {
            memory_limit: self.limits.memory,
            pids_limit: self.limits.pids,
            ..GuestUsage::default()
        };
        if let Some((None, group)) = self.groups.first() {
            usage.cpu_us = v2::cpu::used(group);
            let (memory, block) = (v2::memory::usage(group), v2::block::usage(group));
            (usage.memory, usage.peak_memory, usage.oom_kills) =
                (memory.now, memory.peak, memory.oom_kills);
            (usage.read_bytes, usage.write_bytes) = (block.read, block.written);
            usage.pids = v2::pids::count(group);
        }
        usage.cpu_us = usage
            .cpu_us
            .or_else(|| v1::cpu::used(self.of(Role::CpuCount)?));
        usage.pids = usage.pids.or_else(|| v1::pids::count(self.of(Role::Pids)?));
        if let Some(group) = self.of(Role::Memory) {
            let memory = v1::memory::usage(group);
            (usage.memory, usage.peak_memory, usage.oom_kills) =
                (memory.now, memory.peak, memory.oom_kills);
        }
        self.count_processes(&mut usage);
        usage
    }

    /// Without groups, what `/proc` says of the guest's processes.
    fn count_processes(&self, usage: &mut GuestUsage) {
        if usage.cpu_us.is_some() && usage.memory.is_some() && usage.pids.is_some() {
            return;
        }
        let Some(tree) = self.pid.and_then(|pid| cosm_sys::procfs::tree(pid).ok()) else {
            return;
        };
        usage.cpu_us.get_or_insert(tree.cpu_us);
        usage.memory.get_or_insert(tree.resident);
        usage.pids.get_or_insert(tree.threads);
    }

    pub(crate) fn freeze(&mut self, frozen: bool) -> io::Result<()> {
        match self.groups.first() {
            Some((None, group)) => v2::freezer::freeze(group, frozen),
            _ => match (&mut self.freezer, self.pid) {
                (Some(freezer), Some(init)) => freezer.freeze(init, frozen),
                _ => Err(io::ErrorKind::Unsupported.into()),
            },
        }
    }

    /// Removes the groups once the guest has ended. What can't be removed is found again by the run's record.
    pub(crate) fn remove(&mut self) {
        self.pid = None;
        if let Some(freezer) = self.freezer.as_mut().filter(|freezer| freezer.joined) {
            freezer.remove();
        }
        self.groups
            .retain(|(_, path)| cgroup::remove(path).is_err());
    }
}

fn open_group(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    Ok(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}
