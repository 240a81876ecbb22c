//! This machine, as far as one state folder goes.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cosm_agent_client::{AgentClient, Deadlines};
use cosm_base::{Home, RunId, RuntimeDir, SandboxId, SandboxName};
use cosm_proto::keeper::{GuestUsage, IdSlots, ReadyReport, Task};
use cosm_spec::{Lifetime, SandboxSpec};

use crate::catalogue::{self, Question, Seen};
use crate::control::Control;
use crate::error::{Error, ErrorKind, Fault, Result};
use crate::exec::{ExecHandle, ExecOptions};
use crate::launch::{GivenUp, Kept, Launch, Order, c_path};
use crate::list::{Filter, Page};
use crate::sandbox::{Owned, Sandbox};
use crate::spare::{self, SpareKeeper};
use crate::status::SandboxHandle;
use crate::wire;

/// How often a replacement tries again when somebody else took the name in between.
const REPLACE_TRIES: u32 = 5;

/// Where everything is. Nothing here has a default: a library reads no environment.
#[derive(Debug)]
pub struct HostConfig {
    /// The state folder: the catalogue and the sandboxes' files.
    pub home: PathBuf,
    /// The folder for sockets: short (a socket's path holds 107 bytes) and private to this user.
    pub runtime_dir: PathBuf,
    /// The `cosm` program, which is started as the keeper of each sandbox.
    pub program: PathBuf,
    /// The ranges of this host's ids that root's sandboxes get, one each; `None` is the documented default
    /// ([`IdSlots::default`]). Of no use to others.
    pub ids: Option<IdSlots>,
    /// A keeper for the first sandbox, for a program that has made one; see [`SpareKeeper::fork`].
    pub spare: Option<SpareKeeper>,
}

/// This machine, as far as one state folder goes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Host(Arc<Shared>);

/// How far a new sandbox is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Not at all.
    Not,
    /// All but its main command.
    Held,
    Whole,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) home: Home,
    pub(crate) runtime: RuntimeDir,
    pub(crate) program: CString,
    pub(crate) ids: IdSlots,
    pub(crate) spare: spare::Place,
    pub(crate) given_up: GivenUp,
}

impl Host {
    /// Takes up a state folder. Nothing is made: the first sandbox makes what is missing.
    ///
    /// # Errors
    /// A path is relative, or the folder for sockets exists and is not private to this user.
    pub fn open(config: HostConfig) -> Result<Self> {
        for path in [&config.home, &config.runtime_dir] {
            if !path.is_absolute() {
                return Err(not_private(path, "is not an absolute path"));
            }
        }
        check_private(&config.runtime_dir)?;
        let home = Home::new(config.home);
        let runtime = RuntimeDir::new(&config.runtime_dir, &home);
        Ok(Self(Arc::new(Shared {
            home: home.passing_in(&runtime),
            runtime,
            program: c_path(&config.program)?,
            ids: config.ids.unwrap_or_default(),
            spare: spare::Place::new(config.spare),
            given_up: GivenUp::default(),
        })))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// The state folder's layout.
    pub fn home(&self) -> &Home {
        &self.0.home
    }

    /// Creates a sandbox and starts it. A leased one ends with the returned value, or with this process.
    ///
    /// Dropping the future undoes what was begun; [`given_up`](Self::given_up) waits for that.
    ///
    /// If the name is taken and `replace` is given, the old sandbox is asked to end, killed after that long (0: at
    /// once) and removed first. When this fails nothing is left of the new one.
    ///
    /// # Errors
    /// `InvalidInput`, `AlreadyExists`, `Unsupported` (a limit that can't be enforced here), `BootFailed` with the phase
    /// and the log's tail.
    pub async fn create(&self, spec: SandboxSpec, replace: Option<Duration>) -> Result<Sandbox> {
        let (sandbox, _) = self.make(spec, replace, Start::Whole, None).await?;
        Ok(sandbox)
    }

    /// As [`create`](Self::create), without the start of its main command. That is the caller's: run it as the job
    /// [`MAIN_JOB`](crate::MAIN_JOB), for instance to see it from its first byte with [`Jobs::run`](crate::Jobs::run).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_held(
        &self,
        spec: SandboxSpec,
        replace: Option<Duration>,
    ) -> Result<Sandbox> {
        let (sandbox, _) = self.make(spec, replace, Start::Held, None).await?;
        Ok(sandbox)
    }

