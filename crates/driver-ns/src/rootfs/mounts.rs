//! What the spec mounts into a guest.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use cosm_driver::{LaunchError, LaunchPhase};
use cosm_spec::{Defaults, Mount, MountSource};
use cosm_sys::idmap::{self, Extent};
use cosm_sys::mount::Attributes;

use super::{
    Builder, PLAIN, READ_ONLY, SCRIPTS, failed, folder::translated, path_text, show, text,
};
use crate::host::Caller;
use crate::tree::{Bind, Filesystem, Source, Step};

pub(super) fn scripts(builder: &mut Builder<'_>) -> Result<(), LaunchError> {
    let Some(folder) = builder.site.plan.scripts.clone() else {
        return Ok(());
    };
    let bind = builder.named(&folder, READ_ONLY, true, LaunchPhase::Mounts)?;
    attach(builder, bind, Path::new(SCRIPTS), true)
}

pub(super) fn prefixes(builder: &mut Builder<'_>) -> Result<(), LaunchError> {
    for prefix in builder.site.plan.spec.prefixes.clone() {
        let path = prefix.as_path();
        source(path, "prefix")?;
        let bind = builder.named(path, READ_ONLY, true, LaunchPhase::Mounts)?;
        attach(builder, bind, path, true)?;
    }
    Ok(())
}

/// Parents come first, so that nothing is hidden by what is mounted above it.
pub(super) fn of_spec(builder: &mut Builder<'_>) -> Result<(), LaunchError> {
    let mut mounts: Vec<Mount> = builder.site.plan.spec.mounts.clone();
    mounts.sort_by_cached_key(|mount| normal(mount.target.as_path()));
    for mount in mounts {
        let target = normal(mount.target.as_path());
        match &mount.source {
            MountSource::Bind(path) => {
                bind_mount(builder, path.as_path(), &target, mount.read_only)?
            }
            MountSource::Tmpfs { size, mode } => {
                let size = size.unwrap_or(Defaults::TMPFS).0;
                let kind = Filesystem::Memory {
                    size: text(&size.to_string()),
                    mode: text(&format!("{:o}", mode.unwrap_or(0o1777) & 0o7777)),
                };
                let path = path_text(&target)?;
                builder.step(Step::Place {
                    path: path.clone(),
                    folder: true,
                });
                let attributes = Attributes {
                    read_only: mount.read_only,
                    ..PLAIN
                };
                builder.own(kind, path, attributes, false);
            }
            _ => {
                return Err(LaunchError::Unsupported {
                    what: format!("the mount on {}", show(&target)),
                    why: "the namespace driver has no mounts of this kind".to_owned(),
                    help: None,
                });
            }
        }
    }
    Ok(())
}

/// A path without empty parts and `.`, so that a parent sorts before what lies below it.
fn normal(path: &Path) -> PathBuf {
    path.components().collect()
}

fn source(path: &Path, kind: &str) -> Result<std::fs::Metadata, LaunchError> {
    std::fs::metadata(path).map_err(|e| {
        if e.kind() == std::io::ErrorKind::NotFound {
            LaunchError::Invalid {
                what: format!("{kind} path does not exist: {}", show(path)),
                help: None,
            }
        } else {
            failed(LaunchPhase::Mounts, "looking at", path, e)
        }
    })
}

fn bind_mount(
    builder: &mut Builder<'_>,
    path: &Path,
    target: &Path,
    read_only: bool,
) -> Result<(), LaunchError> {
    let found = source(path, "mount")?;
    let bind = if read_only {
        readable(builder, path, (found.uid(), found.gid()))?
    } else {
        writable(builder, path, (found.uid(), found.gid()))?
    };
    attach(builder, bind, target, found.is_dir())
}

