//! `cosm wait`

use cosm::EndReason;
use cosm_base::exit;

use super::ls::end_json;
use crate::args::WaitArgs;
use crate::error::Result;
use crate::output;

pub(super) fn run(args: WaitArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(async {
        let sandbox = host.get(&args.name).await?;
        let end = sandbox.wait().await?;
        if let (EndReason::KeeperLost, Some(crash)) = (end.reason, sandbox.crash().await) {
            return Err(crash.into());
        }
        if args.format.json {
            output::json(&end_json(&end))?;
        }
        Ok(end.status.map_or(exit::OK, super::code_of_status))
    })
}
