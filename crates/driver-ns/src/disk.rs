//! What bounds the guest's own files: the size of a file system in memory, or of one in a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use cosm_driver::{LaunchError, LaunchPhase, Support};
use cosm_sys::loopback::LoopDevice;
use cosm_sys::mount::{Attributes, FsOption, new_filesystem};

use crate::host::{Caller, Host};
use crate::rootfs::{failed, show};

/// The file, in the sandbox's data folder, that holds a bounded file system.
const FILE: &str = "disk.ext4";
/// ext4 can't be made smaller.
const LEAST: u64 = 1 << 20;
const MKFS: [&str; 4] = [
    "/usr/sbin/mkfs.ext4",
    "/sbin/mkfs.ext4",
    "/usr/bin/mkfs.ext4",
    "/usr/local/sbin/mkfs.ext4",
];

fn mkfs() -> Option<&'static str> {
    MKFS.into_iter().find(|path| Path::new(path).exists())
}

/// By what means the disk can be bounded on this host.
pub(crate) fn support(host: &Host) -> Support {
    if host.caller != Caller::Root {
        return Support::Yes {
            by: "a file system in memory, for what is not kept; else the default is watched"
                .to_owned(),
        };
    }
    match obstacle() {
        None => Support::Yes {
            by: "ext4 in a file".to_owned(),
        },
        Some((why, help)) => Support::No {
            why: format!("{why} (what is not kept is bounded in memory)"),
            help: Some(help.to_owned()),
        },
    }
}

fn obstacle() -> Option<(&'static str, &'static str)> {
    if mkfs().is_none() {
        return Some(("mkfs.ext4 is not installed", "install e2fsprogs"));
    }
    (!Path::new("/dev/loop-control").exists())
        .then_some(("there are no loop devices", "sudo modprobe loop"))
}

/// Why the files that a sandbox keeps can't be bounded, where that is so.
pub(crate) fn check_kept(host: &Host) -> Result<(), LaunchError> {
    let (why, help) = match (&host.caller, obstacle()) {
        (Caller::Root, None) => return Ok(()),
        (Caller::Root, Some((why, help))) => (why, help),
        (Caller::User { .. }, _) => (
            "an ordinary user has neither quotas nor loop devices",
            "leave it at the default, which the keeper watches, let the sandbox keep nothing (then memory bounds it), or run cosm as root",
        ),
    };
    Err(LaunchError::Unsupported {
        what: "a disk limit for files that are kept".to_owned(),
        why: why.to_owned(),
        help: Some(help.to_owned()),
    })
}

/// A detached mount of the data folder's own file system of `size` bytes, which is made at the first start. Its root
/// belongs to `owner`. An existing one keeps its size, or grows.
pub(crate) fn mount(data: &Path, size: u64, owner: (u32, u32)) -> Result<OwnedFd, LaunchError> {
    let path = data.join(FILE);
    let wrong = |what: &str, e: io::Error| failed(LaunchPhase::Rootfs, what, &path, e);
    if !path.exists() {
        make(&path, size.max(LEAST), owner)?;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|e| wrong("opening", e))?;
    let device = LoopDevice::attach(&file).map_err(|e| wrong("making a disk of", e))?;
    let source = std::ffi::CString::new(device.path().as_os_str().as_bytes())
        .map_err(|e| wrong("mounting", e.into()))?;
    let attributes = Attributes {
        no_devices: true,
        ..Attributes::default()
    };
    let options = [FsOption::Text(c"errors", c"remount-ro")];
    let mount = new_filesystem(c"ext4", &source, &options, attributes)
        .map_err(|e| wrong("mounting", e.into()))?;
    // Left over from making it; the guest could not remove it.
    match rustix::fs::unlinkat(mount.as_fd(), "lost+found", rustix::fs::AtFlags::REMOVEDIR) {
        Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTEMPTY) => {}
        Err(error) => return Err(wrong("preparing", error.into())),
    }
    Ok(mount)
}

/// Under another name first: one that is there is whole.
fn make(path: &Path, size: u64, (uid, gid): (u32, u32)) -> Result<(), LaunchError> {
    let wrong = |what: &str, e: io::Error| failed(LaunchPhase::Rootfs, what, path, e);
    let staged = path.with_extension("new");
    let file = File::create(&staged).map_err(|e| wrong("making", e))?;
    file.set_len(size).map_err(|e| wrong("sizing", e))?;
    drop(file);
    let program = mkfs().ok_or_else(|| wrong("making", io::ErrorKind::NotFound.into()))?;
    let output = Command::new(program)
        .args(["-q", "-F", "-m", "0", "-E"])
        .arg(format!(
            "root_owner={uid}:{gid},lazy_itable_init=1,lazy_journal_init=1,nodiscard"
        ))
        .arg(&staged)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|e| wrong("running mkfs.ext4 on", e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = format!(
            "mkfs.ext4 on {}: {}",
            show(path),
            cosm_base::text::printable(said.trim().as_bytes())
        );
        return Err(LaunchError::Invalid {
            what: said,
            help: Some("let the disk limit be larger".to_owned()),
        });
    }
    std::fs::rename(&staged, path).map_err(|e| wrong("keeping", e))
}
