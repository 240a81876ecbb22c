//! Jobs: commands that a sandbox's keeper runs, so that they outlive who started them.

use cosm_agent_client::AgentError;
use cosm_agent_client::wire::{Reader, Writer, halves};
use cosm_proto::agent::{ExecIn, ExecOut, ExitReport, WindowSize};
use cosm_proto::frame::{DATA_CHUNK, Kind};
pub use cosm_proto::keeper::JobReport;
use cosm_proto::keeper::{JobNotice, JobStart, Reply, Request};
use tokio::net::UnixStream;

use crate::control::Control;
use crate::error::{Error, Result};
use crate::exec::ExecOptions;
use crate::wire;

/// The id of a sandbox's main command as a job.
pub const MAIN_JOB: &str = "main";

/// The jobs of a running sandbox. Made by [`Sandbox::jobs`](crate::Sandbox::jobs).
#[derive(Debug, Clone)]
pub struct Jobs {
    pub(crate) control: Control,
}

impl Jobs {
    /// Starts a command as a job, under this id or the next number.
    ///
    /// Its input is `/dev/null` unless [`ExecOptions::stdin_pipe`] was asked for (then viewers write to it) or it
    /// has a terminal.
    ///
    /// # Errors
    /// The id is taken, the command can't be started, the sandbox is draining or not running.
    pub async fn start(&self, id: Option<&str>, options: &ExecOptions) -> Result<JobReport> {
        let start = JobStart {
            id: id.map(str::to_owned),
            exec: options.to_job(),
        };
        let reply = self
            .control
            .ask(Request::StartJob(start), wire::ANSWER)
            .await?;
        self.job(reply)
    }

    /// As [`start`](Self::start), and sees the job from its first byte: it waits for this viewer rather than let it miss
    /// anything, and so does the keeper once the sandbox has ended.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn run(&self, id: Option<&str>, options: &ExecOptions) -> Result<JobView> {
        let start = JobStart {
            id: id.map(str::to_owned),
            exec: options.to_job(),
        };
        let stream = self.control.send(Request::RunJob(start)).await?;
        self.view(stream).await
    }

    /// All jobs of this run, ended ones too, in the order of their start.
    ///
    /// # Errors
    /// The sandbox is not running.
    pub async fn list(&self) -> Result<Vec<JobReport>> {
        match self.control.ask(Request::ListJobs, wire::ANSWER).await? {
            Reply::Jobs(jobs) => Ok(jobs),
            _ => Err(self.control.out_of_turn()),
        }
    }

    /// Sends a signal to a job, or (`tree`) to all its processes.
    ///
    /// # Errors
    /// No such job, or it has ended.
    pub async fn signal(&self, job: &str, signal: i32, tree: bool) -> Result<()> {
        let job = job.to_owned();
        self.control
            .tell(Request::SignalJob { job, signal, tree })
            .await
    }

    /// Waits for a job's end, for as long as it takes.
    ///
    /// # Errors
    /// No such job; the sandbox ended.
    pub async fn wait(&self, job: &str) -> Result<JobReport> {
        let job = job.to_owned();
        let reply = self.control.ask_for_ever(Request::WaitJob { job }).await?;
        self.job(reply)
    }

    /// Sees and steers a job. Dropping the result detaches; the job goes on.
    ///
    /// # Errors
    /// No such job; the sandbox is not running.
    pub async fn attach(&self, job: &str, options: AttachOptions) -> Result<JobView> {
        let request = Request::AttachJob {
            job: job.to_owned(),
            lossless: options.lossless,
            replay: options.replay,
            size: options.size.map(|(rows, cols)| WindowSize { rows, cols }),
        };
        let stream = self.control.send(request).await?;
        self.view(stream).await
    }

    async fn view(&self, mut stream: UnixStream) -> Result<JobView> {
        let answer = self.control.answer(&mut stream);
        match wire::within(wire::ANSWER, answer).await? {
            Reply::Attached(report) => Ok(JobView::new(report, stream)),
            _ => Err(self.control.out_of_turn()),
        }
    }

    fn job(&self, reply: Reply) -> Result<JobReport> {
        match reply {
            Reply::Job(job) => match job.failed {
                Some(failure) => Err(Error::from_keeper(failure)),
                None => Ok(job),
            },
            _ => Err(self.control.out_of_turn()),
        }
    }
}

