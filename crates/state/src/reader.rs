//! The state as everybody but keepers sees it: nothing is made or changed by looking.

use std::cell::OnceCell;

use cosm_base::{Home, SandboxId, SandboxName};
use rusqlite::Connection;

use crate::lookup::{self, Filter, Found, Page, RunRow, SandboxRow};
use crate::phase::{Phase, PhaseRecord};
use crate::read_run;
use crate::status::{Liveness, SandboxStatus};
use crate::{StateError, passing, schema};

/// Looks at the state of one state folder. Cheap to make; what it needs it opens when first asked. Not to be used in a
/// keeper, see [`Liveness`].
#[derive(Debug)]
pub struct Reader {
    home: Home,
    db: OnceCell<Connection>,
    liveness: OnceCell<Liveness>,
}

impl Reader {
    /// Looks at this state folder, which need not exist.
    pub fn new(home: &Home) -> Self {
        Self {
            home: home.clone(),
            db: OnceCell::new(),
            liveness: OnceCell::new(),
        }
    }

    fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StateError>,
    ) -> Result<Option<T>, StateError> {
        if self.db.get().is_none()
            && let Some(db) = schema::open_to_read(&self.home.catalogue())?
        {
            self.db.set(db).expect("it was empty");
        }
        self.db.get().map(question).transpose()
    }

    fn liveness<T>(
        &self,
        question: impl FnOnce(&Liveness) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        if let Some(liveness) = self.liveness.get() {
            return question(liveness);
        }
        let opened = Liveness::open(&self.home)?;
        if opened.sees() {
            question(self.liveness.get_or_init(|| opened))
        } else {
            // There is no lock file yet; there may be one the next time.
            question(&opened)
        }
    }

    /// The sandbox with this name.
    ///
    /// # Errors
    /// [`StateError::Newer`], [`StateError::Damaged`], [`StateError::Database`], as for all questions here.
    pub fn by_name(&self, name: &SandboxName) -> Result<Option<SandboxRow>, StateError> {
        if let Some(row) = self.ask(|db| lookup::by_name(db, name))?.flatten() {
            return Ok(Some(row));
        }
        match name.as_str().parse() {
            Ok(id) => passing::read(&self.home, id),
            Err(_) => Ok(None),
        }
    }

    /// The sandbox with this id.
    ///
    /// # Errors
    /// As [`Reader::by_name`].
    pub fn by_id(&self, id: SandboxId) -> Result<Option<SandboxRow>, StateError> {
        match passing::read(&self.home, id)? {
            Some(row) => Ok(Some(row)),
            None => Ok(self.ask(|db| lookup::by_id(db, id))?.flatten()),
        }
    }

    /// The sandbox with this name, with this id, or with an id that starts like this (4 characters at least).
    ///
    /// # Errors
    /// As [`Reader::by_name`]; [`StateError::Ambiguous`].
    pub fn find(&self, text: &str) -> Result<Option<SandboxRow>, StateError> {
        let entered = match self.ask(|db| lookup::find(db, text))? {
            Some(Found::One(row)) if row.name.as_str() == text => return Ok(Some(*row)),
            Some(Found::One(row)) => Some(*row),
            Some(Found::None) | None => None,
        };
        if text.len() < 4 {
            return Ok(entered);
        }
        let mut found = passing::with_prefix(&self.home, text)?;
        found.extend(entered);
        match (found.pop(), found.pop()) {
            (found, None) => Ok(found),
            (_, Some(_)) => Err(StateError::Ambiguous {
                prefix: text.to_owned(),
            }),
        }
    }

    /// Sandboxes, newest first.
    ///
    /// # Errors
    /// As [`Reader::by_name`].
    pub fn list(&self, filter: &Filter, page: Page) -> Result<Vec<SandboxRow>, StateError> {
        let limit = page.limit as usize;
        let mut rows = passing::list(&self.home, filter, page.before)?;
        if rows.len() < limit {
            let rest = Page {
                before: page.before,
                limit: page.limit - rows.len() as u32,
            };
            let entered = self.ask(|db| lookup::list(db, filter, rest))?;
            rows.extend(entered.unwrap_or_default());
        }
        rows.truncate(limit);
        Ok(rows)
    }

    /// The latest runs of a sandbox, newest first.
    ///
    /// # Errors
    /// As [`Reader::by_name`].
    pub fn runs(&self, id: SandboxId, limit: u32) -> Result<Vec<RunRow>, StateError> {
        Ok(self
            .ask(|db| lookup::runs(db, id, limit))?
            .unwrap_or_default())
    }

    /// How a sandbox is.
    ///
    /// # Errors
    /// As [`Liveness::status`].
    pub fn status(&self, id: SandboxId) -> Result<SandboxStatus, StateError> {
        Ok(self.details(id)?.0)
    }

    /// How a sandbox is, with the phase record that says more.
    ///
    /// # Errors
    /// As [`Liveness::status`].
    pub fn details(
        &self,
        id: SandboxId,
    ) -> Result<(SandboxStatus, Option<PhaseRecord>), StateError> {
        self.liveness(|liveness| liveness.status(id))
    }

    /// The process that keeps a sandbox, see [`Liveness::keeper`].
    ///
    /// # Errors
    /// As [`Liveness::keeper`].
    pub fn keeper(&self, id: SandboxId) -> Result<Option<i32>, StateError> {
        self.liveness(|liveness| liveness.keeper(id))
    }

    /// Sandboxes that need a keeper with the task `Reap`: crashed ones whose guest may still be there, that were to be
    /// removed on exit or were never quite made, and folders that no row belongs to.
    ///
    /// # Errors
    /// As [`Reader::by_name`] and [`Liveness::status`].
    pub fn leftovers(&self) -> Result<Vec<SandboxId>, StateError> {
        let mut found = Vec::new();
        for id in passing::ids(&self.home)? {
            if self.is_leftover(id)? {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// Whether nobody keeps this sandbox although there is something of it to clean up.
    ///
    /// # Errors
    /// As [`Reader::leftovers`].
    pub fn is_leftover(&self, id: SandboxId) -> Result<bool, StateError> {
        // The lock first: a keeper takes it before it makes the folder, and enters the row before it lets go.
        if self.keeper(id)?.is_some() {
            return Ok(false);
        }
        let dir = self.home.sandbox(id);
        let exists = || dir.path().exists() || passing::is_passing_dir(&dir);
        // A keeper removes this record once its run is cleaned up, before it lets go.
        let unreaped = read_run(&dir)?.is_some();
        let leftover = unreaped
            || match self.ask(|db| lookup::by_id(db, id))?.flatten() {
                None => exists(),
                Some(row) => match PhaseRecord::read(&dir) {
                    Ok(None) => true,
                    Ok(Some(record)) if record.phase == Phase::Created => false,
                    Ok(Some(record)) => record.fresh || row.remove_on_exit,
                    // Nothing is known that would allow it to be removed unasked.
                    Err(StateError::DamagedRecord { .. }) => false,
                    Err(error) => return Err(error),
                },
            };
        // It may have come to life, or ended properly, while it was looked at.
        Ok(leftover && self.keeper(id)?.is_none() && exists())
    }
}
