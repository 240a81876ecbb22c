//! Patience: how long is waited before a request is made again.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ureq::http::HeaderMap;

use super::config::{RegistryConfig, Timeouts};
use crate::cancel::{Cancel, Cancelled};

/// How often a wait looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// What is left of the patience with one request, or with one blob.
#[derive(Debug)]
pub(crate) struct Patience {
    retries: u32,
    left: u32,
    backoff: Duration,
    /// What the other side may still make this one wait.
    retry_after: Duration,
}

impl Patience {
    pub(crate) fn new(config: &RegistryConfig, retries: u32) -> Self {
        Self {
            retries,
            left: retries,
            backoff: config.timeouts.backoff,
            retry_after: config.timeouts.retry_after,
        }
    }

    /// All of it again, after something worked. What the other side asked to wait stays counted.
    pub(crate) fn refill(&mut self) {
        self.left = self.retries;
    }

    /// Waits before one more attempt: as long as the other side asked for, or else longer each time. `false` when there
    /// is to be none.
    pub(crate) fn wait(
        &mut self,
        asked: Option<Duration>,
        cancel: &Cancel,
    ) -> Result<bool, Cancelled> {
        cancel.check()?;
        if self.left == 0 {
            return Ok(false);
        }
        let pause = match asked {
            Some(asked) => match self.retry_after.checked_sub(asked) {
                Some(rest) => {
                    self.retry_after = rest;
                    asked
                }
                None => return Ok(false),
            },
            None => {
                let done = self.retries - self.left;
                let pause = self.backoff.saturating_mul(1 << done.min(16));
                jitter(pause.min(Timeouts::MAX_BACKOFF))
            }
        };
        self.left -= 1;
        sleep(pause, cancel)?;
        Ok(true)
    }
}

/// Between three quarters of a pause and all of it, so that many clients do not come back at once.
fn jitter(pause: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let part = now.map_or(0, |now| now.subsec_micros() % 256);
    pause.mul_f64(0.75 + f64::from(part) / 1024.0)
}

fn sleep(pause: Duration, cancel: &Cancel) -> Result<(), Cancelled> {
    let end = Instant::now() + pause;
    loop {
        cancel.check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// `Retry-After` in seconds. The other form, a date, would need both clocks to agree and is sent by no registry known.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience() -> Patience {
        Patience {
            retries: 3,
            left: 3,
            backoff: Duration::ZERO,
            retry_after: Duration::from_millis(100),
        }
    }

    #[test]
    fn patience_ends() {
        let cancel = Cancel::default();
        let mut patience = patience();
        for _ in 0..3 {
            assert_eq!(patience.wait(None, &cancel), Ok(true));
        }
        assert_eq!(patience.wait(None, &cancel), Ok(false));
        patience.refill();
        assert_eq!(patience.wait(None, &cancel), Ok(true));
    }

    #[test]
    fn nobody_makes_us_wait_for_ever() {
        let cancel = Cancel::default();
        let mut patience = patience();
        let asked = |ms| Some(Duration::from_millis(ms));
        assert_eq!(patience.wait(asked(60), &cancel), Ok(true));
        patience.refill();
        assert_eq!(patience.wait(asked(60), &cancel), Ok(false));
        assert_eq!(patience.wait(Some(Duration::MAX), &cancel), Ok(false));
        assert_eq!(patience.wait(asked(40), &cancel), Ok(true));
    }

    #[test]
    fn a_wait_ends_when_it_is_no_longer_wanted() {
        let cancel = Cancel::default();
        cancel.cancel();
        let mut patience = patience();
        assert_eq!(patience.wait(None, &cancel), Err(Cancelled));
    }
}
