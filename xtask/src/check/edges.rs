//! Who may use whom: the table in ARCHITECTURE.md against the manifests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::{Result, TaskError};
use crate::repo::{Repo, output};

const FILE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- edges -->";
const END: &str = "<!-- /edges -->";

/// What a package may use, and what its tests may use besides.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Uses {
    always: BTreeSet<String>,
    in_tests: BTreeSet<String>,
}

type Edges = BTreeMap<String, Uses>;

pub(crate) fn check(repo: &Repo) -> Result<()> {
    let wrong = differences(&listed(&repo.read(FILE)?)?, &actual(repo)?);
    for line in &wrong {
        println!("{line}");
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(TaskError::Failed(format!(
            "comparing the crates' edges with {FILE}"
        )))
    }
}

/// Reads the table: a row is `| package | uses | tests also use |`, names in backticks.
fn listed(text: &str) -> Result<Edges> {
    let missing = || TaskError::Format {
        file: FILE,
        what: format!("table between {BEGIN} and {END}"),
    };
    let table = text
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END))
        .ok_or_else(missing)?
        .0;
    let mut edges = Edges::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').collect();
        let [_, package, always, in_tests, ..] = cells[..] else {
            continue;
        };
        if let Some(package) = names(package).into_iter().next() {
            edges.insert(
                package,
                Uses {
                    always: names(always),
                    in_tests: names(in_tests),
                },
            );
        }
    }
    if edges.is_empty() {
        Err(missing())
    } else {
        Ok(edges)
    }
}

fn names(cell: &str) -> BTreeSet<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The edges between packages of this repository, as their manifests have them.
fn actual(repo: &Repo) -> Result<Edges> {
    let mut edges = Edges::new();
    for manifest in ["Cargo.toml", "crates/agent/bin/Cargo.toml"] {
        let mut cargo = repo.cargo([
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--manifest-path",
            manifest,
        ]);
        let metadata: Value =
            serde_json::from_str(&output(&mut cargo)?).map_err(|source| TaskError::Json {
                command: "cargo metadata",
                source,
            })?;
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let uses = edges.entry(text(&package["name"])).or_default();
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                if dependency["path"].is_null() {
                    continue;
                }
                let name = text(&dependency["name"]);
                if dependency["kind"] == "dev" {
                    uses.in_tests.insert(name);
                } else {
                    uses.always.insert(name);
                }
            }
        }
    }
    Ok(edges)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn differences(listed: &Edges, actual: &Edges) -> Vec<String> {
    let mut wrong = Vec::new();
    for (package, uses) in actual {
        let Some(allowed) = listed.get(package) else {
            wrong.push(format!("{package} is not in the table"));
            continue;
        };
        for used in uses.always.difference(&allowed.always) {
            wrong.push(format!(
                "{package} uses {used}, which the table does not allow"
            ));
        }
        for used in &uses.in_tests {
            if !allowed.in_tests.contains(used) && !allowed.always.contains(used) {
                wrong.push(format!(
                    "the tests of {package} use {used}, which the table does not allow"
                ));
            }
        }
        for unused in allowed.always.difference(&uses.always) {
            wrong.push(format!(
                "{package} does not use {unused}, although the table says so"
            ));
        }
        for unused in allowed.in_tests.difference(&uses.in_tests) {
            wrong.push(format!(
                "the tests of {package} do not use {unused}, although the table says so"
            ));
        }
    }
    for package in listed
        .keys()
        .filter(|package| !actual.contains_key(*package))
    {
        wrong.push(format!(
            "{package} is in the table, and there is no such package"
        ));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "<!-- edges -->\n| package | uses | tests also use |\n|---|---|---|\n| `a` | `b`, `c` | `d` |\n\
                         | `b` | | |\n<!-- /edges -->";

    fn edges(rows: &[(&str, &[&str], &[&str])]) -> Edges {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        rows.iter()
            .map(|(package, always, in_tests)| {
                (
                    (*package).to_owned(),
                    Uses {
                        always: set(always),
                        in_tests: set(in_tests),
                    },
                )
            })
            .collect()
    }

    #[test]
    fn the_table_is_read() {
        assert_eq!(
            listed(TABLE).expect("a table"),
            edges(&[("a", &["b", "c"], &["d"]), ("b", &[], &[])])
        );
        assert!(listed("no table").is_err());
    }

    #[test]
    fn an_edge_that_is_not_listed_is_found() {
        let table = listed(TABLE).expect("a table");
        let good = edges(&[("a", &["b", "c"], &["d"]), ("b", &[], &[])]);
        assert!(differences(&table, &good).is_empty());
        let backwards = edges(&[("a", &["b", "c"], &["d"]), ("b", &["a"], &[])]);
        assert_eq!(
            differences(&table, &backwards),
            ["b uses a, which the table does not allow"]
        );
        let test_edge = edges(&[("a", &["b", "c", "d"], &["d"]), ("b", &[], &[])]);
        assert_eq!(
            differences(&table, &test_edge),
            ["a uses d, which the table does not allow"]
        );
        let stale = edges(&[("a", &["b"], &["d"]), ("b", &[], &[])]);
        assert_eq!(
            differences(&table, &stale),
            ["a does not use c, although the table says so"]
        );
    }

    #[test]
    fn this_workspace_has_the_edges_that_are_listed() {
        let repo = Repo::of_this_workspace();
        let table = listed(&repo.read(FILE).expect("the page")).expect("the table");
        assert_eq!(
            differences(&table, &actual(&repo).expect("the manifests")),
            Vec::<String>::new()
        );
    }
}
