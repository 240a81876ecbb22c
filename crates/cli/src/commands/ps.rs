//! `cosm ps`, also named `status`

use cosm::{Filter, Host, SandboxHandle, SandboxStatus};
use cosm_base::exit;
use serde_json::{Value, json};

use super::ls::{state_text, summary_json};
use crate::args::PsArgs;
use crate::error::Result;
use crate::output::{self, Table};

pub(super) fn run(args: PsArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(async {
        let handles = handles(&host, args.names).await?;
        let mut table = Table::new(&["NAME", "STATE", "UPTIME", "JOBS", "OPEN", "KEEPER"]);
        let mut list = Vec::new();
        for handle in handles {
            // It may end while it is asked.
            let report = handle.clone().into_sandbox().report().await.ok();
            let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
            table.row([
                handle.name().to_owned(),
                state_text(&handle),
                report.as_ref().map_or_else(
                    || "-".to_owned(),
                    |r| output::ago(output::now_ms().saturating_sub(r.uptime_ms)),
                ),
                number(report.as_ref().map(|r| r.jobs)),
                number(report.as_ref().map(|r| r.holds)),
                handle
                    .keeper_pid()
                    .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            ]);
            let mut entry = summary_json(&handle);
            entry["uptime_ms"] = json!(report.as_ref().map(|r| r.uptime_ms));
            entry["jobs"] = json!(report.as_ref().map(|r| r.jobs));
            entry["open"] = json!(report.as_ref().map(|r| r.holds));
            list.push(entry);
        }
        if args.format.json {
            output::json(&Value::Array(list))?;
        } else {
            output::text(&table.render())?;
        }
        Ok(exit::OK)
    })
}

/// Those named, else all that run.
pub(super) async fn handles(host: &Host, names: Vec<String>) -> Result<Vec<SandboxHandle>> {
    if names.is_empty() {
        let live = SandboxStatus::ALL
            .into_iter()
            .filter(|state| state.is_live());
        let filter = live.fold(Filter::default(), Filter::state);
        return Ok(super::list(host, &filter).await?.sandboxes);
    }
    let mut handles = Vec::new();
    for name in names {
        handles.push(host.look(&name).await?);
    }
    Ok(handles)
}
