//! The guest side of the system room: a start without libc, an allocator, fork and exec.
