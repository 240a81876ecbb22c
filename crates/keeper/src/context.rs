//! What every task of a keeper knows.

use std::path::Path;
use std::time::{Duration, Instant};

use cosm_base::{ErrorKind, Home, RuntimeDir, SandboxDir, SandboxId};
use cosm_proto::keeper::{Failure, IdSlots, Plan};
use cosm_state::{PhaseRecord, StateError};
use cosm_sys::lock::{LockFile, TryLock};

use crate::failure;
use crate::journal::Journal;

/// How long a keeper that has written its last record may take to let go of the lock.
const ALMOST: Duration = Duration::from_secs(2);

/// The sandbox that this process keeps, and where everything of it lies. Holds its lock.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: SandboxId,
    pub(crate) home: Home,
    pub(crate) runtime: RuntimeDir,
    pub(crate) dir: SandboxDir,
    pub(crate) ids: IdSlots,
    pub(crate) journal: Journal,
    /// Opened once and closed by this process's end: closing any descriptor of the file gives the lock up.
    locks: LockFile,
}

impl Context {
    /// Makes the folders that all sandboxes share and takes the sandbox's lock, before anything of the sandbox is
    /// touched.
    pub(crate) fn take(plan: &Plan) -> Result<Self, Failure> {
        let runtime = RuntimeDir::at(path(&plan.runtime));
        let home = Home::new(path(&plan.home)).passing_in(&runtime);
        cosm_state::prepare_home(&home)
            .and_then(|()| cosm_state::prepare_runtime(&runtime))
            .map_err(failure::state)?;
        let locks = LockFile::open(&home.locks()).map_err(failure::os("opening the lock file"))?;
        let dir = home.sandbox(plan.id);
        let begun = Instant::now();
        while !lock(&locks, &home, plan.id)? {
            if begun.elapsed() > ALMOST || !is_almost_free(&dir) {
                return Err(failure::plain(
                    ErrorKind::WrongState,
                    "the sandbox is running, or being started or removed",
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Self {
            id: plan.id,
            journal: Journal::new(dir.keeper_log()),
            dir,
            home,
            runtime,
            ids: plan.ids,
            locks,
        })
    }

    /// Takes a range of ids for a passing sandbox until this process ends; `None` when there is none left.
    pub(crate) fn take_slot(&self) -> Result<Option<u32>, Failure> {
        cosm_state::take_passing_slot(&self.locks, &self.home, &self.ids).map_err(failure::state)
    }

    /// Lets go of the sandbox. Nothing of it may be touched after this.
    pub(crate) fn let_go(&self) {
        if let Err(error) = self.locks.unlock(self.id.lock_offset()) {
            // The end of this process does it too.
            self.journal
                .line(&format!("letting go of the lock: {error}"));
        }
    }

    /// Whether this process acts for root, whose sandboxes have ranges of ids of their own.
    pub(crate) fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }
}

fn lock(locks: &LockFile, home: &Home, id: SandboxId) -> Result<bool, Failure> {
    let taken = locks.try_lock(id.lock_offset()).map_err(|source| {
        failure::state(StateError::NoLocks {
            path: home.locks(),
            source,
        })
    })?;
    Ok(taken == TryLock::Taken)
}

/// Whether whoever holds the lock is about to let go of it: it has written its last record. It may also be about to
/// start the sandbox, and then its next record says so.
fn is_almost_free(dir: &SandboxDir) -> bool {
    matches!(PhaseRecord::read(dir), Ok(Some(record)) if !record.phase.needs_keeper())
}

fn path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
