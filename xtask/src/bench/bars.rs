//! What the numbers have to come to, and whether they do. The bars are for the idle pace.

use serde_json::Value;

/// A bar in words, for a line of the README's table.
pub(super) const TRUE: &str = "at most 1.5 x bwrap and 0.5 x runc; with limits one move more";
pub(super) const CREATE: &str = "no limits: 10 / 40";
pub(super) const EXEC: &str = "library: 2 (median)";
pub(super) const CREATES: &str = "40 x a lone create";
pub(super) const IDLE: &str = "all alive; PSS 4 MiB";
pub(super) const CAT: &str = "half of a plain pipe";
pub(super) const LIST: &str = "50 (median)";

/// Whether a number misses its bar; `None` where it has none, or what it is measured against was not measured.
///
/// `free_birth` says that a process can be born in its group, so that nothing has to be moved.
pub(super) fn missed(found: &Value, row: &str, subject: &str, free_birth: bool) -> Option<bool> {
    const RUN: &str = "run true, whole process";
    let ms = |row, subject, which| {
        time(found, row, subject)?[which]
            .as_f64()
            .map(|us| us / 1e3)
    };
    let median = |row, subject| ms(row, subject, "p50_us");
    let own = || median(row, subject);
    Some(match (row, subject) {
        (RUN, "cosm run" | "cosm run, no limits") => {
            let moved = match (subject, free_birth) {
                ("cosm run", false) => median("one move between cgroups", "kernel").unwrap_or(0.0),
                _ => 0.0,
            };
            let over_runc = median(RUN, "runc run").is_some_and(|runc| own() > Some(0.5 * runc));
            own()? > 1.5 * median(RUN, "bwrap")? + moved || over_runc
        }
        ("create, exec true, remove", "library, no limits") => {
            own()? > 10.0 || ms(row, subject, "p99_us")? > 40.0
        }
        ("exec true", "library") => own()? > 2.0,
        ("64 creates at once", "of a lone create") => fact(found, row, subject)? > 40.0,
        ("500 idle sandboxes", "alive") => fact(found, row, subject)? < 500.0,
        ("500 idle sandboxes", "PSS of each, keeper and agent") => fact(found, row, subject)? > 4.0,
        ("cat of 1 GiB", "cosm exec") => {
            fact(found, row, subject)? < 0.5 * fact(found, row, "plain pipe")?
        }
        ("cosm ls with 500", "cosm ls") => own()? > 50.0,
        _ => return None,
    })
}

/// The times of a row: idle where there is a pace.
pub(super) fn time<'a>(found: &'a Value, row: &str, subject: &str) -> Option<&'a Value> {
    let rows = found["times"].as_array()?;
    let mut rows = rows
        .iter()
        .filter(|time| time["row"] == row && time["subject"] == subject);
    let first = rows.next()?;
    if first["pace"] == "idle" {
        return Some(first);
    }
    rows.find(|time| time["pace"] == "idle").or(Some(first))
}

/// The number of a fact.
pub(super) fn fact(found: &Value, row: &str, subject: &str) -> Option<f64> {
    let facts = found["facts"].as_array()?;
    let fact = facts
        .iter()
        .find(|fact| fact["row"] == row && fact["subject"] == subject)?;
    fact["value"].as_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RUN: &str = "run true, whole process";

    fn found(cosm: f64, bwrap: f64, runc: f64) -> Value {
        let row = |row: &str, subject: &str, ms: f64| json!({"row": row, "subject": subject, "pace": "idle", "p50_us": ms * 1e3, "p99_us": ms * 1e3});
        json!({"times": [
            row(RUN, "cosm run", cosm), row(RUN, "cosm run, no limits", cosm), row(RUN, "bwrap", bwrap),
            row(RUN, "runc run", runc), row("one move between cgroups", "kernel", 5.0),
        ], "facts": [
            {"row": "64 creates at once", "subject": "of a lone create", "value": 40.0},
            {"row": "cat of 1 GiB", "subject": "cosm exec", "value": 1.0},
            {"row": "cat of 1 GiB", "subject": "plain pipe", "value": 2.1},
        ]})
    }

    #[test]
    fn a_run_is_measured_against_its_peers() {
        let of = |cosm, bwrap, runc, subject, free| {
            missed(&found(cosm, bwrap, runc), RUN, subject, free).expect("a bar")
        };
        assert!(!of(9.0, 6.0, 100.0, "cosm run, no limits", false));
        assert!(of(9.1, 6.0, 100.0, "cosm run, no limits", false));
        assert!(!of(14.0, 6.0, 100.0, "cosm run", false), "one move more");
        assert!(of(14.0, 6.0, 100.0, "cosm run", true), "nothing is moved");
        assert!(of(9.0, 6.0, 17.0, "cosm run", false), "over half of runc");
    }

    #[test]
    fn facts_have_bars_too() {
        let found = found(1.0, 1.0, 9.0);
        let missed = |row, subject| missed(&found, row, subject, false);
        assert_eq!(
            missed("64 creates at once", "of a lone create"),
            Some(false)
        );
        assert_eq!(missed("cat of 1 GiB", "cosm exec"), Some(true));
        assert_eq!(missed("cat of 1 GiB", "plain pipe"), None, "a peer");
        assert_eq!(missed("exec true", "library"), None, "not measured");
    }
}
