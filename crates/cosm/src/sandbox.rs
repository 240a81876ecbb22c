//! One sandbox.

use std::future::ready;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cosm_agent_client::AgentClient;
use cosm_base::{ByteString, ErrorKind, SandboxId};
use cosm_proto::keeper::{EndReport, GuestUsage, ReadyReport, Reply, Request, StatusReport};
use cosm_spec::{Lifetime, SandboxSpec};
use cosm_state::SandboxStatus;
use tokio::net::UnixStream;

use crate::builder::SandboxBuilder;
use crate::control::{Control, Hold};
use crate::error::{Error, Result};
use crate::exec::{ExecHandle, ExecOptions, ExecOutput};
use crate::files::Fs;
use crate::host::Host;
use crate::jobs::Jobs;
use crate::launch::Keeper;

/// How much longer than its grace a stop may take: the kernel ends what is left, and the keeper cleans up.
const END_SLACK: Duration = Duration::from_secs(30);

/// A sandbox that was created or looked up.
///
/// One that this process created leased (the default) ends when this is dropped, or with this process.
#[derive(Debug)]
pub struct Sandbox {
    host: Host,
    id: SandboxId,
    name: String,
    spec: SandboxSpec,
    agent: AgentClient,
    control: Control,
    owned: Option<Owned>,
    ready: ReadyReport,
}

/// Waits for a sandbox's end. Made by [`Sandbox::watch_end`].
#[derive(Debug)]
pub struct EndWatch {
    control: Control,
    stream: UnixStream,
}

impl EndWatch {
    /// Waits for as long as it takes.
    ///
    /// # Errors
    /// The keeper ended without a word.
    pub async fn wait(mut self) -> Result<EndReport> {
        let reply = self.control.answer(&mut self.stream).await?;
        self.control.ended(reply)
    }
}

/// What a creator holds.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) keeper: Keeper,
    /// Closing it ends a leased sandbox.
    pub(crate) lease: Option<OwnedFd>,
}

impl Sandbox {
    /// Begins a new sandbox. An empty name gets one made up.
    pub fn builder(host: &Host, name: &str) -> SandboxBuilder {
        SandboxBuilder::new(host, name)
    }

    pub(crate) fn new(
        host: &Host,
        id: SandboxId,
        name: String,
        spec: SandboxSpec,
        owned: Option<Owned>,
        ready: ReadyReport,
    ) -> Self {
        Self {
            agent: AgentClient::new(host.shared().runtime.agent(id)),
            control: Control::new(&host.shared().runtime, id, &name),
            host: host.clone(),
            id,
            name,
            spec,
            owned,
            ready,
        }
    }

    /// As it was looked up: for what nobody can answer any more.
    pub(crate) fn seen_crashed(self, reason: Option<String>) -> Self {
        Self {
            control: self.control.with_crash(reason),
            ..self
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id, which is its own for ever.
    pub fn id(&self) -> SandboxId {
        self.id
    }

    /// What it was asked to be.
    pub fn spec(&self) -> &SandboxSpec {
        &self.spec
    }

    /// Whether its life hangs on this value.
    pub fn owns_lifecycle(&self) -> bool {
        self.owned
            .as_ref()
            .is_some_and(|owned| owned.lease.is_some())
    }

    /// What the keeper said when it was ready: warnings, and where the time went. Empty for one that was looked up.
    pub fn ready_report(&self) -> &ReadyReport {
        &self.ready
    }

    /// How it is now.
    ///
    /// # Errors
    /// The catalogue or the lock file can't be read.
    pub async fn status(&self) -> Result<SandboxStatus> {
        Ok(self.host.look(&self.name).await?.status())
    }

    /// That it has crashed, and what is known of that, if it has: why something in it was cut off.
    pub async fn crash(&self) -> Option<Error> {
        self.host.crash_of(self.id, &self.name).await
    }

    /// What its keeper says: uptime, open operations, jobs.
    ///
    /// # Errors
    /// It is not running.
    pub async fn report(&self) -> Result<StatusReport> {
        match self
            .control
            .ask(Request::Status, crate::wire::ANSWER)
            .await?
        {
            Reply::Status(report) => Ok(report),
            _ => Err(self.control.out_of_turn()),
        }
    }

    /// Starts it again, from the spec that was stored when it was created. It is leased to this value if its spec says
    /// so.
    ///
    /// # Errors
    /// `WrongState` if it runs; `BootFailed`.
    pub async fn start(&mut self) -> Result<()> {
        self.start_as(self.spec.lifetime).await
    }

    /// As [`start`](Self::start), leased or not whatever its spec says.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_as(&mut self, lifetime: Lifetime) -> Result<()> {
        let boot = self.spec.timeouts.boot;
        let kept = self.host.start_kept(self.id, &self.name, lifetime, boot);
        let (owned, ready) = kept.await?;
        self.owned = Some(owned);
        self.ready = ready;
        self.control = self.control.clone().with_crash(None);
        Ok(())
    }

    /// Asks it to end and kills it after its spec's stop time-out. One that does not run is no error: then there is
    /// no report.
    ///
    /// # Errors
    /// The keeper did not answer in time.
    pub async fn stop(&mut self) -> Result<Option<EndReport>> {
        self.stop_after(None, true).await
    }

    /// As [`stop`](Self::stop), and waits until its keeper is gone, too.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub async fn stop_and_wait(&mut self) -> Result<Option<EndReport>> {
        let report = self.stop().await?;
        self.keeper_gone().await;
        Ok(report)
    }

