//! Measures launches: `launch AGENT [COUNT] [PAUSE_MS] [--image DIR] [--data DIR] [--memory SIZE]
//! [--pids COUNT] [--range] [--show]`.
//!
//! The agent may be any static program; one that exits at once shows what a launch costs.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cosm_base::{RunId, SandboxId};
use cosm_driver::{Driver as _, Guest as _, IdRange, LaunchPlan};
use cosm_driver_ns::NsDriver;
use cosm_spec::{ImageSource, SandboxSpec};

fn plan(
    agent: &'static [u8],
    spec: &SandboxSpec,
    data: Option<PathBuf>,
    number: u64,
) -> LaunchPlan {
    let path = std::env::temp_dir().join(format!("cosm-launch-{}-{number}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("bind");
    std::fs::remove_file(&path).expect("unlink");
    LaunchPlan {
        id: SandboxId::from_random(number.to_le_bytes()),
        run: RunId::from_random(number.to_le_bytes()),
        spec: spec.clone(),
        agent,
        listener: listener.into(),
        data,
        scripts: None,
        id_range: rustix::process::geteuid().is_root().then_some(IdRange {
            first: 2_000_000,
            count: 65_536,
        }),
        record: Box::new(|_| Ok(())),
    }
}

fn main() {
    let mut words = Vec::new();
    let (mut spec, mut data, mut show) = (SandboxSpec::default(), None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--image" => {
                spec.image = ImageSource::Folder(arguments.next().expect("a folder").into())
            }
            "--data" => data = arguments.next().map(PathBuf::from),
            "--user" => spec.user = arguments.next(),
            "--memory" => {
                let size = arguments.next().expect("a size").parse().expect("a size");
                spec.resources.memory = cosm_spec::Limit::At(size);
            }
            "--pids" => {
                let count = arguments.next().expect("a count").parse().expect("a count");
                spec.resources.pids = cosm_spec::Limit::At(count);
            }
            "--range" => spec.ids = cosm_spec::IdMode::Range,
            "--show" => show = true,
            _ => words.push(argument),
        }
    }
    let agent = std::fs::read(words.first().expect("an agent"))
        .expect("readable")
        .leak();
    let count: u64 = words.get(1).map_or(1, |n| n.parse().expect("a count"));
    let pause = Duration::from_millis(words.get(2).map_or(0, |n| n.parse().expect("milliseconds")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async {
        let driver = NsDriver::new();
        let mut times = Vec::new();
        for number in 0..count {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            let plan = plan(agent, &spec, data.clone(), number);
            let mut launched = match driver.launch(plan).await {
                Ok(launched) => launched,
                Err(error) => {
                    eprintln!(
                        "{error}: {:?}; help: {:?}",
                        std::error::Error::source(&error),
                        error.help()
                    );
                    std::process::exit(1);
                }
            };
            let started = begun.elapsed();
            if show {
                println!("{:#?}", launched.facts);
            }
            let exit = launched.guest.wait().await;
            times.push((begun.elapsed(), started));
            if number + 1 == count {
                println!("{exit:?}\n{:?}", launched.facts.timings);
            }
        }
        times.sort_unstable();
        let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
        println!(
            "whole / until exec: p50 {:?} p90 {:?} p99 {:?}",
            at(50),
            at(90),
            at(99)
        );
    });
}
