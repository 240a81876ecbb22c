//! `cosm completion`

use clap::CommandFactory as _;
use cosm_base::exit;

use crate::args::{Cli, CompletionArgs};
use crate::error::{Result, os};

pub(super) fn run(args: CompletionArgs) -> Result<u8> {
    use std::io::Write as _;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cosm", &mut script);
    std::io::stdout()
        .write_all(&script)
        .map_err(os("writing output"))?;
    Ok(exit::OK)
}