/// A mount in which the guest's main user may read what the owner may. Where owners can't be translated, or there are
/// mounts below it, it may read what everybody may.
fn readable(
    builder: &mut Builder<'_>,
    path: &Path,
    owner: (u32, u32),
) -> Result<usize, LaunchError> {
    let ids = builder.site.ids;
    let main = (
        idmap::outside(&ids.users, ids.main.0),
        idmap::outside(&ids.groups, ids.main.1),
    );
    let root = builder.site.host.caller == Caller::Root;
    if let (true, (Some(user), Some(group)), false) = (root, main, has_mounts_below(path)) {
        let made = translated(
            path,
            READ_ONLY,
            &[one(owner.0, user)],
            &[one(owner.1, group)],
        );
        if let Ok(mount) = made {
            return Ok(builder.bind(Bind {
                source: Source::Made(mount),
                attributes: READ_ONLY,
                recursive: false,
                optional: false,
                phase: LaunchPhase::Mounts,
            }));
        }
    }
    builder.named(path, READ_ONLY, true, LaunchPhase::Mounts)
}

/// A map of one id.
const fn one(inside: u32, outside: u32) -> Extent {
    Extent {
        inside,
        outside,
        count: 1,
    }
}

/// Whether something is mounted below a folder, as the kernel lists it.
fn has_mounts_below(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else {
        return true;
    };
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Field 5 is the mount point; a name with blanks is written in octal, which only a literal path is compared with.
    let escaped = path
        .to_string_lossy()
        .replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012");
    list.lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| Path::new(point).starts_with(&escaped) && point != escaped)
}

/// A mount in which the guest's main user is the owner of the folder.
fn writable(
    builder: &mut Builder<'_>,
    path: &Path,
    owner: (u32, u32),
) -> Result<usize, LaunchError> {
    let ids = builder.site.ids;
    let main = (
        idmap::outside(&ids.users, ids.main.0),
        idmap::outside(&ids.groups, ids.main.1),
    );
    let (Some(user), Some(group)) = main else {
        return Err(not_the_owner(
            path,
            owner,
            "the guest's main user is nobody outside",
        ));
    };
    match builder.site.host.caller {
        Caller::User { uid, .. } if owner.0 != uid => Err(not_the_owner(
            path,
            owner,
            &format!("an ordinary user's sandbox can write only as user {uid}"),
        )),
        Caller::User { .. } => builder.named(path, PLAIN, true, LaunchPhase::Mounts),
        Caller::Root => {
            let (users, groups) = ([one(owner.0, user)], [one(owner.1, group)]);
            let mount =
                translated(path, PLAIN, &users, &groups).map_err(|e| untranslatable(path, e))?;
            Ok(builder.bind(Bind {
                source: Source::Made(mount),
                attributes: PLAIN,
                recursive: false,
                optional: false,
                phase: LaunchPhase::Mounts,
            }))
        }
    }
}

fn not_the_owner(path: &Path, owner: (u32, u32), why: &str) -> LaunchError {
    LaunchError::Unsupported {
        what: format!("mounting {} writable", show(path)),
        why: format!("it belongs to user {}, and {why}", owner.0),
        help: Some("mount it read-only, or copy it".to_owned()),
    }
}

fn untranslatable(path: &Path, error: std::io::Error) -> LaunchError {
    match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::INVAL.raw_os_error() => LaunchError::Unsupported {
            what: format!("mounting {} writable", show(path)),
            why: "its file system can't translate owners, so the guest's files would belong to nobody outside".to_owned(),
            help: Some("mount it read-only, or use a folder on ext4, xfs, btrfs or tmpfs".to_owned()),
        },
        _ => failed(LaunchPhase::Mounts, "translating the owners in", path, error),
    }
}

fn attach(
    builder: &mut Builder<'_>,
    bind: usize,
    target: &Path,
    folder: bool,
) -> Result<(), LaunchError> {
    let path = path_text(&normal(target))?;
    builder.step(Step::Place {
        path: path.clone(),
        folder,
    });
    builder.step(Step::Attach { bind, path });
    Ok(())
}

pub(super) fn devices(builder: &mut Builder<'_>) -> Result<(), LaunchError> {
    for device in builder.site.plan.spec.devices.clone() {
        let path = device.source.as_path();
        let found = source(path, "device")?;
        if !(found.file_type().is_char_device() || found.file_type().is_block_device()) {
            return Err(LaunchError::Invalid {
                what: format!("{} is not a device", show(path)),
                help: None,
            });
        }
        let attributes = Attributes {
            no_suid: true,
            no_exec: true,
            ..Attributes::default()
        };
        let bind = builder.named(path, attributes, false, LaunchPhase::Devices)?;
        attach(builder, bind, device.target.as_path(), false)?;
    }
    Ok(())
}
