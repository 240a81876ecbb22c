//! How a guest runs, said honestly.

use cosm_driver::{DiskBound, LaunchFacts, Upper};
use cosm_spec::{Defaults, ImageSource, Limit, NetMode};
use cosm_sys::idmap;

use crate::host::Caller;
use crate::limits::Limits;
use crate::rootfs::{self, Site};

/// What can be said about how a guest is going to run.
pub(crate) fn of(site: &Site<'_>, limits: &Limits) -> LaunchFacts {
    let (plan, ids, upper) = (site.plan, site.ids, site.upper);
    let mut facts = LaunchFacts {
        upper: Some(upper),
        ids: Some(ids.record()),
        ..LaunchFacts::default()
    };
    limits.describe(&mut facts);
    facts.landlock =
        (plan.spec.net == NetMode::Host).then(|| cosm_sys::landlock::version().unwrap_or(0));
    facts.notes.extend(foreign_image(site));
    let in_memory = matches!(
        upper,
        Upper::FoldersTmpfs | Upper::OverlayTmpfs | Upper::CopyTmpfs
    );
    (facts.disk, facts.disk_by) = match plan.spec.resources.disk {
        _ if in_memory => (
            Some(rootfs::memory_for_files(site)),
            Some(DiskBound::Memory),
        ),
        Limit::At(size) => (Some(size.0), Some(DiskBound::File)),
        Limit::Unlimited => (None, None),
        Limit::Default => (Some(Defaults::DISK.0), Some(DiskBound::Watched)),
    };
    facts
}

/// An ordinary user's guest can't change what is in an image's folders if they belong to somebody it does not have.
fn foreign_image(site: &Site<'_>) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let ImageSource::Folder(path) = &site.plan.spec.image else {
        return None;
    };
    let owner = std::fs::metadata(path.as_path()).ok()?.uid();
    let known = site.host.caller == Caller::Root || idmap::inside(&site.ids.users, owner).is_some();
    (!known).then(|| {
        format!("the image belongs to user {owner}, whom the guest does not have: its folders are read-only there")
    })
}
