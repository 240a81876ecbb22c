//! Commands in a sandbox.

mod options;

use cosm_agent_client as client;
use cosm_agent_client::exec::ExecWait;
use cosm_agent_client::{AgentClient, ExecControl, ExecInput};
pub use cosm_proto::agent::{ExitReport, ExitStatus, Usage, UsageSource};
use cosm_proto::agent::{Stdio, WindowSize};
use tokio::task::JoinHandle;

use crate::control::Hold;
use crate::error::{Error, Result};
use options::Stdin;
pub use options::{DEFAULT_CAP, ExecOptions};

/// How a command ended and what it used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecStatus {
    /// Its code, or the signal that ended it.
    pub status: ExitStatus,
    /// Its time was over, and all its processes were killed.
    pub timed_out: bool,
    /// The kernel killed something in it for want of memory, as far as can be told.
    pub oom: bool,
    /// It left processes running.
    pub leftovers: bool,
    /// One of those still holds its output open; what that one writes is not read.
    pub detached_holders: bool,
    /// It stopped reading its input before all of it was taken.
    pub stdin_closed: bool,
    /// What it used.
    pub usage: Usage,
}

impl ExecStatus {
    /// Whether it returned 0.
    pub fn success(&self) -> bool {
        self.status == ExitStatus::Code(0) && !self.timed_out
    }

    /// Its code, if it returned one.
    pub fn code(&self) -> Option<i32> {
        match self.status {
            ExitStatus::Code(code) => Some(code),
            ExitStatus::Signal(_) => None,
        }
    }

    /// The signal that ended it, if one did.
    pub fn signal(&self) -> Option<i32> {
        match self.status {
            ExitStatus::Signal(signal) => Some(signal),
            ExitStatus::Code(_) => None,
        }
    }
}

/// What a command said, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecOutput {
    /// How it ended.
    pub status: ExecStatus,
    /// The first bytes of its output, up to the cap.
    pub stdout: Vec<u8>,
    /// The first bytes of its error output, up to the cap.
    pub stderr: Vec<u8>,
    /// All bytes of its output, those over the cap counted.
    pub stdout_total: u64,
    /// All bytes of its error output.
    pub stderr_total: u64,
}

impl ExecOutput {
    /// Whether it returned 0.
    pub fn success(&self) -> bool {
        self.status.success()
    }
    /// Whether its time was over.
    pub fn timed_out(&self) -> bool {
        self.status.timed_out
    }
    /// Whether the cap cut its output.
    pub fn stdout_truncated(&self) -> bool {
        self.stdout_total > self.stdout.len() as u64
    }
    /// Whether the cap cut its error output.
    pub fn stderr_truncated(&self) -> bool {
        self.stderr_total > self.stderr.len() as u64
    }
    /// Its output as text; what is not UTF-8 is replaced.
    pub fn stdout_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }
    /// Its error output as text; what is not UTF-8 is replaced.
    pub fn stderr_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }
}

/// Something a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExecEvent {
    /// It runs, as this process in the guest. First.
    Started {
        /// The process's number in the guest.
        pid: i32,
    },
    /// It wrote this to its output, or to its terminal.
    Stdout(Vec<u8>),
    /// It wrote this to its error output.
    Stderr(Vec<u8>),
    /// It no longer reads its input.
    StdinClosed,
    /// It ended. Last.
    Exited(ExecStatus),
}

/// A running command. Dropping it kills the command with all its descendants.
#[derive(Debug)]
pub struct ExecHandle {
    pid: i32,
    told: bool,
    input: Option<ExecInput>,
    feeding: Feeding,
    control: ExecControl,
    output: client::ExecOutput,
    hold: Option<Hold>,
    cap: usize,
}

/// How long after a command's end its input may take to tell whether it was read.
const FEED_SETTLES: std::time::Duration = std::time::Duration::from_millis(20);

/// Bytes on their way to a command's input. Nothing waits for them: a command's end is its end.
#[derive(Debug)]
struct Feeding(Option<JoinHandle<bool>>);

impl Feeding {
    /// Whether the command closed its input before it had taken all.
    async fn cut(&mut self) -> bool {
        match self.0.take() {
            None => false,
            // What was taken in full is reported so a moment later on another thread; what is stuck stays stuck.
            Some(mut task) => match tokio::time::timeout(FEED_SETTLES, &mut task).await {
                Ok(done) => !done.unwrap_or(false),
                Err(_) => {
                    task.abort();
                    true
                }
            },
        }
    }
}

