//! The project's task runner: `cargo xtask`.

mod aarch64;
mod bench;
mod check;
mod conformance;
mod error;
mod fuzz;
mod gen_docs;
mod proof;
mod repo;
mod setup;
mod test;
mod user;

use std::error::Error as _;
use std::process::ExitCode;

use error::TaskError;
use repo::Repo;

const USAGE: &str = "usage: cargo xtask TASK

  setup                install what the tests use (Debian, as root), and make the user that they run as
  check                formatting, lints, documentation, licences, crate edges, generated files
  test                 all tests, as this user; as root once more as an ordinary user with an empty home
  conformance          the driver's suite; the same trials on bwrap and runc; then all of the below
    --v2               on a host with cgroup v2 and systemd, booted in QEMU
    --no-libc          built where there is no libc.a
    --container        inside a Docker container
    --aarch64          linted and linked for the other processor, whose agent answers under emulation
  fuzz [--seconds N] [TARGET]
                       what reads foreign bytes, fed by libFuzzer; a minute for each target, or N seconds
  bench [--quick]      the table of numbers, with peers, into docs/benchmarks.md and README.md
    --table            writes README.md's table again, of the numbers that are there
  gen [--check]        write the generated files in docs/, or fail if they are not current";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let repo = Repo::of_this_workspace();
    let result = match words[..] {
        ["setup"] => setup::setup(),
        ["check"] => check::check(&repo),
        ["test"] => test::test(&repo),
        ["conformance", ref proofs @ ..] => conformance::conformance(&repo, proofs),
        ["fuzz", ref words @ ..] => fuzz::fuzz(&repo, words),
        ["bench"] => bench::bench(&repo, false),
        ["bench", "--table"] => bench::table(&repo),
        ["bench", "--quick"] => bench::bench(&repo, true),
        ["gen"] => gen_docs::write(&repo),
        ["gen", "--check"] => gen_docs::check(&repo),
        _ => Err(TaskError::Usage(USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}
