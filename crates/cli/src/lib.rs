//! The cosm program.