impl Drop for Feeding {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

impl ExecHandle {
    pub(crate) async fn start(
        agent: &AgentClient,
        hold: impl Future<Output = Result<Option<Hold>>>,
        options: ExecOptions,
    ) -> Result<Self> {
        let stdio = match options.tty {
            Some((rows, cols)) => Stdio::Terminal {
                size: WindowSize { rows, cols },
            },
            None => Stdio::Passed {
                stdin: options.stdin != Stdin::Null,
            },
        };
        let session = async { Ok(agent.exec(options.to_start(stdio)).await?) };
        // Dropping either kills what the other has begun.
        let (hold, session) = tokio::try_join!(hold, session)?;
        let mut handle = Self {
            pid: session.pid,
            told: false,
            input: session.input,
            feeding: Feeding(None),
            control: session.control,
            output: session.output,
            hold,
            cap: options.cap,
        };
        match options.stdin {
            Stdin::Pipe => {}
            Stdin::Null => handle.input = None,
            Stdin::Bytes(bytes) => handle.feeding = feed(handle.input.take(), bytes),
        }
        Ok(handle)
    }

    /// The process's number in the guest.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The next thing it did; `None` after its end. Cancel-safe.
    ///
    /// # Errors
    /// `GuestDied` if the guest ended without telling of the command's end; `TimedOut` if its time-out passed and the
    /// guest says nothing; `Protocol`.
    pub async fn recv(&mut self) -> Result<Option<ExecEvent>> {
        if !self.told {
            self.told = true;
            return Ok(Some(ExecEvent::Started { pid: self.pid }));
        }
        Ok(match self.output.next().await? {
            None => None,
            Some(client::ExecEvent::Stdout(bytes)) => Some(ExecEvent::Stdout(bytes)),
            Some(client::ExecEvent::Stderr(bytes)) => Some(ExecEvent::Stderr(bytes)),
            Some(client::ExecEvent::StdinClosed) => Some(ExecEvent::StdinClosed),
            Some(client::ExecEvent::Exit(exit)) => {
                let cut = self.feeding.cut().await;
                Some(ExecEvent::Exited(status(exit, cut)))
            }
        })
    }

    /// Waits for its end and drops what it says.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn wait(mut self) -> Result<ExecStatus> {
        while let Some(event) = self.recv().await? {
            if let ExecEvent::Exited(status) = event {
                return Ok(status);
            }
        }
        Err(Error::out_of_turn("the guest"))
    }

    /// Waits for its end and keeps what it says, up to the cap.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn collect(mut self) -> Result<ExecOutput> {
        // Nobody will write to it any more.
        drop(self.input.take());
        let mut collector = client::Collector::new(self.cap);
        while let Some(event) = self.output.next().await? {
            if let Some(exit) = collector.take(event) {
                let cut = self.feeding.cut().await;
                let all = collector.finish(exit);
                return Ok(ExecOutput {
                    status: status(all.exit, cut),
                    stdout: all.stdout,
                    stderr: all.stderr,
                    stdout_total: all.stdout_total,
                    stderr_total: all.stderr_total,
                });
            }
        }
        Err(Error::out_of_turn("the guest"))
    }

    /// The way to its input, once, if it was started with [`ExecOptions::stdin_pipe`] or has a terminal. Dropping it is
    /// the end of file.
    pub fn take_stdin(&mut self) -> Option<ExecStdin> {
        self.input.take().map(ExecStdin)
    }

    /// A way to send signals and sizes while something else reads its output.
    pub fn control(&self) -> ExecSignals {
        ExecSignals(self.control.clone())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The connection failed. None if it has ended.
    pub async fn signal(&self, signal: i32) -> Result<()> {
        self.control().signal(signal, false).await
    }

    /// Kills it with all its descendants.
    ///
    /// # Errors
    /// The connection failed. None if it has ended.
    pub async fn kill(&self) -> Result<()> {
        Ok(self.control.kill().await?)
    }

    /// Tells its terminal a new size.
    ///
    /// # Errors
    /// The connection failed. None if it has ended.
    pub async fn resize(&self, rows: u16, cols: u16) -> Result<()> {
        self.control().resize(rows, cols).await
    }

    /// The reading ends of its output's pipes themselves, for who moves the bytes in the kernel.
    ///
    /// # Errors
    /// `Unsupported` if it has a terminal.
    pub fn into_pipes(self) -> Result<ExecPipes> {
        let Self {
            output,
            hold,
            feeding,
            control,
            ..
        } = self;
        let client::ExecPipes {
            stdout,
            stderr,
            wait,
        } = output.into_pipes()?;
        let end = ExecEnd {
            wait,
            feeding,
            _control: control,
            _hold: hold,
        };
        Ok(ExecPipes {
            stdout,
            stderr,
            end,
        })
    }
}

