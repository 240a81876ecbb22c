//! The client against registries that are slow, broken or hostile, and against real ones.

mod auth;
mod documents;
mod faults;
mod logins;
mod made;
mod mirrors;
mod proxy;
mod real;
mod realm;
mod server;
