//! The exit codes of the `cosm` program. The command's own code passes through where it ran.

/// All went well.
pub const OK: u8 = 0;
/// The command's time-out passed and its processes were killed.
pub const TIMED_OUT: u8 = 124;
/// cosm itself failed: the sandbox could not be made, or was lost.
pub const COSM_FAILED: u8 = 125;
/// The command was found but could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;
/// Added to a signal's number when a signal ended the command.
pub const SIGNAL_BASE: u8 = 128;

/// The code for a command that a signal ended: 128 + n, as shells have it.
pub const fn of_signal(signal: i32) -> u8 {
    if signal > 0 && signal < 128 {
        SIGNAL_BASE + signal as u8
    } else {
        255
    }
}
