//! Sandboxes for code nobody trusts.
