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

use std::process::ExitCode;

use clap::Parser as _;
use cosm_base::exit;

pub use reference::reference;

/// The hidden subcommand that makes this program a sandbox's keeper.
const KEEPER: &str = "__keeper";

/// The whole program.
pub fn main() -> ExitCode {
    // A keeper is started for each sandbox: nothing else is done first.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == KEEPER) {
        return cosm_keeper::main();
    }
    let clock = timings::Clock::start();
    match args::Cli::try_parse() {
        Ok(cli) => ExitCode::from(dispatch(cli.command, clock)),
        Err(error) => ExitCode::from(usage(&error)),
    }
}

fn usage(error: &clap::Error) -> u8 {
    // There is nobody to tell that the output is closed.
    drop(error.print());
    if error.use_stderr() {
        exit::COSM_FAILED
    } else {
        exit::OK
    }
}

fn dispatch(command: args::Command, clock: timings::Clock) -> u8 {
    match commands::run(command, clock) {
        Ok(code) => code,
        Err(error) if error.is_broken_pipe() => exit::of_signal(13),
        Err(error) => {
            report::error(&error);
            error.exit_code()
        }
    }
}
