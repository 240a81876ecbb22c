//! The tasks of a keeper process, from the plan to its end.

use std::rc::Rc;
use std::time::Duration;

use cosm_base::RunId;
use cosm_driver::Driver;
use cosm_proto::keeper::{EndReport, Failure, Plan, ReadyReport, Task};
use cosm_spec::Defaults;
use cosm_state::{Catalogue, Phase, PhaseRecord};
use tokio::time::timeout;

use crate::clock::{self, Timings};
use crate::context::Context;
use crate::disk::Watch;
use crate::jobs::Jobs;
use crate::lease::Lease;
use crate::life::{Life, Outcome};
use crate::machine::Machine;
use crate::report::Report;
use crate::shared::Shared;
use crate::start::{self, Begun, with_leftover};
use crate::told::Told;
use crate::{boot, clean, control, failure};

/// How long the last answers may take to be read. Everything else is over by then.
const FAREWELL: Duration = Duration::from_secs(10);

/// Does what the plan says. True if it worked.
pub(crate) async fn carry_out(
    driver: &impl Driver,
    plan: Plan,
    lease: Option<Lease>,
    report: Report,
    mut timings: Timings,
) -> bool {
    let context = match Context::take(&plan) {
        Ok(context) => context,
        Err(failure) => {
            report.failed(failure);
            return false;
        }
    };
    timings.mark("taking the lock");
    let told = match Told::new() {
        Ok(told) => told,
        Err(error) => {
            let failure = failure::os("waiting for signals")(error);
            return answer(&context, report, &timings, Err(failure));
        }
    };
    let begun = match plan.task {
        Task::Create {
            spec,
            run,
            start,
            hold,
            ..
        } => {
            let begun = start::create(driver, &context, &spec, run, start, &mut timings).await;
            if !start {
                let made = match begun {
                    Ok(begun) => leave_created(driver, &context, begun).await,
                    Err(failure) => Err(failure),
                };
                return answer(&context, report, &timings, made);
            }
            begun.map(|begun| Begun { hold, ..begun })
        }
        Task::Start { run, .. } => start::resume(driver, &context, run, &mut timings).await,
        Task::Remove => {
            let removed = clean::remove(driver, &context).await;
            return answer(&context, report, &timings, removed);
        }
        Task::Reap => {
            let reaped = clean::reap_task(driver, &context).await;
            return answer(&context, report, &timings, reaped);
        }
    };
    match begun {
        Ok(begun) => {
            keep(
                driver,
                &context,
                begun,
                Ties { lease, told },
                report,
                timings,
            )
            .await
        }
        Err(failure) => answer(&context, report, &timings, Err(failure)),
    }
}

/// Lets go of the sandbox and tells how the task went, in this order: whoever hears of it may go on at once.
fn answer(
    context: &Context,
    report: Report,
    timings: &Timings,
    result: Result<(), Failure>,
) -> bool {
    context.let_go();
    let worked = result.is_ok();
    match result {
        // What is done stays so, whether or not somebody hears it.
        Ok(()) => drop(report.ready(ReadyReport {
            timings: timings.parts(),
            notes: Vec::new(),
        })),
        Err(failure) => report.failed(failure),
    }
    worked
}

/// A sandbox that is made but not started.
async fn leave_created(
    driver: &impl Driver,
    context: &Context,
    mut begun: Begun,
) -> Result<(), Failure> {
    let written = PhaseRecord::created().write(&context.dir);
    let Err(error) = written else { return Ok(()) };
    let erased = clean::erase(driver, context, begun.catalogue.as_mut(), None).await;
    Err(with_leftover(failure::state(error), erased))
}

/// What may end a run from outside.
struct Ties {
    lease: Option<Lease>,
    told: Told,
}

