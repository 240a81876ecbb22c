//! What this program takes from its surroundings. Nothing else reads the environment.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cosm::{Host, HostConfig, IdSlots, SpareKeeper};

use crate::error::{Result, os};
use crate::settings::SettingsError;

/// This program's own file, also when it has been replaced since it was started.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Opens the state folder that the environment names.
///
/// # Errors
/// There is no home folder; a folder is not private.
pub(crate) fn host() -> Result<Host> {
    host_with(None)
}

/// As [`host`], with a keeper that was made in advance.
///
/// # Errors
/// As [`host`].
pub(crate) fn host_with(spare: Option<SpareKeeper>) -> Result<Host> {
    let home = home()?;
    let runtime_dir = runtime_dir();
    Ok(Host::open(HostConfig {
        home,
        runtime_dir,
        program: OWN_PROGRAM.into(),
        ids: id_slots()?,
        spare,
    })?)
}

/// `$COSM_HOME`, else `cosm` in the XDG data folder.
///
/// # Errors
/// None of `COSM_HOME`, `XDG_DATA_HOME` and `HOME` is set to something usable.
pub(crate) fn home() -> Result<PathBuf> {
    if let Some(home) = set("COSM_HOME") {
        return absolute(Path::new(&home));
    }
    // The XDG specification: a relative path there is to be ignored.
    if let Some(data) = set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
    {
        return Ok(data.join("cosm"));
    }
    match set("HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
    {
        Some(home) => Ok(home.join(".local/share/cosm")),
        None => Err(SettingsError::NoHome.into()),
    }
}

/// `cosm` in `$XDG_RUNTIME_DIR` if that is this user's, else where a login would have it, so that all of a user's
/// programs meet. Where there are no logins: a folder with this user's number in memory, else in `/tmp`.
pub(crate) fn runtime_dir() -> PathBuf {
    let me = rustix::process::geteuid().as_raw();
    let private = |path: &PathBuf| {
        // A socket's path holds 107 bytes, and ours need 38 of them.
        path.is_absolute()
            && path.as_os_str().len() <= 60
            && std::fs::symlink_metadata(path)
                .is_ok_and(|meta| meta.is_dir() && meta.uid() == me && meta.mode() & 0o077 == 0)
    };
    if let Some(dir) = set("XDG_RUNTIME_DIR").map(PathBuf::from).filter(private) {
        return dir.join("cosm");
    }
    if me == 0 && in_memory(c"/run") {
        return PathBuf::from("/run/cosm");
    }
    let of_login = PathBuf::from(format!("/run/user/{me}"));
    if private(&of_login) {
        return of_login.join("cosm");
    }
    // A login manager empties the shared memory of users who have logged out.
    let shared = !Path::new("/run/systemd/users").exists() && in_memory(c"/dev/shm");
    PathBuf::from(format!(
        "{}/cosm-{me}",
        if shared { "/dev/shm" } else { "/tmp" }
    ))
}

/// Whether this is a folder of a file system in memory.
fn in_memory(folder: &std::ffi::CStr) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::statfs(folder).is_ok_and(|found| found.f_type == TMPFS)
}

/// `$COSM_ID_SLOTS`: where the ranges of ids for root's sandboxes begin and how many there are.
///
/// # Errors
/// It does not say that.
fn id_slots() -> Result<Option<IdSlots>> {
    let Some(text) = set("COSM_ID_SLOTS") else {
        return Ok(None);
    };
    let read = || {
        let (first, count) = text.to_str()?.split_once(':')?;
        let slots = IdSlots {
            first: first.parse().ok()?,
            count: count.parse().ok()?,
        };
        // The first one is the host's own, and the last one must end before ids do.
        let end = u64::from(slots.first) + u64::from(slots.count) * 65_536;
        (slots.first > 0 && slots.count > 0 && end < u64::from(u32::MAX)).then_some(slots)
    };
    match read() {
        Some(slots) => Ok(Some(slots)),
        None => Err(SettingsError::IdSlots(text).into()),
    }
}

/// A variable that is set and not empty.
pub(crate) fn set(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// A path that does not depend on where this program was started.
///
/// # Errors
/// The current folder is gone.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(os("finding the current folder"))
}

/// The current folder, without symbolic links.
///
/// # Errors
/// It is gone.
pub(crate) fn current_dir() -> Result<PathBuf> {
    env::current_dir().map_err(os("finding the current folder"))
}

/// What a command's terminal is: this one, if it is known to be any good.
pub(crate) fn terminal_name() -> OsString {
    match set("TERM") {
        Some(name) if name != "dumb" => name,
        _ => "xterm".into(),
    }
}
