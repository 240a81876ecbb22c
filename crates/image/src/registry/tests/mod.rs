//! The client against registries that are slow, broken or hostile, and against real ones.

mod auth;
mod faults;
mod mirrors;
mod server;
