//! The numbers, with peers in the same run: as root and as an ordinary user, into docs/benchmarks.md, and the table
//! of the README.

mod bars;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::error::{Result, TaskError};
use crate::repo::{Repo, run};
use crate::user::{self, Stage};

const PAGE: &str = "docs/benchmarks.md";
const DATA: &str = "docs/benchmarks.json";
const README: &str = "README.md";
const BEGIN: &str = "<!-- bench -->";
const END: &str = "<!-- /bench -->";
const MADE: &str = "Made by `cargo xtask bench` on ";

pub(crate) fn bench(repo: &Repo, quick: bool) -> Result<()> {
    let cosm = repo.cosm()?;
    run(&mut repo.cargo(["build", "--release", "--locked", "-p", "cosm-bench"]))?;
    let program = repo.target().join("release/cosm-bench");
    let mut found = Vec::new();
    if user::is_root() {
        let out = repo.target().join("bench-root.json");
        found.push((
            "root",
            measure(&mut Command::new(&program), &cosm, &out, quick)?,
        ));
        match user::find() {
            Some(user) => {
                let stage = Stage::new(user)?;
                let cosm = stage.program(&cosm)?;
                let mut command = stage.command(&stage.program(&program)?);
                found.push((
                    "user",
                    measure(&mut command, &cosm, &stage.home().join("out.json"), quick)?,
                ));
            }
            None => println!(
                "skipped: an ordinary user's numbers, because there is no test user; `cargo xtask setup` makes it"
            ),
        }
    } else {
        println!("skipped: root's numbers, because this is not root");
        let out = repo.target().join("bench-user.json");
        found.push((
            "user",
            measure(&mut Command::new(&program), &cosm, &out, quick)?,
        ));
    }
    let tables = tables(&found);
    println!("\n{tables}");
    if quick {
        println!("a quick run is not written down");
        return Ok(());
    }
    let machine = machine();
    let data: Value = found
        .iter()
        .map(|(who, value)| ((*who).to_owned(), value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    repo.write(DATA, &format!("{data:#}\n"))?;
    repo.write(
        PAGE,
        &format!("# Numbers\n\n{MADE}{machine}. {PLACE}\n\n{tables}"),
    )?;
    let readme = repo.read(README)?;
    repo.write(README, &with_section(&readme, &summary(&found, &machine))?)
}

/// Where cosm has its files in the trials.
const PLACE: &str = "What cosm keeps lies on the disk under `/tmp`; its\nsockets, and what it knows of sandboxes that pass, lie in memory, as `XDG_RUNTIME_DIR` does after every login.";

/// Writes the README's table anew of the numbers that are there.
pub(crate) fn table(repo: &Repo) -> Result<()> {
    let readme = repo.read(README)?;
    repo.write(README, &with_section(&readme, &table_of_data(repo)?)?)
}

fn table_of_data(repo: &Repo) -> Result<String> {
    let data: Value =
        serde_json::from_str(&repo.read(DATA)?).map_err(|source| TaskError::Json {
            command: "cosm-bench",
            source,
        })?;
    let page = repo.read(PAGE)?;
    let machine = page
        .lines()
        .find_map(|line| line.strip_prefix(MADE)?.strip_suffix('.'))
        .ok_or_else(|| TaskError::Format {
            file: PAGE,
            what: format!("line {MADE:?}"),
        })?;
    let found: Vec<(&str, Value)> = ["root", "user"]
        .into_iter()
        .filter_map(|who| Some((who, data.get(who)?.clone())))
        .collect();
    Ok(summary(&found, machine))
}

fn measure(command: &mut Command, cosm: &Path, out: &Path, quick: bool) -> Result<Value> {
    command.arg("--cosm").arg(cosm).arg("--out").arg(out);
    if quick {
        command.arg("--quick");
    }
    run(command)?;
    let text = std::fs::read(out).map_err(TaskError::file(out))?;
    serde_json::from_slice(&text).map_err(|source| TaskError::Json {
        command: "cosm-bench",
        source,
    })
}

fn machine() -> String {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("an unnamed processor", |(_, name)| name.trim())
        .to_owned();
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Of the release what makes a difference: not the patch, nor whose build it is.
    let kernel = release.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    format!("{count} x {name}, Linux {}", kernel.trim())
}

/// Milliseconds with as many digits as mean something.
fn ms(us: &Value) -> String {
    let ms = us.as_f64().unwrap_or_default() / 1e3;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list<'a>(found: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    found[name].as_array().into_iter().flatten()
}

fn tables(found: &[(&str, Value)]) -> String {
    let mut page = String::new();
    for (who, value) in found {
        page.push_str(&format!(
            "## As {who}\n\nMilliseconds; `idle` has 50 ms of nothing before each iteration.\n\n"
        ));
        page.push_str("| what | by | pace | n | p50 | p99 |\n|---|---|---|---|---|---|\n");
        for row in list(value, "times") {
            page.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} |\n",
                text(&row["row"]),
                text(&row["subject"]),
                text(&row["pace"]),
                row["count"],
                ms(&row["p50_us"]),
                ms(&row["p99_us"])
            ));
        }
        page.push_str("\n| what | | |\n|---|---|---|\n");
        for fact in list(value, "facts") {
            let number = fact["value"].as_f64().unwrap_or_default();
            page.push_str(&format!(
                "| {} | {} | {number:.2} {} |\n",
                text(&fact["row"]),
                text(&fact["subject"]),
                text(&fact["unit"])
            ));
        }
        page.push('\n');
        for note in list(value, "notes") {
            page.push_str(&format!("```text\n{}\n```\n\n", text(note)));
        }
    }
    page
}

