//! A job's output on its way to this program's streams, on a thread of its own: a reader that is slow must not keep
//! this program from hearing signals.

use tokio::sync::{mpsc, oneshot, watch};

use super::pump::Target;
use crate::error::{CliError, Result, os};

/// Pieces that may wait for a slow reader. With them the job waits.
const PIECES: usize = 4;

/// A piece of output.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) stderr: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Standard output and standard error.
#[derive(Debug)]
pub(crate) struct Screen {
    pieces: mpsc::Sender<Piece>,
    waiting: Option<Piece>,
    done: oneshot::Receiver<Result<()>>,
}

impl Screen {
    /// Starts the thread.
    ///
    /// # Errors
    /// Threads ran out.
    pub(crate) fn start() -> Result<(Self, Gone)> {
        let (pieces, to_show) = mpsc::channel(PIECES);
        let (tell_gone, gone) = watch::channel(false);
        let (tell_done, done) = oneshot::channel();
        std::thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                // Nobody hears of it when the command is not waited for any more.
                drop(tell_done.send(show(to_show, &tell_gone)));
            })
            .map_err(os("starting a thread"))?;
        let screen = Self {
            pieces,
            waiting: None,
            done,
        };
        Ok((screen, Gone(gone)))
    }

    /// Whether there is room for a piece.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_none()
    }

    /// Takes a piece. To be called when there is room.
    pub(crate) fn take(&mut self, piece: Piece) {
        self.waiting = Some(piece);
    }

    /// Moves on what was taken; for ever if there is nothing. Cancel-safe.
    ///
    /// # Errors
    /// The streams can't be written to (a full disk).
    pub(crate) async fn pass_on(&mut self) -> Result<()> {
        if self.waiting.is_none() {
            return std::future::pending().await;
        }
        match self.pieces.reserve().await {
            Ok(room) => {
                if let Some(piece) = self.waiting.take() {
                    room.send(piece);
                }
                Ok(())
            }
            Err(_) => match (&mut self.done).await {
                Ok(Err(error)) => Err(error),
                _ => Err(CliError::NoEnd),
            },
        }
    }

    /// Waits until all that was taken is written.
    ///
    /// # Errors
    /// As [`Screen::pass_on`].
    pub(crate) async fn finish(mut self) -> Result<()> {
        if self.waiting.is_some() {
            self.pass_on().await?;
        }
        drop(self.pieces);
        self.done.await.unwrap_or(Ok(()))
    }
}

/// Whether anybody reads standard output.
#[derive(Debug)]
pub(crate) struct Gone(watch::Receiver<bool>);

impl Gone {
    /// Waits until nobody does any more, which shows with the first piece after that. Cancel-safe.
    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|gone| *gone).await.is_err() {
            // The thread failed, which is told elsewhere.
            std::future::pending().await
        }
    }
}

fn show(mut pieces: mpsc::Receiver<Piece>, gone: &watch::Sender<bool>) -> Result<()> {
    let (mut out, mut err) = (Target::stdout(), Target::stderr());
    while let Some(piece) = pieces.blocking_recv() {
        let target = if piece.stderr { &mut err } else { &mut out };
        target.write(&piece.bytes)?;
        if out.is_gone() {
            gone.send_replace(true);
        }
    }
    Ok(())
}
