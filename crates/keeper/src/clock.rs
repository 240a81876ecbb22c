//! Times.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, for people and logs. Nothing is decided by it: it jumps when somebody sets the clock.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// Where the time goes: named parts, one after the other.
#[derive(Debug)]
pub(crate) struct Timings {
    last: Instant,
    parts: Vec<(String, u64)>,
}

impl Timings {
    pub(crate) fn start() -> Self {
        Self {
            last: Instant::now(),
            parts: Vec::with_capacity(16),
        }
    }

    /// Ends the part with this name.
    pub(crate) fn mark(&mut self, name: &str) {
        let now = Instant::now();
        self.parts
            .push((name.to_owned(), micros(now.duration_since(self.last))));
        self.last = now;
    }

    /// Takes the time since the last mark apart: what is told is part of it, the rest is the caller's.
    pub(crate) fn mark_with(&mut self, name: &str, told: &[(String, u64)]) {
        let now = Instant::now();
        let all = micros(now.duration_since(self.last));
        let known: u64 = told.iter().map(|(_, time)| *time).sum();
        self.parts.extend(
            told.iter()
                .map(|(part, time)| (format!("{name}: {part}"), *time)),
        );
        self.parts
            .push((name.to_owned(), all.saturating_sub(known)));
        self.last = now;
    }

    pub(crate) fn parts(&self) -> Vec<(String, u64)> {
        self.parts.clone()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
