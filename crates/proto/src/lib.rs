//! The bytes between processes of different age: agent messages and keeper messages.
//!
//! A connection is a sequence of frames ([`frame`]). Control frames hold one [postcard] value, data frames hold raw
//! bytes. The first frame of a connection names the protocol's version; a peer that does not know it says so and closes.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod agent;
pub mod files;
pub mod frame;
#[cfg(feature = "std")]
pub mod keeper;
