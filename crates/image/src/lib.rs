//! Images: references, registries, what layers say, and recipes.
//!
//! An image is an ordered list of layers, each named by the digest of its uncompressed tar (its *diff id*), and a
//! configuration. All that comes from a registry or an archive is hostile until its digest has been checked, and what is
//! in a layer stays so.

pub mod cancel;
pub mod config;
pub mod digest;
pub mod layer;
pub mod manifest;
pub mod platform;
pub mod recipe;
pub mod reference;
pub mod registry;

pub use cancel::{Cancel, Cancelled};
pub use config::ImageConfig;
pub use digest::Digest;
pub use platform::Platform;
pub use reference::Reference;
