//! The control socket. Who connects is this user or root; what they say is checked all the same.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::time::Duration;

use cosm_base::ErrorKind;
use cosm_proto::keeper::{Call, EndReason, Failure, Reply, Request, VERSION};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::failure;
use crate::jobs::{Wish, run, view};
use crate::machine::{Event, Stop};
use crate::shared::{Ask, Shared};
use crate::wire;

/// How long a caller may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// After descriptors ran out, before trying again.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections at once; further ones wait in the socket's queue.
const CONNECTIONS: u64 = 4096;
/// Descriptors that connections leave for everything else.
const RESERVE: u64 = 128;

/// Answers callers until the run is over and all who called before that have their answers.
pub(crate) async fn serve(listener: StdListener, shared: Rc<Shared>) {
    let made = listener
        .set_nonblocking(true)
        .and_then(|()| UnixListener::from_std(listener));
    let listener = match made {
        Ok(listener) => listener,
        Err(error) => return shared.complain(&format!("the control socket: {error}")),
    };
    let most = most_connections();
    let mut calls = JoinSet::new();
    let mut end = std::pin::pin!(shared.end());
    loop {
        tokio::select! {
            _ = &mut end => break,
            accepted = listener.accept(), if calls.len() < most => match accepted {
                Ok((stream, _)) => call(stream, &shared, &mut calls),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Descriptors or memory ran out, which is not for ever.
                Err(error) => {
                    shared.complain(&format!("accepting a call: {error}"));
                    sleep(PAUSE).await;
                }
            },
            Some(ended) = calls.join_next(), if !calls.is_empty() => drop(ended),
        }
    }
    // The socket has no name any more. Whoever was in its queue hears of the end as well.
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => call(stream, &shared, &mut calls),
                Err(_) => break,
            },
            () = std::future::ready(()) => break,
        }
    }
    while calls.join_next().await.is_some() {}
}

fn call(stream: UnixStream, shared: &Rc<Shared>, calls: &mut JoinSet<()>) {
    let shared = shared.clone();
    // A caller that goes away in the middle needs no answer.
    calls.spawn_local(async move { answer(stream, &shared).await.unwrap_or_default() });
}

/// As many as descriptors allow. The guest was started with the limit as it was.
fn most_connections() -> usize {
    let now = getrlimit(Resource::Nofile);
    let wanted = Some(CONNECTIONS + RESERVE).min(now.maximum.or(Some(u64::MAX)));
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: wanted.max(now.current),
            maximum: now.maximum,
        },
    );
    let limit = match raised {
        Ok(()) => wanted.max(now.current),
        Err(_) => now.current,
    };
    let room = limit.unwrap_or(u64::MAX).saturating_sub(RESERVE);
    usize::try_from(room.clamp(16, CONNECTIONS)).unwrap_or(16)
}

async fn answer(mut stream: UnixStream, shared: &Rc<Shared>) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer != 0 && peer != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let heard = timeout(PATIENCE, wire::read_message::<Call>(&mut stream)).await;
    let call = match heard {
        Ok(Ok(Some(call))) => call,
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            let failure = failure::plain(ErrorKind::Protocol, "this is not a request");
            return wire::write_message(&mut stream, &Reply::Refused(failure)).await;
        }
        _ => return Ok(()),
    };
    if call.version != VERSION {
        let text = format!(
            "this sandbox's keeper speaks version {VERSION}, and was asked in version {}: use the cosm that started it, or stop the sandbox by its process",
            call.version
        );
        let failure = failure::plain(ErrorKind::Protocol, text);
        return wire::write_message(&mut stream, &Reply::Refused(failure)).await;
    }
    match call.request {
        Request::Hold => hold(stream, shared).await,
        Request::AttachJob {
            job,
            lossless,
            replay,
            size,
        } => match shared.jobs.get(&job) {
            Ok(job) => {
                let wish = Wish {
                    lossless,
                    replay,
                    size,
                };
                view(job, stream, wish).await
            }
            Err(failure) => wire::write_message(&mut stream, &Reply::Refused(failure)).await,
        },
        Request::RunJob(start) => run(shared, start, stream).await,
        request => {
            let reply = tokio::select! {
                // An answer that is there is given, also when both are.
                biased;
                reply = reply(request, shared) => reply.unwrap_or_else(Reply::Refused),
                () = wire::closed(&mut stream) => return Ok(()),
            };
            wire::write_message(&mut stream, &reply).await
        }
    }
}

