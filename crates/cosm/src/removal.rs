//! Removing sandboxes.

use std::time::Duration;

use cosm_base::SandboxId;
use cosm_proto::keeper::{Request, Task};
use cosm_state::SandboxStatus;

use crate::catalogue::Question;
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Host;

impl Host {
    pub(crate) async fn remove_stopped(&self, id: SandboxId, name: &str) -> Result<()> {
        let handle = match self.find(name).await {
            Ok(handle) if handle.id() == id => handle,
            // It removed itself when it ended, or another has its name now.
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if handle.status().is_live() {
            return Err(Error::state(name, handle.status().as_str()).hint(format!(
                "stop it first (`cosm stop {name}`), or use `cosm rm --force {name}`"
            )));
        }
        match self.task(id, Task::Remove).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Removes a sandbox with all it holds. With `force` a running one is killed first.
    ///
    /// # Errors
    /// `NotFound`; `WrongState` if it runs and `force` is not given.
    pub async fn remove(&self, name: &str, force: bool) -> Result<()> {
        let seen = self.see_once(Question::One(name.to_owned())).await?;
        let handle = match self.look(name).await {
            Ok(handle) => handle,
            // It was one to be cleaned up, and that was its removal.
            Err(error) if error.kind() == ErrorKind::NotFound && !seen.leftovers.is_empty() => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if force && handle.status().is_live() {
            let mut sandbox = handle.clone().into_sandbox();
            sandbox.stop_after(Some(Duration::ZERO), true).await?;
            self.settled(name, handle.id()).await?;
        }
        self.remove_stopped(handle.id(), handle.name()).await
    }

    /// Waits until a sandbox that has ended has given up its lock.
    pub(crate) async fn settled(&self, name: &str, id: SandboxId) -> Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let mut pause = Duration::from_millis(1);
        loop {
            match self.find(name).await {
                Ok(handle) if handle.id() == id && handle.status().is_live() => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
            if tokio::time::Instant::now() > deadline {
                return Err(Error::state(name, SandboxStatus::Running.as_str()));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    pub(crate) async fn make_room(&self, name: &str, grace: Duration) -> Result<()> {
        let handle = match self.find(name).await {
            Ok(handle) => handle,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if handle.status().is_live() {
            let control = Control::new(&self.shared().runtime, handle.id(), handle.name());
            let grace_ms = Some(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
            let request = Request::Stop {
                grace_ms,
                kill: true,
                replaced: true,
            };
            match control
                .end(request, Some(grace + Duration::from_secs(30)))
                .await
            {
                Ok(_) => {}
                Err(error) if crate::control::nobody_there(&error) => {}
                Err(error) => return Err(error),
            }
            self.settled(name, handle.id()).await?;
        }
        self.remove_stopped(handle.id(), handle.name()).await
    }
}
