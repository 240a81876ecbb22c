//! The project's task runner: `cargo xtask conformance --v2`.

mod proof;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let proved = proof::Ground::of_this_workspace().and_then(|ground| match words[..] {
        ["conformance", "--v2"] => proof::vm(&ground),
        _ => Err(proof::ProofError::Host(
            "usage: cargo xtask conformance --v2",
        )),
    });
    match proved {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
