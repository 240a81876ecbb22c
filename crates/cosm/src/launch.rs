//! Starting a keeper and listening to it until its task is done.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cosm_base::{ErrorKind, SandboxId};
use cosm_proto::frame::{self, HEADER};
use cosm_proto::keeper::{Event, LISTENING, Plan, ReadyReport, Task, VERSION};
use cosm_sys::spawn::{Spawn, spawn};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::error::{Error, Fault, Result};
use crate::host::Shared;
use crate::spare::SpareKeeper;
use crate::wire;

/// The hidden subcommand that makes the program a keeper.
pub(crate) const SUBCOMMAND: &CStr = c"__keeper";
/// The plan's descriptor in a keeper.
pub(crate) const PLAN_FD: i32 = 3;
/// The descriptor on which a keeper reports.
pub(crate) const EVENTS_FD: i32 = 4;
/// The lease's descriptor in a keeper.
pub(crate) const LEASE_FD: i32 = 5;
/// A keeper that says nothing for this much longer than a boot may take is lost.
const SLACK: Duration = Duration::from_secs(15);

/// A keeper at work on its task.
pub(crate) struct Launch {
    name: String,
    events: UnixStream,
    keeper: AtWork,
    lease: Option<OwnedFd>,
    started: Instant,
}

/// A keeper whose task is done; for a start: that keeps the guest.
pub(crate) struct Kept {
    pub(crate) report: ReadyReport,
    pub(crate) keeper: Keeper,
    /// What the guest's life hangs on, for a leased one.
    pub(crate) lease: Option<OwnedFd>,
}

/// What a keeper is told to do, and for whom.
pub(crate) struct Order<'a> {
    pub(crate) id: SandboxId,
    pub(crate) name: &'a str,
    pub(crate) task: Task,
    pub(crate) leased: bool,
}

impl Launch {
    /// Starts the keeper process.
    pub(crate) fn start(host: &Shared, order: Order<'_>) -> Result<Self> {
        let started = Instant::now();
        let (id, made) = (order.id, matches!(order.task, Task::Create { .. }));
        let undone = made || matches!(order.task, Task::Start { .. });
        let plan = Plan {
            version: VERSION,
            home: host.home.root().as_os_str().as_bytes().to_vec(),
            runtime: host.runtime.path().as_os_str().as_bytes().to_vec(),
            id: order.id,
            ids: host.ids,
            task: order.task,
        };
        let bytes = frame::message(&plan).map_err(|source| {
            let fault = Fault::Protocol {
                peer: "the plan",
                source,
            };
            Error::new(ErrorKind::InvalidInput, fault)
                .hint("scripts, environment and mounts may have 1 MiB in all")
        })?;
        let failed = Error::os("starting the keeper");
        let (keeper, events, lease) = match host.spare.take() {
            Some(spare) => order_keeper(spare, &bytes[HEADER..], order.leased),
            None => spawn_keeper(&host.program, &bytes[HEADER..], order.leased),
        }
        .map_err(failed)?;
        Ok(Self {
            name: order.name.to_owned(),
            events,
            keeper: AtWork {
                keeper: Some(keeper),
                undone: undone.then(|| host.given_up.clone()),
                made: made.then_some(id),
            },
            lease,
            started,
        })
    }

    /// Listens until the task is done. Dropping this future undoes a creation or a start; see
    /// [`Host::given_up`](crate::Host::given_up).
    pub(crate) async fn done(mut self, boot: Duration) -> Result<Kept> {
        let report = wire::within(boot + SLACK, self.listen(|| ())).await?;
        self.kept(report)
    }

    /// As [`done`](Self::done), with a first command that is sent as soon as something listens for it: what connects
    /// to the guest then waits at its socket, and nobody has to be woken in between.
    pub(crate) async fn done_with<T>(
        mut self,
        boot: Duration,
        first: impl Future<Output = Result<T>>,
    ) -> Result<(Kept, Result<T>)> {
        let (listening, listens) = oneshot::channel();
        let mut listening = Some(listening);
        let tell = || {
            // The other end is in this function, and waits.
            let _told = listening.take().map(|it| it.send(()));
        };
        let mut first = pin!(async {
            // An error is the sender's end without a word; then the guest runs by now.
            let _early = listens.await;
            first.await
        });
        let mut answer = None;
        let report = {
            let mut ready = pin!(wire::within(boot + SLACK, self.listen(tell)));
            loop {
                tokio::select! {
                    biased;
                    // Why a guest did not start is known better here than at its socket.
                    report = &mut ready => break report?,
                    result = &mut first, if answer.is_none() => answer = Some(result),
                }
            }
        };
        drop(listening);
        let answer = match answer {
            Some(answer) => answer,
            None => first.await,
        };
        Ok((self.kept(report)?, answer))
    }

    fn kept(mut self, report: ReadyReport) -> Result<Kept> {
        let keeper = self.keeper.keeper.take();
        Ok(Kept {
            report,
            keeper: keeper.ok_or_else(|| Error::keeper_lost(&self.name))?,
            lease: self.lease,
        })
    }

