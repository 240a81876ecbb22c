//! `cosm start`, `stop`, `kill`, `drain` and `restart`

use cosm::spec::Lifetime;

use crate::args::{DrainArgs, KillArgs, RestartArgs, StartArgs, StopArgs};
use crate::error::Result;

pub(super) fn start(args: StartArgs) -> Result<u8> {
    let host = super::host()?;
    super::wait_for(super::for_each(args.names.names, |name| {
        let host = host.clone();
        async move {
            let mut sandbox = host.get(&name).await?;
            sandbox.start_as(Lifetime::Persistent).await
        }
    }))
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
    super::wait_for(super::for_each(args.names.names, |name| {
        let host = host.clone();
        async move {
            let mut sandbox = host.get(&name).await?;
            sandbox.stop_after(time, true).await?;
            sandbox.settled().await?;
            sandbox.start_as(Lifetime::Persistent).await
        }
    }))
}