/// One line of the README's table.
struct Line {
    what: &'static str,
    /// `what` and `by` of the table of times.
    times: &'static [(&'static str, &'static str)],
    /// What the numbers have to come to.
    bar: &'static str,
    /// `what` and the second column of the table of facts.
    facts: &'static [(&'static str, &'static str)],
}

const LINES: &[Line] = &[
    Line {
        what: "`run true`, whole process",
        bar: bars::TRUE,
        times: &[
            ("run true, whole process", "cosm run, no limits"),
            ("run true, whole process", "cosm run"),
            ("run true, whole process", "bwrap"),
            ("run true, whole process", "runc run"),
            ("run true, whole process", "docker run"),
            ("one move between cgroups", "kernel"),
        ],
        facts: &[],
    },
    Line {
        what: "create + exec true + remove, library",
        bar: bars::CREATE,
        times: &[
            ("create, exec true, remove", "library, no limits"),
            ("create, exec true, remove", "library"),
        ],
        facts: &[],
    },
    Line {
        what: "exec of `true` in a running sandbox",
        bar: bars::EXEC,
        times: &[
            ("exec true", "library"),
            ("exec true, whole process", "cosm exec"),
            ("exec true, whole process", "docker exec"),
        ],
        facts: &[],
    },
    Line {
        what: "64 creates at once",
        bar: bars::CREATES,
        times: &[("a lone create", "library")],
        facts: &[
            ("64 creates at once", "all"),
            ("64 creates at once", "of a lone create"),
        ],
    },
    Line {
        what: "500 idle sandboxes",
        bar: bars::IDLE,
        times: &[],
        facts: &[
            ("500 idle sandboxes", "alive"),
            ("500 idle sandboxes", "PSS of each, keeper and agent"),
            ("500 idle sandboxes", "MemAvailable less, each"),
            ("500 idle sandboxes", "slab more, each"),
        ],
    },
    Line {
        what: "`cat` of 1 GiB through exec",
        bar: bars::CAT,
        times: &[],
        facts: &[
            ("cat of 1 GiB", "cosm exec"),
            ("cat of 1 GiB", "plain pipe"),
            ("cat of 1 GiB", "client's peak memory"),
            ("cat of 1 GiB", "keeper's peak memory"),
        ],
    },
    Line {
        what: "`cosm ls` with 500 sandboxes",
        bar: bars::LIST,
        times: &[("cosm ls with 500", "cosm ls")],
        facts: &[],
    },
];

