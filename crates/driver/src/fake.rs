//! A driver that isolates nothing, for tests of what lies above drivers: the agent is a plain child process.
//!
//! What a guest of it does it does to the host, so that it must never run what is not trusted. Processes that outlive a
//! killed keeper are not found again: there is no namespace to know them by.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cosm_proto::agent::{self, AgentBoot};
use cosm_sys::process::{self, Child, CloneArgs, Exit, fork};
use cosm_sys::{memfd, procfs};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::{
    Capabilities, Driver, DriverKind, Guest, GuestExit, GuestUsage, IdMap, LaunchError,
    LaunchFacts, LaunchPhase, LaunchPlan, Launched, Level, Measured, ProcessRecord, ReapError,
    RunRecord, Support,
};

/// Descriptors that are placed low are kept above the places.
const PARKED: i32 = 16;
const LISTENER: i32 = 3;
const BOOT: i32 = 4;

/// The driver.
#[derive(Debug)]
pub struct FakeDriver {
    capabilities: Capabilities,
}

impl FakeDriver {
    /// A driver that starts plain processes.
    pub fn new() -> Self {
        let no = || Support::No {
            why: "nothing is isolated".to_owned(),
            help: None,
        };
        Self {
            capabilities: Capabilities {
                level: Level::Namespaces,
                launch: Support::Yes {
                    by: "plain processes".to_owned(),
                },
                memory: no(),
                cpus: no(),
                pids: no(),
                disk: no(),
                freeze: Support::Yes {
                    by: "signals".to_owned(),
                },
                id_range: no(),
                overlay: no(),
                findings: Vec::new(),
            },
        }
    }
}

impl Default for FakeDriver {
    fn default() -> Self {
        Self::new()
    }
}

/// A plain process that plays a guest's process 1.
#[derive(Debug)]
pub struct FakeGuest {
    agent: Child,
    exit: Option<GuestExit>,
}

impl Driver for FakeDriver {
    type Guest = FakeGuest;

    fn kind(&self) -> DriverKind {
        DriverKind::Namespaces
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn launch(&self, plan: LaunchPlan) -> Result<Launched<FakeGuest>, LaunchError> {
        launch(plan).map_err(|source| LaunchError::Os {
            phase: LaunchPhase::Exec,
            what: "starting the agent".to_owned(),
            source,
            help: None,
        })
    }

    async fn reap(&self, record: &RunRecord) -> Result<(), ReapError> {
        let Some(init) = &record.init else {
            return Ok(());
        };
        let same = procfs::stat(init.pid)
            .is_ok_and(|stat| stat.start_time == init.start_ticks && stat.state != b'Z');
        if same {
            kill_tree(init.pid).map_err(|source| ReapError {
                what: format!("ending process {}", init.pid),
                source,
            })?;
        }
        Ok(())
    }

    async fn remove_tree(&self, path: &Path, _ids: Option<&IdMap>) -> Result<(), ReapError> {
        let removed = match path.symlink_metadata() {
            Ok(found) if !found.is_dir() => std::fs::remove_file(path),
            _ => std::fs::remove_dir_all(path),
        };
        match removed {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(ReapError {
                what: format!("removing {}", path.display()),
                source,
            }),
            _ => Ok(()),
        }
    }
}

fn launch(mut plan: LaunchPlan) -> io::Result<Launched<FakeGuest>> {
    let boot = postcard::to_allocvec(&boot(&plan)).map_err(io::Error::other)?;
    let boot = memfd::sealed(c"boot", &boot)?;
    let program = memfd::sealed_program(c"agent", plan.agent)?;
    let parked = |fd: std::os::fd::BorrowedFd<'_>| process::duplicate_above(fd, PARKED);
    let (listener, boot) = (parked(plan.listener.as_fd())?, parked(boot.as_fd())?);
    let program = parked(program.as_fd())?;
    let (go, mut told) = io::pipe()?;
    let child = fork(&CloneArgs::default(), || {
        // The record comes before anything that the guest does.
        let ready = io::Read::read_exact(&mut &go, &mut [0]);
        let placed = rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .and_then(|()| process::place_fd(listener.as_fd(), LISTENER))
            .and_then(|()| process::place_fd(boot.as_fd(), BOOT));
        if ready.is_err() || placed.is_err() {
            return 1;
        }
        process::exec_fd(program.as_fd(), &[Some(c"agent"), None]).raw_os_error()
    })?;
    let pid = child.pid().as_raw_nonzero().get();
    let recorded = record(pid)
        .and_then(|init| {
            (plan.record)(&RunRecord {
                id: plan.id,
                run: plan.run,
                driver: DriverKind::Namespaces,
                init: Some(init),
                ids: None,
                cgroups: Vec::new(),
                unit: None,
                mounts: Vec::new(),
            })
        })
        .and_then(|()| io::Write::write_all(&mut told, &[1]));
    if let Err(error) = recorded {
        child.kill_and_wait()?;
        return Err(error);
    }
    Ok(Launched {
        guest: FakeGuest {
            agent: child,
            exit: None,
        },
        facts: LaunchFacts::default(),
    })
}

fn boot(plan: &LaunchPlan) -> AgentBoot {
    let spec = &plan.spec;
    let mut path = Vec::new();
    if let Some(scripts) = &plan.scripts {
        path.extend_from_slice(scripts.as_os_str().as_encoded_bytes());
        path.push(b':');
    }
    path.extend_from_slice(b"/usr/local/bin:/usr/bin:/bin");
    let own = [(b"PATH".to_vec(), path)].into_iter();
    let asked = spec
        .env
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    AgentBoot {
        version: agent::VERSION,
        env: own.chain(asked).collect(),
        workdir: spec
            .workdir
            .as_ref()
            .map_or_else(|| b"/".to_vec(), |path| path.as_bytes().to_vec()),
        user: None,
        shell: None,
        rlimits: Vec::new(),
        cgroup: None,
        fixed_user: true,
    }
}

fn record(pid: i32) -> io::Result<ProcessRecord> {
    Ok(ProcessRecord {
        pid,
        start_ticks: procfs::stat(pid)?.start_time,
        pid_namespace: procfs::namespace(pid, "pid")?,
        user_namespace: procfs::namespace(pid, "user")?,
        boot: 0,
    })
}

/// Kills a process and all below it.
fn kill_tree(root: i32) -> io::Result<()> {
    stop_tree(root)?
        .iter()
        .try_for_each(|pid| send(*pid, Signal::KILL))
}

/// Stops a process and all below it, so that none is born unseen, and says which they are.
fn stop_tree(root: i32) -> io::Result<BTreeSet<i32>> {
    let mut tree = BTreeSet::from([root]);
    loop {
        for pid in &tree {
            send(*pid, Signal::STOP)?;
        }
        let grown: BTreeSet<i32> = procfs::pids()?
            .into_iter()
            .filter_map(|pid| procfs::stat(pid).ok())
            .filter(|stat| tree.contains(&stat.parent))
            .map(|stat| stat.pid)
            .chain(tree.iter().copied())
            .collect();
        if grown == tree {
            return Ok(tree);
        }
        tree = grown;
    }
}

fn send(pid: i32, signal: Signal) -> io::Result<()> {
    match Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, signal)) {
        None | Some(Ok(()) | Err(Errno::SRCH)) => Ok(()),
        Some(Err(error)) => Err(error.into()),
    }
}

