//! `cosm attach`

use cosm_base::exit;

use crate::args::AttachArgs;
use crate::error::Result;
use crate::report;
use crate::stdio::{self, Outcome, terminal, view};

pub(super) fn run(args: AttachArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(async {
        let sandbox = host.get(&args.name).await?;
        let jobs = sandbox.jobs();
        let replay = !args.no_replay;
        let has_tty = jobs
            .list()
            .await?
            .iter()
            .any(|job| job.id == args.job && job.tty);
        let outcome = if has_tty && stdio::at_terminal() {
            terminal::attach(&jobs, &args.job, &args.detach_keys, replay).await
        } else {
            view::attach(&jobs, &args.job, replay).await
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Err(super::explained(&sandbox, error).await),
        };
        Ok(match outcome {
            Outcome::Ended(status) => super::code_of(&status),
            Outcome::Interrupted(signal) => exit::of_signal(signal),
            Outcome::Detached => {
                report::note(&format!(
                    "detached; job {} of {} goes on",
                    args.job, args.name
                ));
                exit::OK
            }
        })
    })
}