/// How to look at a job.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttachOptions {
    /// Miss nothing: the job waits for this viewer. Else a slow viewer is told how much went by.
    pub lossless: bool,
    /// Begin with what the keeper still holds of the output (256 KiB at most).
    pub replay: bool,
    /// The viewer's terminal: rows and columns.
    pub size: Option<(u16, u16)>,
}

/// A view of a job. Dropping it, or both of its parts, detaches.
#[derive(Debug)]
pub struct JobView {
    report: JobReport,
    /// What it says.
    pub output: JobOutput,
    /// The way to its input and signals.
    pub input: JobInput,
}

/// What a job says to a viewer.
#[derive(Debug)]
pub struct JobOutput {
    reader: Reader,
}

/// A viewer's way to a job's input and signals.
#[derive(Debug, Clone)]
pub struct JobInput {
    writer: Writer,
}

/// What a view shows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobEvent {
    /// Output, or a terminal's.
    Stdout(Vec<u8>),
    /// Error output.
    Stderr(Vec<u8>),
    /// This many bytes went by too fast.
    Lost(u64),
    /// It no longer reads its input.
    StdinClosed,
    /// It ended. Last.
    Exited(ExitReport),
}

impl JobView {
    fn new(report: JobReport, stream: UnixStream) -> Self {
        let (reader, writer) = halves(stream);
        Self {
            report,
            output: JobOutput { reader },
            input: JobInput { writer },
        }
    }

    /// The job as it was when the view began.
    pub fn job(&self) -> &JobReport {
        &self.report
    }

    /// Takes it apart, so that input can be sent while output is read.
    pub fn split(self) -> (JobOutput, JobInput) {
        (self.output, self.input)
    }
}

impl JobOutput {
    /// The next thing; `None` once the keeper closed the view: after `Exited` as it should be, before it because the
    /// sandbox ended.
    ///
    /// # Errors
    /// The job could not be started; the keeper said something unreadable.
    pub async fn recv(&mut self) -> Result<Option<JobEvent>> {
        loop {
            let Some(frame) = self.reader.next().await? else {
                return Ok(None);
            };
            return Ok(Some(match frame.kind {
                Kind::Stdout => JobEvent::Stdout(frame.payload.to_vec()),
                Kind::Stderr => JobEvent::Stderr(frame.payload.to_vec()),
                _ => match frame.message()? {
                    JobNotice::Lost(bytes) => JobEvent::Lost(bytes),
                    JobNotice::Exec(ExecOut::StdinClosed) => JobEvent::StdinClosed,
                    JobNotice::Exec(ExecOut::Exit(report)) => JobEvent::Exited(report),
                    JobNotice::Exec(ExecOut::Failed(failure)) => {
                        return Err(AgentError::Spawn(failure).into());
                    }
                    JobNotice::Exec(ExecOut::Started { .. } | ExecOut::StdinTaken(_)) => continue,
                },
            }));
        }
    }
}

impl JobInput {
    /// Sends bytes to its input.
    ///
    /// # Errors
    /// The view has ended.
    pub async fn write(&self, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(DATA_CHUNK) {
            self.writer.raw(Kind::Stdin, chunk).await?;
        }
        Ok(())
    }

    /// Says that no more input comes.
    ///
    /// # Errors
    /// The view has ended.
    pub async fn close(&self) -> Result<()> {
        Ok(self.writer.message(&ExecIn::StdinEof).await?)
    }

    /// Tells its terminal the viewer's size.
    ///
    /// # Errors
    /// The view has ended.
    pub async fn resize(&self, rows: u16, cols: u16) -> Result<()> {
        Ok(self
            .writer
            .message(&ExecIn::Resize(WindowSize { rows, cols }))
            .await?)
    }

    /// Sends a signal to the command, or (`tree`) to all its processes.
    ///
    /// # Errors
    /// The view has ended.
    pub async fn signal(&self, signal: i32, tree: bool) -> Result<()> {
        Ok(self
            .writer
            .message(&ExecIn::Signal { signal, tree })
            .await?)
    }
}
