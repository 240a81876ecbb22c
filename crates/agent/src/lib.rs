//! The guest's process 1.
