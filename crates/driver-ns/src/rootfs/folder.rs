//! A folder as an image: the lower layer of an overlay, or copied; never changed.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;

use cosm_driver::{LaunchError, LaunchPhase, Upper};
use cosm_spec::{Limit, Profile};
use cosm_sys::idmap::Extent;
use cosm_sys::mount::{Attributes, FsOption, new_filesystem};

use super::{Builder, PLAIN, common, failed, path_text, show, text};
use crate::host::Caller;
use crate::tree::{Bind, Filesystem, Root, Source, Step};

/// A guest's own root in an image may have set-user-id programs; the mount forbids devices.
const IMAGE: Attributes = Attributes {
    read_only: true,
    no_suid: false,
    no_devices: true,
    no_exec: false,
};

pub(super) fn image(builder: &mut Builder<'_>, path: &Path) -> Result<Root, LaunchError> {
    check(path)?;
    let root = match builder.site.upper {
        Upper::Copy | Upper::CopyTmpfs => copied(builder, path)?,
        Upper::Overlay => {
            let lower = lower(builder, path)?;
            let upper = Some(data_folder(builder, "layer")?);
            Root::Overlay {
                lower,
                upper,
                volatile: false,
            }
        }
        _ => Root::Overlay {
            lower: lower(builder, path)?,
            upper: None,
            volatile: true,
        },
    };
    let source = Source::Base(text("dev"));
    let dev = builder.bind(Bind {
        source,
        attributes: PLAIN,
        recursive: false,
        optional: false,
        phase: LaunchPhase::Devices,
    });
    for (name, mode) in [
        ("/dev", 0o755),
        ("/proc", 0o555),
        ("/sys", 0o555),
        ("/tmp", 0o1777),
        ("/run", 0o755),
        ("/etc", 0o755),
    ] {
        builder.folder(name, mode);
    }
    builder.step(Step::Attach {
        bind: dev,
        path: text("/dev"),
    });
    common::dev(builder, true);
    common::proc_and_sys(builder);
    identity(builder);
    if builder.site.plan.spec.profile == Profile::Restricted {
        for path in ["/tmp", "/run", "/var/tmp"] {
            builder.step(Step::Place {
                path: text(path),
                folder: true,
            });
            let kind = Filesystem::Memory {
                size: text("64m"),
                mode: text("1777"),
            };
            builder.own(kind, text(path), PLAIN, false);
        }
        builder.sealed.extend([text("/"), text("/dev")]);
    }
    Ok(root)
}

fn check(path: &Path) -> Result<(), LaunchError> {
    let invalid = |what: String| LaunchError::Invalid { what, help: None };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(invalid(format!(
            "rootfs bind path is not a directory: {}",
            show(path)
        ))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(invalid(format!(
            "rootfs bind path does not exist: {}",
            show(path)
        ))),
        Err(e) => Err(failed(LaunchPhase::Prepare, "looking at", path, e)),
    }
}

/// The image, read-only. Root's guests see its owners as their own: the mount translates them.
fn lower(builder: &mut Builder<'_>, path: &Path) -> Result<usize, LaunchError> {
    let attributes = IMAGE;
    if builder.site.host.caller != Caller::Root {
        return builder.named(path, attributes, true, LaunchPhase::Rootfs);
    }
    let ids = builder.site.ids;
    let mount = translated(path, attributes, &ids.users, &ids.groups)
        .map_err(|e| failed(LaunchPhase::Rootfs, "translating the owners in", path, e))?;
    Ok(builder.bind(Bind {
        source: Source::Made(mount),
        attributes,
        recursive: false,
        optional: false,
        phase: LaunchPhase::Rootfs,
    }))
}

