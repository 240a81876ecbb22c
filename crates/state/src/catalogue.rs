//! The catalogue as a keeper writes it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use cosm_base::{Home, RunId, SandboxId, SandboxName};
use cosm_proto::keeper::{EndReport, IdSlots};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::lookup::{self, RunRow, SandboxRow};
use crate::schema::{self, doing};
use crate::{StateError, slots};

/// A write-ahead log of this length is worth waiting for the disk; until then opening the catalogue stays fast.
const LONG_LOG: u64 = 128 << 10;

/// The catalogue, open for writing. Each method that writes is one small transaction.
#[derive(Debug)]
pub struct Catalogue {
    db: Connection,
    home: Home,
}

/// A sandbox to enter.
#[derive(Debug)]
pub struct NewSandbox<'a> {
    /// Its id.
    pub id: SandboxId,
    /// Its name.
    pub name: &'a SandboxName,
    /// Its spec in stored form.
    pub spec: &'a [u8],
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Created, milliseconds since 1970.
    pub created_ms: u64,
    /// It is removed once it has stopped.
    pub remove_on_exit: bool,
    /// Reserve a range of the host's ids out of these.
    pub ids: Option<IdSlots>,
}

/// What was reserved for a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// Its range of ids, where one was asked for.
    pub id_slot: Option<u32>,
}

impl Catalogue {
    /// Opens the catalogue of this state folder, made or migrated where needed. The folder must exist, see
    /// [`crate::prepare_home`].
    ///
    /// # Errors
    /// [`StateError::Newer`], [`StateError::Damaged`], [`StateError::Database`].
    pub fn open(home: &Home) -> Result<Self, StateError> {
        Ok(Self {
            db: schema::open_to_write(&home.catalogue())?,
            home: home.clone(),
        })
    }

    /// Enters a sandbox and with it reserves its name.
    ///
    /// # Errors
    /// [`StateError::NameTaken`], [`StateError::NoSlots`], [`StateError::Database`].
    pub fn reserve(&mut self, new: &NewSandbox<'_>) -> Result<Reserved, StateError> {
        let failed = "entering a sandbox";
        let transaction = begin(&mut self.db)?;
        if let Some(holder) = lookup::by_name(&transaction, new.name)? {
            return Err(StateError::NameTaken {
                name: new.name.to_string(),
                holder: holder.id,
            });
        }
        let id_slot = match new.ids {
            None => None,
            Some(ids) => {
                let taken = taken_slots(&transaction).map_err(doing(failed))?;
                let chosen = slots::choose(&slots::for_catalogue(&ids), &self.home, &taken);
                Some(chosen.ok_or(StateError::NoSlots { count: ids.count })?)
            }
        };
        insert(&transaction, new, id_slot).map_err(doing(failed))?;
        transaction.commit().map_err(doing(failed))?;
        Ok(Reserved { id_slot })
    }

    /// Takes a sandbox out with its labels and its history. One that is not there is no error.
    ///
    /// # Errors
    /// [`StateError::Database`].
    pub fn remove(&mut self, id: SandboxId) -> Result<(), StateError> {
        let failed = "removing a sandbox";
        let transaction = begin(&mut self.db)?;
        let id = id.to_string();
        let gone = (|| {
            for text in [
                "DELETE FROM label WHERE sandbox = (SELECT seq FROM sandbox WHERE id = ?1)",
                "DELETE FROM run WHERE sandbox = (SELECT seq FROM sandbox WHERE id = ?1)",
                "DELETE FROM sandbox WHERE id = ?1",
            ] {
                transaction.execute(text, [&id])?;
            }
            transaction.commit()
        })();
        gone.map_err(doing(failed))
    }

    /// Enters the start of a run.
    ///
    /// # Errors
    /// [`StateError::Database`].
    pub fn run_started(&mut self, id: SandboxId, run: RunId, at_ms: u64) -> Result<(), StateError> {
        self.execute(
            "entering a run",
            "INSERT OR REPLACE INTO run (sandbox, id, started_ms) SELECT seq, ?2, ?3 FROM sandbox WHERE id = ?1",
            params![id.to_string(), run.to_string(), at_ms.cast_signed()],
        )
    }

