//! Telling errors and warnings: the one place that prints them.

use std::error::Error as _;
use std::io::Write as _;

use cosm_base::text::printable;

use crate::error::CliError;

const RED: &str = "\u{1b}[1;31m";
const YELLOW: &str = "\u{1b}[1;33m";
const CYAN: &str = "\u{1b}[1;36m";
const RESET: &str = "\u{1b}[0m";

/// Prints an error with its causes, the end of the log where there is one, and what would help.
pub(crate) fn error(error: &CliError) {
    let mut text = format!("{RED}error{RESET}: {}\n", safe(&error.to_string()));
    let mut last = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        // A transparent cause says what was just said.
        if said != last {
            text.push_str(&format!("  caused by: {}\n", safe(&said)));
        }
        last = said;
        source = cause.source();
    }
    if let Some(failure) = error.sdk().and_then(cosm::Error::boot_failure) {
        text.push_str(&format!("  in phase: {}\n", safe(&failure.phase)));
        for line in failure
            .log_tail
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
        {
            text.push_str(&format!("  log: {}\n", printable(line)));
        }
    }
    for hint in error.hints() {
        text.push_str(&hint_line(&hint));
    }
    print(&text);
}

/// Prints a warning.
pub(crate) fn warning(sentence: &str) {
    print(&format!("{YELLOW}warning{RESET}: {}\n", safe(sentence)));
}

/// Prints what would help.
pub(crate) fn hint(sentence: &str) {
    print(&hint_line(sentence));
}

fn hint_line(sentence: &str) -> String {
    format!("{CYAN}hint{RESET}: {}\n", safe(sentence))
}

/// Prints a remark that is not a result.
pub(crate) fn note(sentence: &str) {
    print(&format!("{}\n", safe(sentence)));
}

fn print(text: &str) {
    // Colours are left out where nobody sees them. There is nobody to tell that standard error is closed.
    drop(anstream::stderr().write_all(text.as_bytes()));
}

/// Escapes what a terminal would obey, line by line.
fn safe(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| printable(line.as_bytes()))
        .collect();
    lines.join("\n    ")
}
