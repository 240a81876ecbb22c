//! Asking everything in a guest to end.

use std::rc::Rc;
use std::time::Duration;

use cosm_agent_client::AgentError;
use cosm_state::Phase;
use tokio::time::{Instant, sleep};

use crate::jobs::MAIN;
use crate::machine::Event;
use crate::shared::Shared;

const TERM: i32 = 15;
/// How long whoever holds the guest may take to hear that its command has ended.
const HEARING: Duration = Duration::from_millis(200);
/// The first and the longest pause between two looks at what still runs.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// Asks the main command with its signal and the rest with TERM, and tells when nothing runs any more.
pub(crate) async fn everything(shared: Rc<Shared>, stop_signal: i32) {
    if let Ok(true) = asked(&shared, stop_signal).await {
        shared.note(Event::Quiet);
    }
}

async fn asked(shared: &Shared, stop_signal: i32) -> Result<bool, AgentError> {
    if is_quiet(shared).await? {
        return Ok(true);
    }
    let main = shared.jobs.find(MAIN).filter(|job| !job.is_over());
    if let Some(main) = main.filter(|_| stop_signal != TERM) {
        // It may mean something else by TERM, so that the others are only asked once it is over.
        if main.signal(stop_signal, false).await.is_ok() {
            main.wait().await;
        }
    }
    shared.agent.signal_all(TERM).await?;
    let mut pause = PAUSES.0;
    while shared.machine(|m| m.phase()) == Phase::Stopping {
        if is_quiet(shared).await? {
            return Ok(true);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
    Ok(false)
}

/// Nothing runs, and whoever had something run has heard of its end.
async fn is_quiet(shared: &Shared) -> Result<bool, AgentError> {
    if shared.agent.stats().await?.processes > 0 || shared.machine(|m| m.jobs()) > 0 {
        return Ok(false);
    }
    // A hold may also be there for its own sake, so that it is not waited for longer than an answer takes.
    let begun = Instant::now();
    while shared.machine(|m| m.holds()) > 0 && begun.elapsed() < HEARING {
        sleep(PAUSES.0).await;
    }
    Ok(true)
}
