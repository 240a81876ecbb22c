//! What the guest's first process has to build, as data.
//!
//! All of it is made by the parent, strings included: the child runs between `clone3` and `exec` in a copy of the
//! keeper's memory and does not allocate.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use cosm_driver::LaunchPhase;
use cosm_sys::mount::Attributes;

/// Where something that is mounted comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A path of the host, opened in the guest's copy of the host's mounts.
    Host(CString),
    /// A detached mount that the parent made, since only it has the rights (or can translate owners).
    Made(OwnedFd),
    /// A path below the guest's own small file system in memory.
    Base(CString),
    /// A file system of the guest's own. Made while the host's mounts are still there: the kernel gives a new `/proc`
    /// only to who sees one already.
    Own(Filesystem),
}

/// A mount to take from somewhere.
#[derive(Debug)]
pub(crate) struct Bind {
    pub source: Source,
    pub attributes: Attributes,
    /// With everything mounted below it. Ordinary users can't leave anything out: what lies under a mount stays hidden.
    pub recursive: bool,
    /// The guest does without where the kernel refuses it.
    pub optional: bool,
    pub phase: LaunchPhase,
}

/// Which file system of its own a guest gets somewhere.
#[derive(Debug)]
pub(crate) enum Filesystem {
    Proc,
    Sys,
    Terminals,
    Memory { size: CString, mode: CString },
}

/// One thing to do in the guest's root; paths are absolute in it.
#[derive(Debug)]
pub(crate) enum Step {
    /// Makes a folder whose parent is there. One that exists is left as it is.
    Folder { path: CString, mode: u32 },
    /// Gives a folder to a user of the guest.
    Own {
        path: CString,
        user: u32,
        group: u32,
    },
    /// Writes a small file anew.
    File {
        path: CString,
        mode: u32,
        contents: Vec<u8>,
    },
    /// Makes a symbolic link; what exists is left as it is.
    Link { path: CString, target: CString },
    /// Makes sure that something can be mounted there: a folder, or else a file, with its parents.
    Place { path: CString, folder: bool },
    /// Mounts the bind of this number. One that is optional and could not be made is left out.
    Attach { bind: usize, path: CString },
    /// Writes a value to a file of the kernel's.
    Switch { path: CString, value: CString },
    /// Hides a file or folder, if there is one.
    Mask { path: CString },
    /// Lays a file over another, which is made if it is missing; a link in its place is left as it is.
    Cover { path: CString, with: CString },
    /// Mounts a folder or file over itself with these attributes, if there is one.
    Restrict {
        path: CString,
        attributes: Attributes,
    },
}

/// What the guest's root is.
#[derive(Debug)]
pub(crate) enum Root {
    /// The file system in memory itself.
    Base,
    /// A folder, changed in place: the bind of this number.
    Folder { bind: usize },
    /// An overlay: the bind `lower` below a folder for changes, in the bind `upper` or in memory.
    Overlay {
        lower: usize,
        upper: Option<usize>,
        volatile: bool,
    },
    /// A copy in the bind `into` or in memory, of the bind `lower` where it is still to be made.
    Copy {
        lower: Option<usize>,
        into: Option<usize>,
    },
}

/// Everything.
#[derive(Debug)]
pub(crate) struct Tree {
    pub root: Root,
    /// The size of the file system in memory, as a mount option.
    pub base_size: CString,
    pub base_inodes: CString,
    pub binds: Vec<Bind>,
    pub steps: Vec<Step>,
    /// Mounts that become read-only at the end.
    pub sealed: Vec<CString>,
}

impl Step {
    /// The part of a launch that it belongs to.
    pub(crate) const fn phase(&self) -> LaunchPhase {
        match self {
            Self::Folder { .. } | Self::Own { .. } | Self::File { .. } | Self::Link { .. } => {
                LaunchPhase::Rootfs
            }
            Self::Place { .. } | Self::Attach { .. } => LaunchPhase::Mounts,
            Self::Switch { .. }
            | Self::Mask { .. }
            | Self::Cover { .. }
            | Self::Restrict { .. } => LaunchPhase::Devices,
        }
    }

    /// What is tried, for an error's text.
    pub(crate) fn describe(&self, binds: &[Bind]) -> String {
        let show = |path: &CString| cosm_base::text::printable(path.as_bytes());
        match self {
            Self::Folder { path, .. } => format!("making the folder {}", show(path)),
            Self::Own { path, .. } => format!("giving away {}", show(path)),
            Self::File { path, .. } => format!("writing {}", show(path)),
            Self::Link { path, .. } => format!("making the link {}", show(path)),
            Self::Place { path, .. } => format!("making {} to mount on", show(path)),
            Self::Attach { bind, path } => match binds.get(*bind).map(|b| &b.source) {
                Some(Source::Host(source)) => {
                    format!("mounting {} on {}", show(source), show(path))
                }
                Some(Source::Own(kind)) => {
                    format!("mounting the guest's {} on {}", kind.name(), show(path))
                }
                _ => format!("mounting on {}", show(path)),
            },
            Self::Switch { path, .. } => format!("setting {}", show(path)),
            Self::Mask { path } => format!("hiding {}", show(path)),
            Self::Cover { path, .. } => format!("covering {}", show(path)),
            Self::Restrict { path, .. } => format!("making {} read-only", show(path)),
        }
    }
}

impl Filesystem {
    /// Its name.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Proc => "proc",
            Self::Sys => "sysfs",
            Self::Terminals => "devpts",
            Self::Memory { .. } => "tmpfs",
        }
    }
}
