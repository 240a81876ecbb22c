//! A view of a job that has no terminal, or from a place that is none.

use cosm::{AttachOptions, JobEvent, Jobs};

use super::Outcome;
use super::pump::Target;
use super::signals::{Ask, Asked};
use crate::error::{CliError, Result};
use crate::report;

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
    let view = jobs.attach(job, options).await?;
    let (mut output, _input) = view.split();
    let mut asked = Asked::new()?;
    let (mut out, mut err) = (Target::stdout(), Target::stderr());
    loop {
        tokio::select! {
            event = output.recv() => match event? {
                Some(JobEvent::Stdout(bytes)) => out.write(&bytes)?,
                Some(JobEvent::Stderr(bytes)) => err.write(&bytes)?,
                Some(JobEvent::Lost(bytes)) => report::warning(&format!("{bytes} bytes of output went by too fast")),
                Some(JobEvent::Exited(report)) => return Ok(Outcome::Ended(Box::new(report.into()))),
                Some(_) => {}
                None => return Err(CliError::NoEnd),
            },
            ask = asked.next() => return Ok(match ask {
                Ask::Interrupt(_) => Outcome::Detached,
                Ask::Leave(signal) => Outcome::Interrupted(signal),
            }),
        }
        if out.is_gone() {
            return Ok(Outcome::Detached);
        }
    }
}
