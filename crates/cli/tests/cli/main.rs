//! The real program, driven from outside.

mod arguments;
mod boot;
mod common;
mod crash;
mod files;
mod life;
mod main_job;
mod removal;
mod run;
mod signals;
mod terminal;
