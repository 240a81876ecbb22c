//! One sandbox's life.
