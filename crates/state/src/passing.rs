//! Passing sandboxes: leased, without a name of their own, and removed when they end.
//!
//! Nothing of such a sandbox should exist once its keeper is gone, so there is nothing for the catalogue to remember: it
//! is known by one file for as long as its lock is held. That file only grows: making and removing a folder, and
//! replacing files in it, would cost more than the rest of a short sandbox's life on the disk. That keeps the database, and the disk that it
//! waits for, out of the way of a short command.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use cosm_base::{Home, SandboxDir, SandboxId, SandboxName};
use cosm_proto::keeper::IdSlots;
use cosm_spec::{Lifetime, SandboxSpec};
use cosm_sys::lock::{LockFile, TryLock};
use serde::{Deserialize, Serialize};

use crate::lookup::{Filter, SandboxRow};
use crate::slots;
use crate::{StateError, records};

/// The version of the file.
const VERSION: u32 = 2;
/// Sandboxes' own locks lie below this byte of the lock file, the locks of passing sandboxes' id ranges from it on.
const SLOT_LOCKS: i64 = 1 << 62;
/// Added to the time of creation to make a place in lists: above all that the catalogue gives.
const PLACES: i64 = 1 << 61;

/// The file's first line; the second is the spec in its stored form. What follows are
/// [records].
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u32,
    created_ms: u64,
    id_slot: Option<u32>,
}

/// Whether a sandbox of this spec is a passing one, once started.
pub fn is_passing(id: SandboxId, spec: &SandboxSpec) -> bool {
    let unnamed = spec
        .name
        .as_ref()
        .is_none_or(|name| name.as_str() == id.to_string());
    unnamed && spec.remove_on_exit && spec.lifetime == Lifetime::Leased
}

/// Whether these are a passing sandbox's files.
pub fn is_passing_dir(dir: &SandboxDir) -> bool {
    dir.passing().exists()
}

/// Writes down what readers want to know of a passing sandbox.
///
/// # Errors
/// [`StateError::Io`].
pub fn enter_passing(
    dir: &SandboxDir,
    stored: &[u8],
    created_ms: u64,
    id_slot: Option<u32>,
) -> Result<(), StateError> {
    let head = Head {
        version: VERSION,
        created_ms,
        id_slot,
    };
    let mut text = serde_json::to_vec(&head).expect("numbers are always JSON");
    text.push(b'\n');
    text.extend_from_slice(stored);
    text.push(b'\n');
    let written = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.passing())
        .and_then(|mut file| file.write_all(&text));
    written.map_err(StateError::io("writing", dir.passing()))
}

/// Takes a range of ids for a passing sandbox, for as long as this process holds the lock file: the upper half of
/// the slots is theirs. `None` when all are taken.
///
/// # Errors
/// [`StateError::NoLocks`].
pub fn take_passing_slot(
    locks: &LockFile,
    home: &Home,
    ids: &IdSlots,
) -> Result<Option<u32>, StateError> {
    let lower = slots::for_catalogue(ids).count;
    let own = ids.count - lower;
    let start = slots::start(home, own);
    for at in 0..own {
        let slot = lower + ((u64::from(start) + u64::from(at)) % u64::from(own)) as u32;
        if slots::first_id(ids, slot).is_none() {
            continue;
        }
        let taken = locks.try_lock(SLOT_LOCKS + i64::from(slot));
        let taken = taken.map_err(|source| StateError::NoLocks {
            path: home.locks(),
            source,
        })?;
        if taken == TryLock::Taken {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

/// A passing sandbox; `None` where there is none, or it is just coming or going.
pub(crate) fn read(home: &Home, id: SandboxId) -> Result<Option<SandboxRow>, StateError> {
    let path = home.sandbox(id).passing().to_owned();
    let Some(text) = records::text(&path)? else {
        return Ok(None);
    };
    let mut lines = text
        .split_inclusive(|&b| b == b'\n')
        .map_while(|line| line.strip_suffix(b"\n"));
    let (Some(head), Some(spec)) = (lines.next(), lines.next()) else {
        return Ok(None);
    };
    let Ok(head) = serde_json::from_slice::<Head>(head) else {
        return Ok(None);
    };
    let name: SandboxName = match id.to_string().parse() {
        Ok(name) => name,
        Err(_) => return Ok(None),
    };
    Ok((head.version == VERSION).then(|| SandboxRow {
        seq: place(head.created_ms, id),
        id,
        name,
        spec: spec.to_vec(),
        created_ms: head.created_ms,
        remove_on_exit: true,
        id_slot: head.id_slot,
    }))
}

/// In the order of creation; the id tells those of one millisecond apart.
fn place(created_ms: u64, id: SandboxId) -> i64 {
    let time = created_ms.min(1 << 48) << 12 | id.bits() & 0xfff;
    PLACES + time.cast_signed()
}

/// The passing sandboxes of a list, newest first.
pub(crate) fn list(
    home: &Home,
    filter: &Filter,
    before: Option<i64>,
) -> Result<Vec<SandboxRow>, StateError> {
    let mut found = Vec::new();
    // From a place in the catalogue's part of the list on there are none.
    if before.is_some_and(|place| place < PLACES) {
        return Ok(found);
    }
    for id in ids(home)? {
        let Some(row) = read(home, id)? else { continue };
        if before.is_none_or(|place| row.seq < place) && has_labels(&row, filter) {
            found.push(row);
        }
    }
    found.sort_unstable_by_key(|row| std::cmp::Reverse(row.seq));
    Ok(found)
}

/// The passing sandboxes whose ids start like this.
pub(crate) fn with_prefix(home: &Home, prefix: &str) -> Result<Vec<SandboxRow>, StateError> {
    let mut found = Vec::new();
    for id in ids(home)? {
        if id.to_string().starts_with(prefix) {
            found.extend(read(home, id)?);
        }
    }
    Ok(found)
}

fn has_labels(row: &SandboxRow, filter: &Filter) -> bool {
    if filter.labels.is_empty() {
        return true;
    }
    let Ok(spec) = SandboxSpec::from_stored(&row.spec) else {
        return false;
    };
    filter.labels.iter().all(|(key, value)| {
        let found = spec.labels.get(key);
        found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
    })
}

/// The ids of all sandboxes that something lies about of.
pub(crate) fn ids(home: &Home) -> Result<Vec<SandboxId>, StateError> {
    let mut ids = Vec::new();
    each(&home.sandboxes(), |name| {
        ids.extend(name.parse::<SandboxId>().ok())
    })?;
    each(&home.passing(), |name| {
        ids.extend(SandboxDir::passing_id(name))
    })?;
    // A passing sandbox may have both, a file and a folder.
    ids.sort_unstable_by_key(|id| id.bits());
    ids.dedup();
    Ok(ids)
}

/// The names in a folder, which need not be there.
fn each(folder: &Path, mut name: impl FnMut(&str)) -> Result<(), StateError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StateError::io("reading", folder)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(StateError::io("reading", folder))?;
        entry.file_name().to_str().map(&mut name);
    }
    Ok(())
}
