//! A view of a job that has no terminal, or from a place that is none.

use std::time::Duration;

use cosm::{AttachOptions, ErrorKind, JobEvent, JobInput, Jobs};
use tokio::time::{Instant, sleep_until};

use super::pump::{self, Sink};
use super::screen::{Piece, Screen};
use super::signals::{Ask, Asked};
use super::{Outcome, Stdio};
use crate::error::{CliError, Result};
use crate::report;

/// A command whose output nobody reads is told so by a signal, and killed when it goes on for this long.
const DEAF: Duration = Duration::from_secs(1);
const KILL: i32 = 9;
const PIPE: i32 = 13;

/// Shows a job's output until its end. An interrupt leaves the view, and the job goes on.
///
/// # Errors
/// No such job, or its end was not seen.
pub(crate) async fn attach(jobs: &Jobs, job: &str, replay: bool) -> Result<Outcome> {
    let options = AttachOptions {
        lossless: true,
        replay,
        size: None,
    };
    let (mut output, _input) = jobs.attach(job, options).await?.split();
    let mut asked = Asked::new()?;
    let (mut screen, mut gone) = Screen::start()?;
    let outcome = loop {
        tokio::select! {
            event = output.recv(), if screen.has_room() => {
                if let Some(outcome) = show(event?, &mut screen)? {
                    break outcome;
                }
            }
            passed = screen.pass_on() => passed?,
            () = gone.wait() => return Ok(Outcome::Detached),
            ask = asked.next() => return Ok(match ask {
                Ask::Interrupt(_) => Outcome::Detached,
                Ask::Leave(signal) => Outcome::Interrupted(signal),
            }),
        }
    };
    written(screen, &mut asked)
        .await
        .map(|left| left.unwrap_or(outcome))
}

/// Runs a command as the job with this id and stays until its end. It is its starter's: interrupts are passed on, and
/// it is told when nobody reads what it says.
///
/// # Errors
/// It could not be started, or its end was not seen.
pub(crate) async fn run(
    jobs: &Jobs,
    id: &str,
    options: &cosm::ExecOptions,
    stdio: &Stdio,
    asked: &mut Asked,
) -> Result<Outcome> {
    let (mut screen, mut gone) = Screen::start()?;
    let (mut output, input) = jobs.run(Some(id), options).await?.split();
    if stdio.interactive {
        tokio::spawn(pump::frames_in(input));
    }
    let mut command = Command {
        jobs,
        id,
        interrupts: 0,
        deaf: None,
    };
    let outcome = loop {
        let deaf = command.deaf;
        tokio::select! {
            event = output.recv(), if screen.has_room() => {
                if let Some(outcome) = show(event?, &mut screen)? {
                    break outcome;
                }
            }
            passed = screen.pass_on() => passed?,
            () = gone.wait(), if deaf.is_none() => command.is_deaf().await?,
            () = at(deaf) => command.send(KILL).await?,
            ask = asked.next() => match ask {
                Ask::Interrupt(signal) => command.interrupt(signal).await?,
                Ask::Leave(signal) => return Ok(Outcome::Interrupted(signal)),
            },
        }
    };
    written(screen, asked)
        .await
        .map(|left| left.unwrap_or(outcome))
}

/// Waits for a slow reader, unless this program is told to end.
async fn written(screen: Screen, asked: &mut Asked) -> Result<Option<Outcome>> {
    let mut finish = std::pin::pin!(screen.finish());
    loop {
        tokio::select! {
            finished = &mut finish => return finished.map(|()| None),
            ask = asked.next() => if let Ask::Leave(signal) = ask {
                return Ok(Some(Outcome::Interrupted(signal)));
            },
        }
    }
}

fn show(event: Option<JobEvent>, screen: &mut Screen) -> Result<Option<Outcome>> {
    match event {
        Some(JobEvent::Stdout(bytes)) => screen.take(Piece {
            stderr: false,
            bytes,
        }),
        Some(JobEvent::Stderr(bytes)) => screen.take(Piece {
            stderr: true,
            bytes,
        }),
        Some(JobEvent::Lost(bytes)) => {
            report::warning(&format!("{bytes} bytes of output went by too fast"));
        }
        Some(JobEvent::Exited(report)) => {
            return Ok(Some(Outcome::Ended(Box::new(report.into()))));
        }
        Some(_) => {}
        None => return Err(CliError::NoEnd),
    }
    Ok(None)
}

/// A running command, steered by its starter. Not over the view: its input may be waiting there.
struct Command<'a> {
    jobs: &'a Jobs,
    id: &'a str,
    interrupts: u32,
    /// When it is killed because nobody reads what it says.
    deaf: Option<Instant>,
}

impl Command<'_> {
    async fn interrupt(&mut self, signal: i32) -> Result<()> {
        self.interrupts += 1;
        self.send(if self.interrupts == 1 { signal } else { KILL })
            .await
    }

    async fn is_deaf(&mut self) -> Result<()> {
        self.deaf = Some(Instant::now() + DEAF);
        self.send(PIPE).await
    }

    async fn send(&mut self, signal: i32) -> Result<()> {
        if signal == KILL {
            // Once.
            self.deaf = self.deaf.map(|at| at + DEAF);
        }
        match self.jobs.signal(self.id, signal, true).await {
            // It has ended in the same moment, which is about to be told.
            Err(error) if matches!(error.kind(), ErrorKind::WrongState | ErrorKind::GuestDied) => {
                Ok(())
            }
            sent => Ok(sent?),
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Sink for JobInput {
    async fn write(&mut self, bytes: &[u8]) -> bool {
        JobInput::write(self, bytes).await.is_ok()
    }

    async fn close(self) {
        // The view may have ended; then nobody needs the end of its input.
        drop(JobInput::close(&self).await);
    }
}
