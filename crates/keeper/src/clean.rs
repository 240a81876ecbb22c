//! Leaving nothing behind.

use std::fs;
use std::io;
use std::path::Path;

use cosm_base::ErrorKind;
use cosm_driver::{Driver, DriverKind, IdMap, LaunchFacts, RunRecord};
use cosm_proto::keeper::{EndReason, EndReport, Failure, GuestUsage};
use cosm_state::{Catalogue, Phase, PhaseRecord, StateError};

use crate::clock;
use crate::context::Context;
use crate::failure;

/// What is being done when the folder can't be removed.
const FOLDER: &str = "removing the sandbox's folder";

/// Removes the sockets, which are the first to go: nobody shall reach what is not there any more.
pub(crate) fn sockets(context: &Context) -> Result<(), Failure> {
    let runtime = &context.runtime;
    for socket in [runtime.agent(context.id), runtime.control(context.id)] {
        absent(fs::remove_file(socket)).map_err(failure::os("removing the sockets"))?;
    }
    Ok(())
}

/// Removes the sandbox: what it holds, its row, and what is left of its folder.
///
/// It is marked first. A crash or a failure before the row is gone leaves a sandbox of that name whose removal can be
/// asked for again; one after that leaves a folder without a row, which is known to be garbage.
pub(crate) async fn erase(
    driver: &impl Driver,
    context: &Context,
    catalogue: Option<&mut Catalogue>,
    ids: Option<&IdMap>,
) -> Result<(), Failure> {
    sockets(context)?;
    let remove = |catalogue: &mut Catalogue| catalogue.remove(context.id).map_err(failure::state);
    match catalogue {
        None if cosm_state::is_passing_dir(&context.dir) => {}
        Some(catalogue) => {
            contents(driver, context, ids).await?;
            remove(catalogue)?;
        }
        None if context.home.catalogue().exists() => {
            contents(driver, context, ids).await?;
            remove(&mut Catalogue::open(&context.home).map_err(failure::state)?)?;
        }
        None => {}
    }
    folder(driver, context, ids).await
}

/// Removes what the sandbox holds, but for the records that say what it was. What can't be removed is written down.
async fn contents(
    driver: &impl Driver,
    context: &Context,
    ids: Option<&IdMap>,
) -> Result<(), Failure> {
    if !is_own_folder(context.dir.path())? {
        return Ok(());
    }
    let mut record = match PhaseRecord::read(&context.dir) {
        Ok(record) => record.unwrap_or(PhaseRecord::created()),
        Err(StateError::DamagedRecord { .. }) => PhaseRecord::created(),
        Err(error) => return Err(failure::state(error)),
    };
    record.phase = Phase::Stopped;
    record.fresh = true;
    record.failure = None;
    // A full disk keeps nothing from being removed.
    let marked = record.write(&context.dir);
    let removed = match data(driver, context, ids).await {
        Ok(()) => all_but_records(driver, context).await,
        failed => failed,
    };
    if let Err(failure) = &removed {
        record.failure = Some(failure.clone());
        marked
            .and_then(|()| record.write(&context.dir))
            .map_err(failure::state)?;
    }
    removed
}

async fn all_but_records(driver: &impl Driver, context: &Context) -> Result<(), Failure> {
    let records = context.dir.records();
    for entry in fs::read_dir(context.dir.path()).map_err(failure::os(FOLDER))? {
        let path = entry.map_err(failure::os(FOLDER))?.path();
        if path != records {
            driver
                .remove_tree(&path, None)
                .await
                .map_err(failure::reap)?;
        }
    }
    Ok(())
}

/// Removes the sandbox's folder. What the guest wrote goes first, while the records that tell whose it is are there.
pub(crate) async fn folder(
    driver: &impl Driver,
    context: &Context,
    ids: Option<&IdMap>,
) -> Result<(), Failure> {
    let path = context.dir.path();
    if is_own_folder(path)? {
        data(driver, context, ids).await?;
    }
    if is_there(path) {
        // A link is removed itself.
        driver
            .remove_tree(path, None)
            .await
            .map_err(failure::reap)?;
    }
    absent(fs::remove_file(context.dir.passing())).map_err(failure::os(FOLDER))
}

async fn data(driver: &impl Driver, context: &Context, ids: Option<&IdMap>) -> Result<(), Failure> {
    let data = context.dir.data();
    match is_there(&data) {
        true => driver.remove_tree(&data, ids).await.map_err(failure::reap),
        false => Ok(()),
    }
}

