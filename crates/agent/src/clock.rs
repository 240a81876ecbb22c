//! Time that never jumps.

use rustix::event::Timespec;
use rustix::time::{ClockId, clock_gettime};

/// A moment, in nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        Self(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    pub(crate) const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    pub(crate) const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }

    pub(crate) fn has_passed(self) -> bool {
        Self::now() >= self
    }
}

/// How long `poll` may wait for the earliest of these moments; `None` is for ever.
pub(crate) fn until(moments: &[Option<Moment>]) -> Option<Timespec> {
    let first = moments.iter().flatten().min()?;
    let left = first.0.saturating_sub(Moment::now().0);
    Some(Timespec {
        tv_sec: (left / 1_000_000_000) as i64,
        tv_nsec: (left % 1_000_000_000) as i64,
    })
}
