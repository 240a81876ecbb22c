//! Samples, and what is told of them.

use std::time::Duration;

use serde_json::{Value, json};

/// Whether iterations follow each other at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Tight,
    /// 50 ms of nothing before each: what an RCU grace period costs is hidden in a tight loop.
    Idle,
}

impl Pace {
    pub(crate) const BOTH: [Self; 2] = [Self::Tight, Self::Idle];

    pub(crate) fn wait(self) {
        if self == Self::Idle {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tight => "tight",
            Self::Idle => "idle",
        }
    }
}

/// How long something took, again and again.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value below which this part of the samples lies (nearest rank).
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted
            .get(rank.clamp(1, sorted.len().max(1)) - 1)
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }
}

/// All that was found.
#[derive(Debug)]
pub(crate) struct Findings {
    times: Vec<Value>,
    facts: Vec<Value>,
    notes: Vec<String>,
}

impl Findings {
    pub(crate) fn new() -> Self {
        Self {
            times: Vec::new(),
            facts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Times of one thing, by one program.
    pub(crate) fn times(&mut self, row: &str, subject: &str, pace: Pace, samples: &Samples) {
        let (p50, p99) = (samples.median(), samples.quantile(0.99));
        eprintln!(
            "{row}, {subject}, {}: p50 {p50:?}, p99 {p99:?}, n {}",
            pace.name(),
            samples.len()
        );
        self.times.push(json!({
            "row": row,
            "subject": subject,
            "pace": pace.name(),
            "count": samples.len(),
            "p50_us": p50.as_secs_f64() * 1e6,
            "p99_us": p99.as_secs_f64() * 1e6,
        }));
    }

    /// One number.
    pub(crate) fn fact(&mut self, row: &str, subject: &str, value: f64, unit: &str) {
        eprintln!("{row}, {subject}: {value:.3} {unit}");
        self.facts
            .push(json!({ "row": row, "subject": subject, "value": value, "unit": unit }));
    }

    /// Something that could not be had, and why.
    pub(crate) fn note(&mut self, text: String) {
        eprintln!("note: {text}");
        self.notes.push(text);
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "times": self.times, "facts": self.facts, "notes": self.notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let mut samples = Samples::default();
        assert_eq!(samples.median(), Duration::ZERO);
        for ms in (1..=100).rev() {
            samples.add(Duration::from_millis(ms));
        }
        assert_eq!(samples.median(), Duration::from_millis(50));
        assert_eq!(samples.quantile(0.99), Duration::from_millis(99));
        assert_eq!(samples.quantile(1.0), Duration::from_millis(100));
    }
}