    /// Enters the end of a run that was entered.
    ///
    /// # Errors
    /// [`StateError::Database`].
    pub fn run_ended(
        &mut self,
        id: SandboxId,
        run: RunId,
        at_ms: u64,
        end: &EndReport,
    ) -> Result<(), StateError> {
        let end = serde_json::to_string(end).expect("a report holds nothing that JSON can't");
        self.execute(
            "entering the end of a run",
            "UPDATE run SET ended_ms = ?3, end = ?4 \
                WHERE id = ?2 AND ended_ms IS NULL AND sandbox = (SELECT seq FROM sandbox WHERE id = ?1)",
            params![id.to_string(), run.to_string(), at_ms.cast_signed(), end],
        )
    }

    /// Replaces a sandbox's spec in stored form. Its name and its labels stay as they are entered.
    ///
    /// # Errors
    /// [`StateError::Database`].
    pub fn set_spec(&mut self, id: SandboxId, spec: &[u8]) -> Result<(), StateError> {
        self.execute(
            "replacing a spec",
            "UPDATE sandbox SET spec = ?2 WHERE id = ?1",
            params![id.to_string(), spec],
        )
    }

    /// As [`crate::Reader::by_id`].
    ///
    /// # Errors
    /// [`StateError::Database`].
    pub fn by_id(&self, id: SandboxId) -> Result<Option<SandboxRow>, StateError> {
        lookup::by_id(&self.db, id)
    }

    /// As [`crate::Reader::runs`].
    ///
    /// # Errors
    /// [`StateError::Database`].
    pub fn runs(&self, id: SandboxId, limit: u32) -> Result<Vec<RunRow>, StateError> {
        lookup::runs(&self.db, id, limit)
    }

    /// Moves the write-ahead log's content into the database if it has grown long, as far as readers let it, and waits
    /// for the disk. For a moment when nobody waits: closing does not do it.
    ///
    /// # Errors
    /// [`StateError::Database`].
    pub fn settle(self) -> Result<(), StateError> {
        let mut log = self.home.catalogue().into_os_string();
        log.push("-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() < LONG_LOG) {
            return Ok(());
        }
        // Whoever opens the catalogue alone reads all of the log first, so it is cut. If somebody is using it now, it is
        // the next one's turn.
        self.db
            .busy_timeout(Duration::ZERO)
            .and_then(|()| {
                self.db
                    .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            })
            .map_err(doing("settling"))
    }

    fn execute(
        &mut self,
        what: &'static str,
        text: &str,
        values: impl rusqlite::Params,
    ) -> Result<(), StateError> {
        // A single statement is a transaction of its own, and waits its turn as one.
        self.db.execute(text, values).map(drop).map_err(doing(what))
    }
}

fn begin(db: &mut Connection) -> Result<Transaction<'_>, StateError> {
    db.transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(doing("waiting for its turn"))
}

fn taken_slots(db: &Connection) -> rusqlite::Result<HashSet<u32>> {
    db.prepare("SELECT id_slot FROM sandbox WHERE id_slot IS NOT NULL")?
        .query_map([], |row| row.get(0))?
        .collect()
}

fn insert(
    db: &Transaction<'_>,
    new: &NewSandbox<'_>,
    id_slot: Option<u32>,
) -> rusqlite::Result<()> {
    db.execute(
        "INSERT INTO sandbox (id, name, spec, created_ms, remove_on_exit, id_slot) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            new.id.to_string(),
            new.name.as_str(),
            new.spec,
            new.created_ms.cast_signed(),
            new.remove_on_exit,
            id_slot
        ],
    )?;
    if new.labels.is_empty() {
        return Ok(());
    }
    let sandbox = db.last_insert_rowid();
    let mut statement =
        db.prepare("INSERT INTO label (sandbox, key, value) VALUES (?1, ?2, ?3)")?;
    for (key, value) in new.labels {
        statement.execute(params![sandbox, key, value])?;
    }
    Ok(())
}
