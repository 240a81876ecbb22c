//! A launch, from the plan to a running agent.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use cosm_driver::{
    DriverKind, LaunchError, LaunchPhase, LaunchPlan, Launched, ProcessRecord, RunRecord, Upper,
};
use cosm_spec::{ImageSource, NetMode};
use cosm_sys::process::{self, Child, CloneArgs, Namespaces, fork};
use cosm_sys::{memfd, procfs};
use rustix::process::Pid;

use crate::child::{self, Confine, Failure, Line, Mounts};
use crate::explain;
use crate::guest::NsGuest;
use crate::host::Host;
use crate::ids::{self, Ids};
use crate::limits::{Limits, Prepared};
use crate::maps::map_ids;
use crate::rootfs::{self, Site};
use crate::tree::{Source, Tree};
use crate::{Stock, boot, facts, rights, seccomp, users};

/// Descriptors that the child has to place low are kept above the places.
const PARKED: i32 = 16;

/// Times of the parts of a launch.
struct Clock {
    last: Instant,
    parts: Vec<(String, u64)>,
}

impl Clock {
    fn start() -> Self {
        Self {
            last: Instant::now(),
            parts: Vec::with_capacity(8),
        }
    }
    fn mark(&mut self, part: &str) {
        let now = Instant::now();
        let time = now.duration_since(self.last).as_micros();
        self.parts
            .push((part.to_owned(), u64::try_from(time).unwrap_or(u64::MAX)));
        self.last = now;
    }
}

/// Starts the guest.
pub(crate) async fn launch(
    host: &Host,
    stock: &Stock,
    mut plan: LaunchPlan,
) -> Result<Launched<NsGuest>, LaunchError> {
    let mut clock = Clock::start();
    check_network(host, &plan)?;
    let main = main_user(&plan)?;
    let ids = ids::decide(&plan, host, main)?;
    let limits = Limits::decide(host, &plan.spec)?;
    let mut uppers = uppers(&plan).into_iter().peekable();
    while let Some(upper) = uppers.next() {
        match attempt((host, stock), &mut plan, &ids, &limits, upper, &mut clock).await {
            // This file system can't be stacked on; the next kind of upper layer asks less of it.
            Err(Attempt::Overlay(_)) if uppers.peek().is_some() => clock.mark("overlay refused"),
            Err(Attempt::Overlay(error) | Attempt::Failed(error)) => return Err(error),
            Ok(mut launched) => {
                launched.facts.timings = clock.parts;
                return Ok(launched);
            }
        }
    }
    Err(LaunchError::Invalid {
        what: "the image has no kind of upper layer".to_owned(),
        help: None,
    })
}

enum Attempt {
    /// The overlay was refused.
    Overlay(LaunchError),
    Failed(LaunchError),
}

impl From<LaunchError> for Attempt {
    fn from(error: LaunchError) -> Self {
        Self::Failed(error)
    }
}

/// The kinds of upper layer to try, best first.
fn uppers(plan: &LaunchPlan) -> Vec<Upper> {
    match (&plan.spec.image, &plan.data) {
        (ImageSource::Folder(_), Some(data)) => {
            // An upper layer can't lie on an overlay, as the home of any container does.
            let stacked = File::open(data)
                .is_ok_and(|folder| cosm_sys::mount::on_overlay(folder).unwrap_or(false));
            if stacked {
                vec![Upper::Copy]
            } else {
                vec![Upper::Overlay, Upper::Copy]
            }
        }
        (ImageSource::Folder(_), None) => vec![Upper::OverlayTmpfs, Upper::CopyTmpfs],
        (_, Some(_)) => vec![Upper::Folders],
        (_, None) => vec![Upper::FoldersTmpfs],
    }
}

fn check_network(host: &Host, plan: &LaunchPlan) -> Result<(), LaunchError> {
    if plan.spec.net == NetMode::Host && host.landlock < 6 {
        return Err(LaunchError::Unsupported {
            what: "the host's network".to_owned(),
            why: format!(
                "with it come the host's abstract Unix sockets, and this kernel's Landlock (version {}) can't keep the guest off them",
                host.landlock
            ),
            help: Some("a kernel from 6.12 on with landlock among its lsm".to_owned()),
        });
    }
    Ok(())
}

