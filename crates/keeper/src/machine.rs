//! The life of a run as a pure function of (state, event).
//!
//! ```text
//!                     Booted             Pause, Resume
//!         Booting ──────────────► Running ◄─────────► Paused
//!            │                    │  ▲  │ Drain          │
//!            │               Stop │  │  ▼                │
//!            │                    │  │ Draining          │
//!            │    grace over,     ▼  │  │ nothing runs   │
//!            │    not to kill  Stopping ◄──┘ ◄───────────┘ Stop
//!            │  ▲─────────────────┘  │
//!            │                       │ Quiet, or grace over
//!            ▼                       ▼
//!          Killing ◄─────────────────┘   Kill, the lease's end, the main command's end, ... lead here from anywhere
//!            │ GuestEnded (also straight from any other state)
//!            ▼
//!          Ended
//! ```
//!
//! Nothing here waits, reads a clock or touches a file: the loop in [`crate::life`] feeds events in and carries effects
//! out. The first cause of an end is the one that is reported.

use std::time::Duration;

use cosm_proto::keeper::EndReason;
use cosm_state::Phase;

/// What happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The guest answers, and its main command runs.
    Booted,
    /// An operation began to use the guest.
    HoldTaken,
    /// It is over.
    HoldDropped,
    /// A job began.
    JobStarted,
    /// It is over. `main`: it was the main command; `oom`: for want of memory; `seen`: the guest told how.
    JobEnded { main: bool, oom: bool, seen: bool },
    /// Somebody wants it to end.
    Stop(Stop),
    /// Somebody wants it to end at once, for this reason.
    Kill(EndReason),
    /// Somebody wants it to finish what runs and then end.
    Drain,
    /// All its processes were stopped, or resumed.
    Frozen(bool),
    /// Time is up.
    Deadline(Timer),
    /// Nothing runs in it any more, after it was asked to end.
    Quiet,
    /// Process 1 has ended.
    GuestEnded { oom: bool },
}

/// How a run is to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    /// Between asking and killing.
    pub(crate) grace: Duration,
    /// Kill when that is over; else go on.
    pub(crate) kill: bool,
    /// Why.
    pub(crate) reason: EndReason,
}

/// The clocks that can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// It has run for as long as it may.
    MaxDuration,
    /// Nothing has used it for as long as it may be idle.
    Idle,
    /// It was asked to end and has had its time.
    Grace,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Write down how far it has come.
    Record(Phase),
    /// Ask everything in the guest to end, and tell with [`Event::Quiet`] when nothing runs any more.
    Ask,
    /// Let the guest's processes run again, so that they can end.
    Thaw,
    /// Kill the guest.
    Kill,
    /// Let a clock run (anew).
    Arm(Timer, Duration),
    /// Stop a clock.
    Disarm(Timer),
}

/// Why something can't be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The guest is still being started.
    Starting,
    /// It accepts nothing new.
    Draining,
    /// Its processes are stopped.
    Paused,
    /// It is being ended.
    Ending,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Booting,
    Running,
    Draining,
    Paused,
    Stopping { kill: bool, reason: EndReason },
    Killing,
    Ended,
}

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    state: State,
    holds: u32,
    jobs: u32,
    idle: Option<Duration>,
    grace: Duration,
    cause: Option<EndReason>,
    killed: bool,
    drained: bool,
    /// The main command was over before the guest counted as running.
    over_early: Option<EndReason>,
}

impl Machine {
    /// A run whose guest is being started. `idle` is how long nothing may use it, `grace` how long it has to end when
    /// it is asked to without anybody saying how long.
    pub(crate) const fn new(idle: Option<Duration>, grace: Duration) -> Self {
        Self {
            state: State::Booting,
            holds: 0,
            jobs: 0,
            idle,
            grace,
            cause: None,
            killed: false,
            drained: false,
            over_early: None,
        }
    }

    pub(crate) const fn phase(&self) -> Phase {
        match self.state {
            State::Booting => Phase::Starting,
            State::Running => Phase::Running,
            State::Draining => Phase::Draining,
            State::Paused => Phase::Paused,
            State::Stopping { .. } | State::Killing => Phase::Stopping,
            State::Ended => Phase::Stopped,
        }
    }

    pub(crate) const fn holds(&self) -> u32 {
        self.holds
    }

    pub(crate) const fn jobs(&self) -> u32 {
        self.jobs
    }

    pub(crate) const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Why it ends or ended, and whether it had to be killed.
    pub(crate) fn end(&self) -> (EndReason, bool) {
        (self.cause.unwrap_or(EndReason::GuestDied), self.killed)
    }