/// Whether it is a folder, and no link to one: what that leads to is not this sandbox's. Nor is what somebody mounted
/// over it, which is an error: nothing may be made or removed there.
fn is_own_folder(path: &Path) -> Result<bool, Failure> {
    use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx};
    let found = match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        other => other.map_err(|e| failure::os(FOLDER)(e.into()))?,
    };
    if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        let hint = format!("umount {}", path.display());
        let mut failure = failure::plain(
            ErrorKind::State,
            "something is mounted over the sandbox's folder",
        );
        failure.hints.push(hint);
        return Err(failure);
    }
    Ok(FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory)
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The record of the run that was not cleaned up, if there is one.
fn unreaped(context: &Context, phase: Option<&PhaseRecord>) -> Result<Option<RunRecord>, Failure> {
    if let Some(text) = cosm_state::read_run(&context.dir).map_err(failure::state)? {
        return serde_json::from_slice(&text).map(Some).map_err(|_| {
            failure::state(StateError::DamagedRecord {
                path: context.dir.records(),
            })
        });
    }
    // A run that was killed before it was recorded has nothing but what is named by its id.
    let begun = phase.filter(|record| record.phase == Phase::Starting);
    Ok(begun.and_then(|record| record.run).map(|run| RunRecord {
        id: context.id,
        run,
        driver: DriverKind::Namespaces,
        init: None,
        ids: None,
        cgroups: Vec::new(),
        unit: None,
        mounts: Vec::new(),
    }))
}

/// The guest's ids, as the last run that came to run had them.
fn ids_of(phase: Option<&PhaseRecord>) -> Option<IdMap> {
    let facts = phase?.facts.clone();
    serde_json::from_value::<LaunchFacts>(facts).ok()?.ids
}

/// What is known about a sandbox that nobody keeps.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) phase: Option<PhaseRecord>,
    pub(crate) ids: Option<IdMap>,
}

/// Ends and removes what a run left whose keeper was killed. What of the sandbox itself is there stays.
pub(crate) async fn reap(driver: &impl Driver, context: &Context) -> Result<Remains, Failure> {
    let phase = match PhaseRecord::read(&context.dir) {
        Ok(phase) => phase,
        // It is of no use, and must not keep its sandbox from being removed.
        Err(StateError::DamagedRecord { .. }) => None,
        Err(error) => return Err(failure::state(error)),
    };
    let mut ids = ids_of(phase.as_ref());
    if let Some(record) = unreaped(context, phase.as_ref())? {
        driver.reap(&record).await.map_err(failure::reap)?;
        ids = record.ids.or(ids);
    }
    sockets(context)?;
    Ok(Remains { phase, ids })
}

/// The task `Remove`.
pub(crate) async fn remove(driver: &impl Driver, context: &Context) -> Result<(), Failure> {
    let remains = reap(driver, context).await?;
    let known = is_there(context.dir.path())
        || cosm_state::is_passing_dir(&context.dir)
        || (context.home.catalogue().exists()
            && Catalogue::open(&context.home)
                .and_then(|catalogue| catalogue.by_id(context.id))
                .map_err(failure::state)?
                .is_some());
    if !known {
        return Err(failure::plain(
            ErrorKind::NotFound,
            "there is no such sandbox",
        ));
    }
    erase(driver, context, None, remains.ids.as_ref()).await
}

/// The task `Reap`.
pub(crate) async fn reap_task(driver: &impl Driver, context: &Context) -> Result<(), Failure> {
    let remains = reap(driver, context).await?;
    let mut catalogue = match context.home.catalogue().exists() {
        true => Some(Catalogue::open(&context.home).map_err(failure::state)?),
        false => None,
    };
    let row = match &catalogue {
        Some(catalogue) => catalogue.by_id(context.id).map_err(failure::state)?,
        None => None,
    };
    let record = match (row, remains.phase) {
        (Some(row), Some(record)) if !record.fresh => {
            if row.remove_on_exit && record.phase != Phase::Created {
                None
            } else {
                Some(record)
            }
        }
        _ => None,
    };
    match record {
        None => erase(driver, context, catalogue.as_mut(), remains.ids.as_ref()).await,
        Some(record) => lost(context, catalogue.as_mut(), record),
    }
}

/// Writes down that a run's end was not seen.
pub(crate) fn lost(
    context: &Context,
    catalogue: Option<&mut Catalogue>,
    mut record: PhaseRecord,
) -> Result<(), Failure> {
    if record.phase.needs_keeper() {
        let now = clock::now_ms();
        let end = EndReport {
            status: None,
            reason: EndReason::KeeperLost,
            killed: true,
            usage: GuestUsage::default(),
        };
        if let (Some(catalogue), Some(run)) = (catalogue, record.run) {
            catalogue
                .run_ended(context.id, run, now, &end)
                .map_err(failure::state)?;
        }
        record.phase = Phase::Stopped;
        record.ended_ms = Some(now);
        record.end = Some(end);
        record.write(&context.dir).map_err(failure::state)?;
    }
    run_record(context)
}

/// Takes back the record of a run that is cleaned up.
pub(crate) fn run_record(context: &Context) -> Result<(), Failure> {
    cosm_state::clear_run(&context.dir).map_err(failure::state)
}