fn main_user(plan: &LaunchPlan) -> Result<(u32, u32), LaunchError> {
    let Some(user) = &plan.spec.user else {
        return Ok((0, 0));
    };
    match &plan.spec.image {
        ImageSource::Folder(path) => {
            let root = path.as_path();
            users::resolve(
                user,
                &users::read_in(root, "etc/passwd"),
                &users::read_in(root, "etc/group"),
            )
        }
        // A `host` guest knows root, nobody, and whoever it is asked to run as, with a group of the same number.
        _ => {
            let named = user.parse::<u32>().ok().map(|id| (id, id));
            named.map_or_else(
                || {
                    users::resolve(
                        user,
                        "root:x:0:0\nnobody:x:65534:65534\n",
                        "root:x:0\nnogroup:x:65534\n",
                    )
                },
                Ok,
            )
        }
    }
}

/// What the child is made of besides the tree.
struct Parts<'a> {
    program: Cow<'a, [cosm_sys::seccomp::Instruction]>,
    landlock: Option<OwnedFd>,
    agent: OwnedFd,
    boot: OwnedFd,
    listener: OwnedFd,
    host_name: String,
}

fn prepare<'a>(plan: &LaunchPlan, stock: &'a Stock, ids: &Ids) -> Result<Parts<'a>, LaunchError> {
    let failed = |what: &'static str| {
        move |e: io::Error| LaunchError::Os {
            phase: LaunchPhase::Prepare,
            what: what.to_owned(),
            source: e,
            help: None,
        }
    };
    let message = boot::message(plan, ids);
    let message = postcard::to_allocvec(&message)
        .map_err(|e| failed("writing the agent's first message")(io::Error::other(e)))?;
    let parked = |fd: BorrowedFd<'_>| {
        process::duplicate_above(fd, PARKED).map_err(|e| failed("keeping a descriptor")(e.into()))
    };
    let boot = memfd::sealed(c"cosm-boot", &message)
        .map_err(|e| failed("keeping the agent's first message")(e.into()))?;
    let agent = stock
        .agent(plan.agent)
        .map_err(failed("keeping the agent's program"))?;
    let landlock = match plan.spec.net {
        NetMode::Host => Some(
            cosm_sys::landlock::scope_abstract_sockets()
                .map_err(|e| failed("making the Landlock rules")(e.into()))?,
        ),
        _ => None,
    };
    Ok(Parts {
        program: match plan.spec.io_uring {
            false => stock.filter().map(Cow::Borrowed),
            true => seccomp::program(true).map(Cow::Owned),
        }
        .map_err(|e| failed("reading the system call policy")(io::Error::other(e)))?,
        landlock: landlock.map(|fd| parked(fd.as_fd())).transpose()?,
        agent: parked(agent)?,
        boot: parked(boot.as_fd())?,
        listener: parked(plan.listener.as_fd())?,
        host_name: crate::rootfs::host_name(plan),
    })
}

async fn attempt(
    (host, stock): (&Host, &Stock),
    plan: &mut LaunchPlan,
    ids: &Ids,
    limits: &Limits,
    upper: Upper,
    clock: &mut Clock,
) -> Result<Launched<NsGuest>, Attempt> {
    let site = Site {
        plan,
        host,
        ids,
        upper,
        memory: limits.memory(),
    };
    let tree = rootfs::tree(&site).map_err(|error| refused_below(upper, error))?;
    let facts = facts::of(&site, limits);
    let parts = prepare(plan, stock, ids)?;
    clock.mark("prepare");
    let mut cgroup = limits.prepare(plan.run).await?;
    clock.mark("limits");
    let started = start(plan, &tree, ids, &parts, &mut cgroup, host, clock);
    drop(tree);
    match started {
        Ok(child) => Ok(Launched {
            guest: NsGuest::new(child, cgroup),
            facts,
        }),
        Err(error) => {
            cgroup.remove();
            Err(error)
        }
    }
}

