//! `cosm start`, `stop`, `kill`, `drain` and `restart`

use cosm::spec::Lifetime;
use cosm::{Host, Sandbox};

use crate::args::{DrainArgs, KillArgs, RestartArgs, StartArgs, StopArgs};
use crate::error::Result;
use crate::stdio::signals::Asked;

pub(super) fn start(args: StartArgs) -> Result<u8> {
    let host = super::host()?;
    unless_told(&host, args.names.names, |mut sandbox| async move {
        sandbox.start_as(Lifetime::Persistent).await
    })
}

pub(super) fn stop(args: StopArgs) -> Result<u8> {
    let host = super::host()?;
    let (time, kill) = (args.time, !args.no_kill);
    super::wait_for(async {
        let names = super::selected(&host, &args.which, true).await?;
        super::for_each(names, |name| {
            let host = host.clone();
            async move {
                host.get(&name)
                    .await?
                    .stop_after(time, kill)
                    .await
                    .map(drop)
            }
        })
        .await
    })
}

pub(super) fn kill(args: KillArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(async {
        let names = super::selected(&host, &args.which, true).await?;
        super::for_each(names, |name| {
            let host = host.clone();
            async move { host.get(&name).await?.kill().await.map(drop) }
        })
        .await
    })
}

pub(super) fn drain(args: DrainArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(async {
        let names = super::selected(&host, &args.which, true).await?;
        super::for_each(names, |name| {
            let host = host.clone();
            async move { host.get(&name).await?.drain().await.map(drop) }
        })
        .await
    })
}

pub(super) fn restart(args: RestartArgs) -> Result<u8> {
    let host = super::host()?;
    let time = args.time;
    unless_told(&host, args.names.names, |mut sandbox| async move {
        sandbox.stop_after(time, true).await?;
        sandbox.settled().await?;
        sandbox.start_as(Lifetime::Persistent).await
    })
}

/// Does the same to several sandboxes, unless this program is told to end.
fn unless_told<F: Future<Output = cosm::Result<()>>>(
    host: &Host,
    names: Vec<String>,
    act: impl Fn(Sandbox) -> F,
) -> Result<u8> {
    super::wait_for(async {
        let mut asked = Asked::new()?;
        let act = &act;
        let all = super::for_each(
            names,
            |name| async move { act(host.get(&name).await?).await },
        );
        asked.unless_told(host, all).await
    })
}
