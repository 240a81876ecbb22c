//! What would help a command that did not find something which is there outside of its sandbox.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use cosm::{ByteString, Sandbox, SpawnFailure, SpawnReason};
use cosm_base::text::printable;

use crate::environment;

/// What to say of arguments that can't be read: whoever forgets the `--` is told of a word of the command's.
pub(crate) fn for_usage(
    kind: ErrorKind,
    words: impl Iterator<Item = OsString>,
) -> Option<&'static str> {
    let words: Vec<OsString> = words.collect();
    let takes_image = words
        .get(1)
        .is_some_and(|word| word == "run" || word == "create");
    let forgotten =
        takes_image && kind == ErrorKind::UnknownArgument && words.iter().all(|word| word != "--");
    forgotten
        .then_some("a command and its arguments stand after `--`: cosm run --here -- python3 x.py")
}

/// What to say of a command that could not be started, if its program is there outside.
pub(crate) fn for_spawn(failure: &SpawnFailure) -> Option<String> {
    if failure.reason != SpawnReason::NotFound {
        return None;
    }
    let path = program_outside(OsStr::from_bytes(&failure.subject))?;
    let by_name = !failure.subject.contains(&b'/');
    Some(match prefix(&path).filter(|_| by_name) {
        Some(prefix) => format!(
            "{} is {} on the host and not in the sandbox: add --mount-prefix {}",
            printable(&failure.subject),
            printable(path.as_os_str().as_bytes()),
            printable(prefix.as_os_str().as_bytes()),
        ),
        None => sentence(&failure.subject, &path),
    })
}

/// The folder that a program was installed below: its libraries lie there, too.
fn prefix(program: &Path) -> Option<&Path> {
    let bin = program.parent()?;
    bin.parent().filter(|_| bin.ends_with("bin"))
}

/// What would help a command that failed, if one of its arguments is a file outside and none inside.
pub(crate) async fn for_failure(sandbox: &Sandbox, argv: &[ByteString]) -> Option<String> {
    for argument in argv.iter().skip(1) {
        let Some(path) = file_outside(argument.as_path()) else {
            continue;
        };
        // If the sandbox can't answer any more, there is nothing to say.
        let inside = sandbox.fs().exists(argument.clone()).await;
        if inside.is_ok_and(|inside| !inside) {
            return Some(sentence(argument.as_bytes(), &path));
        }
    }
    None
}

fn sentence(subject: &[u8], path: &Path) -> String {
    let below_here = std::env::current_dir().is_ok_and(|here| path.starts_with(here));
    // Of what lies elsewhere no more is shown than was asked for.
    let (here, place) = match (below_here, path.parent()) {
        (true, Some(folder)) => ("--here or ", folder),
        _ => ("", path),
    };
    format!(
        "{} exists on the host but not in the sandbox: add {here}--mount {}",
        printable(subject),
        printable(place.as_os_str().as_bytes()),
    )
}

/// Where a program is on this host.
pub(crate) fn program_outside(program: &OsStr) -> Option<PathBuf> {
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