fn start(
    plan: &mut LaunchPlan,
    tree: &Tree,
    ids: &Ids,
    parts: &Parts<'_>,
    cgroup: &mut Prepared,
    host: &Host,
    clock: &mut Clock,
) -> Result<Child, Attempt> {
    let deadline = Instant::now() + plan.spec.timeouts.boot;
    let pipe = || io::pipe().map_err(|e| os(LaunchPhase::Prepare, "making a pipe", e));
    let ((go_reader, mut go_writer), (mut failure_reader, failure_writer)) = (pipe()?, pipe()?);
    let confine = Confine {
        builder: ids.builder,
        user: (ids.fixed && ids.main != ids.builder).then_some(ids.main),
        clear_groups: !ids.deny_setgroups,
        host_name: parts.host_name.as_bytes(),
        own_network: plan.spec.net == NetMode::None,
        cgroup_namespace: true,
        max_processes: cgroup.max_processes(),
        landlock: parts.landlock.as_ref().map(OwnedFd::as_fd),
        keep: rights::of(plan.spec.profile),
        seccomp: &parts.program,
        listener: parts.listener.as_fd(),
        boot: parts.boot.as_fd(),
        agent: parts.agent.as_fd(),
    };
    let mut mounts: Mounts = mounts_of(tree)?;
    let child = make(cgroup, |without_parent_ends| {
        // The copies of the parent's ends: with them open the child would never see the parent go.
        without_parent_ends(&[go_writer.as_fd(), failure_reader.as_fd()]);
        child::run(
            tree,
            &mut mounts,
            &confine,
            &Line {
                go: go_reader.as_fd(),
                failure: failure_writer.as_fd(),
            },
        )
    })?;
    drop(failure_writer);
    drop(go_reader);
    clock.mark("clone");
    let guided = guide(plan, ids, &child, cgroup, host, &mut go_writer, clock);
    let outcome = match guided {
        Err(error) => Err(error),
        Ok(()) => listen(&mut failure_reader, deadline).map_err(|e| match e.kind() {
            io::ErrorKind::TimedOut => LaunchError::TooSlow {
                limit: plan.spec.timeouts.boot,
            },
            _ => os(LaunchPhase::Exec, "waiting for the guest", e),
        }),
    };
    clock.mark("build");
    let failed = match outcome {
        Ok(None) => return Ok(child),
        Ok(Some(failure)) => judge(failure, tree, host),
        Err(error @ LaunchError::TooSlow { .. }) => error.into(),
        // The child may have failed first, and then it knows better.
        Err(error) => {
            drop(go_writer);
            match listen(&mut failure_reader, deadline) {
                Ok(Some(failure)) if failure.stage != child::Stage::Parent => {
                    judge(failure, tree, host)
                }
                // It closes its end only by ending: it has not been told to become the agent.
                Ok(None) => explain::killed(cgroup.usage().oom_kills).into(),
                _ => error.into(),
            }
        }
    };
    end(&child);
    Err(failed)
}

fn judge(failure: Failure, tree: &Tree, host: &Host) -> Attempt {
    let error = explain::failure(failure, tree, host);
    if failure.stage == child::Stage::Overlay {
        Attempt::Overlay(error)
    } else {
        Attempt::Failed(error)
    }
}

/// A file system whose mounts can't translate owners can't be what an overlay of root's lies on.
fn refused_below(upper: Upper, error: LaunchError) -> Attempt {
    let stacked = matches!(upper, Upper::Overlay | Upper::OverlayTmpfs);
    match &error {
        LaunchError::Os {
            phase: LaunchPhase::Rootfs,
            source,
            ..
        } if stacked && source.kind() == io::ErrorKind::InvalidInput => Attempt::Overlay(error),
        _ => Attempt::Failed(error),
    }
}

/// Kills and reaps a child that did not become a guest.
fn end(child: &Child) {
    // Nothing else reaps it, so that this can't fail.
    let ended = child.kill_and_wait();
    debug_assert!(ended.is_ok());
}

