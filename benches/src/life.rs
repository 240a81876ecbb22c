//! Lives and commands through the library.

use std::process::Stdio;
use std::time::Instant;

use cosm::{Host, SandboxSpec};

use crate::Result;
use crate::ground::{Ground, time, wait_for, without_limits};
use crate::peers::{self, Dockerd};
use crate::stats::{Findings, Pace, Samples};

pub(crate) fn measure(ground: &Ground, findings: &mut Findings) -> Result<()> {
    let host = ground.host()?;
    for pace in Pace::BOTH {
        for (name, spec) in [
            ("library, no limits", without_limits()),
            ("library", SandboxSpec::default()),
        ] {
            // One that nobody asks for again removes itself; one that is kept has a row, on the disk.
            let passing = SandboxSpec {
                remove_on_exit: true,
                ..spec.clone()
            };
            lives(ground, &host, findings, pace, name, &passing)?;
            let kept = format!("{name}, kept until then");
            lives(ground, &host, findings, pace, &kept, &spec)?;
        }
        execs(ground, &host, findings, pace)?;
    }
    timings(ground, findings)?;
    commands(ground, findings)
}

fn lives(
    ground: &Ground,
    host: &Host,
    findings: &mut Findings,
    pace: Pace,
    name: &str,
    spec: &SandboxSpec,
) -> Result<()> {
    let mut all = Samples::default();
    let mut parts = [Samples::default(), Samples::default(), Samples::default()];
    for n in 0..=ground.count(200) {
        pace.wait();
        let took = wait_for(one_life(host, spec.clone()))?;
        // The first makes the state folder.
        if n > 0 {
            all.add(took.iter().sum());
            for (part, took) in parts.iter_mut().zip(took) {
                part.add(took);
            }
        }
    }
    findings.times("create, exec true, remove", name, pace, &all);
    for (part, samples) in ["create", "exec true", "remove"].into_iter().zip(&parts) {
        findings.times(&format!("of it: {part}"), name, pace, samples);
    }
    Ok(())
}

async fn one_life(host: &Host, spec: SandboxSpec) -> Result<[std::time::Duration; 3]> {
    let start = Instant::now();
    let mut sandbox = host.create(spec, None).await?;
    let created = start.elapsed();
    let output = sandbox.exec("true", [""; 0]).await?;
    let done = start.elapsed();
    if !output.success() {
        return Err(format!("true ended with {:?}", output.status).into());
    }
    sandbox
        .stop_after(Some(std::time::Duration::ZERO), true)
        .await?;
    sandbox.remove().await?;
    let removed = start.elapsed();
    Ok([created, done - created, removed - done])
}

fn execs(ground: &Ground, host: &Host, findings: &mut Findings, pace: Pace) -> Result<()> {
    wait_for(async {
        let sandbox = host.create(SandboxSpec::default(), None).await?;
        let mut samples = Samples::default();
        for _ in 0..ground.count(500) {
            pace.wait();
            let since = Instant::now();
            let output = sandbox.exec("true", [""; 0]).await?;
            samples.add(since.elapsed());
            if !output.success() {
                return Err(format!("true ended with {:?}", output.status).into());
            }
        }
        findings.times("exec true", "library", pace, &samples);
        Ok(())
    })
}

/// Where the time of one `cosm run` goes, as it tells itself.
fn timings(ground: &Ground, findings: &mut Findings) -> Result<()> {
    let output = ground
        .command(&["run", "--timings", "--", "true"])
        .stderr(Stdio::piped())
        .output()?;
    findings.note(format!(
        "cosm run --timings -- true:\n{}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    ));
    Ok(())
}

/// The same as whole processes, beside Docker's.
fn commands(ground: &Ground, findings: &mut Findings) -> Result<()> {
    let root = peers::busybox_root(ground)?;
    let dockerd = Dockerd::start(ground, &root);
    time(&mut ground.command(&["create", "--name", "bench"]))?;
    for pace in Pace::BOTH {
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for n in 0..ground.count(200) {
            pace.wait();
            ours.add(time(&mut ground.command(&["exec", "bench", "--", "true"]))?);
            if let (Ok(engine), 0) = (&dockerd, n % 5) {
                pace.wait();
                theirs.add(time(&mut engine.exec())?);
            }
        }
        findings.times("exec true, whole process", "cosm exec", pace, &ours);
        if theirs.len() > 0 {
            findings.times("exec true, whole process", "docker exec", pace, &theirs);
        }
    }
    time(&mut ground.command(&["rm", "--force", "bench"]))?;
    if let Err(error) = dockerd {
        findings.note(format!("docker exec: {error}"));
    }
    Ok(())
}
