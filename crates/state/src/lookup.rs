//! Questions to the catalogue. Names, labels and prefixes travel as parameters, never in the text of a statement.

use cosm_base::{RunId, SandboxId, SandboxName};
use cosm_proto::keeper::EndReport;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};

use crate::StateError;
use crate::schema::doing;

/// A sandbox as the catalogue has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRow {
    /// Its place in the order of creation, for [`Page::before`].
    pub seq: i64,
    /// Its id.
    pub id: SandboxId,
    /// Its name.
    pub name: SandboxName,
    /// Its spec in stored form, see `SandboxSpec::from_stored`.
    pub spec: Vec<u8>,
    /// Created, milliseconds since 1970.
    pub created_ms: u64,
    /// It is removed once it has stopped.
    pub remove_on_exit: bool,
    /// Its range of the host's ids, where root made it.
    pub id_slot: Option<u32>,
}

/// One run of a sandbox. Sandboxes that are removed on exit have no history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// Its id.
    pub run: RunId,
    /// Started, milliseconds since 1970.
    pub started_ms: u64,
    /// Ended, milliseconds since 1970; `None` while it runs, and for ever where its keeper was killed and nobody has
    /// looked since.
    pub ended_ms: Option<u64>,
    /// How it ended.
    pub end: Option<EndReport>,
}

/// Which sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Labels that must all be there: a key, and its value where that matters too.
    pub labels: Vec<(String, Option<String>)>,
}

/// Which part of a list, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Only those older than the one with this [`SandboxRow::seq`].
    pub before: Option<i64>,
    /// At most this many.
    pub limit: u32,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            before: None,
            limit: u32::MAX,
        }
    }
}

/// What a text that names a sandbox found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// This one.
    One(Box<SandboxRow>),
    /// None.
    None,
}

const COLUMNS: &str = "seq, id, name, spec, created_ms, remove_on_exit, id_slot";

pub(crate) fn by_name(
    db: &Connection,
    name: &SandboxName,
) -> Result<Option<SandboxRow>, StateError> {
    one(db, "name = ?1", name.as_str())
}

pub(crate) fn by_id(db: &Connection, id: SandboxId) -> Result<Option<SandboxRow>, StateError> {
    one(db, "id = ?1", &id.to_string())
}

fn one(db: &Connection, condition: &str, value: &str) -> Result<Option<SandboxRow>, StateError> {
    db.query_row(
        &format!("SELECT {COLUMNS} FROM sandbox WHERE {condition}"),
        [value],
        sandbox,
    )
    .optional()
    .map_err(doing("finding a sandbox"))
}

/// A name, an id, or the first characters (at least 4) of an id that no other starts with.
pub(crate) fn find(db: &Connection, text: &str) -> Result<Found, StateError> {
    if let Ok(name) = text.parse::<SandboxName>()
        && let Some(row) = by_name(db, &name)?
    {
        return Ok(Found::One(Box::new(row)));
    }
    if text.len() < 4 || text.len() > 13 || !text.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Ok(Found::None);
    }
    // Every id with the prefix lies between it and it followed by a character above all of an id's.
    let after = format!("{text}{{");
    let mut statement = db
        .prepare(&format!(
            "SELECT {COLUMNS} FROM sandbox WHERE id >= ?1 AND id < ?2 LIMIT 2"
        ))
        .map_err(doing("finding a sandbox"))?;
    let mut rows = statement
        .query_map([text, &after], sandbox)
        .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>)
        .map_err(doing("finding a sandbox"))?;
    match (rows.pop(), rows.pop()) {
        (Some(row), None) => Ok(Found::One(Box::new(row))),
        (Some(_), Some(_)) => Err(StateError::Ambiguous {
            prefix: text.to_owned(),
        }),
        _ => Ok(Found::None),
    }
}

pub(crate) fn list(
    db: &Connection,
    filter: &Filter,
    page: Page,
) -> Result<Vec<SandboxRow>, StateError> {
    let mut text = format!("SELECT {COLUMNS} FROM sandbox WHERE seq < ?");
    let mut values = vec![Value::from(page.before.unwrap_or(i64::MAX))];
    for (key, value) in &filter.labels {
        text.push_str(" AND seq IN (SELECT sandbox FROM label WHERE key = ?");
        values.push(key.clone().into());
        if let Some(value) = value {
            text.push_str(" AND value = ?");
            values.push(value.clone().into());
        }
        text.push(')');
    }
    text.push_str(" ORDER BY seq DESC LIMIT ?");
    values.push(page.limit.into());
    let listed = db.prepare(&text).and_then(|mut statement| {
        statement
            .query_map(params_from_iter(values), sandbox)?
            .collect()
    });
    listed.map_err(doing("listing sandboxes"))
}

pub(crate) fn runs(db: &Connection, id: SandboxId, limit: u32) -> Result<Vec<RunRow>, StateError> {
    let text = "SELECT run.id, started_ms, ended_ms, end FROM run JOIN sandbox ON seq = sandbox \
        WHERE sandbox.id = ?1 ORDER BY started_ms DESC LIMIT ?2";
    let found = db.prepare(text).and_then(|mut statement| {
        statement
            .query_map(params![id.to_string(), limit], run)?
            .collect()
    });
    found.map_err(doing("reading the history"))
}

fn sandbox(row: &Row<'_>) -> rusqlite::Result<SandboxRow> {
    Ok(SandboxRow {
        seq: row.get(0)?,
        id: parsed(row, 1)?,
        name: parsed(row, 2)?,
        spec: row.get(3)?,
        created_ms: row.get::<_, i64>(4)?.cast_unsigned(),
        remove_on_exit: row.get(5)?,
        id_slot: row.get(6)?,
    })
}

fn run(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let end: Option<String> = row.get(3)?;
    Ok(RunRow {
        run: parsed(row, 0)?,
        started_ms: row.get::<_, i64>(1)?.cast_unsigned(),
        ended_ms: row.get::<_, Option<i64>>(2)?.map(i64::cast_unsigned),
        end: end
            .map(|text| serde_json::from_str(&text).map_err(|error| unreadable(3, error)))
            .transpose()?,
    })
}

fn parsed<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|error| unreadable(column, error))
}

fn unreadable(
    column: usize,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
}
