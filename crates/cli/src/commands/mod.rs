//! The commands: the third of three types. One file each.

mod attach;
mod completion;
mod cp;
mod create;
mod doctor;
mod exec;
mod inspect;
mod jobs;
mod life;
mod logs;
mod ls;
mod metrics;
mod ps;
mod rm;
mod run;
mod shell;
mod wait;

use std::time::Duration;

use cosm::{
    EndReason, ExecStatus, ExitStatus, Filter, Host, Page, Sandbox, SandboxStatus, SpareKeeper,
};
use cosm_base::{ErrorKind, exit};

use crate::args::{Command, Selection};
use crate::environment;
use crate::error::{CliError, Result, os};
use crate::output;
use crate::report;
use crate::timings::Clock;

/// Runs a command and gives the program's exit code.
///
/// # Errors
/// What went wrong.
pub(crate) fn run(command: Command, spare: Option<SpareKeeper>, clock: Clock) -> Result<u8> {
    match command {
        Command::Run(args) => run::run(*args, spare, clock),
        Command::Create(args) => create::run(*args),
        Command::Start(args) => life::start(args),
        Command::Stop(args) => life::stop(args),
        Command::Kill(args) => life::kill(args),
        Command::Drain(args) => life::drain(args),
        Command::Restart(args) => life::restart(args),
        Command::Wait(args) => wait::run(args),
        Command::Rm(args) => rm::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Ps(args) => ps::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Exec(args) => exec::run(args),
        Command::Shell(args) => shell::run(args),
        Command::Attach(args) => attach::run(args),
        Command::Jobs(args) => jobs::run(args),
        Command::Logs(args) => logs::run(args),
        Command::Cp(args) => cp::run(args),
        Command::Metrics(args) => metrics::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completion(args) => completion::run(args),
        Command::Docs => output::text(&crate::reference()).map(|()| exit::OK),
    }
}

/// Runs something that waits. What it leaves on other threads (a read of standard input) is not waited for.
fn wait_for<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(os("making the runtime"))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

const OUT_OF_MEMORY: &str = "something in the sandbox was killed for want of memory";

/// The program's exit code for a command's end.
fn code_of(status: &ExecStatus) -> u8 {
    if status.oom {
        report::warning(OUT_OF_MEMORY);
    }
    if status.timed_out {
        return exit::TIMED_OUT;
    }
    code_of_status(status.status)
}

/// As [`code_of`], for a command that ran in this sandbox. Where the guest can't see its control group, only the keeper
/// knows whether the kernel killed in it for want of memory.
async fn code_in(sandbox: &Sandbox, status: &ExecStatus) -> u8 {
    // A sandbox that can't answer any more is told of elsewhere.
    let kills = match was_killed(status) {
        true => sandbox.metrics().await.ok(),
        false => None,
    };
    let kills = kills.and_then(|usage| usage.oom_kills);
    code_of_killed(status, kills.is_some_and(|kills| kills > 0))
}

/// As [`code_of`], where something in the sandbox was killed for want of memory if `oom` says so.
fn code_of_killed(status: &ExecStatus, oom: bool) -> u8 {
    if oom && was_killed(status) {
        report::warning(OUT_OF_MEMORY);
    }
    code_of(status)
}

/// Whether it was killed, and has not said itself why.
fn was_killed(status: &ExecStatus) -> bool {
    let killed = matches!(status.status, ExitStatus::Signal(9) | ExitStatus::Code(137));
    killed && !status.timed_out && !status.oom
}

/// An error that cut something off in this sandbox, or the better one that its end makes of it.
async fn explained(sandbox: &Sandbox, error: CliError) -> CliError {
    let died = |error: &cosm::Error| error.kind() == ErrorKind::GuestDied;
    if !matches!(error, CliError::NoEnd) && !error.sdk().is_some_and(died) {
        return error;
    }
    // A guest that goes on has another reason, and one that does not end is told of elsewhere.
    let end = tokio::time::timeout(Duration::from_secs(3), sandbox.wait()).await;
    match end {
        Ok(Ok(end)) if end.reason == EndReason::KeeperLost => {
            sandbox.crash().await.map_or(error, CliError::from)
        }
        Ok(Ok(end)) if end.reason == EndReason::OutOfDisk => {
            report::warning(
                "the sandbox's files took more of the disk than they may, so that it was ended",
            );
            report::hint(ls::OUT_OF_DISK);
            error
        }
        _ => error,
    }
}

fn code_of_status(status: ExitStatus) -> u8 {
    match status {
        // The low 8 bits, as the kernel has it.
        ExitStatus::Code(code) => code as u8,
        ExitStatus::Signal(signal) => exit::of_signal(signal),
    }
}

/// The names that were selected. Given by name they need not exist.
async fn selected(host: &Host, which: &Selection, live: bool) -> Result<Vec<String>> {
    if !which.names.is_empty() {
        return Ok(which.names.clone());
    }
    let mut filter = Filter::default();
    for (key, value) in &which.label {
        filter = match value {
            Some(value) => filter.label_is(key, value),
            None => filter.label(key),
        };
    }
    if live {
        filter = SandboxStatus::ALL
            .into_iter()
            .filter(|s| s.is_live())
            .fold(filter, Filter::state);
    }
    let sandboxes = list(host, &filter).await?.sandboxes;
    Ok(sandboxes
        .iter()
        .map(|handle| handle.name().to_owned())
        .collect())
}

/// Lists sandboxes. What could not be cleaned up on the way is a warning.
async fn list(host: &Host, filter: &Filter) -> Result<Page> {
    let page = host.list(filter).await?;
    for (id, error) in &page.uncleaned {
        let known = page.sandboxes.iter().find(|handle| handle.id() == *id);
        let name = known.map_or_else(|| id.to_string(), |handle| handle.name().to_owned());
        report::warning(&format!("cleaning up sandbox {name}: {error}"));
    }
    Ok(page)
}

/// Does the same to several sandboxes. Each failure is reported; all are tried.
async fn for_each<F: Future<Output = cosm::Result<()>>>(
    names: Vec<String>,
    mut act: impl FnMut(String) -> F,
) -> Result<u8> {
    let all = names.len();
    let mut failed = 0;
    for name in names {
        match act(name.clone()).await {
            Ok(()) => output::line(&name)?,
            Err(error) if all == 1 => return Err(error.into()),
            Err(source) => {
                failed += 1;
                report::error(&CliError::Of { name, source });
            }
        }
    }
    match failed {
        0 => Ok(exit::OK),
        failed => Err(CliError::Some { failed, all }),
    }
}

/// Opens the state folder.
fn host() -> Result<Host> {
    environment::host()
}
