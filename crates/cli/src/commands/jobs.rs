//! `cosm jobs`

use cosm::{JobReport, Sandbox};
use cosm_base::{ByteString, exit};
use serde_json::{Value, json};

use super::ls::status_parts;
use crate::args::JobsArgs;
use crate::error::Result;
use crate::output::{self, Table};

pub(super) fn run(args: JobsArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(async {
        let sandbox = host.get(&args.name).await?;
        match (&args.job, args.signal) {
            (Some(job), Some(signal)) => {
                sandbox.jobs().signal(job, signal, args.tree).await?;
                Ok(exit::OK)
            }
            (Some(job), None) if args.wait => wait(&sandbox, job, args.format.json).await,
            (job, _) => list(&sandbox, job.as_deref(), args.format.json).await,
        }
    })
}

async fn wait(sandbox: &Sandbox, job: &str, json: bool) -> Result<u8> {
    let report = sandbox.jobs().wait(job).await?;
    if json {
        output::json(&job_json(&report))?;
    }
    Ok(report
        .exit
        .map_or(exit::OK, |exit| super::code_of(&exit.into())))
}

async fn list(sandbox: &Sandbox, job: Option<&str>, json: bool) -> Result<u8> {
    let mut jobs = sandbox.jobs().list().await?;
    jobs.retain(|known| job.is_none_or(|job| known.id == job));
    if json {
        output::json(&Value::Array(jobs.iter().map(job_json).collect()))?;
        return Ok(exit::OK);
    }
    let mut table = Table::new(&["JOB", "STATE", "PID", "TTY", "AGE", "COMMAND"]);
    for job in &jobs {
        let words = job
            .argv
            .iter()
            .map(|word| ByteString::from(word.as_slice()).display());
        table.row([
            job.id.clone(),
            state(job),
            job.pid
                .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            if job.tty { "yes" } else { "no" }.to_owned(),
            output::ago(job.started_ms),
            words.collect::<Vec<_>>().join(" "),
        ]);
    }
    output::text(&table.render())?;
    Ok(exit::OK)
}

fn state(job: &JobReport) -> String {
    if job.failed.is_some() {
        return "failed".to_owned();
    }
    match status_parts(job.exit.as_ref().map(|exit| exit.status)) {
        (Some(code), _) => format!("ended ({code})"),
        (_, Some(signal)) => format!("ended (signal {signal})"),
        (None, None) => "running".to_owned(),
    }
}

fn job_json(job: &JobReport) -> Value {
    let (code, signal) = status_parts(job.exit.as_ref().map(|exit| exit.status));
    let argv: Vec<ByteString> = job.argv.iter().map(|word| word.as_slice().into()).collect();
    json!({
        "id": job.id,
        "command": argv,
        "pid": job.pid,
        "tty": job.tty,
        "started": output::time(job.started_ms),
        "running": job.exit.is_none() && job.failed.is_none(),
        "code": code,
        "signal": signal,
        "timed_out": job.exit.as_ref().map(|exit| exit.timed_out),
        "oom": job.exit.as_ref().map(|exit| exit.oom),
        "usage": job.exit.as_ref().map(|exit| exit.usage),
        "failure": job.failed.as_ref().map(|failure| &failure.message),
    })
}