pub(crate) fn os(phase: LaunchPhase, what: &str, source: io::Error) -> LaunchError {
    LaunchError::Os {
        phase,
        what: what.to_owned(),
        source,
        help: None,
    }
}

/// Mounts that the parent made go to the child by number.
fn mounts_of(tree: &Tree) -> Result<Mounts, LaunchError> {
    tree.binds
        .iter()
        .map(|bind| match &bind.source {
            Source::Made(mount) => process::duplicate_above(mount.as_fd(), PARKED)
                .map(Some)
                .map_err(|e| os(LaunchPhase::Prepare, "keeping a descriptor", e.into())),
            _ => Ok(None),
        })
        .collect()
}

/// Clones the guest's first process. A kernel without time namespaces makes it without one.
fn make(
    cgroup: &Prepared,
    run: impl FnOnce(&dyn Fn(&[BorrowedFd<'_>])) -> i32,
) -> Result<Child, LaunchError> {
    let mut namespaces = Namespaces::USER
        .with(Namespaces::MOUNT)
        .with(Namespaces::PID)
        .with(Namespaces::IPC)
        .with(Namespaces::UTS);
    if std::path::Path::new("/proc/self/ns/time").exists() {
        namespaces = namespaces.with(Namespaces::TIME);
    }
    let args = CloneArgs {
        namespaces,
        cgroup: cgroup.born_into(),
    };
    fork(&args, || {
        run(&|ends| ends.iter().for_each(|fd| process::close_copy(*fd)))
    })
    .map_err(|e| explain::namespaces(e.into()))
}

/// What the parent does while the child builds.
fn guide(
    plan: &mut LaunchPlan,
    ids: &Ids,
    child: &Child,
    cgroup: &mut Prepared,
    host: &Host,
    go: &mut io::PipeWriter,
    clock: &mut Clock,
) -> Result<(), LaunchError> {
    let pid = child.pid();
    let record = record(plan, ids, pid, cgroup, host)
        .map_err(|e| os(LaunchPhase::Namespaces, "looking at the guest", e))?;
    map_ids(pid, ids)?;
    let tell = |go: &mut io::PipeWriter| {
        go.write_all(b"1")
            .map_err(|e| os(LaunchPhase::Namespaces, "telling the guest to go on", e))
    };
    tell(go)?;
    clock.mark("ids");
    cgroup.admit(pid)?;
    (plan.record)(&record).map_err(|e| os(LaunchPhase::Prepare, "writing the run's record", e))?;
    clock.mark("record");
    tell(go)
}

fn record(
    plan: &LaunchPlan,
    ids: &Ids,
    pid: Pid,
    cgroup: &Prepared,
    host: &Host,
) -> io::Result<RunRecord> {
    let number = pid.as_raw_nonzero().get();
    Ok(RunRecord {
        id: plan.id,
        run: plan.run,
        driver: DriverKind::Namespaces,
        init: Some(ProcessRecord {
            pid: number,
            start_ticks: procfs::stat(number)?.start_time,
            pid_namespace: procfs::namespace(number, "pid_for_children")
                .or_else(|_| procfs::namespace(number, "pid"))?,
            user_namespace: procfs::namespace(number, "user")?,
            boot: host.boot,
        }),
        ids: Some(ids.record()),
        cgroups: cgroup.folders(),
        unit: cgroup.unit(),
        mounts: Vec::new(),
    })
}

/// Waits until the child has executed the agent (`None`) or says why not.
fn listen(failure: &mut io::PipeReader, deadline: Instant) -> io::Result<Option<Failure>> {
    let mut bytes = Vec::with_capacity(Failure::SIZE);
    loop {
        until_readable(failure, deadline)?;
        let mut some = [0_u8; Failure::SIZE];
        match failure.read(&mut some)? {
            0 => break,
            count => bytes.extend_from_slice(&some[..count]),
        }
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    Failure::from_bytes(&bytes)
        .map(Some)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A file system of a server that is gone can hold the child up for ever.
fn until_readable(pipe: &io::PipeReader, deadline: Instant) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