    /// Asks it to end within `grace` (`None`: its spec's stop time-out; 0 kills at once), and then kills it if `kill`.
    ///
    /// # Errors
    /// `WrongState` if it runs on because it was not to be killed.
    pub async fn stop_after(
        &mut self,
        grace: Option<Duration>,
        kill: bool,
    ) -> Result<Option<EndReport>> {
        let limit = grace.unwrap_or(self.spec.timeouts.stop) + END_SLACK;
        let grace_ms = grace.map(|g| u64::try_from(g.as_millis()).unwrap_or(u64::MAX));
        let request = Request::Stop {
            grace_ms,
            kill,
            replaced: false,
        };
        unless_gone(self.control.end(request, Some(limit)).await)
    }

    /// Ends it now. Works while others wait, stop or drain.
    ///
    /// # Errors
    /// The keeper did not answer in time.
    pub async fn kill(&self) -> Result<Option<EndReport>> {
        unless_gone(self.control.end(Request::Kill, Some(END_SLACK)).await)
    }

    /// Lets what runs finish, accepts nothing new, then stops. Waits for as long as that takes.
    ///
    /// # Errors
    /// The keeper ended without an answer.
    pub async fn drain(&self) -> Result<Option<EndReport>> {
        unless_gone(self.control.end(Request::Drain, None).await)
    }

    /// Waits for its end. One that has ended already tells how.
    ///
    /// # Errors
    /// It never ran.
    pub async fn wait(&self) -> Result<EndReport> {
        if let Some(report) = unless_gone(self.control.end(Request::Wait, None).await)? {
            return Ok(report);
        }
        // Its keeper may still be writing the end down.
        self.host.settled(&self.name, self.id).await?;
        let handle = self.host.look(&self.name).await?;
        handle
            .end()
            .cloned()
            .ok_or_else(|| Error::state(&self.name, "not running, and nothing is known of an end"))
    }

    /// Begins to wait for its end. What is begun while it runs learns of the end from its keeper, also of one that is
    /// removed on exit.
    ///
    /// # Errors
    /// It is not running.
    pub async fn watch_end(&self) -> Result<EndWatch> {
        Ok(EndWatch {
            stream: self.control.send(Request::Wait).await?,
            control: self.control.clone(),
        })
    }

    /// As [`kill`](Self::kill), and waits until its keeper is gone, too.
    ///
    /// # Errors
    /// As [`kill`](Self::kill).
    pub async fn kill_and_wait(&mut self) -> Result<Option<EndReport>> {
        let report = self.kill().await?;
        self.keeper_gone().await;
        Ok(report)
    }

    /// Waits until the keeper of one that has ended is gone, so that it can be started again or removed.
    ///
    /// # Errors
    /// `WrongState` if it is still there after 30 s.
    pub async fn settled(&mut self) -> Result<()> {
        if self.owned.is_some() {
            self.keeper_gone().await;
        }
        self.host.settled(&self.name, self.id).await
    }

    /// Gives up the lease: it lives on when this value and this process end.
    ///
    /// # Errors
    /// It is not running.
    pub async fn detach(&mut self) -> Result<()> {
        self.control.tell(Request::Detach).await?;
        if let Some(owned) = &mut self.owned {
            owned.lease = None;
        }
        Ok(())
    }

    /// Stops it and starts it again.
    ///
    /// # Errors
    /// As [`stop`](Self::stop) and [`start`](Self::start).
    pub async fn restart(&mut self) -> Result<()> {
        self.stop_and_wait().await?;
        self.settled().await?;
        self.start().await
    }

    /// Stops all its processes; [`resume`](Self::resume) lets them go on.
    ///
    /// # Errors
    /// `Unsupported` where the host can't.
    pub async fn pause(&self) -> Result<()> {
        self.control.tell(Request::Freeze(true)).await
    }

    /// See [`pause`](Self::pause).
    ///
    /// # Errors
    /// `Unsupported` where the host can't.
    pub async fn resume(&self) -> Result<()> {
        self.control.tell(Request::Freeze(false)).await
    }

    /// Removes it with all it holds. It must have stopped.
    ///
    /// # Errors
    /// `WrongState` if it runs.
    pub async fn remove(mut self) -> Result<()> {
        // A keeper on its way out still holds the lock.
        self.keeper_ending().await;
        self.host.remove_stopped(self.id, &self.name).await
    }

