//! Inside an ordinary Docker container: what forbids sandboxes there, what `cosm` says of it, and what works once it is
//! allowed.
//!
//! The engine is one of its own (socket, data, cgroups), stopped and removed at the end. Its image is the host's own
//! Debian release; `cosm` is bound in.

mod cases;
mod engine;

use std::time::Instant;

use super::tools::Scratch;
use super::{Ground, ProofError, verdict};
use engine::Engine;

/// Proves what `cosm` does in a container.
pub(crate) fn container(ground: &Ground) -> Result<(), ProofError> {
    let cosm = ground.cosm()?;
    let image = engine::image(ground)?;
    let scratch = Scratch::new("container")?;
    let started = Instant::now();
    let engine = Engine::start(scratch.path(), &image, &cosm)?;
    let said: String = cases::CASES
        .iter()
        .map(|case| case.try_in(&engine))
        .collect::<Result<_, _>>()?;
    engine.stop()?;
    println!("container: took {:.1} s", started.elapsed().as_secs_f64());
    verdict::report("container", &(said + "END\n"))?;
    Ok(())
}
