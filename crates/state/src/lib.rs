//! The catalogue: what sandboxes should exist, and whether they live.
