//! The loop around the state machine: one run, from the launched guest to its end.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cosm_base::ErrorKind;
use cosm_base::units::ByteSize;
use cosm_driver::{Driver, Guest, GuestExit, IdMap, LaunchFacts};
use cosm_proto::agent::ExitStatus;
use cosm_proto::keeper::{EndReason, EndReport, Failure, ReadyReport};
use cosm_spec::{Lifetime, SandboxSpec};
use cosm_state::{Catalogue, Phase, PhaseRecord};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::Timings;
use crate::context::Context;
use crate::disk::{Count, Counting, Watch};
use crate::jobs::MAIN;
use crate::lease::Lease;
use crate::machine::{Effect, Event, Stop, Timer};
use crate::report::Report;
use crate::shared::{Ask, Shared};
use crate::told::Told;
use crate::unborn::{creator_gone, unborn};
use crate::{ask, boot, failure};

/// How long after the guest's end its jobs may take to hear of it.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long after its last connection the guest's end may come.
const DEATH: Duration = Duration::from_millis(200);
/// A start that takes longer than this is told of.
const WONDER: Duration = Duration::from_millis(250);
/// The catalogue is closed when the start was this long ago.
const CATALOGUE: Duration = Duration::from_secs(1);
const TERM: i32 = 15;

/// One run and what it takes to keep it.
pub(crate) struct Life<'a, D: Driver> {
    pub(crate) context: &'a Context,
    pub(crate) shared: Rc<Shared>,
    pub(crate) guest: D::Guest,
    pub(crate) facts: LaunchFacts,
    pub(crate) spec: Rc<SandboxSpec>,
    pub(crate) record: PhaseRecord,
    pub(crate) catalogue: Option<Catalogue>,
    pub(crate) timings: Timings,
    pub(crate) lease: Option<Lease>,
    pub(crate) told: Told,
    /// The creator starts the main command.
    pub(crate) hold: bool,
    /// What watches the guest's files, where nothing else bounds them.
    pub(crate) disk: Option<Watch>,
}

/// How a run went.
pub(crate) struct Outcome {
    pub(crate) end: EndReport,
    /// It never came to run.
    pub(crate) failure: Option<Failure>,
    pub(crate) record: PhaseRecord,
    pub(crate) spec: Rc<SandboxSpec>,
    /// The guest's ids.
    pub(crate) ids: Option<IdMap>,
    pub(crate) catalogue: Option<Catalogue>,
    /// The starter, if it has not been told anything yet.
    pub(crate) report: Option<Report>,
}

/// What the loop waits for.
enum Woken {
    Guest(GuestExit),
    Booted(Result<(), Failure>),
    Counted(Count),
    Something,
    Told,
    Time,
}