async fn keep<D: Driver>(
    driver: &D,
    context: &Context,
    mut begun: Begun,
    ties: Ties,
    mut report: Report,
    mut timings: Timings,
) -> bool {
    let started = match start::launch(driver, context, &begun, &mut report, &mut timings).await {
        Ok(started) => started,
        Err(failure) => {
            let failure = failure::at_boot(failure, context.journal.tail(begun.record.started_ms));
            let cleaned = undo(
                driver,
                context,
                begun.record,
                begun.catalogue.as_mut(),
                &failure,
            )
            .await;
            return answer(
                context,
                report,
                &timings,
                Err(with_leftover(failure, cleaned)),
            );
        }
    };
    let spec = Rc::new(begun.spec);
    let shared = share(context, begun.run, &spec);
    let disk = Watch::of(
        &started.facts,
        &spec,
        context.dir.data(),
        begun.record.fresh,
    );
    let life = Life::<D> {
        hold: begun.hold,
        disk,
        context,
        shared: shared.clone(),
        guest: started.guest,
        facts: started.facts,
        spec,
        record: begun.record,
        catalogue: begun.catalogue,
        timings,
        lease: ties.lease,
        told: ties.told,
    };
    let mut serving = tokio::task::spawn_local(control::serve(started.control, shared.clone()));
    let outcome = life.run(report).await;
    let (worked, catalogue) = finish(driver, context, &shared, outcome).await;
    // Whoever does not read its answer by then is not waited for, but for who started a job to see all that it says.
    if timeout(FAREWELL, &mut serving).await.is_err() {
        shared.jobs.starters_gone().await;
    }
    if let Some(Err(error)) = catalogue.map(Catalogue::settle) {
        // The next one does it.
        drop(error);
    }
    worked
}

fn share(context: &Context, run: RunId, spec: &cosm_spec::SandboxSpec) -> Rc<Shared> {
    let agent = boot::client(context.runtime.agent(context.id), spec);
    let log = spec.resources.log.or(Defaults::LOG).map(|size| size.0);
    Shared::new(
        run,
        agent.clone(),
        Jobs::new(agent, context.dir.clone(), run, log),
        Machine::new(spec.timeouts.idle, spec.timeouts.stop),
        spec.timeouts.stop,
    )
}

/// Cleans up after a run, lets go of the sandbox, and only then tells those who wait.
async fn finish(
    driver: &impl Driver,
    context: &Context,
    shared: &Shared,
    mut outcome: Outcome,
) -> (bool, Option<Catalogue>) {
    let catalogue = &mut outcome.catalogue;
    let cleaned = match &outcome.failure {
        Some(failure) => undo(driver, context, outcome.record, catalogue.as_mut(), failure).await,
        None if outcome.spec.remove_on_exit => {
            let ids = outcome.ids.as_ref();
            clean::erase(driver, context, catalogue.as_mut(), ids).await
        }
        None => stopped(context, outcome.record, catalogue, &outcome.end),
    };
    if let Err(left) = &cleaned {
        context
            .journal
            .line(&format!("cleaning up: {}", left.message));
    }
    context.let_go();
    shared.ended(outcome.end);
    let worked = outcome.failure.is_none();
    if let (Some(report), Some(failure)) = (outcome.report, outcome.failure) {
        report.failed(with_leftover(failure, cleaned));
    }
    (worked, outcome.catalogue)
}

/// Undoes a start that failed: of a new sandbox nothing stays, an old one is as it was, and knows why.
async fn undo(
    driver: &impl Driver,
    context: &Context,
    mut record: PhaseRecord,
    catalogue: Option<&mut Catalogue>,
    failure: &Failure,
) -> Result<(), Failure> {
    if record.fresh {
        return clean::erase(driver, context, catalogue, None).await;
    }
    clean::sockets(context)?;
    record.phase = Phase::Stopped;
    record.ended_ms = Some(clock::now_ms());
    record.failure = Some(failure.clone());
    record.write(&context.dir).map_err(failure::state)?;
    clean::run_record(context)
}

/// Writes down how a run ended.
fn stopped(
    context: &Context,
    mut record: PhaseRecord,
    catalogue: &mut Option<Catalogue>,
    end: &EndReport,
) -> Result<(), Failure> {
    clean::sockets(context)?;
    let now = clock::now_ms();
    if let Some(run) = record.run {
        if catalogue.is_none() {
            *catalogue = Some(Catalogue::open(&context.home).map_err(failure::state)?);
        }
        if let Some(catalogue) = catalogue {
            catalogue
                .run_ended(context.id, run, now, end)
                .map_err(failure::state)?;
        }
    }
    // What the guest wrote is its owner's only copy.
    std::fs::File::open(context.dir.path())
        .and_then(|folder| Ok(rustix::fs::syncfs(folder)?))
        .map_err(failure::os("syncing the sandbox's files"))?;
    clean::run_record(context)?;
    record.phase = Phase::Stopped;
    record.ended_ms = Some(now);
    record.end = Some(end.clone());
    record.write(&context.dir).map_err(failure::state)
}
