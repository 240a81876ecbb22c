//! The logs of a sandbox's jobs, also of one that has stopped.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cosm_base::ErrorKind;
use cosm_proto::keeper::Request;
use cosm_state::joblog::{LogReader, Since, Stream};
use tokio::task::JoinHandle;

use crate::error::{Error, Fault, Result};
use crate::sandbox::Sandbox;

/// How much is read at once.
const BATCH: usize = 1 << 20;
/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Which part of a log. The default is all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct LogOptions {
    since: Option<SystemTime>,
    tail: Option<usize>,
    stream: Option<LogStream>,
    follow: bool,
}

/// A stream of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Its output, or its terminal.
    Stdout,
    /// Its error output.
    Stderr,
}

/// A piece of a log, cut anywhere, also inside of lines and characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// When it was read from the job, milliseconds since 1970.
    pub time_ms: u64,
    /// Which stream.
    pub stream: LogStream,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl LogOptions {
    /// Only what is not older.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }
    /// Only the last lines of what is there now.
    pub fn tail(mut self, lines: usize) -> Self {
        self.tail = Some(lines);
        self
    }
    /// Only this stream.
    pub fn stream(mut self, stream: LogStream) -> Self {
        self.stream = Some(stream);
        self
    }
    /// Go on until the job ends.
    pub fn follow(mut self) -> Self {
        self.follow = true;
        self
    }

    fn wants(&self, stream: Stream) -> bool {
        match (stream, self.stream) {
            (Stream::Mark, _) => false,
            (_, None) => true,
            (Stream::Stdout, Some(wanted)) => wanted == LogStream::Stdout,
            (Stream::Stderr, Some(wanted)) => wanted == LogStream::Stderr,
        }
    }
}

/// A log that is read.
#[derive(Debug)]
pub struct Logs {
    options: LogOptions,
    reader: Option<LogReader>,
    ready: VecDeque<LogPiece>,
    /// Finished once the job has ended, or with why its end was not seen; `None` where nothing is followed (any more).
    ended: Option<JoinHandle<Option<Error>>>,
}

impl Sandbox {
    /// A job's log.
    ///
    /// # Errors
    /// `NotFound` if nothing was ever logged for this job and it does not run; the log can't be read.
    pub async fn logs(&self, job: &str, options: LogOptions) -> Result<Logs> {
        let since = match options.since {
            None => Since::Start,
            Some(time) => Since::Time(
                time.duration_since(UNIX_EPOCH)
                    .map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
            ),
        };
        let dir = self.host().home().sandbox(self.id());
        let open = LogReader::open(&dir, job, since).map_err(Error::os("opening the log"));
        let reader = open?;
        let runs = self
            .jobs()
            .list()
            .await
            .is_ok_and(|jobs| jobs.iter().any(|j| j.id == job && j.exit.is_none()));
        if !runs && !reader.exists() {
            let fault = Fault::NoLog {
                job: job.to_owned(),
            };
            return Err(Error::new(ErrorKind::NotFound, fault).hint(format!(
                "`cosm jobs {}` shows the jobs; commands of `exec` and `run` are not logged",
                self.name()
            )));
        }
        let ended = options
            .follow
            .then(|| tokio::spawn(self.job_end(job.to_owned(), runs)));
        let tail = options.tail;
        let wanted = options.clone();
        let reader = blocking(move || {
            let mut reader = reader;
            if let Some(lines) = tail {
                reader.tail(lines, |stream| wanted.wants(stream))?;
            }
            Ok(reader)
        });
        Ok(Logs {
            options,
            reader: Some(reader.await?),
            ready: VecDeque::new(),
            ended,
        })
    }

    /// Waits for a job's end. Whatever comes of it, nothing more will be written.
    fn job_end(
        &self,
        job: String,
        runs: bool,
    ) -> impl Future<Output = Option<Error>> + Send + use<> {
        let (host, control) = (self.host().clone(), self.control().clone());
        let (id, name) = (self.id(), self.name().to_owned());
        async move {
            if runs && control.ask_for_ever(Request::WaitJob { job }).await.is_ok() {
                return None;
            }
            host.crash_of(id, &name).await
        }
    }
}

impl Logs {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The log can't be read; what is followed was lost with the sandbox's keeper.
    pub async fn next(&mut self) -> Result<Option<LogPiece>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            // Asked before reading: what was written before the job's end is read after it.
            let over = self.ended.as_ref().is_none_or(JoinHandle::is_finished);
            if self.fill().await? {
                continue;
            }
            if over {
                let Some(ended) = self.ended.take() else {
                    return Ok(None);
                };
                return match ended.await {
                    Ok(Some(crash)) => Err(crash),
                    _ => Ok(None),
                };
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Reads what is there; false if nothing was.
    async fn fill(&mut self) -> Result<bool> {
        let Some(mut reader) = self.reader.take() else {
            return Ok(false);
        };
        let wanted = self.options.clone();
        let read = blocking(move || {
            let (mut pieces, mut size, mut any) = (VecDeque::new(), 0, false);
            while size < BATCH {
                let Some(record) = reader.next()? else { break };
                any = true;
                if !wanted.wants(record.stream) {
                    continue;
                }
                size += record.bytes.len();
                let stream = match record.stream {
                    Stream::Stderr => LogStream::Stderr,
                    Stream::Mark | Stream::Stdout => LogStream::Stdout,
                };
                pieces.push_back(LogPiece {
                    time_ms: record.time_ms,
                    stream,
                    bytes: record.bytes,
                });
            }
            Ok((reader, pieces, any))
        });
        let (reader, pieces, any) = read.await?;
        self.reader = Some(reader);
        self.ready = pieces;
        Ok(any)
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(task) = &self.ended {
            task.abort();
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(Error::os("reading the log")),
        Err(_) => Err(Error::new(ErrorKind::Cancelled, Fault::Cancelled)),
    }
}
