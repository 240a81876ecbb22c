//! What the catalogue, the lock file and the phase records say. Blocking; see [`Host`] for who calls it.

use cosm_base::SandboxId;
use cosm_spec::SandboxSpec;
use cosm_state::{Page, PhaseRecord, Reader, SandboxRow, SandboxStatus, StateError, crash_reason};

use crate::error::{Error, ErrorKind, Fault, Result};
use crate::host::Host;
use crate::list::Filter;
use crate::status::SandboxHandle;

/// Which sandboxes are asked for.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    /// One by its name, its id, or the beginning of its id.
    One(String),
    /// A part of the list.
    Some(Filter),
}

/// What was seen.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Newest first, each with its place in the list.
    pub(crate) handles: Vec<SandboxHandle>,
    /// Whether there are more.
    pub(crate) more: bool,
    /// Sandboxes that a killed keeper left something of.
    pub(crate) leftovers: Vec<SandboxId>,
    /// Those that could not be cleaned up.
    pub(crate) uncleaned: Vec<(SandboxId, Error)>,
}

pub(crate) fn look(host: &Host, question: &Question) -> Result<Seen> {
    let reader = Reader::new(host.home());
    match question {
        Question::One(name) => {
            let row = reader.find(name)?;
            let mut seen = Seen {
                handles: Vec::new(),
                more: false,
                leftovers: Vec::new(),
                uncleaned: Vec::new(),
            };
            if let Some(row) = row {
                if reader.is_leftover(row.id)? {
                    seen.leftovers.push(row.id);
                }
                seen.handles.push(handle(host, &reader, row)?);
            }
            Ok(seen)
        }
        Question::Some(filter) => {
            let leftovers = reader.leftovers()?;
            let (handles, more) = page(host, &reader, filter)?;
            Ok(Seen {
                handles,
                more,
                leftovers,
                uncleaned: Vec::new(),
            })
        }
    }
}

fn page(host: &Host, reader: &Reader, filter: &Filter) -> Result<(Vec<SandboxHandle>, bool)> {
    let limit = filter.limit.unwrap_or(usize::MAX);
    let labels = cosm_state::Filter {
        labels: filter.labels.clone(),
    };
    // States are not stored, so a list by state has to look at all.
    let rows_limit = match filter.states.is_empty() {
        true => u32::try_from(limit.saturating_add(1)).unwrap_or(u32::MAX),
        false => u32::MAX,
    };
    let rows = reader.list(
        &labels,
        Page {
            before: filter.after,
            limit: rows_limit,
        },
    )?;
    let mut handles = Vec::with_capacity(rows.len().min(limit));
    for row in rows {
        let handle = handle(host, reader, row)?;
        if !filter.states.is_empty() && !filter.states.contains(&handle.status()) {
            continue;
        }
        if handles.len() == limit {
            return Ok((handles, true));
        }
        handles.push(handle);
    }
    Ok((handles, false))
}

fn handle(host: &Host, reader: &Reader, row: SandboxRow) -> Result<SandboxHandle> {
    let name = row.name.to_string();
    let spec = SandboxSpec::from_stored(&row.spec).map_err(|source| {
        Error::new(
            ErrorKind::State,
            Fault::Stored {
                name: name.clone(),
                source,
            },
        )
    })?;
    let (status, record) = match reader.details(row.id) {
        Ok((status, record)) => (status, record.map_or_else(|| Err(crash_reason(None)), Ok)),
        // One that can't be read hides no other.
        Err(error @ StateError::DamagedRecord { .. }) => {
            (SandboxStatus::Crashed, Err(error.to_string()))
        }
        Err(error) => return Err(error.into()),
    };
    let reason = match (status, &record) {
        (SandboxStatus::Crashed, Ok(record)) => Some(crash_reason(Some(record))),
        (SandboxStatus::Crashed, Err(reason)) => Some(reason.clone()),
        _ => None,
    };
    let record = record.unwrap_or(PhaseRecord::created());
    let keeper_pid = if status.is_live() {
        reader.keeper(row.id)?
    } else {
        None
    };
    Ok(SandboxHandle {
        host: host.clone(),
        place: row.seq,
        id: row.id,
        name,
        spec,
        created_ms: row.created_ms,
        status,
        reason,
        keeper_pid,
        record,
    })
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        Self::new(error.kind(), Fault::Catalogue(error))
    }
}
