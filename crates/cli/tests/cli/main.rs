//! The real program, driven from outside.

mod arguments;
mod common;
mod files;
mod life;
mod run;
mod terminal;
