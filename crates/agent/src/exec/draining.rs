//! The time between a command's end and the end of its output.

use cosm_proto::agent::{ExitReport, ExitStatus, Usage, UsageSource};
use cosm_sys_guest::{Reaped, Usage as Used, signals};

use crate::clock::Moment;

/// Streams that were empty for this long after the command's end are held by somebody who does not write.
const QUIET_MS: u64 = 100;
/// Nobody's output is waited for longer than this after the command's end, once its own is through.
const LINGER_MS: u64 = 2_000;

/// The command has ended, and what it wrote is still to be sent.
pub(super) struct Draining {
    /// Bytes that were in the streams at its end, and so are its own.
    owed: u64,
    empty_since: Option<Moment>,
    linger_until: Moment,
    leftovers: bool,
    wall_us: u64,
}

impl Draining {
    pub(super) fn begin(begun: Moment, owed: u64, leftovers: bool) -> Self {
        let now = Moment::now();
        let wall_us = now.micros_since(begun);
        Self {
            owed,
            empty_since: None,
            linger_until: now.after_ms(LINGER_MS),
            leftovers,
            wall_us,
        }
    }

    /// So many bytes were read, and whether all streams were seen empty.
    pub(super) fn saw(&mut self, bytes: u64, empty: bool) {
        self.owed = self.owed.saturating_sub(bytes);
        if !empty {
            self.empty_since = None;
        } else if self.empty_since.is_none() {
            self.empty_since = Some(Moment::now());
        }
    }

    /// When to look at the streams again: at once, until they have been seen empty.
    pub(super) fn next_look(&self) -> Moment {
        self.empty_since
            .map_or_else(Moment::now, |since| since.after_ms(QUIET_MS))
    }

    pub(super) fn is_over(&self) -> bool {
        let quiet = self.empty_since.is_some() && self.next_look().has_passed();
        quiet || (self.owed == 0 && self.linger_until.has_passed())
    }

    /// The report; what the handler itself did to it is the caller's to add.
    pub(super) fn report(&self, ended: &Reaped, used: &Used) -> ExitReport {
        let status = match (ended.code, ended.signal) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, signal) => ExitStatus::Signal(signal.unwrap_or(signals::KILL)),
        };
        ExitReport {
            status,
            timed_out: false,
            oom: false,
            leftovers: self.leftovers,
            usage: waited_usage(used, self.wall_us),
        }
    }
}

fn waited_usage(used: &Used, wall_us: u64) -> Usage {
    Usage {
        source: UsageSource::Rusage,
        user_us: Some(used.user_us),
        system_us: Some(used.system_us),
        peak_memory: Some(used.max_resident),
        read_bytes: Some(used.read_bytes),
        write_bytes: Some(used.write_bytes),
        wall_us,
    }
}
