//! One job, from its start to its end.

use std::rc::Rc;

use cosm_agent_client::{AgentError, ExecEvent, ExecOutput};
use cosm_proto::agent::ExitReport;
use cosm_state::joblog::{LogWriter, Stream};

use super::table::{Job, MAIN};
use super::{Piece, feed::Feed};
use crate::clock;
use crate::failure;
use crate::machine::Event;
use crate::shared::Shared;

/// Carries a job's output to where it belongs until the job is over.
pub(super) async fn run(shared: Rc<Shared>, job: Rc<Job>, mut output: ExecOutput, log: LogWriter) {
    let mut log = Some(log);
    let end = loop {
        match output.next().await {
            Ok(Some(ExecEvent::Stdout(bytes))) => {
                spread(&shared, &job, &mut log, false, bytes).await;
            }
            Ok(Some(ExecEvent::Stderr(bytes))) => {
                spread(&shared, &job, &mut log, true, bytes).await;
            }
            Ok(Some(ExecEvent::StdinClosed)) => feeds(&job).iter().for_each(|f| f.stdin_closed()),
            Ok(Some(ExecEvent::Exit(exit))) => break Ok(exit.report),
            Ok(None) => break Err(AgentError::Lost),
            Err(error) => break Err(error),
        }
    };
    // Closes the connection, and with it kills a command whose end was not heard of.
    drop(output);
    over(&shared, &job, end).await;
}

async fn spread(
    shared: &Shared,
    job: &Job,
    log: &mut Option<LogWriter>,
    stderr: bool,
    bytes: Vec<u8>,
) {
    let stream = if stderr {
        Stream::Stderr
    } else {
        Stream::Stdout
    };
    if let Some(writer) = log
        && let Err(error) = writer.write(stream, clock::now_ms(), &bytes)
    {
        // The job goes on; a full disk is not its fault. What comes later may fit again.
        shared.complain(&format!("writing the log of job {}: {error}", job.id()));
    }
    let piece = Piece {
        stderr,
        bytes: bytes.into(),
    };
    job.ring.borrow_mut().push(piece.clone());
    for feed in feeds(job) {
        feed.give(&piece).await;
    }
}

/// The viewers of now; one that comes while these are served finds the piece in the ring.
fn feeds(job: &Job) -> Vec<Rc<Feed>> {
    let mut feeds = job.feeds.borrow_mut();
    feeds.retain(|feed| !feed.is_gone());
    feeds.clone()
}

async fn over(shared: &Shared, job: &Job, end: Result<ExitReport, AgentError>) {
    let seen = end.is_ok();
    let oom = end.as_ref().is_ok_and(|report| report.oom);
    {
        let mut report = job.report.borrow_mut();
        match end {
            Ok(exit) => report.exit = Some(exit),
            Err(error) => report.failed = Some(failure::agent(error)),
        }
    }
    drop(job.input.lock().await.take());
    job.feeds.borrow().iter().for_each(|feed| feed.end());
    job.over.send_replace(true);
    shared.note(Event::JobEnded {
        main: job.id() == MAIN,
        oom,
        seen,
    });
}
