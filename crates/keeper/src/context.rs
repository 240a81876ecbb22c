//! What every task of a keeper knows.

use std::path::Path;

use cosm_base::{ErrorKind, Home, RuntimeDir, SandboxDir, SandboxId};
use cosm_proto::keeper::{Failure, IdSlots, Plan};
use cosm_state::StateError;
use cosm_sys::lock::{LockFile, TryLock};

use crate::failure;
use crate::journal::Journal;

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
        let home = Home::new(path(&plan.home));
        let runtime = RuntimeDir::at(path(&plan.runtime));
        cosm_state::prepare_home(&home).map_err(failure::state)?;
        let locks = LockFile::open(&home.locks()).map_err(failure::os("opening the lock file"))?;
        let taken = locks.try_lock(plan.id.lock_offset()).map_err(|source| {
            failure::state(StateError::NoLocks {
                path: home.locks(),
                source,
            })
        })?;
        if taken == TryLock::Held {
            return Err(failure::plain(
                ErrorKind::WrongState,
                "the sandbox is running, or being started or removed",
            ));
        }
        let dir = home.sandbox(plan.id);
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

fn path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
