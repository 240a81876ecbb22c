//! Ids, names, units, error kinds, exit codes and the layout of the state folder. No I/O.
