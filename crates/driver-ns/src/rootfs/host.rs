//! The image `host`: the host's programs, read-only, and nothing of its users' files.

use std::fs::Metadata;
use std::path::Path;

use cosm_driver::{LaunchError, LaunchPhase, Upper};
use cosm_spec::Profile;

use super::{Builder, PLAIN, common, failed, path_text, text};
use crate::ids::Ids;
use crate::tree::{Bind, Root, Source, Step};

const FOLDERS: &str = include_str!("../../data/host-dirs.list");
const ETC: &str = include_str!("../../data/etc.list");
/// A file up to this size is copied, a longer one is mounted, which costs the same whatever its size.
const COPY_LIMIT: u64 = 64 << 10;

/// Folders that a guest has for itself, and their permissions.
const PRIVATE: [(&str, u32); 13] = [
    ("/tmp", 0o1777),
    ("/home", 0o755),
    ("/root", 0o700),
    ("/var", 0o755),
    ("/var/tmp", 0o1777),
    ("/var/lib", 0o755),
    ("/var/cache", 0o755),
    ("/var/log", 0o755),
    ("/opt", 0o755),
    ("/srv", 0o755),
    ("/mnt", 0o755),
    ("/proc", 0o555),
    ("/sys", 0o555),
];

/// What a restricted guest, whose root is read-only, can still write to.
const WRITABLE: [&str; 6] = ["/tmp", "/home", "/root", "/run", "/var/tmp", "/dev/shm"];

pub(super) fn image(builder: &mut Builder<'_>) -> Result<Root, LaunchError> {
    let on_disk = builder.site.upper == Upper::Folders;
    let root = if on_disk {
        disk_root(builder)?
    } else {
        Root::Base
    };
    for (path, mode) in PRIVATE {
        builder.folder(path, mode);
    }
    builder.folder("/run/lock", 0o1777);
    builder.link("/var/run", "/run");
    builder.link("/var/lock", "/run/lock");
    home(builder);
    system_folders(builder)?;
    etc(builder)?;
    common::dev(builder, on_disk);
    common::proc_and_sys(builder);
    if builder.site.plan.spec.profile == Profile::Restricted {
        for path in WRITABLE {
            builder.step(Step::Restrict {
                path: text(path),
                attributes: PLAIN,
            });
        }
        builder.sealed.push(text("/"));
        if on_disk {
            builder.sealed.extend([text("/etc"), text("/dev")]);
        }
    }
    Ok(root)
}

/// The guest's root is a folder on disk; what is the same at each start lies over it in memory.
fn disk_root(builder: &mut Builder<'_>) -> Result<Root, LaunchError> {
    let bind = super::folder::data_folder(builder, "root")?;
    for name in ["/dev", "/etc", "/run"] {
        let source = Source::Base(text(&name[1..]));
        let bind = builder.bind(Bind {
            source,
            attributes: PLAIN,
            recursive: false,
            optional: false,
            phase: LaunchPhase::Rootfs,
        });
        builder.folder(name, 0o755);
        builder.step(Step::Attach {
            bind,
            path: text(name),
        });
    }
    Ok(Root::Folder { bind })
}

/// A home for the main user, where that is not root.
fn home(builder: &mut Builder<'_>) {
    let (user, group) = builder.site.ids.main;
    if user != 0 {
        builder.folder("/home/user", 0o700);
        builder.step(Step::Own {
            path: text("/home/user"),
            user,
            group,
        });
    }
}

fn system_folders(builder: &mut Builder<'_>) -> Result<(), LaunchError> {
    for name in FOLDERS.lines().filter(|line| line.starts_with('/')) {
        let path = Path::new(name);
        let Ok(found) = std::fs::symlink_metadata(path) else {
            continue;
        };
        if found.is_symlink() {
            let target = std::fs::read_link(path)
                .map_err(|e| failed(LaunchPhase::Rootfs, "reading the link", path, e))?;
            builder.step(Step::Link {
                path: text(name),
                target: path_text(&target)?,
            });
        } else if found.is_dir() {
            let path = text(name);
            let bind = builder.system(&path);
            builder.step(Step::Place {
                path: path.clone(),
                folder: true,
            });
            builder.step(Step::Attach { bind, path });
        }
    }
    Ok(())
}

fn etc(builder: &mut Builder<'_>) -> Result<(), LaunchError> {
    for name in ETC
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let path = Path::new("/etc").join(name);
        let Ok(found) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        allow(builder, &path, &found)?;
    }
    builder.file("/etc/passwd", passwd(builder.site.ids));
    builder.file("/etc/group", group(builder.site.ids));
    builder.link("/etc/mtab", "/proc/self/mounts");
    for (name, contents) in common::identity(builder) {
        builder.file(&format!("/etc/{name}"), contents);
    }
    Ok(())
}

/// Shows the guest one entry of the host's `/etc`. One that the caller can't read is left out: root could, and the guest
/// may not.
fn allow(builder: &mut Builder<'_>, path: &Path, found: &Metadata) -> Result<(), LaunchError> {
    use std::os::unix::fs::PermissionsExt as _;
    let everybody = found.permissions().mode() & 0o004 != 0;
    let name = path_text(path)?;
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("/etc")) {
        builder.step(Step::Place {
            path: path_text(parent)?,
            folder: true,
        });
    }
    if found.is_symlink() {
        if let Ok(target) = std::fs::read_link(path) {
            builder.step(Step::Link {
                path: name,
                target: path_text(&target)?,
            });
        }
    } else if !everybody {
        return Ok(());
    } else if found.is_file() && found.len() <= COPY_LIMIT {
        if let Ok(contents) = std::fs::read(path) {
            builder.step(Step::File {
                path: name,
                mode: 0o644,
                contents,
            });
        }
    } else if found.is_file() || found.is_dir() {
        let bind = builder.system(&name);
        builder.step(Step::Place {
            path: name.clone(),
            folder: found.is_dir(),
        });
        builder.step(Step::Attach { bind, path: name });
    }
    Ok(())
}

/// A `passwd` with root, nobody, and the main user where that is another.
pub(crate) fn passwd(ids: &Ids) -> String {
    let mut text = String::from("root:x:0:0:root:/root:/bin/sh\n");
    let (uid, gid) = ids.main;
    if uid != 0 && uid != 65_534 {
        text += &format!("user:x:{uid}:{gid}:user:/home/user:/bin/sh\n");
    }
    text + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
}

fn group(ids: &Ids) -> String {
    let mut text = String::from("root:x:0:\n");
    let gid = ids.main.1;
    if gid != 0 && gid != 65_534 {
        text += &format!("user:x:{gid}:\n");
    }
    text + "nogroup:x:65534:\n"
}