    /// Creates a sandbox, starts it, and runs a first command in it: as [`create`](Self::create) and
    /// [`Sandbox::exec_stream_options`], with less waiting between the two. When the command can't be started there is
    /// the sandbox all the same.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_and_exec(
        &self,
        spec: SandboxSpec,
        replace: Option<Duration>,
        command: ExecOptions,
    ) -> Result<(Sandbox, Result<ExecHandle>)> {
        let first = Some(&command);
        let (sandbox, handle) = self.make(spec, replace, Start::Whole, first).await?;
        let handle = handle.unwrap_or_else(|| Err(Error::out_of_turn("the keeper")));
        Ok((sandbox, handle))
    }

    /// Waits until nothing is left of creations and starts whose futures were dropped before they were done.
    pub async fn given_up(&self) {
        let keepers = self
            .0
            .given_up
            .lock()
            .map(|mut given_up| std::mem::take(&mut *given_up));
        for (mut keeper, made) in keepers.unwrap_or_default() {
            keeper.ended().await;
            if let Some(id) = made {
                // It may have been ready in the same moment, so that it was stopped instead of undone. What can't be
                // removed is told of by the next look.
                drop(self.task(id, Task::Remove).await);
            }
        }
    }

    /// Makes a sandbox without starting it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_stopped(
        &self,
        spec: SandboxSpec,
        replace: Option<Duration>,
    ) -> Result<Sandbox> {
        let (sandbox, _) = self.make(spec, replace, Start::Not, None).await?;
        Ok(sandbox)
    }

    async fn make(
        &self,
        mut spec: SandboxSpec,
        replace: Option<Duration>,
        start: Start,
        first: Option<&ExecOptions>,
    ) -> Result<(Sandbox, Option<Result<ExecHandle>>)> {
        spec.check()?;
        let mut tries = 0;
        loop {
            let id = SandboxId::from_random(random()?);
            let name = self.reserve_name(&mut spec, id)?;
            if let Some(grace) = replace {
                self.make_room(&name, grace).await?;
            }
            match self.launch_new(id, &name, &spec, start, first).await {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < REPLACE_TRIES => {
                    // What has the name may be what a killed keeper left: then looking at it removes it.
                    if replace.is_none() && self.find(&name).await.is_ok() {
                        return Err(error);
                    }
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    fn reserve_name(&self, spec: &mut SandboxSpec, id: SandboxId) -> Result<String> {
        if let Some(name) = &spec.name {
            return Ok(name.to_string());
        }
        let name = id.to_string();
        let made: SandboxName = name.parse().map_err(|source| {
            Error::new(
                ErrorKind::InvalidInput,
                Fault::Name {
                    text: name.clone(),
                    source,
                },
            )
        })?;
        spec.name = Some(made);
        Ok(name)
    }

    async fn launch_new(
        &self,
        id: SandboxId,
        name: &str,
        spec: &SandboxSpec,
        start: Start,
        first: Option<&ExecOptions>,
    ) -> Result<(Sandbox, Option<Result<ExecHandle>>)> {
        let hold = start == Start::Held;
        let start = start != Start::Not;
        let leased = start && spec.lifetime == Lifetime::Leased;
        let task = Task::Create {
            spec: spec.to_stored(),
            run: RunId::from_random(random()?),
            lease: leased.then(own_pid),
            start,
            hold,
        };
        let order = Order {
            id,
            name,
            task,
            leased,
        };
        let boot = spec.timeouts.boot;
        let launch = Launch::start(&self.0, order)?;
        let (kept, first) = match first {
            None => (launch.done(boot).await?, None),
            Some(command) => {
                let first = self.first_exec(id, name, command.clone(), boot);
                let (kept, first) = launch.done_with(boot, first).await?;
                (kept, Some(first))
            }
        };
        let Kept {
            report,
            keeper,
            lease,
        } = kept;
        let owned = start.then_some(Owned { keeper, lease });
        let spec = spec.clone();
        let sandbox = Sandbox::new(self, id, name.to_owned(), spec, owned, report);
        Ok((sandbox, first))
    }

    /// A command for a guest that may still be booting.
    async fn first_exec(
        &self,
        id: SandboxId,
        name: &str,
        command: ExecOptions,
        boot: Duration,
    ) -> Result<ExecHandle> {
        let agent = AgentClient::new(self.0.runtime.agent(id));
        let usual = *agent.deadlines();
        let agent = agent.with_deadlines(Deadlines {
            start: usual.start + boot,
            ..usual
        });
        let hold = Control::new(&self.0.runtime, id, name).hold().await?;
        // A keeper that is busy may come to it when the command is over, and its guest with it.
        let hold = async { Ok(hold.granted(boot + wire::ANSWER).await.ok()) };
        ExecHandle::start(&agent, hold, command).await
    }

    pub(crate) async fn start_kept(
        &self,
        id: SandboxId,
        name: &str,
        lifetime: Lifetime,
        boot: Duration,
    ) -> Result<(Owned, ReadyReport)> {
        let leased = lifetime == Lifetime::Leased;
        let task = Task::Start {
            run: RunId::from_random(random()?),
            lease: leased.then(own_pid),
        };
        let order = Order {
            id,
            name,
            task,
            leased,
        };
        let Kept {
            report,
            keeper,
            lease,
        } = Launch::start(&self.0, order)?.done(boot).await?;
        Ok((Owned { keeper, lease }, report))
    }

    /// Sandboxes, newest first.
    ///
    /// # Errors
    /// The catalogue can't be read.
    pub async fn list(&self, filter: &Filter) -> Result<Page> {
        let seen = self.see(Question::Some(filter.clone())).await?;
        let next = seen
            .handles
            .last()
            .filter(|_| seen.more)
            .map(SandboxHandle::place);
        Ok(Page {
            sandboxes: seen.handles,
            next,
            uncleaned: seen.uncleaned,
        })
    }

    /// Looks. What a killed keeper left behind of what is looked at is gone before this returns, or is told of: what can't
    /// be cleaned up hides nothing else.
    pub(crate) async fn see(&self, question: Question) -> Result<Seen> {
        let seen = self.see_once(question.clone()).await?;
        if seen.leftovers.is_empty() {
            return Ok(seen);
        }
        let uncleaned = self.reap(seen.leftovers).await;
        let mut seen = self.see_once(question).await?;
        for (id, error) in &uncleaned {
            if let Some(handle) = seen.handles.iter_mut().find(|handle| handle.id() == *id) {
                handle.is_uncleaned(error);
            }
        }
        seen.uncleaned = uncleaned;
        Ok(seen)
    }

    pub(crate) async fn see_once(&self, question: Question) -> Result<Seen> {
        let host = self.clone();
        let look = tokio::task::spawn_blocking(move || catalogue::look(&host, &question));
        match look.await {
            Ok(result) => result,
            Err(_) => Err(Error::new(ErrorKind::Cancelled, Fault::Cancelled)),
        }
    }

    /// Cleans up after keepers that were killed: every process, mount, cgroup, socket and folder of theirs is gone
    /// before this returns, and ephemeral sandboxes with them. Every look at the catalogue does this by itself.
    ///
    /// # Errors
    /// Something of it could not be removed.
    pub async fn reconcile(&self) -> Result<()> {
        let seen = self.see(Question::Some(Filter::default())).await?;
        match seen.uncleaned.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Cleans up after these, and gives what could not be.
    async fn reap(&self, ids: Vec<SandboxId>) -> Vec<(SandboxId, Error)> {
        let mut work = tokio::task::JoinSet::new();
        for id in ids {
            let host = self.clone();
            work.spawn(async move { (id, host.task(id, Task::Reap).await) });
        }
        let mut uncleaned = Vec::new();
        while let Some(done) = work.join_next().await {
            match done {
                Ok((_, Ok(()))) => {}
                // Somebody else is at it, or has done it.
                Ok((_, Err(error)))
                    if matches!(error.kind(), ErrorKind::WrongState | ErrorKind::NotFound) => {}
                Ok((id, Err(error))) => uncleaned.push((id, error)),
                // The runtime ends, and with it whoever would be told.
                Err(_) => {}
            }
        }
        uncleaned
    }

    pub(crate) async fn task(&self, id: SandboxId, task: Task) -> Result<()> {
        let name = id.to_string();
        let order = Order {
            id,
            name: &name,
            task,
            leased: false,
        };
        let mut kept = Launch::start(&self.0, order)?
            .done(Duration::from_secs(60))
            .await?;
        // Its lock is part of what is to be gone.
        kept.keeper.ended().await;
        Ok(())
    }

    /// One sample of what each running sandbox uses; those that ended meanwhile are left out.
    ///
    /// # Errors
    /// The catalogue can't be read.
    pub async fn all_sandbox_metrics(&self) -> Result<Vec<(SandboxHandle, GuestUsage)>> {
        let mut samples = Vec::new();
        for handle in self.list(&Filter::default()).await?.sandboxes {
            if !handle.status().is_live() {
                continue;
            }
            match handle.clone().into_sandbox().metrics().await {
                Ok(usage) => samples.push((handle, usage)),
                Err(error) if crate::control::nobody_there(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(samples)
    }
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

fn random() -> Result<[u8; 8]> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::os("asking for random bytes")(errno.into()))?;
    Ok(bytes)
}

fn not_private(path: &Path, why: &'static str) -> Error {
    let fault = Fault::NotPrivate {
        path: path.to_owned(),
        why,
    };
    Error::new(ErrorKind::PermissionDenied, fault).retry_safe()
}

/// Refuses a folder of which somebody else could take the place or the contents.
fn check_private(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::host_path("looking at", path)(error)),
    };
    let me = rustix::process::geteuid().as_raw();
    match () {
        () if !meta.file_type().is_dir() => Err(not_private(
            path,
            "is not a folder, but sockets belong there",
        )),
        () if meta.uid() != me => Err(not_private(path, "belongs to another user")),
        () if meta.mode() & 0o022 != 0 => Err(not_private(path, "can be written to by others")
            .hint(format!("chmod 700 {}", path.display()))),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn open(runtime: &Path) -> Result<Host> {
        Host::open(HostConfig {
            home: "/nonexistent/home".into(),
            runtime_dir: runtime.into(),
            program: "/nonexistent/cosm".into(),
            ids: None,
            spare: None,
        })
    }

    #[test]
    fn a_folder_for_sockets_is_private_or_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let good = dir.path().join("good");
        assert!(
            open(&good).is_ok(),
            "one that is not there yet is made later"
        );
        std::fs::create_dir(&good).expect("mkdir");
        std::fs::set_permissions(&good, std::fs::Permissions::from_mode(0o700)).expect("chmod");
        assert!(open(&good).is_ok());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&good, &link).expect("symlink");
        assert!(open(&link).is_err(), "a link can be pointed elsewhere");
        std::fs::set_permissions(&good, std::fs::Permissions::from_mode(0o770)).expect("chmod");
        assert!(open(&good).is_err());
        assert!(open(Path::new("relative")).is_err());
    }
}
