//! Somebody who looks at a job.

use std::io;
use std::rc::Rc;

use cosm_agent_client::AgentError;
use cosm_proto::agent::{ExecIn, ExecOut, WindowSize};
use cosm_proto::frame::{self, Kind};
use cosm_proto::keeper::{JobNotice, JobStart, Reply};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::feed::{Feed, Item, Ring};
use super::table::Job;
use crate::shared::Shared;
use crate::wire;

/// How a viewer wants to see a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) lossless: bool,
    pub(crate) replay: bool,
    pub(crate) size: Option<WindowSize>,
}

/// Starts a job and shows it to its starter, who misses nothing.
pub(crate) async fn run(
    shared: &Rc<Shared>,
    start: JobStart,
    mut stream: UnixStream,
) -> io::Result<()> {
    let feed = Rc::new(Feed::new(true, false, &Ring::default()));
    let presence = Presence(feed.clone());
    match shared.jobs.start_for(shared, start, Some(feed)).await {
        Ok(job) => {
            wire::write_message(&mut stream, &Reply::Attached(job.report())).await?;
            look(&job, stream, presence).await
        }
        Err(failure) => wire::write_message(&mut stream, &Reply::Refused(failure)).await,
    }
}

/// Shows a job to a viewer until one of them is gone.
pub(crate) async fn view(job: Rc<Job>, mut stream: UnixStream, wish: Wish) -> io::Result<()> {
    wire::write_message(&mut stream, &Reply::Attached(job.report())).await?;
    let feed = Rc::new(Feed::new(wish.lossless, wish.replay, &job.ring.borrow()));
    if job.is_over() {
        feed.end();
    }
    job.feeds.borrow_mut().push(feed.clone());
    let presence = Presence(feed);
    if let Some(size) = wish.size.filter(|_| job.terminal) {
        forgive(job.control.resize(size).await)?;
    }
    look(&job, stream, presence).await
}

async fn look(job: &Job, stream: UnixStream, presence: Presence) -> io::Result<()> {
    let (reader, writer) = stream.into_split();
    let mut showing = std::pin::pin!(show(job, &presence.0, writer));
    tokio::select! {
        shown = &mut showing => shown,
        listened = listen(job, reader) => match listened {
            // The viewer said all that it has to say, and may still look: only an end of both directions breaks a
            // write.
            Ok(Gone::Detached) => Ok(()),
            Ok(Gone::Input) => showing.await,
            Err(error) => Err(error),
        },
    }
}

/// However a view ends, the job must not wait for it.
struct Presence(Rc<Feed>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Why a viewer's side fell silent.
enum Gone {
    /// It closed.
    Detached,
    /// The job takes no more input; the viewer looks on.
    Input,
}

async fn show(job: &Job, feed: &Feed, mut writer: OwnedWriteHalf) -> io::Result<()> {
    loop {
        let notice = match feed.next().await {
            Item::Output(piece) => {
                let kind = if piece.stderr {
                    Kind::Stderr
                } else {
                    Kind::Stdout
                };
                let header = frame::header(kind, piece.bytes.len() as u32);
                writer.write_all(&header).await?;
                writer.write_all(&piece.bytes).await?;
                continue;
            }
            Item::Lost(bytes) => JobNotice::Lost(bytes),
            Item::StdinClosed => JobNotice::Exec(ExecOut::StdinClosed),
            // A job whose end nobody saw ends without an exit, as an exec does: the connection closes.
            Item::End => match job.exit() {
                Some(exit) => JobNotice::Exec(ExecOut::Exit(exit)),
                None => return Ok(()),
            },
        };
        let last = matches!(notice, JobNotice::Exec(ExecOut::Exit(_)));
        wire::write_message(&mut writer, &notice).await?;
        if last {
            return writer.shutdown().await;
        }
    }
}

async fn listen(job: &Job, mut reader: OwnedReadHalf) -> io::Result<Gone> {
    loop {
        let Some((kind, payload)) = wire::read_frame(&mut reader).await? else {
            return Ok(Gone::Detached);
        };
        let done = match kind {
            Kind::Stdin => {
                let mut input = job.input.lock().await;
                match input.as_mut() {
                    Some(input) => input.write_all(&payload).await,
                    None => Ok(()),
                }
            }
            Kind::Message => steer(job, frame::parse(&payload).map_err(io::Error::other)?).await,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        match done {
            Ok(()) | Err(AgentError::InputClosed) => {}
            Err(AgentError::Lost) => return Ok(Gone::Input),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

async fn steer(job: &Job, what: ExecIn) -> Result<(), AgentError> {
    match what {
        // A terminal lives on after its end-of-file character.
        ExecIn::StdinEof if job.terminal => match job.input.lock().await.as_mut() {
            Some(input) => input.write_all(b"\x04").await,
            None => Ok(()),
        },
        ExecIn::StdinEof => match job.input.lock().await.take() {
            Some(input) => input.close().await,
            None => Ok(()),
        },
        ExecIn::Resize(size) if job.terminal => job.control.resize(size).await,
        ExecIn::Resize(_) => Ok(()),
        ExecIn::Signal { signal, tree } => job.control.signal(signal, tree).await,
        ExecIn::Kill => job.control.kill().await,
    }
}

fn forgive(result: Result<(), AgentError>) -> io::Result<()> {
    match result {
        Ok(()) | Err(AgentError::Lost | AgentError::InputClosed) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}