    /// Whether something new may begin.
    pub(crate) const fn admits(&self) -> Result<(), Refusal> {
        match self.state {
            State::Running => Ok(()),
            State::Booting => Err(Refusal::Starting),
            State::Draining => Err(Refusal::Draining),
            State::Paused => Err(Refusal::Paused),
            State::Stopping { .. } | State::Killing | State::Ended => Err(Refusal::Ending),
        }
    }

    /// Whether its processes may be stopped or resumed now.
    pub(crate) const fn may_freeze(&self, frozen: bool) -> Result<(), Refusal> {
        match (self.state, frozen) {
            (State::Running, _) | (State::Paused, _) => Ok(()),
            (State::Booting, _) => Err(Refusal::Starting),
            (State::Draining, _) => Err(Refusal::Draining),
            _ => Err(Refusal::Ending),
        }
    }

    /// One step. What is refused changes nothing.
    pub(crate) fn step(&mut self, event: Event) -> Result<Vec<Effect>, Refusal> {
        let mut effects = Vec::new();
        if self.has_ended() {
            return match event {
                Event::HoldTaken | Event::JobStarted | Event::Drain => Err(Refusal::Ending),
                _ => Ok(effects),
            };
        }
        match event {
            Event::Booted => self.booted(&mut effects),
            Event::HoldTaken => {
                self.admits()?;
                self.holds += 1;
                self.busy(&mut effects);
            }
            // The main command starts before the guest counts as running.
            Event::JobStarted => {
                if !matches!(self.state, State::Booting) {
                    self.admits()?;
                }
                self.jobs += 1;
                self.busy(&mut effects);
            }
            Event::HoldDropped => {
                self.holds = self.holds.saturating_sub(1);
                self.less_busy(&mut effects);
            }
            Event::JobEnded { main, oom, seen } => {
                self.jobs = self.jobs.saturating_sub(1);
                if main {
                    self.main_ended(oom, seen, &mut effects);
                } else {
                    self.less_busy(&mut effects);
                }
            }
            Event::Stop(stop) => self.stop(stop, &mut effects),
            Event::Kill(reason) => self.kill(reason, true, &mut effects),
            Event::Drain => self.drain(&mut effects)?,
            Event::Frozen(frozen) => self.frozen(frozen, &mut effects),
            Event::Deadline(timer) => self.deadline(timer, &mut effects),
            Event::Quiet => {
                if let State::Stopping { reason, .. } = self.state {
                    self.kill(reason, false, &mut effects);
                }
            }
            Event::GuestEnded { oom } => self.guest_ended(oom),
        }
        Ok(effects)
    }

    fn booted(&mut self, effects: &mut Vec<Effect>) {
        if matches!(self.state, State::Booting) {
            self.state = State::Running;
            effects.push(Effect::Record(Phase::Running));
            match self.over_early {
                Some(reason) => self.kill(reason, false, effects),
                None => self.less_busy(effects),
            }
        }
    }

    fn busy(&self, effects: &mut Vec<Effect>) {
        if self.idle.is_some() && self.holds + self.jobs == 1 {
            effects.push(Effect::Disarm(Timer::Idle));
        }
    }

    fn less_busy(&mut self, effects: &mut Vec<Effect>) {
        if self.holds + self.jobs > 0 {
            return;
        }
        match (self.state, self.idle) {
            (State::Draining, _) => self.stop(self.usual_stop(EndReason::Drained), effects),
            (State::Running, Some(idle)) => effects.push(Effect::Arm(Timer::Idle, idle)),
            _ => {}
        }
    }

    fn main_ended(&mut self, oom: bool, seen: bool, effects: &mut Vec<Effect>) {
        let reason = if oom {
            EndReason::OutOfMemory
        } else if !seen {
            EndReason::GuestDied
        } else if self.drained {
            EndReason::Drained
        } else {
            EndReason::Exited
        };
        match self.state {
            // It was asked to; what it left behind has its time too.
            State::Stopping { .. } | State::Killing => {}
            // It ran, so that this is a start and an end rather than no start.
            State::Booting if seen => self.over_early = Some(reason),
            _ => self.kill(reason, false, effects),
        }
    }

    const fn usual_stop(&self, reason: EndReason) -> Stop {
        Stop {
            grace: self.grace,
            kill: true,
            reason,
        }
    }

