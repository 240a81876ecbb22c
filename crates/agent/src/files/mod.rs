//! Work on files, as the user that was asked for.

mod content;
mod copy;
mod entry;
mod operations;
mod remove;
mod tree;
mod watch;
mod write_tree;

use alloc::vec::Vec;

use cosm_proto::agent::{FileFailure, FileOp, FileReply, FileRequest};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::boot::Guest;
use crate::exec::Identity;
use crate::link::{Broken, Link};

/// Why an operation stopped.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// The system said no about this path.
    File(Errno, Vec<u8>),
    /// The host is gone, or broke the protocol.
    Link,
}

type Outcome<T> = Result<T, Stop>;

impl From<Broken> for Stop {
    fn from(_: Broken) -> Self {
        Self::Link
    }
}

/// Says which file a system call was about.
trait About<T> {
    fn about(self, path: &[u8]) -> Outcome<T>;
    /// The same of a file below a root; without a path it is the root.
    fn about_below(self, root: &[u8], path: &[u8]) -> Outcome<T>;
}

impl<T> About<T> for rustix::io::Result<T> {
    fn about(self, path: &[u8]) -> Outcome<T> {
        self.map_err(|errno| Stop::File(errno, path.to_vec()))
    }

    fn about_below(self, root: &[u8], path: &[u8]) -> Outcome<T> {
        self.map_err(|errno| {
            let mut whole = root.to_vec();
            if !path.is_empty() && !whole.ends_with(b"/") {
                whole.push(b'/');
            }
            whole.extend_from_slice(path);
            Stop::File(errno, whole)
        })
    }
}

/// Does one operation and says how it went.
pub(crate) fn serve(guest: &Guest, mut link: Link, request: FileRequest) -> Result<(), Broken> {
    let done =
        become_user(guest, request.user.as_deref()).and_then(|()| perform(&mut link, request.op));
    match done {
        Ok(()) => link.send(&FileReply::Done),
        Err(Stop::File(errno, path)) => link.send(&FileReply::Failed(FileFailure {
            errno: errno.raw_os_error(),
            path,
        })),
        Err(Stop::Link) => Err(Broken),
    }
}

fn become_user(guest: &Guest, user: Option<&[u8]>) -> Outcome<()> {
    let asked = user.or(guest.boot.user.as_deref());
    let subject = asked.unwrap_or_default();
    raise_descriptor_limit();
    Identity::find(asked, guest.boot.fixed_user)
        .and_then(|user| user.assume())
        .about(subject)?;
    // Relative paths start at the sandbox's folder; where it is missing they fail by themselves.
    rustix::process::chdir(guest.boot.workdir.as_slice()).unwrap_or_default();
    Ok(())
}

/// A tree is walked with one descriptor for each level.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .unwrap_or_default();
}

fn perform(link: &mut Link, op: FileOp) -> Outcome<()> {
    match op {
        FileOp::Read {
            path,
            offset,
            length,
        } => content::read(link, &path, offset, length),
        FileOp::Write {
            path,
            mode,
            append,
            create_new,
        } => content::write(link, &path, mode, append, create_new),
        FileOp::List { path } => operations::list(link, &path),
        FileOp::Stat { path, follow } => operations::stat(link, &path, follow),
        FileOp::Mkdir {
            path,
            mode,
            parents,
        } => operations::mkdir(&path, mode, parents),
        FileOp::Remove { path, recursive } => remove::remove(&path, recursive),
        FileOp::Copy {
            from,
            to,
            recursive,
        } => copy::copy(&from, &to, recursive),
        FileOp::Rename { from, to } => {
            rustix::fs::rename(from.as_slice(), to.as_slice()).about(&from)
        }
        FileOp::Symlink { target, path } => {
            rustix::fs::symlink(target.as_slice(), path.as_slice()).about(&path)
        }
        FileOp::Readlink { path } => operations::readlink(link, &path),
        FileOp::Chmod { path, mode } => operations::chmod(&path, mode),
        FileOp::Chown {
            path,
            uid,
            gid,
            link,
        } => operations::chown(&path, uid, gid, link),
        FileOp::Watch { path } => watch::watch(link, &path),
        FileOp::SendTree { path, follow } => {
            tree::walk(&path, follow, &mut copy::ToHost::new(link))
        }
        FileOp::ReceiveTree { path } => copy::receive(link, &path),
    }
}
