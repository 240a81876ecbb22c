//! The attacks: `cargo test -p cosm-attacks -- kill::` runs those of one group.

#![forbid(unsafe_code)]

mod cases;

fn main() -> std::process::ExitCode {
    cosm_attacks::main(&cases::all())
}
