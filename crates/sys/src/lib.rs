//! The one room with unsafe: namespaces, mounts, processes, cgroups, seccomp, Landlock.
