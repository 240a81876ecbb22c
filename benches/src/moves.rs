//! One move of a process from one cgroup into another: what limits cost where a process can't be born in its cgroup.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::ground::Ground;
use crate::stats::{Findings, Pace, Samples};

/// Two cgroups and a process to move, which go away with this value.
struct Pair {
    groups: [PathBuf; 2],
    process: Child,
}

impl Pair {
    fn make() -> Result<Self> {
        let controller = ["memory", "."]
            .into_iter()
            .map(|name| PathBuf::from("/sys/fs/cgroup").join(name));
        let parent = controller
            .into_iter()
            .find(|path| path.join("cgroup.procs").exists())
            .ok_or("there is no cgroup here")?;
        let name = |part| parent.join(format!("cosm-bench-{}-{part}", std::process::id()));
        let groups = [name("a"), name("b")];
        for group in &groups {
            fs::create_dir(group)?;
        }
        let process = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self { groups, process })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        for group in &self.groups {
            drop(fs::remove_dir(group));
        }
    }
}

pub(crate) fn measure(ground: &Ground, findings: &mut Findings) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        findings.note("one move between cgroups: only root may make cgroups here".to_owned());
        return Ok(());
    }
    let pair = Pair::make()?;
    let pid = pair.process.id().to_string();
    for pace in Pace::BOTH {
        let mut samples = Samples::default();
        for n in 0..ground.count(100) {
            pace.wait();
            let since = Instant::now();
            fs::write(pair.groups[n % 2].join("cgroup.procs"), &pid)?;
            samples.add(since.elapsed());
        }
        findings.times("one move between cgroups", "kernel", pace, &samples);
    }
    Ok(())
}