    /// As [`remove`](Self::remove): the name that others know it by.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub async fn remove_persisted(self) -> Result<()> {
        self.remove().await
    }

    /// Runs a command and collects what it says.
    ///
    /// # Errors
    /// `SpawnFailed` with a typed reason; `WrongState` if the sandbox does not run or drains; `GuestDied`. A command that
    /// ran and failed is no error: see [`ExecOutput::status`].
    pub async fn exec<A: Into<ByteString>>(
        &self,
        program: impl Into<ByteString>,
        args: impl IntoIterator<Item = A>,
    ) -> Result<ExecOutput> {
        self.exec_options(ExecOptions::new(program).args(args))
            .await
    }

    /// Runs a command with options and collects what it says.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub async fn exec_with(
        &self,
        program: impl Into<ByteString>,
        options: impl FnOnce(ExecOptions) -> ExecOptions,
    ) -> Result<ExecOutput> {
        self.exec_options(options(ExecOptions::new(program))).await
    }

    /// Runs a command and collects what it says.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub async fn exec_options(&self, options: ExecOptions) -> Result<ExecOutput> {
        self.exec_stream_options(options).await?.collect().await
    }

    /// Runs a command and gives what it says while it says it.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub async fn exec_stream<A: Into<ByteString>>(
        &self,
        program: impl Into<ByteString>,
        args: impl IntoIterator<Item = A>,
    ) -> Result<ExecHandle> {
        self.exec_stream_options(ExecOptions::new(program).args(args))
            .await
    }

    /// Runs a command with options and gives what it says while it says it.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub async fn exec_stream_with(
        &self,
        program: impl Into<ByteString>,
        options: impl FnOnce(ExecOptions) -> ExecOptions,
    ) -> Result<ExecHandle> {
        self.exec_stream_options(options(ExecOptions::new(program)))
            .await
    }

    /// Runs a command and gives what it says while it says it.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub async fn exec_stream_options(&self, options: ExecOptions) -> Result<ExecHandle> {
        let hold = self.hold().await?;
        ExecHandle::start(&self.agent, ready(Ok(Some(hold))), options).await
    }

    /// Runs a script with the sandbox's shell and collects what it says.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub async fn shell(&self, script: impl Into<ByteString>) -> Result<ExecOutput> {
        self.exec_options(self.shell_options(script)).await
    }

    /// Runs a script with the sandbox's shell and gives what it says while it says it.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub async fn shell_stream(&self, script: impl Into<ByteString>) -> Result<ExecHandle> {
        self.exec_stream_options(self.shell_options(script)).await
    }

    /// A script as a command: `<shell or /bin/sh> -c <script>`.
    pub fn shell_options(&self, script: impl Into<ByteString>) -> ExecOptions {
        ExecOptions::new(self.shell_program()).arg("-c").arg(script)
    }

    /// The shell that runs scripts.
    pub fn shell_program(&self) -> ByteString {
        self.spec.shell.clone().unwrap_or_else(|| "/bin/sh".into())
    }

    /// Its jobs.
    pub fn jobs(&self) -> Jobs {
        Jobs {
            control: self.control.clone(),
        }
    }

    /// Its files.
    pub fn fs(&self) -> Fs {
        Fs::new(&self.agent, self.control.clone())
    }

    /// What it uses and has used, as the host counts: one sample.
    ///
    /// # Errors
    /// It is not running.
    pub async fn metrics(&self) -> Result<GuestUsage> {
        match self
            .control
            .ask(Request::Usage, crate::wire::ANSWER)
            .await?
        {
            Reply::Usage(usage) => Ok(usage),
            _ => Err(self.control.out_of_turn()),
        }
    }

    /// The host that it lives on.
    pub fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    pub(crate) async fn hold(&self) -> Result<Hold> {
        self.control
            .hold()
            .await?
            .granted(crate::wire::ANSWER)
            .await
    }

    async fn keeper_gone(&mut self) {
        if let Some(mut owned) = self.owned.take() {
            drop(owned.lease.take());
            owned.keeper.ended().await;
        }
    }

    /// Waits for a keeper of ours that has nothing left to keep.
    async fn keeper_ending(&mut self) {
        if self.owned.is_some() && self.report().await.is_err() {
            self.keeper_gone().await;
        }
    }
}

/// A sandbox that ended before it was asked to, or with the question in its queue, is what was wanted.
fn unless_gone(result: Result<EndReport>) -> Result<Option<EndReport>> {
    match result {
        Ok(report) => Ok(Some(report)),
        Err(error) if error.is_retry_safe() && error.kind() == ErrorKind::WrongState => Ok(None),
        Err(error) if error.kind() == ErrorKind::GuestDied => Ok(None),
        Err(error) => Err(error),
    }
}
