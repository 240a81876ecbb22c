//! Showing results: JSON with documented keys, and tables for people.

use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use cosm_base::text::printable;
use serde_json::Value;

use crate::error::{Result, os};

/// Writes to standard output.
///
/// # Errors
/// Nobody reads it, or the disk is full.
pub(crate) fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(os("writing output"))
}

/// Writes a line.
///
/// # Errors
/// As [`text`].
pub(crate) fn line(line: &str) -> Result<()> {
    text(&format!("{line}\n"))
}

/// Writes JSON, indented.
///
/// # Errors
/// As [`text`].
pub(crate) fn json(value: &Value) -> Result<()> {
    line(&format!("{value:#}"))
}

/// Columns that line up.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Begins with the columns' names.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&name| name.to_owned()).collect()],
        }
    }

    /// Adds a row; what a terminal would obey is escaped.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|cell| printable(cell.as_bytes()))
                .collect(),
        );
    }

    /// The table as text.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column| self.rows.iter().filter_map(move |row| row.get(column));
        let width = |column| {
            cells(column)
                .map(|cell: &String| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect();
        let mut out = String::new();
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            out.push('\n');
        }
        out
    }
}

/// Now, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}

/// How long ago that was, in one unit.
pub(crate) fn ago(time_ms: u64) -> String {
    let seconds = now_ms().saturating_sub(time_ms) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A time as RFC 3339 in UTC, with milliseconds.
pub(crate) fn time(time_ms: u64) -> String {
    let (days, ms) = (time_ms / 86_400_000, time_ms % 86_400_000);
    let (year, month, day) = civil(days.cast_signed());
    let (s, ms) = (ms / 1000, ms % 1000);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        s / 3600,
        s / 60 % 60,
        s % 60
    )
}

/// A day after 1970-01-01 as year, month and day (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(time(1_767_225_599_999), "2025-12-31T23:59:59.999Z");
    }

    #[test]
    fn columns_line_up_and_obey_nobody() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["a\u{1b}[2J".to_owned(), "x".to_owned()]);
        assert_eq!(table.render(), "NAME        STATE\na\\u{1b}[2J  x\n");
    }
}
