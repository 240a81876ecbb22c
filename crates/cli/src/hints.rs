//! What would help a command that did not find something which is there outside of its sandbox.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cosm::{ByteString, Sandbox, SpawnFailure, SpawnReason};
use cosm_base::text::printable;

use crate::environment;
use crate::report;

/// What to say of a command that could not be started, if its program is there outside.
pub(crate) fn for_spawn(failure: &SpawnFailure) -> Option<String> {
    if failure.reason != SpawnReason::NotFound {
        return None;
    }
    let path = program_outside(OsStr::from_bytes(&failure.subject))?;
    Some(sentence(&failure.subject, &path))
}

/// After a command failed: says so if one of its arguments is a file outside and none inside.
pub(crate) async fn for_failure(sandbox: &Sandbox, argv: &[ByteString]) {
    for argument in argv.iter().skip(1) {
        let Some(path) = file_outside(argument.as_path()) else {
            continue;
        };
        // If the sandbox can't answer any more, there is nothing to say.
        let inside = sandbox.fs().exists(argument.clone()).await;
        if inside.is_ok_and(|inside| !inside) {
            report::hint(&sentence(argument.as_bytes(), &path));
            return;
        }
    }
}

fn sentence(subject: &[u8], path: &Path) -> String {
    let folder = path.parent().unwrap_or(path);
    format!(
        "{} exists on the host but not in the sandbox: add --here or --mount {}",
        printable(subject),
        printable(folder.as_os_str().as_bytes()),
    )
}

/// Where a program is on this host.
fn program_outside(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return file_outside(Path::new(program));
    }
    let path = environment::set("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// A file or folder of this host that an argument may mean: one with a folder or an extension in it, so that a word
/// such as `test` is not taken for the folder of that name.
fn file_outside(path: &Path) -> Option<PathBuf> {
    let looks_like_a_path =
        path.as_os_str().as_bytes().contains(&b'/') || path.extension().is_some();
    let absolute = std::path::absolute(path)
        .ok()
        .filter(|_| looks_like_a_path)?;
    absolute.exists().then_some(absolute)
}
