//! Many sandboxes.

use std::time::{Duration, Instant};

use cosm::spec::Lifetime;
use cosm::{Host, SandboxSpec};
use tokio::task::JoinSet;

use crate::Result;
use crate::ground::{Ground, time, wait_for};
use crate::procs;
use crate::stats::{Findings, Pace, Samples};

pub(crate) fn measure(ground: &Ground, findings: &mut Findings) -> Result<()> {
    let host = ground.host()?;
    wait_for(at_once(&host, findings))?;
    idle(
        ground,
        &host,
        findings,
        if ground.count(10) < 10 { 50 } else { 500 },
    )
}

async fn at_once(host: &Host, findings: &mut Findings) -> Result<()> {
    let mut lone = Samples::default();
    for _ in 0..20 {
        let since = Instant::now();
        let mut sandbox = host.create(SandboxSpec::default(), None).await?;
        lone.add(since.elapsed());
        sandbox.stop_after(Some(Duration::ZERO), true).await?;
        sandbox.remove().await?;
    }
    let since = Instant::now();
    let mut work = JoinSet::new();
    for _ in 0..64 {
        let host = host.clone();
        work.spawn(async move { host.create(SandboxSpec::default(), None).await });
    }
    let mut made = Vec::new();
    while let Some(done) = work.join_next().await {
        made.push(done??);
    }
    let took = since.elapsed();
    findings.times("a lone create", "library", Pace::Tight, &lone);
    findings.fact("64 creates at once", "all", took.as_secs_f64() * 1e3, "ms");
    findings.fact(
        "64 creates at once",
        "of a lone create",
        took.as_secs_f64() / lone.median().as_secs_f64(),
        "x",
    );
    for mut sandbox in made {
        sandbox.stop_after(Some(Duration::ZERO), true).await?;
        sandbox.remove().await?;
    }
    Ok(())
}

fn idle(ground: &Ground, host: &Host, findings: &mut Findings, count: usize) -> Result<()> {
    let before = (
        procs::meminfo_kib("MemAvailable:"),
        procs::meminfo_kib("Slab:"),
    );
    let made = wait_for(async {
        let mut made = Vec::new();
        while made.len() < count {
            let spec = SandboxSpec {
                lifetime: Lifetime::Persistent,
                ..SandboxSpec::default()
            };
            made.push(host.create(spec, None).await?);
        }
        Ok(made)
    })?;
    std::thread::sleep(Duration::from_secs(2));
    let row = &format!("{count} idle sandboxes");
    let processes = procs::below(std::process::id());
    findings.fact(row, "processes", processes.len() as f64, "");
    let shares: Vec<Option<u64>> = processes
        .iter()
        .map(|(pid, _)| procs::pss_kib(*pid))
        .collect();
    let hidden = shares.iter().filter(|share| share.is_none()).count();
    if hidden > 0 {
        findings.note(format!(
            "{row}: the memory of {hidden} processes can't be read as this user"
        ));
    }
    let total: u64 = shares.into_iter().flatten().sum();
    let each = |kib: u64| kib as f64 / 1024.0 / count as f64;
    findings.fact(row, "PSS of each, keeper and agent", each(total), "MiB");
    let after = (
        procs::meminfo_kib("MemAvailable:"),
        procs::meminfo_kib("Slab:"),
    );
    findings.fact(
        row,
        "MemAvailable less, each",
        each(before.0.saturating_sub(after.0)),
        "MiB",
    );
    findings.fact(
        row,
        "slab more, each",
        each(after.1.saturating_sub(before.1)),
        "MiB",
    );
    let mut samples = Samples::default();
    for _ in 0..ground.count(50) {
        samples.add(time(&mut ground.command(&["ls"]))?);
    }
    findings.times(
        &format!("cosm ls with {count}"),
        "cosm ls",
        Pace::Tight,
        &samples,
    );
    let alive = wait_for(async {
        let mut alive = 0;
        for sandbox in &made {
            alive += usize::from(
                sandbox
                    .exec("true", [""; 0])
                    .await
                    .is_ok_and(|output| output.success()),
            );
        }
        Ok(alive)
    })?;
    findings.fact(row, "alive", alive as f64, "");
    wait_for(async {
        for mut sandbox in made {
            sandbox.stop_after(Some(Duration::ZERO), true).await?;
            sandbox.remove().await?;
        }
        Ok(())
    })
}