/// A command's output as pipes. Once [`ExecEnd::wait`] has answered, all that the command itself wrote is in them: they
/// are done at their end of file, or when nothing has come for 100 ms (a process that lives on holds the other end).
#[derive(Debug)]
pub struct ExecPipes {
    /// The reading end of its output.
    pub stdout: std::os::fd::OwnedFd,
    /// The reading end of its error output.
    pub stderr: std::os::fd::OwnedFd,
    /// Its end.
    pub end: ExecEnd,
}

/// A command's end, for who reads its output elsewhere. Dropping it kills the command.
#[derive(Debug)]
pub struct ExecEnd {
    wait: ExecWait,
    feeding: Feeding,
    _control: ExecControl,
    _hold: Option<Hold>,
}

impl ExecEnd {
    /// Waits for the end. Cancel-safe; to be called until it answers.
    ///
    /// # Errors
    /// As [`ExecHandle::recv`].
    pub async fn wait(&mut self) -> Result<ExecStatus> {
        let report = self.wait.wait().await?;
        let cut = self.feeding.cut().await;
        Ok(status(
            client::ExecExit {
                report,
                detached_holders: false,
            },
            cut,
        ))
    }
}

/// The way to a command's input. Dropping it is the end of file.
#[derive(Debug)]
pub struct ExecStdin(ExecInput);

impl ExecStdin {
    /// Writes all of these bytes, as fast as the command reads.
    ///
    /// # Errors
    /// The command has closed its input or ended.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_all(bytes).await?)
    }

    /// Ends the input. On a terminal, types its end-of-file character.
    ///
    /// # Errors
    /// The connection failed. None if the command has ended.
    pub async fn close(self) -> Result<()> {
        Ok(self.0.close().await?)
    }

    /// The writing end of the pipe itself.
    ///
    /// # Errors
    /// `Unsupported` if it is a terminal.
    pub fn into_fd(self) -> Result<std::os::fd::OwnedFd> {
        Ok(self.0.into_fd()?)
    }
}

/// A way to steer a running command.
#[derive(Debug, Clone)]
pub struct ExecSignals(ExecControl);

impl ExecSignals {
    /// Sends a signal: to the command, or with `tree` to all its descendants too.
    ///
    /// # Errors
    /// The connection failed. None if it has ended.
    pub async fn signal(&self, signal: i32, tree: bool) -> Result<()> {
        Ok(self.0.signal(signal, tree).await?)
    }

    /// Kills it with all its descendants.
    ///
    /// # Errors
    /// The connection failed. None if it has ended.
    pub async fn kill(&self) -> Result<()> {
        Ok(self.0.kill().await?)
    }

    /// Tells its terminal a new size.
    ///
    /// # Errors
    /// The connection failed. None if it has ended.
    pub async fn resize(&self, rows: u16, cols: u16) -> Result<()> {
        Ok(self.0.resize(WindowSize { rows, cols }).await?)
    }
}

fn feed(input: Option<ExecInput>, bytes: Vec<u8>) -> Feeding {
    Feeding(input.map(|mut input| {
        tokio::spawn(
            async move { input.write_all(&bytes).await.is_ok() && input.close().await.is_ok() },
        )
    }))
}

impl From<ExitReport> for ExecStatus {
    fn from(report: ExitReport) -> Self {
        status(
            client::ExecExit {
                report,
                detached_holders: false,
            },
            false,
        )
    }
}

fn status(exit: client::ExecExit, stdin_closed: bool) -> ExecStatus {
    let client::ExecExit {
        report,
        detached_holders,
    } = exit;
    ExecStatus {
        status: report.status,
        timed_out: report.timed_out,
        oom: report.oom,
        leftovers: report.leftovers,
        detached_holders,
        stdin_closed,
        usage: report.usage,
    }
}
