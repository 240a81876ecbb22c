//! What must hold of the code apart from its tests. Everything is tried, and all that failed is named at the end.

mod edges;
mod licences;
mod source;

use crate::error::{Result, TaskError};
use crate::gen_docs;
use crate::repo::{Repo, run};

pub(crate) fn check(repo: &Repo) -> Result<()> {
    let agent = ["--manifest-path", "crates/agent/bin/Cargo.toml"];
    let results = [
        (
            "formatting",
            run(&mut repo.cargo(["fmt", "--all", "--check"])),
        ),
        (
            "formatting of the agent",
            run(repo.cargo(["fmt"]).args(agent).arg("--check")),
        ),
        (
            "formatting of the fuzzers",
            run(repo
                .cargo(["fmt", "--manifest-path", "fuzz/Cargo.toml"])
                .arg("--check")),
        ),
        (
            "clippy",
            run(&mut repo.cargo([
                "clippy",
                "--locked",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])),
        ),
        (
            "documentation",
            run(repo
                .cargo([
                    "doc",
                    "--locked",
                    "--workspace",
                    "--no-deps",
                    "--document-private-items",
                ])
                .env("RUSTDOCFLAGS", "-D warnings")),
        ),
        ("licences", licences::check(repo)),
        ("crate edges", edges::check(repo)),
        ("source rules", source::check(repo)),
        ("generated files", gen_docs::check(repo)),
    ];
    let mut failed = Vec::new();
    println!();
    for (what, result) in results {
        match result {
            Ok(()) => println!("ok      {what}"),
            Err(error) => {
                println!("FAILED  {what}: {error}");
                failed.push(what);
            }
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(TaskError::Failed(failed.join(", ")))
    }
}
