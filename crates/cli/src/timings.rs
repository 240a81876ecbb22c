//! Where each millisecond went: `--timings`.

use std::time::Instant;

use crate::report;

/// A stop watch with names.
#[derive(Debug)]
pub(crate) struct Clock {
    begin: Instant,
    last: Instant,
    laps: Vec<(String, u64)>,
}

impl Clock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        let begin = Instant::now();
        Self {
            begin,
            last: begin,
            laps: Vec::new(),
        }
    }

    /// What went before is called so.
    pub(crate) fn lap(&mut self, name: &str) {
        let now = Instant::now();
        self.laps.push((name.to_owned(), micros(self.last, now)));
        self.last = now;
    }

    /// Parts of the lap before, as somebody else measured them.
    pub(crate) fn parts(&mut self, parts: &[(String, u64)]) {
        self.laps
            .extend(parts.iter().map(|(name, us)| (format!("  {name}"), *us)));
    }

    /// Says it on standard error.
    pub(crate) fn tell(&self) {
        for (name, us) in &self.laps {
            report::note(&format!("{:>9.3} ms  {name}", *us as f64 / 1000.0));
        }
        let all = micros(self.begin, Instant::now());
        report::note(&format!(
            "{:>9.3} ms  in all, since this program looked at its arguments",
            all as f64 / 1000.0
        ));
    }
}

fn micros(from: Instant, to: Instant) -> u64 {
    u64::try_from((to - from).as_micros()).unwrap_or(u64::MAX)
}