impl Guest for FakeGuest {
    fn kill(&mut self) -> io::Result<()> {
        match self.exit {
            Some(_) => Ok(()),
            None => kill_tree(self.agent.pid().as_raw_nonzero().get()),
        }
    }

    async fn wait(&mut self) -> GuestExit {
        if let Some(exit) = self.exit {
            return exit;
        }
        if let Ok(pidfd) = self.agent.as_fd().try_clone_to_owned() {
            // Where the runtime can't watch it, waiting the plain way is all that is left.
            drop(until_ended(pidfd).await);
        }
        let (code, signal) = match self.agent.wait() {
            Ok(Exit::Code(code)) => (Some(code), None),
            Ok(Exit::Signal(signal)) => (None, Some(signal)),
            Err(_) => (None, None),
        };
        *self.exit.insert(GuestExit {
            code,
            signal,
            oom: false,
            usage: GuestUsage::default(),
        })
    }

    fn usage(&self) -> GuestUsage {
        GuestUsage::default()
    }

    fn freeze(&mut self, frozen: bool) -> io::Result<()> {
        // Stopping finds all of them again, also those that are stopped.
        let tree = stop_tree(self.agent.pid().as_raw_nonzero().get())?;
        if frozen {
            return Ok(());
        }
        tree.iter().try_for_each(|pid| send(*pid, Signal::CONT))
    }

    /// Its guests write where they like, which is nowhere that could be counted.
    fn measure(
        &self,
        folder: PathBuf,
        _ids: Option<IdMap>,
        _time: Duration,
    ) -> impl Future<Output = io::Result<Measured>> + 'static {
        std::future::ready(std::fs::metadata(folder).map(|_| Measured {
            bytes: 0,
            whole: true,
        }))
    }
}

async fn until_ended(pidfd: std::os::fd::OwnedFd) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; an OwnedFd keeps all that it demands"
    )]
    let watched = tokio::io::unix::AsyncFd::with_interest(pidfd, tokio::io::Interest::READABLE)?;
    watched.readable().await?.retain_ready();
    Ok(())
}
