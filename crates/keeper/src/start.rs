//! From a plan to a running guest.
//!
//! The order of a creation: the lock (taken already), the folder, the row that reserves the name, the scripts, the
//! sockets, the guest. A failure anywhere undoes all of it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use cosm_base::{ErrorKind, RunId};
use cosm_driver::{Driver, IdRange, LaunchFacts, LaunchPlan, Launched};
use cosm_proto::keeper::{Failure, LISTENING};
use cosm_spec::{Lifetime, SandboxSpec};
use cosm_state::{Catalogue, NewSandbox, Phase, PhaseRecord, SLOT_SIZE, crash_reason};

use crate::clock::{self, Timings};
use crate::context::Context;
use crate::report::Report;
use crate::{boot, clean, failure};

/// A sandbox that is being started: what the loop needs to keep it, and what cleaning up needs to undo it.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) spec: SandboxSpec,
    pub(crate) record: PhaseRecord,
    pub(crate) catalogue: Option<Catalogue>,
    pub(crate) run: RunId,
    pub(crate) id_slot: Option<u32>,
    /// The creator starts the main command.
    pub(crate) hold: bool,
}

/// A guest that was launched.
#[derive(Debug)]
pub(crate) struct Started<G> {
    pub(crate) guest: G,
    pub(crate) facts: LaunchFacts,
    pub(crate) control: UnixListener,
}

/// Makes the sandbox: folder, row, scripts. On an error nothing of it is left.
pub(crate) async fn create(
    driver: &impl Driver,
    context: &Context,
    stored: &[u8],
    run: RunId,
    started: bool,
    timings: &mut Timings,
) -> Result<Begun, Failure> {
    let spec = read_spec(stored)?;
    let mut catalogue = None;
    let failure = match make(context, &spec, stored, started, &mut catalogue, timings) {
        Ok(id_slot) => {
            return Ok(Begun {
                record: PhaseRecord::starting(run, clock::now_ms(), true),
                spec,
                catalogue,
                run,
                id_slot,
                hold: false,
            });
        }
        Err(failure) => failure,
    };
    let erased = match catalogue.as_mut() {
        Some(catalogue) => clean::erase(driver, context, Some(catalogue), None).await,
        None => clean::folder(driver, context, None).await,
    };
    Err(with_leftover(failure, erased))
}

fn read_spec(stored: &[u8]) -> Result<SandboxSpec, Failure> {
    let spec = SandboxSpec::from_stored(stored).map_err(failure::stored_spec)?;
    match spec.check() {
        Ok(()) => Ok(spec),
        Err(problems) => Err(failure::plain(
            ErrorKind::InvalidInput,
            problems.to_string(),
        )),
    }
}

/// A failure, with what could not be cleaned up after it.
pub(crate) fn with_leftover(mut failure: Failure, cleaned: Result<(), Failure>) -> Failure {
    if let Err(left) = cleaned {
        failure
            .hints
            .push(format!("something may be left behind: {}", left.message));
    }
    failure
}

/// Leaves the catalogue in `entered` once there is a row.
fn make(
    context: &Context,
    spec: &SandboxSpec,
    stored: &[u8],
    started: bool,
    entered: &mut Option<Catalogue>,
    timings: &mut Timings,
) -> Result<Option<u32>, Failure> {
    let Some(name) = &spec.name else {
        return Err(failure::plain(
            ErrorKind::InvalidInput,
            "a sandbox needs a name",
        ));
    };
    let make_folder = || {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(context.dir.path())
            .map_err(failure::os("making the sandbox's folder"))
    };
    if started && let Some(id_slot) = pass(context, spec, stored)? {
        if !spec.scripts.is_empty() {
            make_folder()?;
        }
        write_scripts(context, spec).map_err(failure::os("writing the scripts"))?;
        timings.mark("entering the sandbox");
        return Ok(id_slot);
    }
    make_folder()?;
    let mut catalogue = Catalogue::open(&context.home).map_err(failure::state)?;
    timings.mark("opening the catalogue");
    let reserved = catalogue
        .reserve(&NewSandbox {
            id: context.id,
            name,
            spec: stored,
            labels: &spec.labels,
            created_ms: clock::now_ms(),
            remove_on_exit: spec.remove_on_exit,
            ids: Context::is_root().then_some(context.ids),
        })
        .map_err(failure::state)?;
    *entered = Some(catalogue);
    timings.mark("entering the sandbox");
    write_scripts(context, spec).map_err(failure::os("writing the scripts"))?;
    Ok(reserved.id_slot)
}

/// Enters a passing sandbox, which leaves the catalogue alone. `None` for all others: also for a passing one of root's
/// when the locks for its range of ids are all taken.
fn pass(
    context: &Context,
    spec: &SandboxSpec,
    stored: &[u8],
) -> Result<Option<Option<u32>>, Failure> {
    if !cosm_state::is_passing(context.id, spec) {
        return Ok(None);
    }
    let id_slot = match Context::is_root() {
        false => None,
        true => match context.take_slot()? {
            None => return Ok(None),
            taken => taken,
        },
    };
    cosm_state::enter_passing(&context.dir, stored, clock::now_ms(), id_slot)
        .map_err(failure::state)?;
    Ok(Some(id_slot))
}