/// A copy of the image. Root makes it here: what the guest's own root may read of the image is not enough where its mount
/// can't translate owners.
fn copied(builder: &mut Builder<'_>, path: &Path) -> Result<Root, LaunchError> {
    let kept = builder.site.upper == Upper::Copy;
    let into = if kept {
        Some(data_folder(builder, "copy")?)
    } else {
        None
    };
    if builder.site.host.caller != Caller::Root {
        let lower = builder.named(path, IMAGE, true, LaunchPhase::Rootfs)?;
        return Ok(Root::Copy {
            lower: Some(lower),
            into,
        });
    }
    let failed = |e: std::io::Error| failed(LaunchPhase::Rootfs, "copying", path, e);
    let into = match into {
        Some(bind) => bind,
        None => {
            let size = text(&super::memory_for_files(builder.site).to_string());
            let options = [
                FsOption::Text(c"size", &size),
                FsOption::Text(c"mode", c"0755"),
            ];
            let attributes = Attributes {
                no_devices: true,
                ..Attributes::default()
            };
            let mount = new_filesystem(c"tmpfs", c"cosm", &options, attributes)
                .map_err(|e| failed(e.into()))?;
            builder.bind(Bind {
                source: Source::Made(mount),
                attributes,
                recursive: false,
                optional: false,
                phase: LaunchPhase::Rootfs,
            })
        }
    };
    if let Some(Bind {
        source: Source::Made(mount),
        ..
    }) = builder.binds.get(into)
    {
        let place = format!("/proc/self/fd/{}", mount.as_raw_fd());
        crate::copy::once(path, Path::new(&place), builder.site.plan.id_range).map_err(failed)?;
    }
    Ok(Root::Copy {
        lower: None,
        into: Some(into),
    })
}

/// A detached mount of a folder or file whose owners are translated by these maps.
pub(super) fn translated(
    path: &Path,
    attributes: Attributes,
    users: &[Extent],
    groups: &[Extent],
) -> std::io::Result<std::os::fd::OwnedFd> {
    use std::os::unix::ffi::OsStrExt as _;
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let namespace = cosm_sys::idmap::namespace_with(users, groups)?;
    let mount = cosm_sys::mount::clone_tree(cosm_sys::mount::here(), &name, false)?;
    cosm_sys::mount::restrict(mount.as_fd(), attributes, false)?;
    cosm_sys::mount::map_ids(mount.as_fd(), namespace.as_fd())?;
    Ok(mount)
}

/// A folder below the sandbox's data folder that the guest's root owns.
pub(super) fn data_folder(builder: &mut Builder<'_>, name: &str) -> Result<usize, LaunchError> {
    let Some(data) = &builder.site.plan.data else {
        return Err(LaunchError::Invalid {
            what: "this sandbox has no folder for what the guest writes".to_owned(),
            help: None,
        });
    };
    if let Limit::At(size) = builder.site.plan.spec.resources.disk {
        crate::disk::check_kept(builder.site.host)?;
        let ids = builder.site.ids;
        let owner = |map: &[Extent]| map.first().map_or(0, |e| e.outside);
        let mount = crate::disk::mount(data, size.0, (owner(&ids.users), owner(&ids.groups)))?;
        return Ok(builder.bind(Bind {
            source: Source::Made(mount),
            attributes: Attributes::default(),
            recursive: false,
            optional: false,
            phase: LaunchPhase::Rootfs,
        }));
    }
    let path = data.join(name);
    let prepare = |what| {
        let path = path.clone();
        move |e: std::io::Error| failed(LaunchPhase::Rootfs, what, &path, e)
    };
    match std::fs::create_dir(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => other.map_err(prepare("making"))?,
    }
    if builder.site.host.caller == Caller::Root {
        let owner = |map: &[Extent]| map.first().map(|e| e.outside);
        let ids = builder.site.ids;
        std::os::unix::fs::chown(&path, owner(&ids.users), owner(&ids.groups))
            .map_err(prepare("giving the guest"))?;
    }
    path_text(&path)?;
    builder.named(
        &path,
        Attributes {
            no_devices: true,
            ..Attributes::default()
        },
        true,
        LaunchPhase::Rootfs,
    )
}

/// The guest's names for itself go over the image's, so that the image's own files stay as they are.
fn identity(builder: &mut Builder<'_>) {
    for (name, contents) in common::identity(builder) {
        let hidden = format!("/dev/.{name}");
        builder.file(&hidden, contents);
        builder.step(Step::Cover {
            path: text(&format!("/etc/{name}")),
            with: text(&hidden),
        });
    }
}
