//! The client against registries that are slow, broken or hostile, and against real ones.

mod auth;
mod faults;
mod logins;
mod mirrors;
mod real;
mod server;