fn write_scripts(context: &Context, spec: &SandboxSpec) -> io::Result<()> {
    if spec.scripts.is_empty() {
        return Ok(());
    }
    let folder = context.dir.scripts();
    fs::create_dir(&folder)?;
    // The guest's users are others to this one.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    for (name, text) in &spec.scripts {
        let path = folder.join(name);
        // Without a first line that names an interpreter only a shell could start it.
        let text = match text.starts_with("#!") {
            true => text.clone(),
            false => format!("#!/bin/sh\n{text}"),
        };
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Takes up a sandbox that is there and does not run, cleaning up after a keeper that was killed.
pub(crate) async fn resume(
    driver: &impl Driver,
    context: &Context,
    run: RunId,
    timings: &mut Timings,
) -> Result<Begun, Failure> {
    let missing = || failure::plain(ErrorKind::NotFound, "there is no such sandbox");
    if !context.home.catalogue().exists() {
        return Err(missing());
    }
    let mut catalogue = Catalogue::open(&context.home).map_err(failure::state)?;
    let row = catalogue
        .by_id(context.id)
        .map_err(failure::state)?
        .ok_or_else(missing)?;
    if !context.dir.path().exists() {
        return Err(failure::plain(
            ErrorKind::State,
            "sandbox state missing: its folder is gone, remove the sandbox",
        ));
    }
    let spec = read_spec(&row.spec)?;
    let remains = clean::reap(driver, context).await?;
    if let Some(before) = remains.phase {
        if before.phase == Phase::Stopped && before.fresh {
            return Err(failure::plain(
                ErrorKind::State,
                crash_reason(Some(&before)),
            ));
        }
        clean::lost(context, Some(&mut catalogue), before)?;
    }
    timings.mark("taking up the sandbox");
    Ok(Begun {
        record: PhaseRecord::starting(run, clock::now_ms(), false),
        spec,
        catalogue: Some(catalogue),
        run,
        id_slot: row.id_slot,
        hold: false,
    })
}

/// Launches the guest. What fails here is undone by the caller, who knows whether the sandbox is new.
pub(crate) async fn launch<D: Driver>(
    driver: &D,
    context: &Context,
    begun: &Begun,
    report: &mut Report,
    timings: &mut Timings,
) -> Result<Started<D::Guest>, Failure> {
    // Before anything that has to be found again by the run's id.
    begun.record.write(&context.dir).map_err(failure::state)?;
    let (agent, control) = bind(context)?;
    let main = begun.spec.command.is_some() && !begun.hold;
    if boot::is_nothing(&begun.spec, main) {
        report.phase(LISTENING);
    }
    timings.mark("folders and sockets");
    let Launched { guest, facts } = driver
        .launch(launch_plan(context, begun, agent)?)
        .await
        .map_err(failure::launch)?;
    timings.mark_with("launch", &facts.timings);
    Ok(Started {
        guest,
        facts,
        control,
    })
}

fn bind(context: &Context) -> Result<(UnixListener, UnixListener), Failure> {
    let at = |path: PathBuf| {
        UnixListener::bind(&path).map_err(failure::os("binding the sandbox's sockets"))
    };
    Ok((
        at(context.runtime.agent(context.id))?,
        at(context.runtime.control(context.id))?,
    ))
}

fn launch_plan(
    context: &Context,
    begun: &Begun,
    agent: UnixListener,
) -> Result<LaunchPlan, Failure> {
    let spec = &begun.spec;
    let data = match keeps_data(spec) {
        true => {
            let folder = context.dir.data();
            cosm_state::make_private(&folder).map_err(failure::state)?;
            Some(folder)
        }
        false => None,
    };
    let id_range = match begun.id_slot {
        Some(slot) => {
            let first = cosm_state::first_id(&context.ids, slot).ok_or_else(|| {
                failure::plain(
                    ErrorKind::WrongState,
                    "the sandbox's range of ids lies outside of what is configured now",
                )
            })?;
            Some(IdRange {
                first,
                count: SLOT_SIZE,
            })
        }
        None => None,
    };
    let dir = context.dir.clone();
    Ok(LaunchPlan {
        id: context.id,
        run: begun.run,
        spec: spec.clone(),
        agent: cosm_agent_image::AGENT,
        listener: agent.into(),
        data,
        scripts: (!spec.scripts.is_empty()).then(|| context.dir.scripts()),
        id_range,
        record: Box::new(move |run| {
            let text = serde_json::to_vec(run).map_err(io::Error::other)?;
            cosm_state::write_run(&dir, &text).map_err(io::Error::other)
        }),
    })
}

/// Whether what the guest writes outlives its run. Where it does not, memory is faster and needs no removing.
pub(crate) fn keeps_data(spec: &SandboxSpec) -> bool {
    !(spec.remove_on_exit && spec.lifetime == Lifetime::Leased)
}
