//! Terminals: making pairs, and the mode of the one that the user sits at.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Termios, Winsize};

/// Makes a pseudo terminal: its controlling end, and the path of the other.
///
/// # Errors
/// No terminal is left, or `/dev/ptmx` is missing.
pub fn open() -> io::Result<(OwnedFd, CString)> {
    let controller =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&controller)?;
    rustix::pty::unlockpt(&controller)?;
    let name = rustix::pty::ptsname(&controller, Vec::new())?;
    Ok((controller, name))
}

/// Rows and columns of a terminal.
///
/// # Errors
/// It is not a terminal (`ENOTTY`).
pub fn size(terminal: impl AsFd) -> io::Result<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(terminal)?;
    Ok((size.ws_row, size.ws_col))
}

/// Sets rows and columns of a terminal; what runs in its foreground gets `SIGWINCH` if they changed.
///
/// # Errors
/// It is not a terminal (`ENOTTY`).
pub fn resize(terminal: impl AsFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// A terminal in raw mode: every byte goes through as it is, keys make no signals, nothing is echoed. Dropping this
/// brings the mode back that it was in before.
#[derive(Debug)]
pub struct RawMode {
    terminal: OwnedFd,
    before: Termios,
}

impl RawMode {
    /// Switches a terminal to raw mode.
    ///
    /// # Errors
    /// It is not a terminal (`ENOTTY`).
    pub fn enter(terminal: impl AsFd) -> io::Result<Self> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        let before = rustix::termios::tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        // What was typed ahead is kept.
        rustix::termios::tcsetattr(&terminal, OptionalActions::Drain, &raw)?;
        Ok(Self { terminal, before })
    }

    /// Brings the earlier mode back, for instance before stopping; [`RawMode::again`] undoes that.
    ///
    /// # Errors
    /// The terminal is gone (`EIO`).
    pub fn restore(&self) -> io::Result<()> {
        Ok(rustix::termios::tcsetattr(
            &self.terminal,
            OptionalActions::Drain,
            &self.before,
        )?)
    }

    /// Switches to raw mode again.
    ///
    /// # Errors
    /// The terminal is gone (`EIO`).
    pub fn again(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(rustix::termios::tcsetattr(
            &self.terminal,
            OptionalActions::Drain,
            &raw,
        )?)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that went away has no mode to bring back, and nobody is left to tell.
        drop(self.restore());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use rustix::termios::LocalModes;

    #[test]
    fn raw_mode_ends_with_its_guard() {
        let (controller, name) = open().expect("a pseudo terminal");
        let terminal = rustix::fs::open(
            &name,
            OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .expect("open");
        let echo = || {
            rustix::termios::tcgetattr(&terminal)
                .expect("a terminal")
                .local_modes
                .contains(LocalModes::ECHO)
        };
        assert!(echo());
        let guard = RawMode::enter(&terminal).expect("raw");
        assert!(!echo());
        drop(guard);
        assert!(echo());
        resize(&controller, 31, 97).expect("resize");
        assert_eq!(size(&terminal).expect("size"), (31, 97));
    }
}
