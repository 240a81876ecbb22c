//! `cosm create`

use cosm::spec::Lifetime;
use cosm_base::exit;
use serde_json::json;

use crate::args::CreateArgs;
use crate::error::Result;
use crate::output;
use crate::settings::{self, Settings};
use crate::stdio::signals::Asked;

pub(super) fn run(args: CreateArgs) -> Result<u8> {
    let settings = settings::resolve(args.sandbox, args.image, args.command, None)?;
    let Settings {
        mut spec,
        command,
        replace,
        timeout,
    } = settings;
    spec.lifetime = Lifetime::Persistent;
    spec.remove_on_exit = args.rm;
    spec.tty = args.tty;
    spec.command = Some(command).filter(|command| !command.is_empty());
    spec.timeouts.max_duration = spec.timeouts.max_duration.or(timeout);
    let host = super::host()?;
    super::wait_for(async {
        let mut asked = Asked::new()?;
        let sandbox = asked.unless_told(&host, host.create(spec, replace)).await?;
        let ready = sandbox.ready_report();
        if args.format.json {
            output::json(&json!({
                "name": sandbox.name(),
                "id": sandbox.id().to_string(),
                "notes": ready.notes,
            }))?;
        } else {
            output::line(sandbox.name())?;
        }
        Ok(exit::OK)
    })
}