    fn stop(&mut self, stop: Stop, effects: &mut Vec<Effect>) {
        if stop.grace.is_zero() && stop.kill {
            // Nobody was asked, so nobody refused.
            return self.kill(stop.reason, false, effects);
        }
        match self.state {
            State::Killing | State::Ended => {}
            // There is nothing in it yet that could be asked.
            State::Booting => self.kill(stop.reason, false, effects),
            State::Stopping { kill, reason } => {
                self.state = State::Stopping {
                    kill: kill || stop.kill,
                    reason,
                };
                if stop.kill || !kill {
                    effects.push(Effect::Arm(Timer::Grace, stop.grace));
                }
            }
            State::Running | State::Draining | State::Paused => {
                if matches!(self.state, State::Paused) {
                    effects.push(Effect::Thaw);
                }
                self.state = State::Stopping {
                    kill: stop.kill,
                    reason: stop.reason,
                };
                effects.extend([
                    Effect::Disarm(Timer::Idle),
                    Effect::Record(Phase::Stopping),
                    Effect::Ask,
                    Effect::Arm(Timer::Grace, stop.grace),
                ]);
            }
        }
    }

    fn kill(&mut self, reason: EndReason, by_force: bool, effects: &mut Vec<Effect>) {
        if matches!(self.state, State::Killing | State::Ended) {
            return;
        }
        if matches!(self.state, State::Paused) {
            effects.push(Effect::Thaw);
        }
        self.cause.get_or_insert(reason);
        self.killed |= by_force;
        self.state = State::Killing;
        effects.push(Effect::Kill);
    }

    fn drain(&mut self, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        match self.state {
            State::Running => {
                self.drained = true;
                self.state = State::Draining;
                effects.push(Effect::Disarm(Timer::Idle));
                effects.push(Effect::Record(Phase::Draining));
                self.less_busy(effects);
                Ok(())
            }
            State::Draining | State::Killing | State::Stopping { .. } => Ok(()),
            State::Booting => Err(Refusal::Starting),
            State::Paused => Err(Refusal::Paused),
            State::Ended => Err(Refusal::Ending),
        }
    }

    fn frozen(&mut self, frozen: bool, effects: &mut Vec<Effect>) {
        match (self.state, frozen) {
            (State::Running, true) => {
                self.state = State::Paused;
                effects.push(Effect::Disarm(Timer::Idle));
                effects.push(Effect::Record(Phase::Paused));
            }
            (State::Paused, false) => {
                self.state = State::Running;
                effects.push(Effect::Record(Phase::Running));
                self.less_busy(effects);
            }
            _ => {}
        }
    }

    fn deadline(&mut self, timer: Timer, effects: &mut Vec<Effect>) {
        match (timer, self.state) {
            (Timer::MaxDuration, _) => self.stop(self.usual_stop(EndReason::MaxDuration), effects),
            (Timer::Idle, State::Running) if self.holds + self.jobs == 0 => {
                self.stop(self.usual_stop(EndReason::Idle), effects);
            }
            (Timer::Grace, State::Stopping { kill: true, reason }) => {
                self.kill(reason, true, effects)
            }
            (Timer::Grace, State::Stopping { kill: false, .. }) => {
                self.state = if self.drained {
                    State::Draining
                } else {
                    State::Running
                };
                effects.push(Effect::Record(self.phase()));
                self.less_busy(effects);
            }
            _ => {}
        }
    }

