//! From a plan to the [`Tree`] that the guest's first process builds.

mod common;
mod folder;
mod host;
mod mounts;

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cosm_driver::{LaunchError, LaunchPhase, LaunchPlan, Upper};
use cosm_spec::{Defaults, ImageSource, Limit};
use cosm_sys::mount::Attributes;

use crate::host::{Caller, Host};
use crate::ids::Ids;
use crate::tree::{Bind, Filesystem, Source, Step, Tree};

pub(crate) use common::host_name;

/// Where the scripts are in the guest.
pub(crate) const SCRIPTS: &str = "/run/cosm/scripts";
/// The size of `/dev`, `/run` and shared memory where the root is not in memory itself.
const SMALL: u64 = 64 << 20;

pub(crate) const READ_ONLY: Attributes = Attributes {
    read_only: true,
    no_suid: true,
    no_devices: true,
    no_exec: false,
};
pub(crate) const PLAIN: Attributes = Attributes {
    read_only: false,
    no_suid: true,
    no_devices: true,
    no_exec: false,
};

/// What a tree is made from.
pub(crate) struct Site<'a> {
    pub plan: &'a LaunchPlan,
    pub host: &'a Host,
    pub ids: &'a Ids,
    /// What the guest's changes lie on.
    pub upper: Upper,
    /// The memory limit in force.
    pub memory: Option<u64>,
}

/// A tree being made.
pub(crate) struct Builder<'a> {
    pub site: &'a Site<'a>,
    pub binds: Vec<Bind>,
    pub steps: Vec<Step>,
    /// Mounts that become read-only and lose set-user-id once all is in place.
    pub sealed: Vec<CString>,
}

/// Makes the tree.
pub(crate) fn tree(site: &Site<'_>) -> Result<Tree, LaunchError> {
    let mut builder = Builder {
        site,
        binds: Vec::with_capacity(32),
        steps: Vec::with_capacity(128),
        sealed: Vec::new(),
    };
    let root = match &site.plan.spec.image {
        ImageSource::Folder(path) => folder::image(&mut builder, path.as_path())?,
        _ => host::image(&mut builder)?,
    };
    mounts::scripts(&mut builder)?;
    mounts::prefixes(&mut builder)?;
    mounts::of_spec(&mut builder)?;
    mounts::devices(&mut builder)?;
    let in_memory = matches!(
        site.upper,
        Upper::FoldersTmpfs | Upper::OverlayTmpfs | Upper::CopyTmpfs
    );
    let size = if in_memory {
        memory_for_files(site)
    } else {
        SMALL
    };
    Ok(Tree {
        root,
        base_size: text(&size.to_string()),
        // Files cost kernel memory too: one for each 4 KiB, as ext4 would have it at most.
        base_inodes: text(&(size / 4096).clamp(4096, 4 << 20).to_string()),
        binds: builder.binds,
        steps: builder.steps,
        sealed: builder.sealed,
    })
}

/// What the guest's files may take in memory, bytes: what was asked for, else the default where that is not more than half
/// of the memory that the guest or the machine has. Files that fill all of the guest's memory would have its processes
/// killed, process 1 among them.
pub(crate) fn memory_for_files(site: &Site<'_>) -> u64 {
    let half = site
        .memory
        .map_or(site.host.memory, |limit| limit.min(site.host.memory))
        / 2;
    match site.plan.spec.resources.disk {
        Limit::At(size) => size.0,
        Limit::Unlimited => site.host.memory,
        Limit::Default => Defaults::DISK.0.min(half).max(4 << 20),
    }
}

impl Builder<'_> {
    pub(crate) fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(crate) fn folder(&mut self, path: &str, mode: u32) {
        self.step(Step::Folder {
            path: text(path),
            mode,
        });
    }

    pub(crate) fn file(&mut self, path: &str, contents: impl Into<Vec<u8>>) {
        self.step(Step::File {
            path: text(path),
            mode: 0o644,
            contents: contents.into(),
        });
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.step(Step::Link {
            path: text(path),
            target: text(target),
        });
    }

    /// Notes a bind and returns its number.
    pub(crate) fn bind(&mut self, bind: Bind) -> usize {
        self.binds.push(bind);
        self.binds.len() - 1
    }

    /// Mounts a file system of the guest's own.
    pub(crate) fn own(
        &mut self,
        kind: Filesystem,
        path: CString,
        attributes: Attributes,
        optional: bool,
    ) {
        let source = Source::Own(kind);
        let bind = self.bind(Bind {
            source,
            attributes,
            recursive: false,
            optional,
            phase: LaunchPhase::Devices,
        });
        self.step(Step::Attach { bind, path });
    }

    /// A bind of a world-readable folder or file of the system, which the child can open by its path.
    pub(crate) fn system(&mut self, path: &CString) -> usize {
        let source = Source::Host(path.clone());
        self.bind(Bind {
            source,
            attributes: READ_ONLY,
            recursive: true,
            optional: false,
            phase: LaunchPhase::Rootfs,
        })
    }

    /// A bind of something that the caller named. Root opens it itself: the guest's process is nobody outside.
    pub(crate) fn named(
        &mut self,
        path: &Path,
        attributes: Attributes,
        recursive: bool,
        phase: LaunchPhase,
    ) -> Result<usize, LaunchError> {
        let name = path_text(path)?;
        let source = match self.site.host.caller {
            Caller::User { .. } => Source::Host(name),
            Caller::Root => Source::Made(
                open_tree(&name, attributes, recursive)
                    .map_err(|e| failed(phase, "opening", path, e))?,
            ),
        };
        Ok(self.bind(Bind {
            source,
            attributes,
            recursive,
            optional: false,
            phase,
        }))
    }
}

fn open_tree(
    path: &CString,
    attributes: Attributes,
    recursive: bool,
) -> rustix::io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::AsFd as _;
    let mount = cosm_sys::mount::clone_tree(cosm_sys::mount::here(), path, recursive)?;
    cosm_sys::mount::restrict(mount.as_fd(), attributes, recursive)?;
    Ok(mount)
}

/// A failure of the system's about a path.
pub(crate) fn failed(
    phase: LaunchPhase,
    what: &str,
    path: &Path,
    source: impl Into<std::io::Error>,
) -> LaunchError {
    LaunchError::Os {
        phase,
        what: format!("{what} {}", show(path)),
        source: source.into(),
        help: None,
    }
}

/// A path, fit for a terminal.
pub(crate) fn show(path: &Path) -> String {
    cosm_base::text::printable(path.as_os_str().as_bytes())
}

/// A text without NUL bytes for the kernel. What comes from outside was checked before; a NUL ends it.
pub(crate) fn text(value: &str) -> CString {
    let end = value.find('\0').unwrap_or(value.len());
    CString::new(&value[..end]).unwrap_or_default()
}

pub(crate) fn path_text(path: &Path) -> Result<CString, LaunchError> {
    os_text(path.as_os_str())
}

fn os_text(value: &OsStr) -> Result<CString, LaunchError> {
    CString::new(value.as_bytes()).map_err(|_| LaunchError::Invalid {
        what: format!(
            "{} holds a NUL byte",
            cosm_base::text::printable(value.as_bytes())
        ),
        help: None,
    })
}
