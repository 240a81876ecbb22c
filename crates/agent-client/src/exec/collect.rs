//! Keeping a command's output, up to a cap.

use super::{ExecEvent, ExecExit};

/// A command's output and end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// The first bytes of its standard output, up to the cap.
    pub stdout: Vec<u8>,
    /// The first bytes of its standard error, up to the cap.
    pub stderr: Vec<u8>,
    /// All bytes it wrote to its standard output; more than `stdout` holds means that the cap cut it.
    pub stdout_total: u64,
    /// All bytes it wrote to its standard error.
    pub stderr_total: u64,
    /// How it ended.
    pub exit: ExecExit,
}

impl Collected {
    /// Whether the cap cut standard output.
    pub fn stdout_truncated(&self) -> bool {
        self.stdout_total > self.stdout.len() as u64
    }

    /// Whether the cap cut standard error.
    pub fn stderr_truncated(&self) -> bool {
        self.stderr_total > self.stderr.len() as u64
    }
}

/// Takes events one by one and keeps at most `cap` bytes of each stream. What is over the cap is counted, and read so
/// that the command can go on.
#[derive(Debug)]
pub struct Collector {
    cap: usize,
    stdout: (Vec<u8>, u64),
    stderr: (Vec<u8>, u64),
}

impl Collector {
    /// Keeps at most `cap` bytes of each stream.
    pub const fn new(cap: usize) -> Self {
        Self {
            cap,
            stdout: (Vec::new(), 0),
            stderr: (Vec::new(), 0),
        }
    }

    /// Takes one event; answers the exit if that is what it was.
    pub fn take(&mut self, event: ExecEvent) -> Option<ExecExit> {
        let (bytes, (kept, total)) = match event {
            ExecEvent::Stdout(bytes) => (bytes, &mut self.stdout),
            ExecEvent::Stderr(bytes) => (bytes, &mut self.stderr),
            ExecEvent::StdinClosed => return None,
            ExecEvent::Exit(exit) => return Some(exit),
        };
        *total += bytes.len() as u64;
        let room = self.cap - kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        None
    }

    /// What was kept.
    pub fn finish(self, exit: ExecExit) -> Collected {
        Collected {
            stdout: self.stdout.0,
            stderr: self.stderr.0,
            stdout_total: self.stdout.1,
            stderr_total: self.stderr.1,
            exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_the_cap_is_counted() {
        let mut collector = Collector::new(5);
        for part in [&b"abc"[..], b"def", b"ghi"] {
            assert_eq!(collector.take(ExecEvent::Stdout(part.to_vec())), None);
        }
        assert_eq!(
            (collector.stdout.0.as_slice(), collector.stdout.1),
            (&b"abcde"[..], 9)
        );
    }
}
