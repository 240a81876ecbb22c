//! `cosm rm`

use crate::args::RmArgs;
use crate::error::Result;

pub(super) fn run(args: RmArgs) -> Result<u8> {
    let host = super::host()?;
    let force = args.force;
    super::wait_for(async {
        let names = super::selected(&host, &args.which, false).await?;
        super::for_each(names, |name| {
            let host = host.clone();
            async move { host.remove(&name, force).await }
        })
        .await
    })
}
