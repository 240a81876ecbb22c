//! Cgroups.
