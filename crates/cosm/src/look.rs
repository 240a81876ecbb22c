//! One sandbox, looked up by its name or its id.

use std::time::Duration;

use cosm_base::SandboxId;
use cosm_state::SandboxStatus;
use tokio::time::timeout;

use crate::catalogue::Question;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Host;
use crate::list::Filter;
use crate::sandbox::Sandbox;
use crate::status::SandboxHandle;

/// How long a sandbox that seems to have ended may still be cleaned up after.
const SETTLED: Duration = Duration::from_secs(3);

impl Host {
    /// A sandbox by its name, or by its id.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn get(&self, name: &str) -> Result<Sandbox> {
        Ok(self.look(name).await?.into_sandbox())
    }

    /// The sandbox whose name is nearest to one that nobody has.
    async fn nearest(&self, name: &str) -> Option<String> {
        let all = self.list(&Filter::default()).await.ok()?.sandboxes;
        let name = Some(name).filter(|name| !name.is_empty())?;
        let far = |other: &str| strsim::damerau_levenshtein(name, other);
        all.iter()
            .map(SandboxHandle::name)
            .filter(|other| other.starts_with(name) || far(other) <= (name.len() / 3).min(2))
            .min_by_key(|other| far(other))
            .map(str::to_owned)
    }

    /// What is known of one sandbox, also of one that does not run.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn look(&self, name: &str) -> Result<SandboxHandle> {
        match self.find(name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => match self.nearest(name).await {
                Some(near) => Err(error.hint(format!("did you mean {near}?"))),
                None => Err(error),
            },
            result => result,
        }
    }

    /// As [`look`](Self::look), where it need not be there.
    pub(crate) async fn find(&self, name: &str) -> Result<SandboxHandle> {
        let mut seen = self.see(Question::One(name.to_owned())).await?;
        seen.handles.pop().ok_or_else(|| Error::no_sandbox(name))
    }

    /// That a sandbox has crashed, and what is known of that, if it has.
    pub(crate) async fn crash_of(&self, id: SandboxId, name: &str) -> Option<Error> {
        // Another may be cleaning up after it just now.
        let settled = timeout(SETTLED, self.settled(name, id)).await;
        settled.ok()?.ok()?;
        let handle = self.find(name).await.ok()?;
        let crashed = handle.id() == id && handle.status() == SandboxStatus::Crashed;
        let reason = handle.crash_reason().filter(|_| crashed)?;
        Some(Error::crashed(name, reason))
    }
}