impl<D: Driver> Life<'_, D> {
    /// Keeps the guest until it has ended and its jobs have heard of it.
    pub(crate) async fn run(mut self, report: Report) -> Outcome {
        let mut deadlines = BTreeMap::new();
        if let Some(limit) = self.spec.timeouts.max_duration {
            deadlines.insert(Timer::MaxDuration, later(limit));
        }
        let mut work = Work {
            report: Some(report),
            boot: None,
            failure: None,
            told: false,
            exit: None,
            deadlines,
            asking: None,
            lease: self.watch_lease(),
            wonder: Some(later(WONDER)),
            close_catalogue: None,
            counting: None,
        };
        let main = self.spec.command.is_some() && !self.hold;
        if boot::is_nothing(&self.spec, main) {
            self.booted(Ok(()), &mut work);
        } else {
            let finish = boot::finish(self.shared.clone(), self.spec.clone(), main);
            work.boot = Some(tokio::task::spawn_local(finish));
        }
        loop {
            self.carry_out(&mut work);
            if self.shared.machine(|m| m.has_ended()) {
                break;
            }
            self.watch_disk(&work);
            let looks = self.disk.as_ref().and_then(Watch::next);
            let next = work.next_time().into_iter().chain(looks).min();
            let woken = tokio::select! {
                biased;
                exit = self.guest.wait() => Woken::Guest(exit),
                booted = finished(&mut work.boot) => Woken::Booted(booted),
                count = counted(&mut work.counting) => Woken::Counted(count),
                () = self.shared.woken() => Woken::Something,
                () = self.told.until_told() => Woken::Told,
                () = at(next) => Woken::Time,
            };
            match woken {
                Woken::Guest(exit) => self.guest_ended(exit, &mut work).await,
                Woken::Booted(result) => {
                    work.boot = None;
                    match self.died_of(&result).await {
                        Some(exit) => self.guest_ended(exit, &mut work).await,
                        None => self.booted(result, &mut work),
                    }
                }
                Woken::Counted(count) => {
                    work.counting = None;
                    self.take_count(count);
                }
                Woken::Something => {}
                Woken::Told => self.end_as_told(&mut work),
                Woken::Time => self.time_passed(&mut work),
            }
        }
        self.finish(work)
    }

    async fn guest_ended(&self, exit: GuestExit, work: &mut Work) {
        work.exit = Some(exit);
        // A job that ended with the guest, and told so, has ended first.
        self.let_jobs_speak().await;
        self.shared.note(Event::GuestEnded { oom: exit.oom });
    }

    /// The guest's end, if that is why it did not get ready: its connections close a moment before.
    async fn died_of(&mut self, booted: &Result<(), Failure>) -> Option<GuestExit> {
        let lost = booted.as_ref().err()?;
        if !matches!(lost.kind, ErrorKind::BootFailed | ErrorKind::GuestDied) {
            return None;
        }
        timeout(DEATH, self.guest.wait()).await.ok()
    }

    /// Stops the guest as when that is asked for. Said again, it is killed.
    fn end_as_told(&self, work: &mut Work) {
        let grace = match std::mem::replace(&mut work.told, true) {
            false => self.shared.grace,
            true => Duration::ZERO,
        };
        self.shared.note(Event::Stop(Stop {
            grace,
            kill: true,
            reason: EndReason::KeeperSignalled,
        }));
    }

    async fn let_jobs_speak(&self) {
        if timeout(LAST_WORDS, self.shared.jobs.all_over())
            .await
            .is_err()
        {
            self.context
                .journal
                .line("a job did not hear of the guest's end");
        }
    }

    fn watch_lease(&mut self) -> Option<AbortHandle> {
        let lease = self.lease.take()?;
        let shared = self.shared.clone();
        let watching = tokio::task::spawn_local(async move {
            if let Err(error) = lease.ended().await {
                // A lease that can't be watched must not make a sandbox immortal.
                shared.complain(&format!("watching the creator: {error}"));
            }
            shared.note(Event::Kill(EndReason::LeaseEnded));
        });
        Some(watching.abort_handle())
    }

    fn booted(&mut self, result: Result<(), Failure>, work: &mut Work) {
        self.timings.mark("guest ready");
        work.wonder = None;
        match result {
            Ok(()) => {
                // It may have been killed in the same moment.
                if self.shared.machine(|m| m.phase()) != Phase::Starting {
                    return;
                }
                let fresh = self.record.fresh;
                self.shared.note(Event::Booted);
                // The record is there before anybody is told to look.
                self.carry_out(work);
                let ready = ReadyReport {
                    timings: self.timings.parts(),
                    notes: self.facts.notes.clone(),
                };
                if work
                    .report
                    .take()
                    .is_some_and(|report| !report.ready(ready))
                {
                    // Nobody knows of it, so it is as if it had not come to run.
                    self.record.fresh = fresh;
                    work.failure = Some(creator_gone());
                    self.shared.note(Event::Kill(EndReason::LeaseEnded));
                    return;
                }
                self.enter_run();
                work.close_catalogue = Some(later(CATALOGUE));
            }
            Err(failure) => {
                work.failure.get_or_insert(failure);
                self.shared.note(Event::Kill(EndReason::GuestDied));
            }
        }
    }

    fn enter_run(&mut self) {
        if self.spec.remove_on_exit {
            return;
        }
        let (Some(run), Some(at)) = (self.record.run, self.record.started_ms) else {
            return;
        };
        if let Some(catalogue) = &mut self.catalogue
            && let Err(error) = catalogue.run_started(self.context.id, run, at)
        {
            self.context
                .journal
                .line(&format!("entering the run: {error}"));
        }
    }

    /// Carries out all that is to be done.
    fn carry_out(&mut self, work: &mut Work) {
        for complaint in self.shared.take_complaints() {
            self.context.journal.line(&complaint);
        }
        while let Some(effect) = self.shared.next_effect() {
            match effect {
                Effect::Record(phase) => self.write_phase(phase),
                Effect::Ask => {
                    let signal = self.spec.stop_signal.unwrap_or(TERM);
                    let asking = ask::everything(self.shared.clone(), signal);
                    let before = work
                        .asking
                        .replace(tokio::task::spawn_local(asking).abort_handle());
                    before.iter().for_each(AbortHandle::abort);
                }
                Effect::Thaw => self.attempt("resuming", |guest| guest.freeze(false)),
                Effect::Kill => self.attempt("killing", Guest::kill),
                Effect::Arm(timer, time) => {
                    work.deadlines.insert(timer, later(time));
                }
                Effect::Disarm(timer) => {
                    work.deadlines.remove(&timer);
                }
            }
        }
        while let Some(ask) = self.shared.next_ask() {
            self.answer(ask, work);
        }
    }

    fn attempt(&mut self, what: &str, act: impl FnOnce(&mut D::Guest) -> std::io::Result<()>) {
        if let Err(error) = act(&mut self.guest) {
            self.context
                .journal
                .line(&format!("{what} the guest: {error}"));
        }
    }

    fn write_phase(&mut self, phase: Phase) {
        if phase == Phase::Stopping && self.spec.remove_on_exit {
            // It is as good as gone.
            return;
        }
        self.record.phase = phase;
        if phase == Phase::Running {
            self.record.fresh = false;
            self.record.facts = serde_json::to_value(&self.facts).unwrap_or_default();
        }
        if let Err(error) = self.record.write(&self.context.dir) {
            self.context.journal.line(&error.to_string());
        }
    }

    fn answer(&mut self, ask: Ask, work: &mut Work) {
        // Whoever asked may be gone; what was asked for is done all the same.
        match ask {
            Ask::Usage(answer) => drop(answer.send(self.guest.usage())),
            Ask::Freeze(frozen, answer) => tell(answer, self.freeze(frozen)),
            Ask::Detach(answer) => tell(answer, self.detach(work)),
        }
    }

    fn freeze(&mut self, frozen: bool) -> Result<(), Failure> {
        self.shared
            .machine(|m| m.may_freeze(frozen))
            .map_err(failure::refusal)?;
        match self.guest.freeze(frozen) {
            Ok(()) => {
                self.shared.note(Event::Frozen(frozen));
                if let Some(disk) = &mut self.disk {
                    match frozen {
                        true => disk.disarm(),
                        false => disk.arm(Instant::now()),
                    }
                }
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Err(failure::plain(
                ErrorKind::Unsupported,
                "pausing needs a cgroup with a freezer, which this sandbox does not have",
            )),
            Err(error) => Err(failure::os("pausing or resuming the guest")(error)),
        }
    }

    /// Gives up the lease.
    fn detach(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some(lease) = work.lease.take() else {
            // There is none: it is persistent already.
            return Ok(());
        };
        let mut spec = SandboxSpec::clone(&self.spec);
        spec.lifetime = Lifetime::Persistent;
        let stored = spec.to_stored();
        let entered = self
            .with_catalogue(|catalogue, id| catalogue.set_spec(id, &stored))
            .map_err(failure::state);
        if entered.is_err() {
            work.lease = Some(lease);
            return entered;
        }
        lease.abort();
        self.spec = Rc::new(spec);
        Ok(())
    }

    fn with_catalogue(
        &mut self,
        act: impl FnOnce(&mut Catalogue, cosm_base::SandboxId) -> Result<(), cosm_state::StateError>,
    ) -> Result<(), cosm_state::StateError> {
        match &mut self.catalogue {
            Some(catalogue) => act(catalogue, self.context.id),
            None => act(&mut Catalogue::open(&self.context.home)?, self.context.id),
        }
    }

    fn time_passed(&mut self, work: &mut Work) {
        let now = Instant::now();
        if work.close_catalogue.is_some_and(|at| at <= now) {
            work.close_catalogue = None;
            self.catalogue = None;
        }
        if work.wonder.is_some_and(|at| at <= now) {
            work.wonder = None;
            if let Some(report) = &mut work.report {
                report.phase("waiting for the guest");
            }
        }
        let passed: Vec<_> = work
            .deadlines
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(timer, _)| *timer)
            .collect();
        for timer in passed {
            work.deadlines.remove(&timer);
            self.shared.note(Event::Deadline(timer));
        }
        self.look_at_disk(now, work);
    }

    /// Looks at the disk again once something runs.
    fn watch_disk(&mut self, work: &Work) {
        let Some(disk) = &mut self.disk else { return };
        if disk.is_slow() && !self.shared.waits_for_use() {
            disk.hurry(Instant::now());
        }
        if disk.next().is_some() || work.counting.is_some() {
            return;
        }
        let (busy, phase) = self
            .shared
            .machine(|m| (m.holds() + m.jobs() > 0, m.phase()));
        if busy && phase != Phase::Paused {
            disk.arm(Instant::now());
        } else {
            self.shared.tell_of_the_next_use();
        }
    }

    fn look_at_disk(&mut self, now: Instant, work: &mut Work) {
        let Some(disk) = &mut self.disk else { return };
        if disk.next().is_none_or(|at| at > now) {
            return;
        }
        let busy = self.shared.machine(|m| m.holds() + m.jobs() > 0);
        // What a command left behind may write, too.
        let usage = self.guest.usage();
        let running = busy || usage.pids.is_none_or(|count| count > 1);
        let count = disk.look(now, running, usage.cpu_us);
        if disk.is_slow() {
            self.shared.tell_of_the_next_use();
        }
        if count {
            work.counting = Some(disk.count(&self.guest, self.facts.ids.as_ref()));
        }
    }

    fn take_count(&mut self, count: Count) {
        let Some(disk) = &mut self.disk else { return };
        match disk.counted(Instant::now(), count) {
            Ok(None) => {}
            Ok(Some(used)) => {
                let (used, limit) = (ByteSize(used), ByteSize(disk.limit()));
                self.shared.complain(&format!(
                    "its files take {used}, more than the {limit} that they may: it is ended"
                ));
                self.shared.note(Event::Kill(EndReason::OutOfDisk));
            }
            Err(error) => self
                .shared
                .complain(&format!("counting its files: {error}")),
        }
    }

    fn finish(self, work: Work) -> Outcome {
        for task in work.asking.iter().chain(&work.lease) {
            task.abort();
        }
        if let Some(boot) = &work.boot {
            boot.abort();
        }
        for complaint in self.shared.take_complaints() {
            self.context.journal.line(&complaint);
        }
        let (mut reason, killed) = self.shared.machine(|m| m.end());
        // Process 1 ends so only when the one command that its guest was made for is over.
        if reason == EndReason::GuestDied && work.exit.is_some_and(|exit| exit.code == Some(0)) {
            reason = EndReason::Exited;
        }
        let end = EndReport {
            status: self.status(work.exit, reason),
            reason,
            killed,
            usage: work.exit.map(|exit| exit.usage).unwrap_or_default(),
        };
        let failed = work.report.is_some() || work.failure.is_some();
        let failure = failed.then(|| {
            let failure = work.failure.unwrap_or_else(|| unborn(&end));
            let log = self.context.journal.tail(self.record.started_ms);
            match failure.kind {
                // It was not its start that failed.
                ErrorKind::Cancelled => failure,
                _ => failure::at_boot(failure, log),
            }
        });
        Outcome {
            end,
            failure,
            record: self.record,
            spec: self.spec,
            ids: self.facts.ids,
            catalogue: self.catalogue,
            report: work.report,
        }
    }

    /// The main command's end, else process 1's, unless that is only how we ended it.
    fn status(&self, exit: Option<GuestExit>, reason: EndReason) -> Option<ExitStatus> {
        let main = self.shared.jobs.find(MAIN);
        if let Some(report) = main.as_ref().and_then(|job| job.exit()) {
            return Some(report.status);
        }
        let by_itself = matches!(
            reason,
            EndReason::Exited | EndReason::GuestDied | EndReason::OutOfMemory
        );
        if main.is_none() && !by_itself {
            return None;
        }
        let exit = exit?;
        match (exit.code, exit.signal) {
            (Some(code), _) => Some(ExitStatus::Code(code)),
            (None, Some(signal)) => Some(ExitStatus::Signal(signal)),
            (None, None) => None,
        }
    }
}

