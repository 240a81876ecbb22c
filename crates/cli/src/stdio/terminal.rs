//! A job on this terminal: raw keys in, its output out, and the terminal as it was afterwards whatever happens.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cosm::{AttachOptions, ExecOptions, JobEvent, JobInput, JobView, Jobs};
use cosm_sys::pty::{self, RawMode};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use super::Outcome;
use super::signals::{Ask, Asked};
use crate::detach::{Detector, Keys};
use crate::environment;
use crate::error::{CliError, Result, os};
use crate::report;

/// Runs a command on this terminal as a job, so that it can be left and seen again.
///
/// # Errors
/// It could not be started, or its end was not seen.
pub(crate) async fn run(
    jobs: &Jobs,
    id: Option<&str>,
    options: ExecOptions,
    keys: &Keys,
    asked: &mut Asked,
) -> Result<(String, Outcome)> {
    let tty = Tty::open()?;
    let (rows, cols) = tty.size();
    let options = options
        .env_default("TERM", environment::terminal_name())
        .tty_size(rows, cols);
    let view = jobs.run(id, &options).await?;
    let job = view.job().id.clone();
    let outcome = show(view, keys, tty, asked).await?;
    Ok((job, outcome))
}

/// Attaches this terminal to a job that has a terminal.
///
/// # Errors
/// No such job, or its end was not seen.
pub(crate) async fn attach(jobs: &Jobs, job: &str, keys: &Keys, replay: bool) -> Result<Outcome> {
    let tty = Tty::open()?;
    let options = AttachOptions {
        lossless: false,
        replay,
        size: Some(tty.size()),
    };
    show(
        jobs.attach(job, options).await?,
        keys,
        tty,
        &mut Asked::new()?,
    )
    .await
}

async fn show(view: JobView, keys: &Keys, tty: Tty, asked: &mut Asked) -> Result<Outcome> {
    let (mut output, input) = view.split();
    let mut resized = signal(SignalKind::window_change()).map_err(os("waiting for signals"))?;
    let mut resumed = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))
        .map_err(os("waiting for signals"))?;
    let tty = Arc::new(tty);
    // From here on the terminal is raw; it is as before when this guard goes, also by a panic.
    let raw = RawMode::enter(&tty.0).map_err(os("switching the terminal to raw mode"))?;
    let keyboard = Keyboard {
        tty: tty.clone(),
        detector: Detector::new(keys),
        to: input.clone(),
    };
    let mut typed = tokio::spawn(keyboard.run());
    let outcome = loop {
        tokio::select! {
            event = output.recv() => match event? {
                Some(JobEvent::Stdout(bytes) | JobEvent::Stderr(bytes)) => tty.write(&bytes).await?,
                Some(JobEvent::Exited(report)) => break Outcome::Ended(Box::new(report.into())),
                // The terminal's program redraws; there is no place on the screen to say it.
                Some(_) => {}
                None => return Err(CliError::NoEnd),
            },
            keyboard = &mut typed => match keyboard {
                Ok(Ok(Left::Detached)) => break Outcome::Detached,
                Ok(Ok(Left::HungUp)) | Err(_) => break Outcome::Interrupted(1),
                Ok(Err(error)) => return Err(error),
            },
            _ = resized.recv() => {
                let (rows, cols) = tty.size();
                input.resize(rows, cols).await?;
            }
            _ = resumed.recv() => raw.again().map_err(os("switching the terminal to raw mode"))?,
            ask = asked.next() => match ask {
                Ask::Interrupt(number) => input.signal(number, true).await?,
                Ask::Leave(number) => break Outcome::Interrupted(number),
            },
        }
    };
    typed.abort();
    drop(raw);
    if matches!(outcome, Outcome::Detached) {
        report::note("");
    }
    Ok(outcome)
}

/// Why nothing is typed any more.
enum Left {
    Detached,
    HungUp,
}

struct Keyboard {
    tty: Arc<Tty>,
    detector: Detector,
    to: JobInput,
}

impl Keyboard {
    async fn run(mut self) -> Result<Left> {
        let mut buffer = [0; 4096];
        loop {
            let count = self.tty.read(&mut buffer).await?;
            if count == 0 {
                return Ok(Left::HungUp);
            }
            let typed = self.detector.feed(&buffer[..count]);
            if !typed.deliver.is_empty() {
                self.to.write(&typed.deliver).await?;
            }
            if typed.detached {
                return Ok(Left::Detached);
            }
        }
    }
}

/// The terminal, opened anew: whether reads wait is a property of the opening, and the shell's own must not change.
struct Tty(AsyncFd<OwnedFd>);

impl Tty {
    fn open() -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = |path: &str| rustix::fs::open(path, flags, Mode::empty());
        let fd = open("/dev/tty").or_else(|_| open("/proc/self/fd/0"));
        let fd = fd.map_err(|e: Errno| os("opening the terminal")(e.into()))?;
        #[expect(
            deprecated,
            reason = "an OwnedFd stays open and its own, so this is sound; its successor is unsafe"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE | Interest::WRITABLE);
        fd.map(Self).map_err(os("watching the terminal"))
    }

    fn size(&self) -> (u16, u16) {
        pty::size(&self.0).unwrap_or((24, 80))
    }

    async fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let mut ready = self
                .0
                .readable()
                .await
                .map_err(os("reading the terminal"))?;
            match ready.try_io(|fd| rustix::io::read(fd, &mut *buffer).map_err(io::Error::from)) {
                // A terminal whose other end is gone answers so.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                    return Ok(0);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result.map_err(os("reading the terminal")),
                Err(_) => {}
            }
        }
    }

    async fn write(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let mut ready = self
                .0
                .writable()
                .await
                .map_err(os("writing to the terminal"))?;
            match ready.try_io(|fd| rustix::io::write(fd, bytes).map_err(io::Error::from)) {
                Ok(Ok(count)) => bytes = &bytes[count..],
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(os("writing to the terminal")(error)),
                Err(_) => {}
            }
        }
        Ok(())
    }
}
