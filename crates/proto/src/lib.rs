//! The bytes between processes of different age: agent messages and keeper messages.