/// The README's table: idle where there is a pace.
fn summary(found: &[(&str, Value)], machine: &str) -> String {
    let free_birth = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let mut page = format!(
        "Made by `cargo xtask bench` on {machine}. Times are milliseconds, median / p99, with 50 ms of idle between\niterations where there are any; all of it, tight loops too, is in [docs/benchmarks.md](docs/benchmarks.md). What misses\nits bar says so.\n\n| | bar |",
    );
    for (who, _) in found {
        page.push_str(&format!(" as {who} |"));
    }
    page.push_str(&format!("\n|---|---|{}\n", "---|".repeat(found.len())));
    for line in LINES {
        page.push_str(&format!("| {} | {} |", line.what, line.bar));
        for (_, value) in found {
            page.push_str(&format!(" {} |", cell(line, value, free_birth)));
        }
        page.push('\n');
    }
    page
}

fn cell(line: &Line, value: &Value, free_birth: bool) -> String {
    let mark = |what, by| match bars::missed(value, what, by, free_birth) {
        Some(true) => " **missed**",
        _ => "",
    };
    let times = line.times.iter().filter_map(|(what, by)| {
        let row = bars::time(value, what, by)?;
        let label = if *by == "kernel" { what } else { by };
        let (median, most) = (ms(&row["p50_us"]), ms(&row["p99_us"]));
        Some(format!("{label} {median} / {most}{}", mark(what, by)))
    });
    let facts = line.facts.iter().filter_map(|(what, about)| {
        let fact =
            list(value, "facts").find(|fact| fact["row"] == *what && fact["subject"] == *about)?;
        let number = fact["value"].as_f64().unwrap_or_default();
        let told = format!("{about} {number:.1} {}", text(&fact["unit"]));
        Some(format!("{}{}", told.trim_end(), mark(what, about)))
    });
    let parts: Vec<String> = times.chain(facts).collect();
    if parts.is_empty() {
        "not measured".to_owned()
    } else {
        parts.join("<br>")
    }
}

/// A page with what stands between the marks replaced.
fn with_section(page: &str, section: &str) -> Result<String> {
    let parts = page
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        return Err(TaskError::Format {
            file: README,
            what: format!("section between {BEGIN} and {END}"),
        });
    };
    Ok(format!("{before}{BEGIN}\n{section}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_rest_kept() {
        let page = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n";
        assert_eq!(
            with_section(page, "new\n").expect("marks"),
            "a\n<!-- bench -->\nnew\n<!-- /bench -->\nb\n"
        );
        assert!(with_section("no marks", "new").is_err());
    }

    #[test]
    fn the_idle_pace_is_the_one_that_is_told() {
        let row = |pace: &str, us: u32| json!({"row": "exec true", "subject": "library", "pace": pace, "count": 1, "p50_us": us, "p99_us": us});
        let found = [(
            "root",
            json!({"times": [row("tight", 1000), row("idle", 2000)], "facts": [], "notes": []}),
        )];
        let table = summary(&found, "a machine");
        assert!(table.contains("library 2.00 / 2.00"), "{table}");
        assert!(!table.contains("1.00"), "{table}");
    }

    #[test]
    fn what_misses_its_bar_says_so() {
        let row = |us: u32| {
            let times = [
                json!({"row": "exec true", "subject": "library", "pace": "idle", "count": 1, "p50_us": us, "p99_us": us}),
            ];
            summary(
                &[("root", json!({"times": times, "facts": [], "notes": []}))],
                "a machine",
            )
        };
        assert!(
            row(2001).contains("library 2.00 / 2.00 **missed**"),
            "{}",
            row(2001)
        );
        assert!(!row(1999).contains("**missed**"), "{}", row(1999));
    }
}
