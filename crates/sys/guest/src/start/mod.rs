//! What a program without std and libc starts from.

// Their tests are programs with both, and call them by other names.
mod heap;
mod memory;
#[cfg(not(test))]
mod program;
