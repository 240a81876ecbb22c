//! Where a command's streams meet this program's.

pub(crate) mod pump;
mod screen;
pub(crate) mod signals;
pub(crate) mod terminal;
pub(crate) mod view;

use std::io::{IsTerminal as _, Write as _};

use cosm::{ExecEvent, ExecHandle, ExecOptions, ExecStatus, MAIN_JOB, Sandbox};

use crate::detach::Keys;
use crate::environment;
use crate::error::{CliError, Result};
use crate::report;
use pump::{Pump, Target};
use signals::{Ask, Asked};

/// How a command's streams are to meet this program's.
#[derive(Debug, Clone)]
pub(crate) struct Stdio {
    /// Standard input goes to the command.
    pub(crate) interactive: bool,
    /// The command gets a terminal.
    pub(crate) tty: bool,
    /// What detaches from it.
    pub(crate) detach_keys: Keys,
}

impl From<crate::args::StdioArgs> for Stdio {
    fn from(args: crate::args::StdioArgs) -> Self {
        Self {
            interactive: args.interactive,
            tty: args.tty,
            detach_keys: args.detach_keys,
        }
    }
}

/// What came of a command in the foreground.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It ended.
    Ended(Box<ExecStatus>),
    /// This program was told to end (by this signal), and the command was killed.
    Interrupted(i32),
    /// The keys that detach were pressed.
    Detached,
}

/// Whether this program sits at a terminal with input and output.
pub(crate) fn at_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Runs a command and stays until its end.
///
/// # Errors
/// It could not be started, or its end was not seen.
pub(crate) async fn foreground(
    sandbox: &Sandbox,
    options: ExecOptions,
    stdio: &Stdio,
    asked: &mut Asked,
) -> Result<Outcome> {
    if stdio.tty && at_terminal() {
        return at_terminal_as(None, sandbox, options, stdio, asked).await;
    }
    let handle = sandbox.exec_stream_options(streams(options, stdio)).await?;
    follow(handle, stdio, asked).await
}

/// Stays with a command that was started [with these streams](streams) until its end.
///
/// # Errors
/// Its end was not seen.
pub(crate) async fn follow(
    mut handle: ExecHandle,
    stdio: &Stdio,
    asked: &mut Asked,
) -> Result<Outcome> {
    let input = handle.take_stdin();
    if let Some(input) = input {
        if stdio.tty {
            tokio::spawn(pump::frames_in(input));
        } else {
            // Nobody waits for this thread: a command's end is its end, whatever is still to be read here.
            pump::feed(std::io::stdin(), input.into_fd()?)?;
        }
    }
    if stdio.tty {
        follow_frames(handle, asked).await
    } else {
        follow_pipes(handle, asked).await
    }
}

/// Runs a sandbox's main command and stays until its end.
///
/// # Errors
/// It could not be started, or its end was not seen.
pub(crate) async fn main_job(
    sandbox: &Sandbox,
    options: ExecOptions,
    stdio: &Stdio,
    asked: &mut Asked,
) -> Result<Outcome> {
    if stdio.tty && at_terminal() {
        return at_terminal_as(Some(MAIN_JOB), sandbox, options, stdio, asked).await;
    }
    view::run(
        &sandbox.jobs(),
        MAIN_JOB,
        &streams(options, stdio),
        stdio,
        asked,
    )
    .await
}

async fn at_terminal_as(
    id: Option<&str>,
    sandbox: &Sandbox,
    options: ExecOptions,
    stdio: &Stdio,
    asked: &mut Asked,
) -> Result<Outcome> {
    let (job, outcome) =
        terminal::run(&sandbox.jobs(), id, options, &stdio.detach_keys, asked).await?;
    if matches!(outcome, Outcome::Detached) {
        report::note(&format!(
            "detached; it goes on as job {job}: cosm attach {} {job}",
            sandbox.name()
        ));
    }
    Ok(outcome)
}

/// The command with its streams as they are asked for, where nobody sits at them.
pub(crate) fn streams(options: ExecOptions, stdio: &Stdio) -> ExecOptions {
    let options = match stdio.tty {
        true => options
            .env_default("TERM", environment::terminal_name())
            .tty(true),
        false => options,
    };
    match stdio.interactive {
        true => options.stdin_pipe(),
        false => options,
    }
}

/// Reads a command's pipes. Most commands say little: the first bytes are copied here, and threads that move bytes
/// in the kernel start only when there are more.
async fn follow_pipes(mut handle: ExecHandle, asked: &mut Asked) -> Result<Outcome> {
    let (mut out, mut err) = (Target::stdout(), Target::stderr());
    loop {
        let event = tokio::select! {
            event = handle.recv() => event?,
            ask = asked.next() => match act(&handle, ask).await? {
                Some(outcome) => return Ok(outcome),
                None => continue,
            },
        };
        match event {
            Some(ExecEvent::Stdout(bytes)) => out.write(&bytes)?,
            Some(ExecEvent::Stderr(bytes)) => err.write(&bytes)?,
            Some(ExecEvent::Exited(status)) => return Ok(Outcome::Ended(Box::new(status))),
            Some(_) => continue,
            None => return Err(CliError::NoEnd),
        }
        break;
    }
    let control = handle.control();
    let pipes = handle.into_pipes()?;
    let (mut end, pumps) = (
        pipes.end,
        [
            Pump::start(pipes.stdout, out)?,
            Pump::start(pipes.stderr, err)?,
        ],
    );
    let mut interrupts = 0;
    let mut status = loop {
        tokio::select! {
            status = end.wait() => break status?,
            ask = asked.next() => match ask {
                Ask::Interrupt(signal) if interrupts == 0 => {
                    interrupts += 1;
                    control.signal(signal, true).await?;
                }
                Ask::Interrupt(_) => control.kill().await?,
                Ask::Leave(signal) => return Ok(Outcome::Interrupted(signal)),
            },
        }
    };
    for pump in pumps {
        status.detached_holders |= pump.finish().await?;
    }
    Ok(Outcome::Ended(Box::new(status)))
}

/// Reads the frames of a terminal that nobody sits at.
async fn follow_frames(mut handle: ExecHandle, asked: &mut Asked) -> Result<Outcome> {
    loop {
        tokio::select! {
            event = handle.recv() => match event? {
                Some(ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes)) => {
                    let mut out = std::io::stdout().lock();
                    if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
                        handle.kill().await?;
                    }
                }
                Some(ExecEvent::Exited(status)) => return Ok(Outcome::Ended(Box::new(status))),
                Some(_) => {}
                None => return Err(CliError::NoEnd),
            },
            ask = asked.next() => if let Some(outcome) = act(&handle, ask).await? {
                return Ok(outcome);
            },
        }
    }
}

async fn act(handle: &ExecHandle, ask: Ask) -> Result<Option<Outcome>> {
    match ask {
        Ask::Interrupt(signal) => {
            handle.control().signal(signal, true).await?;
            Ok(None)
        }
        Ask::Leave(signal) => Ok(Some(Outcome::Interrupted(signal))),
    }
}
