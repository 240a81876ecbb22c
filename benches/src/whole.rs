//! Whole processes: from starting the program to its end.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;
use crate::ground::{Ground, WITHOUT_LIMITS, time};
use crate::peers::{self, Dockerd};
use crate::stats::{Findings, Pace, Samples};

/// The row of the table.
const ROW: &str = "run true, whole process";

/// A way to run `true`.
struct Way<'a> {
    name: &'static str,
    make: Box<dyn Fn(usize) -> Command + 'a>,
    /// Of so many iterations, this way makes one: some take very long.
    every: usize,
    samples: Samples,
}

pub(crate) fn measure(ground: &Ground, findings: &mut Findings) -> Result<()> {
    let root = peers::busybox_root(ground)?;
    let dockerd = Dockerd::start(ground, &root);
    for pace in Pace::BOTH {
        let mut ways = ways(ground, &root, dockerd.as_ref().ok());
        ways.retain_mut(
            |way| match time((way.make)(usize::MAX).stderr(Stdio::piped())) {
                Ok(_) => true,
                Err(error) => {
                    findings.note(format!("{}: {error}", way.name));
                    false
                }
            },
        );
        for n in 0..ground.count(200) {
            // Alternately, so that what else the machine does falls on all of them.
            for way in &mut ways {
                if n % way.every == 0 {
                    pace.wait();
                    way.samples.add(time(&mut (way.make)(n))?);
                }
            }
        }
        for way in &ways {
            findings.times(ROW, way.name, pace, &way.samples);
        }
    }
    if let Err(error) = dockerd {
        findings.note(format!("docker: {error}"));
    }
    Ok(())
}

fn ways<'a>(ground: &'a Ground, root: &'a Path, dockerd: Option<&'a Dockerd>) -> Vec<Way<'a>> {
    let way = |name, every, make: Box<dyn Fn(usize) -> Command + 'a>| Way {
        name,
        make,
        every,
        samples: Samples::default(),
    };
    let mut ways = vec![
        way(
            "cosm run",
            1,
            Box::new(move |_| ground.command(&["run", "--", "true"])),
        ),
        way(
            "cosm run, no limits",
            1,
            Box::new(move |_| {
                let mut command = ground.command(&["run"]);
                command.args(WITHOUT_LIMITS).args(["--", "true"]);
                command
            }),
        ),
        way(
            "cosm run FOLDER",
            1,
            Box::new(move |_| {
                let mut command = ground.command(&["run"]);
                command.arg(root).args(["--", "true"]);
                command
            }),
        ),
        way(
            "bwrap",
            1,
            Box::new(move |_| peers::bwrap(ground, "/", &["true"])),
        ),
        way(
            "runc run",
            4,
            Box::new(move |n| peers::runc(ground, root, n)),
        ),
    ];
    if let Some(dockerd) = dockerd {
        ways.push(way("docker run", 20, Box::new(move |_| dockerd.run())));
    }
    ways
}
