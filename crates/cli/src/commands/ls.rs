//! `cosm ls`

use cosm::spec::{ImageSource, Lifetime};
use cosm::{EndReason, EndReport, ExitStatus, Filter, SandboxHandle, SandboxStatus};
use cosm_base::exit;
use serde_json::{Value, json};

use crate::args::LsArgs;
use crate::error::Result;
use crate::output::{self, Table};
use crate::settings::SettingsError;

pub(super) fn run(args: LsArgs) -> Result<u8> {
    let host = super::host()?;
    let filter = filter(&args)?;
    let page = super::wait_for(super::list(&host, &filter))?;
    if args.format.json {
        let list: Vec<Value> = page.sandboxes.iter().map(summary_json).collect();
        output::json(&json!({ "sandboxes": list, "next": page.next.map(|n| n.to_string()) }))?;
    } else if args.quiet {
        for handle in &page.sandboxes {
            output::line(handle.name())?;
        }
    } else {
        output::text(&table(&page.sandboxes))?;
    }
    Ok(exit::OK)
}

fn filter(args: &LsArgs) -> Result<Filter> {
    let mut filter = Filter::default();
    for (key, value) in &args.filter.label {
        filter = match value {
            Some(value) => filter.label_is(key, value),
            None => filter.label(key),
        };
    }
    for state in &args.filter.state {
        filter = filter.state(
            state
                .parse::<SandboxStatus>()
                .map_err(SettingsError::State)?,
        );
    }
    if let Some(limit) = args.limit {
        filter = filter.limit(limit);
    }
    if let Some(cursor) = &args.after {
        let place = cursor
            .parse()
            .map_err(|_| SettingsError::Cursor(cursor.clone()))?;
        filter = filter.after(place);
    }
    Ok(filter)
}

fn table(sandboxes: &[SandboxHandle]) -> String {
    let mut table = Table::new(&["NAME", "STATE", "IMAGE", "AGE", "COMMAND"]);
    for handle in sandboxes {
        table.row([
            handle.name().to_owned(),
            state_text(handle),
            image_text(handle),
            output::ago(handle.created_ms()),
            command_text(handle),
        ]);
    }
    table.render()
}

/// The state, with how it ended.
pub(super) fn state_text(handle: &SandboxHandle) -> String {
    let status = handle.status();
    match handle
        .end()
        .filter(|_| status == SandboxStatus::Stopped)
        .and_then(|end| end.status)
    {
        Some(ExitStatus::Code(code)) => format!("{status} ({code})"),
        Some(ExitStatus::Signal(signal)) => format!("{status} (signal {signal})"),
        None => status.to_string(),
    }
}

fn image_text(handle: &SandboxHandle) -> String {
    match &handle.spec().image {
        ImageSource::Folder(path) => path.display(),
        _ => "host".to_owned(),
    }
}

fn command_text(handle: &SandboxHandle) -> String {
    const WIDTH: usize = 40;
    let words = handle
        .spec()
        .command
        .iter()
        .flatten()
        .map(|word| word.display());
    let text = words.collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(WIDTH) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// A sandbox in a list.
pub(super) fn summary_json(handle: &SandboxHandle) -> Value {
    json!({
        "name": handle.name(),
        "id": handle.id().to_string(),
        "state": handle.status().as_str(),
        "image": image_text(handle),
        "command": handle.spec().command,
        "labels": handle.spec().labels,
        "persistent": handle.spec().lifetime == Lifetime::Persistent,
        "created": output::time(handle.created_ms()),
        "started": handle.started_ms().map(output::time),
        "ended": handle.ended_ms().map(output::time),
        "end": handle.end().map(end_json),
        "crash": handle.crash_reason(),
        "keeper_pid": handle.keeper_pid(),
    })
}

/// What helps a sandbox that ended for its files.
pub(super) const OUT_OF_DISK: &str = "start it and remove what it does not need, or make it anew with `--disk unlimited` or, as root, with `--disk SIZE`";

/// How a run ended.
pub(super) fn end_json(end: &EndReport) -> Value {
    let (code, signal) = status_parts(end.status);
    json!({
        "code": code,
        "signal": signal,
        "reason": end.reason,
        "killed": end.killed,
        "help": (end.reason == EndReason::OutOfDisk).then_some(OUT_OF_DISK),
        "usage": end.usage,
    })
}

/// A code, or a signal.
pub(super) fn status_parts(status: Option<ExitStatus>) -> (Option<i32>, Option<i32>) {
    match status {
        Some(ExitStatus::Code(code)) => (Some(code), None),
        Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    }
}