/// What the loop has in hand.
struct Work {
    report: Option<Report>,
    boot: Option<JoinHandle<Result<(), Failure>>>,
    failure: Option<Failure>,
    /// A signal said so.
    told: bool,
    exit: Option<GuestExit>,
    deadlines: BTreeMap<Timer, Instant>,
    asking: Option<AbortHandle>,
    lease: Option<AbortHandle>,
    wonder: Option<Instant>,
    close_catalogue: Option<Instant>,
    counting: Option<Counting>,
}

impl Work {
    fn next_time(&self) -> Option<Instant> {
        let own = [self.wonder, self.close_catalogue];
        self.deadlines
            .values()
            .copied()
            .chain(own.into_iter().flatten())
            .min()
    }
}

async fn finished(task: &mut Option<JoinHandle<Result<(), Failure>>>) -> Result<(), Failure> {
    match task {
        None => std::future::pending().await,
        Some(task) => task
            .await
            .unwrap_or_else(|error| Err(failure::plain(ErrorKind::BootFailed, error.to_string()))),
    }
}

async fn counted(counting: &mut Option<Counting>) -> Count {
    match counting {
        None => std::future::pending().await,
        Some(counting) => counting.await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn later(time: Duration) -> Instant {
    // Longer than this is for ever; sums stay in range.
    Instant::now() + time.min(Duration::from_secs(100 * 365 * 24 * 3600))
}

fn tell<T>(answer: oneshot::Sender<T>, value: T) {
    // Whoever asked may be gone.
    drop(answer.send(value));
}
