//! What the loop and the connections share. One thread, so that nothing here waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use cosm_agent_client::AgentClient;
use cosm_base::RunId;
use cosm_proto::keeper::{EndReport, Failure, GuestUsage, StatusReport};
use tokio::sync::{Notify, oneshot, watch};

use crate::jobs::Jobs;
use crate::machine::{Effect, Event, Machine, Refusal};

/// What only the loop can do, for somebody who waits for it.
#[derive(Debug)]
pub(crate) enum Ask {
    Usage(oneshot::Sender<GuestUsage>),
    Freeze(bool, oneshot::Sender<Result<(), Failure>>),
    Detach(oneshot::Sender<Result<(), Failure>>),
}

/// One run, as everybody in this process sees it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) run: RunId,
    pub(crate) agent: AgentClient,
    pub(crate) jobs: Jobs,
    /// Between asking and killing, where nobody says how long.
    pub(crate) grace: Duration,
    machine: RefCell<Machine>,
    effects: RefCell<VecDeque<Effect>>,
    asks: RefCell<VecDeque<Ask>>,
    complaints: RefCell<Vec<String>>,
    wake: Notify,
    /// The loop wants to know when something begins to use the guest.
    next_use: Cell<bool>,
    running_since: Cell<Option<Instant>>,
    end: watch::Sender<Option<EndReport>>,
}

impl Shared {
    pub(crate) fn new(
        run: RunId,
        agent: AgentClient,
        jobs: Jobs,
        machine: Machine,
        grace: Duration,
    ) -> Rc<Self> {
        Rc::new(Self {
            run,
            agent,
            jobs,
            grace,
            machine: RefCell::new(machine),
            effects: RefCell::default(),
            asks: RefCell::default(),
            complaints: RefCell::default(),
            wake: Notify::new(),
            next_use: Cell::new(false),
            running_since: Cell::new(None),
            end: watch::Sender::new(None),
        })
    }

    /// Tells the machine of something that it may refuse.
    pub(crate) fn tell(&self, event: Event) -> Result<(), Refusal> {
        let effects = self.machine.borrow_mut().step(event)?;
        if event == Event::Booted {
            self.running_since.set(Some(Instant::now()));
        }
        if matches!(event, Event::HoldTaken | Event::JobStarted) && self.next_use.take() {
            self.wake.notify_one();
        }
        if !effects.is_empty() || self.machine.borrow().has_ended() {
            self.effects.borrow_mut().extend(effects);
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Tells the machine of something that has happened, which can't be refused.
    pub(crate) fn note(&self, event: Event) {
        let refused = self.tell(event).is_err();
        debug_assert!(!refused, "{event:?}");
    }

    /// Wakes the loop when something begins to use the guest, once.
    pub(crate) fn tell_of_the_next_use(&self) {
        self.next_use.set(true);
    }

    /// Whether nothing has begun to use it since the loop wanted to know.
    pub(crate) fn waits_for_use(&self) -> bool {
        self.next_use.get()
    }

    /// Asks the loop for something.
    pub(crate) fn ask(&self, ask: Ask) {
        self.asks.borrow_mut().push_back(ask);
        self.wake.notify_one();
    }

    /// Something for the journal.
    pub(crate) fn complain(&self, what: &str) {
        let mut complaints = self.complaints.borrow_mut();
        // The same thing over and over says no more than once.
        if complaints.last().is_none_or(|last| last != what) {
            complaints.push(what.to_owned());
            self.wake.notify_one();
        }
    }

    pub(crate) fn take_complaints(&self) -> Vec<String> {
        self.complaints.take()
    }

    pub(crate) fn machine<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.machine.borrow())
    }

    pub(crate) fn next_effect(&self) -> Option<Effect> {
        self.effects.borrow_mut().pop_front()
    }

    pub(crate) fn next_ask(&self) -> Option<Ask> {
        self.asks.borrow_mut().pop_front()
    }

    /// Waits until there may be something to do. Cancel-safe.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn status(&self) -> StatusReport {
        let machine = self.machine.borrow();
        let uptime = self.running_since.get().map_or(0, |at| {
            u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)
        });
        StatusReport {
            run: self.run,
            state: machine.phase().as_str().to_owned(),
            uptime_ms: uptime,
            holds: machine.holds(),
            jobs: machine.jobs(),
        }
    }

    /// Says that all is over and cleaned up.
    pub(crate) fn ended(&self, report: EndReport) {
        self.end.send_replace(Some(report));
    }

    /// Waits until all is over and cleaned up. Cancel-safe.
    pub(crate) async fn end(&self) -> EndReport {
        let mut end = self.end.subscribe();
        let report = end.wait_for(Option::is_some).await;
        // The sender lives in this very value.
        let report = report.expect("the sender is there").clone();
        report.expect("waited for one")
    }
}
