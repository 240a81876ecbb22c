//! `cosm metrics`

use std::io::IsTerminal as _;

use cosm::{GuestUsage, Host};
use cosm_base::exit;
use cosm_base::units::ByteSize;
use serde_json::{Value, json};

use crate::args::MetricsArgs;
use crate::error::Result;
use crate::output::{self, Table};

pub(super) fn run(args: MetricsArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(async {
        loop {
            let samples = sample(&host, &args.names).await?;
            show(&samples, &args)?;
            let Some(pause) = args.watch else {
                return Ok(exit::OK);
            };
            tokio::time::sleep(pause).await;
        }
    })
}

async fn sample(host: &Host, names: &[String]) -> Result<Vec<(String, GuestUsage)>> {
    if names.is_empty() {
        let all = host.all_sandbox_metrics().await?;
        return Ok(all
            .into_iter()
            .map(|(handle, usage)| (handle.name().to_owned(), usage))
            .collect());
    }
    let mut samples = Vec::new();
    for name in names {
        samples.push((name.clone(), host.get(name).await?.metrics().await?));
    }
    Ok(samples)
}

fn show(samples: &[(String, GuestUsage)], args: &MetricsArgs) -> Result<()> {
    if args.format.json {
        let time = output::time(output::now_ms());
        let list: Vec<Value> = samples
            .iter()
            .map(|(name, usage)| json!({ "name": name, "time": time, "usage": usage }))
            .collect();
        // While it is watched: one sample a line.
        return match args.watch {
            Some(_) => output::line(&Value::Array(list).to_string()),
            None => output::json(&Value::Array(list)),
        };
    }
    let mut table = Table::new(&[
        "NAME", "CPU", "MEMORY", "PEAK", "LIMIT", "PIDS", "READ", "WRITTEN", "OOM",
    ]);
    let size =
        |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |b| ByteSize(b).to_string());
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for (name, usage) in samples {
        table.row([
            name.clone(),
            usage
                .cpu_us
                .map_or_else(|| "-".to_owned(), |us| format!("{:.2}s", us as f64 / 1e6)),
            size(usage.memory),
            size(usage.peak_memory),
            size(usage.memory_limit),
            number(usage.pids),
            size(usage.read_bytes),
            size(usage.write_bytes),
            number(usage.oom_kills),
        ]);
    }
    let clear = args.watch.is_some() && std::io::stdout().is_terminal();
    output::text(&format!(
        "{}{}",
        if clear { "\u{1b}[H\u{1b}[J" } else { "" },
        table.render()
    ))
}