    async fn listen(&mut self, mut listening: impl FnMut()) -> Result<ReadyReport> {
        loop {
            match wire::read_message::<Event>(&mut self.events).await? {
                Some(Event::Phase(phase)) if phase == LISTENING => listening(),
                Some(Event::Ready(mut report)) => {
                    let all = self.started.elapsed().as_micros() as u64;
                    report
                        .timings
                        .push(("start to ready, as the creator sees it".into(), all));
                    return Ok(report);
                }
                Some(Event::Failed(failure)) if failure.kind == ErrorKind::AlreadyExists => {
                    return Err(Error::already_exists(&self.name).retry_safe());
                }
                Some(Event::Failed(failure)) => return Err(Error::from_keeper(failure)),
                Some(Event::Phase(_)) => {}
                None => return Err(Error::keeper_lost(&self.name)),
            }
        }
    }
}

fn spawn_keeper(
    program: &CStr,
    plan: &[u8],
    leased: bool,
) -> io::Result<(Keeper, UnixStream, Option<OwnedFd>)> {
    let plan = cosm_sys::memfd::sealed(c"cosm-plan", plan)?;
    let (ours, theirs) = StdStream::pair()?;
    let lease = leased.then(io::pipe).transpose()?;
    let mut fds = vec![(plan.as_fd(), PLAN_FD), (theirs.as_fd(), EVENTS_FD)];
    if let Some((reader, _)) = &lease {
        fds.push((reader.as_fd(), LEASE_FD));
    }
    let spawned = spawn(&Spawn {
        program,
        args: &[c"cosm", SUBCOMMAND],
        env: &[],
        fds: &fds,
        workdir: Some(c"/"),
        new_session: true,
    })?;
    ours.set_nonblocking(true)?;
    let events = UnixStream::from_std(ours)?;
    let lease = lease.map(|(_, writer)| OwnedFd::from(writer));
    Ok((Keeper::new(spawned.pidfd)?, events, lease))
}

fn order_keeper(
    spare: SpareKeeper,
    plan: &[u8],
    leased: bool,
) -> io::Result<(Keeper, UnixStream, Option<OwnedFd>)> {
    let plan = cosm_sys::memfd::sealed(c"cosm-plan", plan)?;
    let lease = leased.then(io::pipe).transpose()?;
    spare.order(
        plan.as_fd(),
        lease.as_ref().map(|(reader, _)| reader.as_fd()),
    )?;
    spare.socket.set_nonblocking(true)?;
    let events = UnixStream::from_std(spare.socket)?;
    let lease = lease.map(|(_, writer)| OwnedFd::from(writer));
    Ok((Keeper::new(spare.pidfd)?, events, lease))
}

/// Keepers whose task was given up, and that are undoing what they had begun; and the sandbox that one was making.
pub(crate) type GivenUp = Arc<Mutex<Vec<(Keeper, Option<SandboxId>)>>>;

/// A keeper whose task is not done yet.
struct AtWork {
    keeper: Option<Keeper>,
    /// Whether the task is to be undone when nobody waits for it any more, and who waits for that.
    undone: Option<GivenUp>,
    made: Option<SandboxId>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if let (Some(keeper), Some(given_up)) = (self.keeper.take(), &self.undone) {
            keeper.tell_to_end();
            if let Ok(mut given_up) = given_up.lock() {
                given_up.push((keeper, self.made));
            }
        }
    }
}

/// A keeper process, which is a child of this one and is reaped when it ends.
#[derive(Debug)]
pub(crate) struct Keeper {
    pidfd: Arc<AsyncFd<OwnedFd>>,
    end: tokio::sync::watch::Receiver<bool>,
}

impl Keeper {
    fn new(pidfd: OwnedFd) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "an OwnedFd stays open and its own, so this is sound; its successor is unsafe"
        )]
        let pidfd = AsyncFd::with_interest(pidfd, tokio::io::Interest::READABLE)?;
        let pidfd = Arc::new(pidfd);
        let watched = pidfd.clone();
        let (told, end) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            // An error here would mean that the descriptor is no pidfd; the child stays a zombie until this process
            // ends, and nobody is told anything wrong.
            if watched.readable().await.is_ok()
                && cosm_sys::process::wait(watched.get_ref().as_fd()).is_ok()
            {
                told.send_replace(true);
            }
        });
        Ok(Self { pidfd, end })
    }

    fn tell_to_end(&self) {
        let signal = rustix::process::Signal::TERM;
        // One that is gone has nothing left to end.
        rustix::process::pidfd_send_signal(self.pidfd.get_ref(), signal).unwrap_or_default();
    }

    /// Waits for the keeper's end.
    pub(crate) async fn ended(&mut self) {
        // The sender is only gone before it spoke when the runtime is being shut down.
        let _gone = self.end.wait_for(|ended| *ended).await.is_err();
    }
}

/// A path as the system wants it.
pub(crate) fn c_path(path: &std::path::Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::host_path("using", path)(io::ErrorKind::InvalidInput.into()))
}
