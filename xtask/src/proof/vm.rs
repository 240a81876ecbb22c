//! A host with cgroup v2 alone and systemd: Debian's cloud kernel in QEMU, under software emulation.
//!
//! The machine has two disks: a root file system of the host's own Debian release, which is kept and never written
//! to, and a small one made anew each time with `cosm`, the attacks and `vm/proof.py`. It has two serial ports: the console, and
//! one on which the proof says what it found, a line for each check.

mod image;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::tools::{self, Scratch, bound};
use super::{Ground, ProofError, verdict};
use image::Image;

const PROOF: &str = include_str!("vm/proof.py");

/// Booting takes 8 s and the proof about three minutes; software emulation on a busy machine is many times slower.
const TIME_BOX: Duration = Duration::from_secs(900);

/// Proves what `cosm` does on a cgroup v2 host, as root and as an ordinary user. It is also the machine whose clock may be
/// set: `attacks` is the program that does.
pub(crate) fn vm(ground: &Ground, attacks: &Path) -> Result<(), ProofError> {
    let cosm = ground.cosm()?;
    let image = Image::of(ground)?;
    let scratch = Scratch::new("v2")?;
    let disk = disk(scratch.path(), &cosm, attacks)?;
    let started = Instant::now();
    let console = scratch.path().join("console");
    let findings = scratch.path().join("findings");
    let mut machine = tools::start(&mut qemu(&image, &disk, &console, &findings))?;
    let ended = tools::wait(&mut machine, TIME_BOX)?;
    println!(
        "v2: the machine ran for {:.1} s",
        started.elapsed().as_secs_f64()
    );
    let complete = verdict::report("v2", &tools::read(&findings)?)?;
    if ended.is_none() || !complete {
        let console = tools::tail(&tools::read(&console)?);
        return Err(ProofError::Unfinished {
            what: "the machine",
            console,
        });
    }
    Ok(())
}

/// The second disk.
fn disk(scratch: &Path, cosm: &Path, attacks: &Path) -> Result<PathBuf, ProofError> {
    let content = scratch.join("content");
    tools::folder(&content)?;
    tools::write(&content.join("proof.py"), PROOF, 0o644)?;
    tools::copy(cosm, &content.join("cosm"))?;
    tools::copy(attacks, &content.join("attacks"))?;
    let disk = scratch.join("disk.ext4");
    image::ext4(&content, &disk, 128)?;
    Ok(disk)
}

fn qemu(image: &Image, disk: &Path, console: &Path, findings: &Path) -> Command {
    let mut qemu = bound("qemu-system-x86_64");
    // Without five-level page tables, each of which costs the emulation a step more.
    qemu.args([
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max,la57=off",
        "-smp",
        "2",
        "-m",
        "1536",
    ]);
    qemu.args([
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
    ]);
    qemu.arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initrd);
    qemu.args([
        "-append",
        "root=/dev/vda rw console=ttyS0 quiet mitigations=off no_timer_check",
    ]);
    qemu.arg("-drive").arg(format!(
        "file={},format=raw,if=virtio,snapshot=on",
        image.root.display()
    ));
    qemu.arg("-drive").arg(format!(
        "file={},format=raw,if=virtio,readonly=on",
        disk.display()
    ));
    for port in [console, findings] {
        qemu.arg("-serial").arg(format!("file:{}", port.display()));
    }
    qemu
}
