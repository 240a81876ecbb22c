//! Sizes and times as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::quoted;

/// Why a text is not a size or a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error(
        "{} is not a size: write a number of bytes, or one with k, m, g or t (powers of 1024), such as 512m",
        quoted(.0)
    )]
    Size(String),
    #[error(
        "{} is not a time: write a number of seconds, or parts with ms, s, m, h or d, such as 1h30m",
        quoted(.0)
    )]
    Time(String),
}

/// A number of bytes. Written `512m`, `1.5g`, `4096`; the letters are powers of 1024, and `b`, `ib` after them
/// change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `n` times 1024 times 1024 bytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` times 1024 mebibytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Size(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let digits_end = lower
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(lower.len());
        let (number, unit) = lower.split_at(digits_end);
        let shift = match unit.trim() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(Self).ok_or_else(bad);
        }
        let value = number.parse::<f64>().map_err(|_| bad())?
            * f64::from(1u32 << (shift / 2))
            * f64::from(1u32 << (shift / 2));
        if value.is_finite() && (0.0..9e18).contains(&value) {
            Ok(Self(value as u64))
        } else {
            Err(bad())
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if value.fract() == 0.0 {
            f.pad(&format!("{value:.0} {}", UNITS[unit]))
        } else {
            f.pad(&format!("{value:.1} {}", UNITS[unit]))
        }
    }
}

/// Reads a time: `10` and `10s` are ten seconds, `1h30m`, `250ms`, `0`.
///
/// # Errors
/// [`UnitError::Time`] for anything else, also for more than a hundred years.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let bad = || UnitError::Time(text.to_owned());
    let mut rest = text.trim();
    let seconds = |value: f64| {
        Duration::try_from_secs_f64(value)
            .ok()
            .filter(|d| d.as_secs() < 100 * 366 * 86_400)
            .ok_or_else(bad)
    };
    if let Ok(number) = rest.parse::<f64>() {
        return seconds(number);
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let factor = match &rest[..letters] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(bad()),
        };
        rest = &rest[letters..];
        total = total
            .checked_add(seconds(number * factor)?)
            .ok_or_else(bad)?;
    }
    if text.trim().is_empty() {
        Err(bad())
    } else {
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("512m", 512 << 20),
            ("1.5g", 3 << 29),
            ("4096", 4096),
            ("2KiB", 2048),
            ("1 t", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "m", "-1", "1x", "1e9", "99999999999t", "1.2.3"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
        assert_eq!(ByteSize(3 << 29).to_string(), "1.5 GiB");
    }

    #[test]
    fn times() {
        for (text, ms) in [
            ("10", 10_000),
            ("0", 0),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("0.5", 500),
            ("1m0.5s", 60_500),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for bad in ["", "s", "-1", "1y", "inf", "nan", "1h30", "9e99"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text: String) {
            let _size = text.parse::<ByteSize>();
            let _time = parse_duration(&text);
        }
    }
}
