//! Layers: what a tar says.
//!
//! A layer is read once, front to back, from whoever sends it: [`stream`] takes compression off and makes the digest, and
//! [`tar`] makes entries of blocks.

pub mod stream;
pub mod tar;
