//! `cosm run`

use std::time::Duration;

use cosm::spec::Lifetime;
use cosm::{
    EndReason, EndReport, EndWatch, ExecOptions, ExecStatus, Host, Sandbox, SandboxSpec,
    SpareKeeper,
};
use cosm_base::exit;

use crate::args::RunArgs;
use crate::environment;
use crate::error::{CliError, Result};
use crate::hints;
use crate::output;
use crate::report;
use crate::settings::{self, Settings, SettingsError};
use crate::stdio::signals::Asked;
use crate::stdio::{self, Outcome, Stdio};
use crate::timings::Clock;

/// How long a guest that ends with its command may take for it.
const BY_ITSELF: Duration = Duration::from_millis(500);

/// What is to be done.
struct Run {
    spec: SandboxSpec,
    options: ExecOptions,
    argv: Vec<cosm::ByteString>,
    replace: Option<Duration>,
    stdio: Stdio,
    timings: bool,
}

pub(super) fn run(args: RunArgs, spare: Option<SpareKeeper>, mut clock: Clock) -> Result<u8> {
    clock.lap("reading the arguments");
    let (detach, timings) = (args.detach, args.timings);
    let mut stdio = Stdio::from(args.stdio);
    let settings = settings::resolve(args.sandbox, args.image, args.command, args.timeout)?;
    let Settings {
        mut spec,
        mut command,
        replace,
        timeout,
    } = settings;
    let named = spec.name.is_some();
    spec.remove_on_exit = !named || args.rm;
    if command.is_empty() {
        if detach || !(stdio.tty || stdio::at_terminal()) {
            return Err(SettingsError::NoCommand.into());
        }
        command.push(spec.shell.clone().unwrap_or_else(|| "/bin/sh".into()));
        (stdio.interactive, stdio.tty) = (true, true);
    }
    // One that lives on is known by its own name in lists of processes.
    let host = environment::host_with(spare.filter(|_| !detach))?;
    if detach {
        spec.command = Some(command);
        spec.lifetime = Lifetime::Persistent;
        // The time-out of a command that nobody waits for is its sandbox's.
        spec.timeouts.max_duration = spec.timeouts.max_duration.or(timeout);
        return super::wait_for(detached(&host, spec, replace));
    }
    let mut options = ExecOptions::new(command[0].clone()).args(command[1..].iter().cloned());
    if let Some(limit) = timeout {
        options = options.timeout(limit);
    }
    let run = Run {
        spec,
        options,
        argv: command,
        replace,
        stdio,
        timings,
    };
    clock.lap("settings");
    match named {
        true => super::wait_for(run.main_job(&host, timeout, clock)),
        false => super::wait_for(run.foreground(&host, clock)),
    }
}

async fn detached(host: &Host, spec: SandboxSpec, replace: Option<Duration>) -> Result<u8> {
    let mut asked = Asked::new()?;
    let sandbox = asked.unless_told(host, host.create(spec, replace)).await?;
    output::line(sandbox.name())?;
    Ok(exit::OK)
}

impl Run {
    async fn foreground(self, host: &Host, mut clock: Clock) -> Result<u8> {
        let mut asked = Asked::new()?;
        let mut watch = None;
        let (mut sandbox, outcome) = match self.stdio.tty {
            // A terminal is a job's, which is the keeper's to start.
            true => {
                let making = host.create(self.spec, self.replace);
                let sandbox = asked.unless_told(host, making).await?;
                clock.lap("create");
                clock.parts(&sandbox.ready_report().timings);
                let outcome =
                    stdio::foreground(&sandbox, self.options, &self.stdio, &mut asked).await;
                (sandbox, outcome)
            }
            false => {
                let options = stdio::streams(self.options, &self.stdio).ends_guest(true);
                let making = host.create_and_exec(self.spec, self.replace, options);
                let (sandbox, handle) = asked.unless_told(host, making).await?;
                clock.lap("create, and the command's start");
                clock.parts(&sandbox.ready_report().timings);
                // While the command runs. Where it is over already there is nothing to watch.
                watch = sandbox.watch_end().await.ok();
                let outcome = match handle {
                    Ok(handle) => stdio::follow(handle, &self.stdio, &mut asked).await,
                    Err(error) => Err(error.into()),
                };
                (sandbox, outcome)
            }
        };
        clock.lap("command");
        let code = match &outcome {
            Ok(Outcome::Ended(status)) => {
                let code = super::code_in(&sandbox, status).await;
                if code != 0 {
                    let hint = hints::for_failure(&sandbox, &self.argv).await;
                    hint.iter().for_each(|hint| report::hint(hint));
                }
                code
            }
            Ok(Outcome::Interrupted(signal)) => exit::of_signal(*signal),
            Ok(Outcome::Detached) => {
                sandbox.detach().await?;
                return Ok(exit::OK);
            }
            Err(_) => 0,
        };
        let end = end(&mut sandbox, watch.filter(|_| ends_itself(&outcome))).await;
        clock.lap("stop and remove");
        outcome?;
        end?;
        if self.timings {
            clock.tell();
        }
        Ok(code)
    }

