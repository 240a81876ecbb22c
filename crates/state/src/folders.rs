//! Private folders, and files replaced as a whole.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use cosm_base::{Home, RuntimeDir};

use crate::StateError;

/// Makes the state folder with what is below it. What is there already is checked to be this user's own.
///
/// # Errors
/// [`StateError::Io`], [`StateError::NotPrivate`].
pub fn prepare_home(home: &Home) -> Result<(), StateError> {
    let sandboxes = home.sandboxes();
    if is_private(&sandboxes)? {
        return Ok(());
    }
    // Above the state folder lie the user's own folders (`~/.local/share`), made as others make them.
    if let Some(parent) = home.root().parent() {
        fs::create_dir_all(parent).map_err(StateError::io("creating", parent))?;
    }
    for folder in [home.root(), &home.generation(), &sandboxes] {
        make_private(folder)?;
    }
    spread(&sandboxes);
    Ok(())
}

/// Tells ext4 that what lies in a folder is unrelated (as `chattr +T` does): it puts each sandbox in a part of the disk
/// of its own, so that making many at once does not queue for one, nor search around what was just removed. Other file
/// systems have no such thing, and need none.
fn spread(folder: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let told = fs::File::open(folder).and_then(|folder| {
        let flags = ioctl_getflags(&folder)?;
        Ok(ioctl_setflags(&folder, flags | IFlags::TOPDIR)?)
    });
    drop(told);
}

/// Makes the folder for sockets with the one above it.
///
/// # Errors
/// As [`prepare_home`].
pub fn prepare_runtime(runtime: &RuntimeDir) -> Result<(), StateError> {
    if is_private(runtime.path())? {
        return Ok(());
    }
    if let Some(parent) = runtime.path().parent() {
        make_private(parent)?;
    }
    make_private(runtime.path())
}

/// Makes a folder that only this user can enter. One that exists must be so already.
///
/// # Errors
/// [`StateError::Io`]; [`StateError::NotPrivate`] where it is a link, another user's, or open to others.
pub fn make_private(path: &Path) -> Result<(), StateError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match is_private(path)? {
            true => Ok(()),
            false => Err(StateError::io("creating", path)(error)),
        },
        Err(error) => Err(StateError::io("creating", path)(error)),
    }
}

/// Whether the folder is there, and this user's alone.
fn is_private(path: &Path) -> Result<bool, StateError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(StateError::io("looking at", path)(error)),
    };
    let wrong = |why| StateError::NotPrivate {
        path: path.to_owned(),
        why,
    };
    if !found.is_dir() {
        return Err(wrong("it is not a folder"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(wrong("it belongs to another user"));
    }
    if found.mode() & 0o022 != 0 {
        return Err(wrong("others may write to it (chmod 700 would help)"));
    }
    if found.mode() & 0o055 != 0 {
        // A folder that the user made by hand with the usual mask: closing it takes nothing from anybody.
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .map_err(StateError::io("closing to others", path))?;
    }
    Ok(true)
}

/// Replaces a file as a whole: whoever reads it sees the old or the new content, never a part.
///
/// The new content is not forced to the disk; after a power failure either may be there, or an empty file.
///
/// # Errors
/// [`StateError::Io`]; the old content is still there then.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<(), StateError> {
    let temporary = path.with_extension("new");
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| take_place(&temporary, path));
    written.map_err(StateError::io("writing", path))
}

/// Puts a file in the place of another. A plain rename over a file makes ext4 write the new one out, and whoever removes
/// it then waits for the disk; an exchange does not, and is as atomic for readers.
fn take_place(new: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => fs::remove_file(new),
        // Nothing is there yet, or the file system does not know how.
        Err(_) => fs::rename(new, path),
    }
}