async fn hold(mut stream: UnixStream, shared: &Rc<Shared>) -> io::Result<()> {
    if let Err(refusal) = shared.tell(Event::HoldTaken) {
        let reply = Reply::Refused(failure::refusal(refusal));
        return wire::write_message(&mut stream, &reply).await;
    }
    let held = wire::write_message(&mut stream, &Reply::Held).await;
    if held.is_ok() {
        tokio::select! {
            () = wire::closed(&mut stream) => {}
            _ = shared.end() => {}
        }
    }
    shared.note(Event::HoldDropped);
    held
}

async fn reply(request: Request, shared: &Rc<Shared>) -> Result<Reply, Failure> {
    match request {
        Request::Status => Ok(Reply::Status(shared.status())),
        Request::Stop {
            grace_ms,
            kill,
            replaced,
        } => {
            let grace = grace_ms.map_or(shared.grace, Duration::from_millis);
            let reason = if replaced {
                EndReason::Replaced
            } else {
                EndReason::Stopped
            };
            stop(
                shared,
                Stop {
                    grace,
                    kill,
                    reason,
                },
            )
            .await
        }
        Request::Kill => {
            shared.note(Event::Kill(EndReason::Killed));
            Ok(Reply::Ended(shared.end().await))
        }
        Request::Drain => {
            shared.tell(Event::Drain).map_err(failure::refusal)?;
            Ok(Reply::Ended(shared.end().await))
        }
        Request::Wait => Ok(Reply::Ended(shared.end().await)),
        Request::Detach => asked(shared, Ask::Detach).await.map(|()| Reply::Ok),
        Request::Freeze(frozen) => asked(shared, |answer| Ask::Freeze(frozen, answer))
            .await
            .map(|()| Reply::Ok),
        Request::StartJob(start) => {
            let job = shared.jobs.start(shared, start).await?;
            Ok(Reply::Job(job.report()))
        }
        Request::ListJobs => Ok(Reply::Jobs(shared.jobs.reports())),
        Request::SignalJob { job, signal, tree } => {
            shared.jobs.get(&job)?.signal(signal, tree).await?;
            Ok(Reply::Ok)
        }
        Request::WaitJob { job } => {
            let job = shared.jobs.get(&job)?;
            job.wait().await;
            Ok(Reply::Job(job.report()))
        }
        Request::Usage => {
            let (answer, usage) = oneshot::channel();
            shared.ask(Ask::Usage(answer));
            usage.await.map(Reply::Usage).map_err(|_| over())
        }
        Request::Hold | Request::AttachJob { .. } | Request::RunJob(_) => Err(failure::plain(
            ErrorKind::Protocol,
            "this request is a conversation of its own",
        )),
    }
}

async fn stop(shared: &Rc<Shared>, stop: Stop) -> Result<Reply, Failure> {
    shared.note(Event::Stop(stop));
    if stop.kill {
        return Ok(Reply::Ended(shared.end().await));
    }
    // A little later than the machine, which then says whether the guest goes on.
    let given_up = async {
        sleep(stop.grace + Duration::from_millis(5)).await;
        while shared.machine(|m| m.phase()) == cosm_state::Phase::Stopping {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        report = shared.end() => Ok(Reply::Ended(report)),
        () = given_up => Ok(Reply::TimedOut),
    }
}

async fn asked(
    shared: &Shared,
    ask: impl FnOnce(oneshot::Sender<Result<(), Failure>>) -> Ask,
) -> Result<(), Failure> {
    let (answer, heard) = oneshot::channel();
    shared.ask(ask(answer));
    heard.await.unwrap_or_else(|_| Err(over()))
}

fn over() -> Failure {
    failure::plain(ErrorKind::WrongState, "the sandbox has ended")
}