    /// A named sandbox's command is its main job: logged, listed, and run again when it is started again.
    async fn main_job(
        mut self,
        host: &Host,
        timeout: Option<Duration>,
        mut clock: Clock,
    ) -> Result<u8> {
        self.spec.command = Some(self.argv.clone());
        self.spec.tty = self.stdio.tty;
        // Whoever starts it again does not wait for it: then its time-out is its sandbox's.
        self.spec.timeouts.max_duration = self.spec.timeouts.max_duration.or(timeout);
        let mut asked = Asked::new()?;
        let making = host.create_held(self.spec, self.replace);
        let mut sandbox = asked.unless_told(host, making).await?;
        clock.lap("create");
        clock.parts(&sandbox.ready_report().timings);
        // It ends with its command, so that this can't be asked later.
        let hint = hints::for_failure(&sandbox, &self.argv).await;
        let watch = sandbox.watch_end().await?;
        let outcome = stdio::main_job(&sandbox, self.options, &self.stdio, &mut asked).await;
        clock.lap("command");
        let code = match outcome {
            Ok(Outcome::Ended(status)) => {
                let end = watch.wait().await?;
                let code = code_at_end(&status, &end, timeout.is_some());
                if code != 0 {
                    hint.iter().for_each(|hint| report::hint(hint));
                }
                code
            }
            Ok(Outcome::Interrupted(signal)) => {
                sandbox.stop().await?;
                exit::of_signal(signal)
            }
            Ok(Outcome::Detached) => {
                sandbox.detach().await?;
                return Ok(exit::OK);
            }
            Err(CliError::NoEnd) => {
                let end = watch.wait().await?;
                if !(end.reason == EndReason::MaxDuration && timeout.is_some()) {
                    return Err(CliError::NoEnd);
                }
                exit::TIMED_OUT
            }
            Err(error) => {
                sandbox.kill().await?;
                sandbox.settled().await?;
                if error.is_spawn_failure() {
                    // It never ran, so that nothing stays of it, as of every sandbox that does not start.
                    sandbox.remove().await?;
                }
                return Err(error);
            }
        };
        sandbox.settled().await?;
        clock.lap("stop");
        if self.timings {
            clock.tell();
        }
        Ok(code)
    }
}

/// Whether the guest ends with this command without being told.
fn ends_itself(outcome: &Result<Outcome>) -> bool {
    matches!(outcome, Ok(Outcome::Ended(status)) if status.success() && !status.leftovers)
}

/// Ends a sandbox that was made for one command, unless it does so itself. What its command left running has nothing to
/// save.
async fn end(sandbox: &mut Sandbox, itself: Option<EndWatch>) -> Result<()> {
    // The keeper answers when all of it is gone but the keeper itself.
    if let Some(watch) = itself
        && let Ok(Ok(_)) = tokio::time::timeout(BY_ITSELF, watch.wait()).await
    {
        return Ok(());
    }
    // A keeper that does not answer any more is removing what has ended.
    if sandbox.kill().await?.is_none() {
        sandbox.kill_and_wait().await?;
    }
    Ok(())
}

/// The program's exit code for the end of a main command and its sandbox.
fn code_at_end(status: &ExecStatus, end: &EndReport, limited: bool) -> u8 {
    if limited && end.reason == EndReason::MaxDuration {
        return exit::TIMED_OUT;
    }
    let killed = end.usage.oom_kills.is_some_and(|kills| kills > 0);
    super::code_of_killed(status, killed || end.reason == EndReason::OutOfMemory)
}
