//! `cosm exec`

use cosm_base::exit;

use crate::args::ExecArgs;
use crate::error::Result;
use crate::stdio::signals::Asked;
use crate::stdio::{self, Outcome, Stdio};
use crate::{output, settings};

pub(super) fn run(args: ExecArgs) -> Result<u8> {
    let argv: Vec<cosm::ByteString> = args.command.into_iter().map(Into::into).collect();
    let options = settings::exec_options(argv.clone(), args.process, args.timeout)?;
    let stdio = Stdio::from(args.stdio);
    let host = super::host()?;
    super::wait_for(async {
        let sandbox = host.get(&args.name).await?;
        if args.detach {
            let options = if stdio.interactive {
                options.stdin_pipe()
            } else {
                options
            };
            let job = sandbox.jobs().start(None, &options.tty(stdio.tty)).await?;
            output::line(&job.id)?;
            return Ok(exit::OK);
        }
        let mut asked = Asked::new()?;
        let outcome = stdio::foreground(&sandbox, options, &stdio, &mut asked).await;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Err(super::explained(&sandbox, error).await),
        };
        Ok(match outcome {
            Outcome::Ended(status) => super::code_in(&sandbox, &status).await,
            Outcome::Interrupted(signal) => exit::of_signal(signal),
            Outcome::Detached => exit::OK,
        })
    })
}
