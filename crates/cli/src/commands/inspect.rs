//! `cosm inspect`

use cosm::{ByteString, SandboxHandle};
use cosm_base::exit;
use cosm_base::text::{REDACTED, looks_secret};
use serde_json::{Value, json};

use super::ls::summary_json;
use crate::args::InspectArgs;
use crate::error::Result;
use crate::output;

pub(super) fn run(args: InspectArgs) -> Result<u8> {
    let host = super::host()?;
    let handle = super::wait_for(async { Ok(host.look(&args.name).await?) })?;
    // One format, with or without --json.
    output::json(&everything(&handle, args.show_secrets))?;
    Ok(exit::OK)
}

fn everything(handle: &SandboxHandle, show_secrets: bool) -> Value {
    let mut spec = handle.spec().clone();
    if !show_secrets {
        for (name, value) in &mut spec.env {
            if looks_secret(name.as_bytes()) {
                *value = ByteString::from(REDACTED);
            }
        }
    }
    let mut all = summary_json(handle);
    all["spec"] = json!(spec);
    all["run"] = json!(handle.run());
    all["facts"] = handle.facts().clone();
    all["failure"] = json!(handle.failure().map(|failure| json!({
        "kind": failure.kind.as_str(),
        "phase": failure.phase,
        "message": failure.message,
        "hints": failure.hints,
        "log_tail": (!failure.log_tail.is_empty())
            .then(|| ByteString::from(failure.log_tail.as_slice())),
    })));
    all
}
