//! A gibibyte through a command's output, beside a plain pipe.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::ground::{Ground, time};
use crate::procs;
use crate::stats::Findings;

const GIB: u64 = 1 << 30;

pub(crate) fn measure(ground: &Ground, findings: &mut Findings) -> Result<()> {
    let size = if ground.count(10) < 10 { GIB / 8 } else { GIB };
    let file = ground.folder().join("big");
    // Of holes: reading it costs no disk.
    std::fs::File::create(&file)?.set_len(size)?;
    let path = file.to_string_lossy().into_owned();
    time(&mut ground.command(&[
        "create",
        "--name",
        "bench",
        "--mount",
        &format!("{path}:/mnt/big"),
    ]))?;
    let (mut plain, mut ours, mut client, mut keeper) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..3 {
        let mut cat = Command::new("cat");
        cat.arg(&file).stdin(Stdio::null());
        plain.push(drain(&mut cat, size, &mut 0)?);
        let mut exec = ground.command(&["exec", "bench", "--", "cat", "/mnt/big"]);
        ours.push(drain(&mut exec, size, &mut client)?);
        keeper = keeper.max(
            procs::below(std::process::id())
                .into_iter()
                .filter_map(|(pid, _)| procs::peak_kib(pid))
                .max()
                .unwrap_or(0),
        );
    }
    time(&mut ground.command(&["rm", "--force", "bench"]))?;
    let best = |speeds: &[f64]| speeds.iter().copied().fold(0.0, f64::max);
    let row = "cat of 1 GiB";
    findings.fact(row, "plain pipe", best(&plain), "MiB/s");
    findings.fact(row, "cosm exec", best(&ours), "MiB/s");
    findings.fact(
        row,
        "cosm exec, of a plain pipe",
        best(&ours) / best(&plain),
        "x",
    );
    findings.fact(row, "client's peak memory", client as f64 / 1024.0, "MiB");
    findings.fact(row, "keeper's peak memory", keeper as f64 / 1024.0, "MiB");
    Ok(())
}

/// Reads all of a command's output and returns MiB per second.
fn drain(command: &mut Command, size: u64, peak: &mut u64) -> Result<f64> {
    let since = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().ok_or("no pipe")?;
    // As large as a shell's or a program's reader would have it.
    let mut buffer = vec![0; 1 << 17];
    let mut total = 0;
    loop {
        let count = stdout.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        total += count as u64;
        if total > size / 2 && total.is_multiple_of(64) {
            *peak = (*peak).max(procs::peak_kib(child.id()).unwrap_or(0));
        }
    }
    let status = child.wait()?;
    let took = since.elapsed();
    if !status.success() || total != size {
        return Err(
            format!("{command:?} ended with {status} after {total} of {size} bytes").into(),
        );
    }
    Ok(total as f64 / (1 << 20) as f64 / took.as_secs_f64())
}
