//! The contract every driver meets.
