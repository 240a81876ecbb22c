//! The catalogue's schema and the way from each older one to it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::StateError;

/// `MIGRATIONS[n]` leads from schema `n` to schema `n + 1`. A step that has been released is never changed.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE sandbox (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL UNIQUE,
        spec BLOB NOT NULL,
        created_ms INTEGER NOT NULL,
        remove_on_exit INTEGER NOT NULL,
        id_slot INTEGER UNIQUE
    ) STRICT;
    CREATE TABLE label (
        sandbox INTEGER NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (sandbox, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX label_value ON label (key, value);
    CREATE TABLE run (
        sandbox INTEGER NOT NULL,
        id TEXT NOT NULL,
        started_ms INTEGER NOT NULL,
        ended_ms INTEGER,
        end TEXT,
        PRIMARY KEY (sandbox, started_ms, id)
    ) STRICT, WITHOUT ROWID;
"];

/// The newest schema.
pub(crate) const KNOWN: i64 = MIGRATIONS.len() as i64;

/// How long a statement waits for another program's transaction.
const BUSY: Duration = Duration::from_secs(10);

/// Opens the catalogue for reading; `None` where there is none. An older schema is read as it is: every step so far only
/// adds, and the step that does not will have to be told to the reader.
pub(crate) fn open_to_read(path: &Path) -> Result<Option<Connection>, StateError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match open(path, flags) {
        Ok(db) => check(&db, path).map(|_| Some(db)),
        Err(_) if !path.exists() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the catalogue for writing, made or migrated where needed.
pub(crate) fn open_to_write(path: &Path) -> Result<Connection, StateError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = match open(path, flags) {
        Ok(db) => db,
        Err(_) if !path.exists() => {
            make(path)?;
            open(path, flags)?
        }
        Err(error) => return Err(error),
    };
    // Whoever closes last would otherwise copy the log into the database and wait for the disk, in the middle of
    // somebody's `run`. It is done after everybody has been answered, see `Catalogue::settle`.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(doing("opening"))?;
    if check(&db, path)? < KNOWN {
        migrate(&mut db).map_err(explain(path, "migrating"))?;
    }
    Ok(db)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StateError> {
    let db = Connection::open_with_flags(path, flags).map_err(explain(path, "opening"))?;
    db.busy_handler(Some(wait_for_turn))
        .map_err(doing("opening"))?;
    // What is committed survives the end of any process. After a power failure the database is whole, and has what the
    // kernel had written by then: waiting for the disk at each commit would let 64 creations at once wait for 64 syncs.
    db.pragma_update(None, "synchronous", "NORMAL")
        .map_err(explain(path, "opening"))?;
    Ok(db)
}

/// Waits while another process writes, which takes it well below a millisecond. SQLite's own handler soon sleeps for 100.
fn wait_for_turn(times: i32) -> bool {
    const NAP: Duration = Duration::from_micros(500);
    let slept = NAP.saturating_mul(times.unsigned_abs());
    if slept < BUSY {
        std::thread::sleep(NAP);
    }
    slept < BUSY
}

/// The schema's version, if it is one that can be used.
fn check(db: &Connection, path: &Path) -> Result<i64, StateError> {
    let found: i64 = db
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(explain(path, "reading its version"))?;
    match found {
        // An empty file is a database without tables.
        0 | ..0 => Err(StateError::Damaged {
            path: path.to_owned(),
            source: rusqlite::Error::InvalidQuery,
        }),
        found if found > KNOWN => Err(StateError::Newer {
            found,
            known: KNOWN,
        }),
        found => Ok(found),
    }
}

/// Makes the catalogue under another name and moves it in place, so that nobody ever sees one without tables.
fn make(path: &Path) -> Result<(), StateError> {
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    let made = make_at(&temporary)
        .and_then(|()| place(&temporary, path).map_err(StateError::io("creating", path)));
    for leftover in ["", "-wal", "-shm", "-journal"] {
        let mut name = temporary.clone().into_os_string();
        name.push(leftover);
        let name = PathBuf::from(name);
        match fs::remove_file(&name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return made.and(Err(StateError::io("removing", name)(error))),
        }
    }
    made
}

fn make_at(path: &Path) -> Result<(), StateError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = open(path, flags)?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        .map_err(explain(path, "creating"))?;
    migrate(&mut db).map_err(explain(path, "creating"))?;
    db.close()
        .map_err(|(_, source)| explain(path, "creating")(source))
}

/// Moves the new catalogue in place unless another process was faster.
fn place(temporary: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        // A file system without the flag; a hard link does not replace either.
        Err(rustix::io::Errno::INVAL) => match fs::hard_link(temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        },
        Err(error) => Err(error.into()),
    }
}

fn migrate(db: &mut Connection) -> rusqlite::Result<()> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster, also with a newer program.
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for step in MIGRATIONS
        .iter()
        .skip(usize::try_from(found).unwrap_or(usize::MAX))
    {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", found.max(KNOWN))?;
    transaction.commit()
}

/// Tells damage from other trouble.
pub(crate) fn explain(
    path: &Path,
    doing: &'static str,
) -> impl FnOnce(rusqlite::Error) -> StateError {
    let path = path.to_owned();
    move |source| match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            StateError::Damaged { path, source }
        }
        _ => StateError::Database { doing, source },
    }
}

pub(crate) fn doing(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> StateError {
    move |source| StateError::Database { doing, source }
}
