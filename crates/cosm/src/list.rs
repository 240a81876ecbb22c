//! Which sandboxes a list holds.

use cosm_base::SandboxId;
use cosm_state::SandboxStatus;

use crate::error::Error;
use crate::status::SandboxHandle;

/// Which sandboxes a list holds. The default holds all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Filter {
    pub(crate) labels: Vec<(String, Option<String>)>,
    pub(crate) states: Vec<SandboxStatus>,
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<i64>,
}

/// A part of a list.
#[derive(Debug)]
pub struct Page {
    /// Newest first.
    pub sandboxes: Vec<SandboxHandle>,
    /// Where the next part begins, if there is one: see [`Filter::after`].
    pub next: Option<i64>,
    /// What killed keepers left behind and could not be removed, and why. It is tried again with the next look.
    pub uncleaned: Vec<(SandboxId, Error)>,
}

impl Filter {
    /// Only those with this label, whatever its value. With several, all must match.
    pub fn label(mut self, key: impl Into<String>) -> Self {
        self.labels.push((key.into(), None));
        self
    }
    /// Only those with this label and value. With several, all must match.
    pub fn label_is(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), Some(value.into())));
        self
    }
    /// Only those in this state. With several, one must match.
    pub fn state(mut self, state: SandboxStatus) -> Self {
        self.states.push(state);
        self
    }
    /// At most this many.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
    /// Those after this one, which the last part named as its `next`.
    pub fn after(mut self, cursor: i64) -> Self {
        self.after = Some(cursor);
        self
    }
}