    fn guest_ended(&mut self, oom: bool) {
        let reason = match self.state {
            // Its last process may have been process 1's own doing.
            State::Stopping { reason, .. } => reason,
            _ if oom => EndReason::OutOfMemory,
            _ => EndReason::GuestDied,
        };
        let cause = self.cause.get_or_insert(reason);
        if *cause == EndReason::GuestDied {
            // Its parts may have been missed before it was.
            *cause = reason;
        }
        self.state = State::Ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason() -> impl Strategy<Value = EndReason> {
        prop_oneof![
            Just(EndReason::Stopped),
            Just(EndReason::Killed),
            Just(EndReason::Replaced),
            Just(EndReason::LeaseEnded)
        ]
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => Just(Event::Booted),
            4 => Just(Event::HoldTaken),
            4 => Just(Event::HoldDropped),
            3 => Just(Event::JobStarted),
            3 => (any::<bool>(), any::<bool>(), any::<bool>())
                .prop_map(|(main, oom, seen)| Event::JobEnded { main, oom, seen }),
            2 => (0..3_u64, any::<bool>(), reason()).prop_map(|(grace, kill, reason)| {
                Event::Stop(Stop { grace: Duration::from_secs(grace), kill, reason })
            }),
            1 => reason().prop_map(Event::Kill),
            2 => Just(Event::Drain),
            2 => any::<bool>().prop_map(Event::Frozen),
            1 => Just(Event::Deadline(Timer::MaxDuration)),
            2 => Just(Event::Deadline(Timer::Idle)),
            2 => Just(Event::Deadline(Timer::Grace)),
            2 => Just(Event::Quiet),
            1 => any::<bool>().prop_map(|oom| Event::GuestEnded { oom }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn no_order_of_events_breaks_a_life(
            idle in any::<bool>(),
            events in proptest::collection::vec(event(), 0..60),
        ) {
            let idle = idle.then_some(Duration::from_secs(5));
            let mut machine = Machine::new(idle, Duration::from_secs(1));
            let (mut holds, mut kills, mut idle_armed) = (0_u32, 0, false);
            let (mut cause, mut ended) = (None, false);
            for event in events {
                let before = machine.clone();
                match machine.step(event) {
                    Err(_) => {
                        // What is refused changes nothing.
                        prop_assert_eq!(format!("{before:?}"), format!("{machine:?}"));
                        continue;
                    }
                    Ok(effects) => {
                        for effect in effects {
                            match effect {
                                Effect::Kill => kills += 1,
                                Effect::Arm(Timer::Idle, _) => {
                                    prop_assert_eq!(machine.holds() + machine.jobs(), 0);
                                    idle_armed = true;
                                }
                                Effect::Disarm(Timer::Idle) => idle_armed = false,
                                // A frozen guest can't hear what it is asked.
                                Effect::Ask => prop_assert_ne!(machine.phase(), Phase::Paused),
                                // Whatever is written down is so, or was for a moment on the way to the end.
                                Effect::Record(phase) => prop_assert!(
                                    phase == machine.phase() || machine.phase() == Phase::Stopping
                                ),
                                _ => {}
                            }
                        }
                    }
                }
                match event {
                    Event::HoldTaken => holds += 1,
                    Event::HoldDropped => holds = holds.saturating_sub(1),
                    _ => {}
                }
                if !ended {
                    prop_assert_eq!(machine.holds(), holds);
                }
                // Nothing brings an ended run back, and nothing changes why it ended.
                if ended {
                    prop_assert!(machine.has_ended());
                    prop_assert_eq!(cause, Some(machine.end()));
                }
                ended = machine.has_ended();
                cause = ended.then(|| machine.end());
                prop_assert!(kills <= 1, "killed twice");
                // While something runs, no clock of idleness does.
                if machine.phase() == Phase::Running && machine.holds() + machine.jobs() > 0 {
                    prop_assert!(!idle_armed);
                }
                if machine.admits().is_ok() {
                    prop_assert_eq!(machine.phase(), Phase::Running);
                }
            }
            // From anywhere there is a way to the end.
            machine.step(Event::Kill(EndReason::Killed)).expect("never refused");
            prop_assert!(machine.has_ended() || machine.phase() == Phase::Stopping);
            machine.step(Event::GuestEnded { oom: false }).expect("never refused");
            prop_assert!(machine.has_ended());
        }
    }

    fn running() -> Machine {
        let mut machine = Machine::new(None, Duration::from_secs(1));
        machine.step(Event::Booted).expect("it boots");
        machine
    }

    #[test]
    fn the_first_cause_is_told() {
        let mut machine = running();
        machine
            .step(Event::Kill(EndReason::LeaseEnded))
            .expect("taken");
        machine
            .step(Event::Kill(EndReason::Killed))
            .expect("ignored");
        machine
            .step(Event::GuestEnded { oom: true })
            .expect("taken");
        assert_eq!(machine.end(), (EndReason::LeaseEnded, true));
    }

    #[test]
    fn memory_is_blamed_where_it_was() {
        let mut machine = running();
        machine
            .step(Event::GuestEnded { oom: true })
            .expect("taken");
        assert_eq!(machine.end().0, EndReason::OutOfMemory);
        let mut machine = running();
        machine.step(Event::JobStarted).expect("taken");
        let lost = Event::JobEnded {
            main: true,
            oom: false,
            seen: false,
        };
        machine.step(lost).expect("taken");
        machine
            .step(Event::GuestEnded { oom: true })
            .expect("taken");
        assert_eq!(machine.end().0, EndReason::OutOfMemory);
    }

    #[test]
    fn a_command_that_is_over_at_once_is_a_run() {
        let mut machine = Machine::new(None, Duration::from_secs(1));
        machine.step(Event::JobStarted).expect("taken");
        let over = Event::JobEnded {
            main: true,
            oom: false,
            seen: true,
        };
        assert_eq!(machine.step(over), Ok(vec![]));
        assert_eq!(
            machine.step(Event::Booted),
            Ok(vec![Effect::Record(Phase::Running), Effect::Kill])
        );
        assert_eq!(machine.end(), (EndReason::Exited, false));
    }
}
