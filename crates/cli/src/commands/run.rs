//! `cosm run`

use std::time::Duration;

use cosm::spec::Lifetime;
use cosm::{ExecOptions, Host, Sandbox, SandboxSpec, SpareKeeper};
use cosm_base::exit;

use crate::args::RunArgs;
use crate::environment;
use crate::error::Result;
use crate::hints;
use crate::output;
use crate::settings::{self, Settings, SettingsError};
use crate::stdio::{self, Outcome, Stdio};
use crate::timings::Clock;

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
    let ephemeral = args.sandbox.name.is_none() || args.rm;
    let (detach, timings) = (args.detach, args.timings);
    let mut stdio = Stdio::from(args.stdio);
    let settings = settings::resolve(args.sandbox, args.image, args.command, args.timeout)?;
    let Settings {
        mut spec,
        mut command,
        replace,
        timeout,
    } = settings;
    spec.remove_on_exit = ephemeral;
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
    super::wait_for(run.foreground(&host, clock))
}

async fn detached(host: &Host, spec: SandboxSpec, replace: Option<Duration>) -> Result<u8> {
    let sandbox = host.create(spec, replace).await?;
    output::line(sandbox.name())?;
    Ok(exit::OK)
}

impl Run {
    async fn foreground(self, host: &Host, mut clock: Clock) -> Result<u8> {
        let ephemeral = self.spec.remove_on_exit;
        let mut sandbox = host.create(self.spec, self.replace).await?;
        clock.lap("create");
        clock.parts(&sandbox.ready_report().timings);
        let outcome = stdio::foreground(&sandbox, self.options, &self.stdio).await;
        clock.lap("command");
        let code = match &outcome {
            Ok(Outcome::Ended(status)) => {
                let code = super::code_in(&sandbox, status).await;
                if code != 0 {
                    hints::for_failure(&sandbox, &self.argv).await;
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
        let end = end(&mut sandbox, ephemeral).await;
        clock.lap("stop and remove");
        outcome?;
        end?;
        if self.timings {
            clock.tell();
        }
        Ok(code)
    }
}

/// Ends the sandbox with its command. What an ephemeral one's command left running has nothing to save.
async fn end(sandbox: &mut Sandbox, ephemeral: bool) -> Result<()> {
    if ephemeral {
        // The keeper answers when all of it is gone but the keeper itself.
        sandbox.kill().await?;
    } else {
        sandbox.stop_and_wait().await?;
    }
    Ok(())
}
