//! The cosm program: arguments become settings, settings become a command, a command uses the library.

mod args;
mod commands;
mod conf;
mod detach;
mod env_file;
mod environment;
mod error;
mod hints;
mod output;
mod reference;
mod report;
mod settings;
mod stdio;
mod timings;

use std::ffi::OsString;
use std::process::ExitCode;

use cosm::SpareKeeper;
use cosm_base::exit;

pub use reference::reference;

/// The hidden subcommand that makes this program a sandbox's keeper.
const KEEPER: &str = "__keeper";

/// The whole program.
pub fn main() -> ExitCode {
    let first = std::env::args_os().nth(1);
    // A keeper is started for each sandbox: nothing else is done first.
    if first.as_ref().is_some_and(|arg| arg == KEEPER) {
        return cosm_keeper::main();
    }
    let clock = timings::Clock::start();
    let spare = match first.is_some_and(|arg| arg == "run") {
        true => spare(),
        false => None,
    };
    match args::Cli::read(std::env::args_os().collect()) {
        Ok(command) => ExitCode::from(dispatch(command, spare, clock)),
        Err(error) => ExitCode::from(usage(&error, std::env::args_os())),
    }
}

/// A keeper made while the arguments are still being read. Without one the program is started as a keeper later.
fn spare() -> Option<SpareKeeper> {
    let ready = || {
        let keeper = cosm_keeper::ReadyKeeper::new();
        move || {
            // Its end is told by its events.
            let _code: ExitCode = keeper.serve();
        }
    };
    SpareKeeper::fork(ready).ok().flatten()
}

fn usage(error: &clap::Error, words: impl Iterator<Item = OsString>) -> u8 {
    // There is nobody to tell that the output is closed.
    drop(error.print());
    if let Some(hint) = hints::for_usage(error.kind(), words) {
        report::hint(hint);
    }
    if error.use_stderr() {
        exit::COSM_FAILED
    } else {
        exit::OK
    }
}

fn dispatch(command: args::Command, spare: Option<SpareKeeper>, clock: timings::Clock) -> u8 {
    match commands::run(command, spare, clock) {
        Ok(code) => code,
        Err(error) if error.is_broken_pipe() => exit::of_signal(13),
        Err(error @ error::CliError::Told(_)) => error.exit_code(),
        Err(error) => {
            report::error(&error);
            error.exit_code()
        }
    }
}
