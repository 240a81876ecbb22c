//! Whole lives of sandboxes. This program is started again as their keeper.

mod bench;
mod disk;
mod ends;
mod faults;
mod jobs;
mod lives;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use bench::Bench;

type Trial = (&'static str, fn(&Bench));

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    match first.as_deref() {
        Some(cosm_keeper::SUBCOMMAND) => return cosm_keeper::main(),
        Some(bench::FAKE) => return cosm_keeper::serve(&cosm_driver::fake::FakeDriver::new()),
        Some(bench::HELPER) => return ends::helper(args),
        _ => {}
    }
    let wanted = first.filter(|arg| !arg.starts_with('-'));
    let mut failed = Vec::new();
    for fake in [false, true] {
        if let (false, Err(why)) = (fake, bench::namespaces_work()) {
            println!("skipped with namespaces: {why}");
            continue;
        }
        let driver = if fake { "fake" } else { "namespaces" };
        let trials = [
            lives::TRIALS,
            ends::TRIALS,
            jobs::TRIALS,
            faults::TRIALS,
            disk::TRIALS,
        ]
        .concat();
        for (name, trial) in trials {
            let name = format!("{driver}/{name}");
            if wanted
                .as_ref()
                .is_none_or(|wanted| name.contains(wanted.as_str()))
                && !run(&name, fake, trial)
            {
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("failed: {}", failed.join(", "));
        ExitCode::FAILURE
    }
}

fn run(name: &str, fake: bool, trial: fn(&Bench)) -> bool {
    let begun = std::time::Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let bench = Bench::new(fake);
        trial(&bench);
        bench.assert_nothing_left();
    }));
    let word = if outcome.is_ok() { "ok" } else { "FAILED" };
    println!("{name} ... {word} ({} ms)", begun.elapsed().as_millis());
    outcome.is_ok()
}
