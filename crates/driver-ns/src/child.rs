//! The guest's first process, from `clone3` to `exec`: it builds the root file system out of a [`Tree`], gives every
//! right away that the guest does not get, and becomes the agent.
//!
//! Nothing here allocates. An error goes to the parent over a pipe that `exec` closes, and ends the process; everything
//! made so far ends with its namespaces.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cosm_sys::mount::{self, Attributes, FsOption};
use cosm_sys::process::Namespaces;
use cosm_sys::seccomp::Instruction;
use cosm_sys::{Errno, caps, process};
use rustix::fs::{Mode, OFlags};

use crate::inside::Inside;
use crate::steps::{own, seal, take};
use crate::tree::{Root, Source, Tree};

/// What the child was doing when it failed. The number is what crosses the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    Start,
    Net,
    /// Opening the bind whose number is the detail.
    Open,
    Base,
    Overlay,
    Copy,
    Pivot,
    /// The step whose number is the detail.
    Step,
    ReadOnlyRoot,
    Parent,
    Become,
    HostName,
    Loopback,
    CgroupNamespace,
    Limits,
    Descriptors,
    Landlock,
    Capabilities,
    Seccomp,
    Exec,
}

impl Stage {
    const ALL: [Self; 20] = [
        Self::Start,
        Self::Net,
        Self::Open,
        Self::Base,
        Self::Overlay,
        Self::Copy,
        Self::Pivot,
        Self::Step,
        Self::ReadOnlyRoot,
        Self::Parent,
        Self::Become,
        Self::HostName,
        Self::Loopback,
        Self::CgroupNamespace,
        Self::Limits,
        Self::Descriptors,
        Self::Landlock,
        Self::Capabilities,
        Self::Seccomp,
        Self::Exec,
    ];
}

/// A failure in the child, as it crosses the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub stage: Stage,
    pub detail: u32,
    pub errno: i32,
}

impl Failure {
    pub(crate) const SIZE: usize = 12;

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = self.stage as u8;
        bytes[4..8].copy_from_slice(&self.detail.to_le_bytes());
        bytes[8..].copy_from_slice(&self.errno.to_le_bytes());
        bytes
    }

    /// Reads what a child wrote; `None` for anything else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().ok()?;
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        Some(Self {
            stage: *Stage::ALL.get(usize::from(bytes[0]))?,
            detail: u32::from_le_bytes(word(4)),
            errno: i32::from_le_bytes(word(8)),
        })
    }
}

/// What the child needs to know beside the tree.
#[derive(Debug)]
pub(crate) struct Confine<'a> {
    /// Who it is while it builds: root, where the map has it.
    pub builder: (u32, u32),
    /// Who it becomes before it executes the agent, where that is another.
    pub user: Option<(u32, u32)>,
    /// Whether `setgroups` works (not where an ordinary user mapped a single group).
    pub clear_groups: bool,
    pub host_name: &'a [u8],
    /// A network of its own, with nothing but a loopback interface.
    pub own_network: bool,
    /// Make the cgroup namespace now, when the process is in its cgroup.
    pub cgroup_namespace: bool,
    pub max_processes: Option<u64>,
    pub landlock: Option<BorrowedFd<'a>>,
    pub keep: caps::Caps,
    pub seccomp: &'a [Instruction],
    pub listener: BorrowedFd<'a>,
    pub boot: BorrowedFd<'a>,
    pub agent: BorrowedFd<'a>,
}

/// The child's ends of what connects it to its parent.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// The parent writes one byte when the ids are mapped, and another when the guest may run.
    pub go: BorrowedFd<'a>,
    pub failure: BorrowedFd<'a>,
}

/// Room for the binds' mounts, made by the parent: the child must not allocate.
pub(crate) type Mounts = Vec<Option<OwnedFd>>;

/// Runs the child. Returns its exit code, only where something failed.
pub(crate) fn run(tree: &Tree, mounts: &mut Mounts, confine: &Confine<'_>, line: &Line<'_>) -> i32 {
    let Err(failure) = build(tree, mounts, confine, line) else {
        return 0;
    };
    // The parent may be gone; then nobody is left to tell.
    match rustix::io::write(line.failure, &failure.to_bytes()) {
        Ok(_) => 111,
        Err(_) => 112,
    }
}

fn at(stage: Stage) -> impl Fn(Errno) -> Failure {
    with(stage, 0)
}

fn with(stage: Stage, detail: usize) -> impl Fn(Errno) -> Failure {
    move |errno| Failure {
        stage,
        detail: detail as u32,
        errno: errno.raw_os_error(),
    }
}

fn build(
    tree: &Tree,
    mounts: &mut Mounts,
    confine: &Confine<'_>,
    line: &Line<'_>,
) -> Result<(), Failure> {
    caps::die_with_parent().map_err(at(Stage::Start))?;
    if confine.own_network {
        // Here rather than in the clone: the parent maps the ids meanwhile.
        process::unshare(Namespaces::NET).map_err(at(Stage::Net))?;
    }
    mount::make_all_private().map_err(at(Stage::Start))?;
    open_host_binds(tree, mounts)?;
    if confine.own_network {
        cosm_sys::net::loopback_up().map_err(at(Stage::Loopback))?;
    }
    wait_for_parent(line)?;
    become_guest(confine)?;
    enter_root(tree, mounts)?;
    let mut inside = Inside::enter().map_err(at(Stage::Pivot))?;
    for (index, step) in tree.steps.iter().enumerate() {
        take(step, mounts, &mut inside).map_err(with(Stage::Step, index))?;
    }
    for path in &tree.sealed {
        let attributes = Attributes {
            read_only: true,
            no_suid: true,
            ..Attributes::default()
        };
        seal(path, attributes, &inside).map_err(at(Stage::ReadOnlyRoot))?;
    }
    rustix::system::sethostname(confine.host_name).map_err(at(Stage::HostName))?;
    wait_for_parent(line)?;
    give_up_rights(confine, &inside)?;
    Err(at(Stage::Exec)(process::exec_fd(
        confine.agent,
        &[Some(c"cosm-agent"), None],
    )))
}

fn wait_for_parent(line: &Line<'_>) -> Result<(), Failure> {
    let mut byte = [0_u8];
    loop {
        match rustix::io::read(line.go, &mut byte) {
            Ok(1) => return Ok(()),
            // The parent has ended or given up.
            Ok(_) => return Err(at(Stage::Parent)(Errno::PIPE)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(at(Stage::Parent)(error)),
        }
    }
}

fn become_guest(confine: &Confine<'_>) -> Result<(), Failure> {
    let (uid, gid) = confine.builder;
    caps::become_user(uid, gid, confine.clear_groups).map_err(at(Stage::Become))?;
    // Changing the user took it away.
    caps::die_with_parent().map_err(at(Stage::Become))?;
    rustix::process::umask(Mode::empty());
    Ok(())
}

fn open_host_binds(tree: &Tree, mounts: &mut Mounts) -> Result<(), Failure> {
    for (index, (bind, slot)) in tree.binds.iter().zip(mounts.iter_mut()).enumerate() {
        if let Source::Host(path) = &bind.source {
            let opened = mount::clone_tree(mount::here(), path, bind.recursive).and_then(|m| {
                mount::restrict(m.as_fd(), bind.attributes, bind.recursive).map(|()| m)
            });
            *slot = Some(opened.map_err(with(Stage::Open, index))?);
        }
    }
    Ok(())
}

fn take_bind<'a>(mounts: &'a Mounts, index: usize) -> Result<BorrowedFd<'a>, Errno> {
    mounts
        .get(index)
        .and_then(Option::as_ref)
        .map(AsFd::as_fd)
        .ok_or(Errno::BADF)
}

fn enter_root(tree: &Tree, mounts: &mut Mounts) -> Result<(), Failure> {
    let base = at(Stage::Base);
    let fs = mount::new_filesystem(
        c"tmpfs",
        c"cosm",
        &[
            FsOption::Text(c"mode", c"0755"),
            FsOption::Text(c"size", &tree.base_size),
            FsOption::Text(c"nr_inodes", &tree.base_inodes),
        ],
        Attributes {
            no_devices: true,
            ..Attributes::default()
        },
    )
    .map_err(&base)?;
    // Anywhere but on the root folder itself: what lies on that would be let go of in place of the host's root, which
    // would stay above the guest's.
    mount::attach(fs.as_fd(), mount::here(), c"/proc").map_err(&base)?;
    rustix::process::fchdir(&fs).map_err(&base)?;
    for folder in [c"dev", c"etc", c"run"] {
        rustix::fs::mkdir(folder, Mode::from_raw_mode(0o755)).map_err(&base)?;
    }
    for (index, (bind, slot)) in tree.binds.iter().zip(mounts.iter_mut()).enumerate() {
        let opened = match &bind.source {
            Source::Base(path) => mount::clone_tree(fs.as_fd(), path, bind.recursive),
            Source::Own(kind) => own(kind, bind.attributes),
            Source::Host(_) | Source::Made(_) => continue,
        };
        *slot = match opened {
            Ok(mount) => Some(mount),
            Err(_) if bind.optional => None,
            Err(error) => return Err(with(Stage::Open, index)(error)),
        };
    }
    let root = match tree.root {
        Root::Base => fs,
        Root::Folder { bind } => folder_root(mounts, bind).map_err(at(Stage::Base))?,
        Root::Overlay {
            lower,
            upper,
            volatile,
        } => overlay_root(mounts, lower, upper, volatile).map_err(at(Stage::Overlay))?,
        Root::Copy { lower, into } => {
            crate::copy::copied_root(mounts, lower, into).map_err(at(Stage::Copy))?
        }
    };
    mount::become_root(root.as_fd()).map_err(at(Stage::Pivot))
}

/// Attaches a bind to a new folder of the base, which is the working directory.
pub(crate) fn attach_in_base(mounts: &Mounts, bind: usize, name: &CStr) -> Result<(), Errno> {
    rustix::fs::mkdir(name, Mode::from_raw_mode(0o755))?;
    mount::attach(take_bind(mounts, bind)?, mount::here(), name)
}

fn folder_root(mounts: &Mounts, bind: usize) -> Result<OwnedFd, Errno> {
    attach_in_base(mounts, bind, c"root")?;
    open_folder(c"root")
}

pub(crate) fn open_folder(path: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Makes a folder in the base, which is the working directory, or finds it there.
pub(crate) fn folder(path: &CStr, mode: u32) -> Result<(), Errno> {
    folder_in(mount::here(), path, mode)
}

/// Makes a folder in another, or finds something of its name there.
pub(crate) fn folder_in(parent: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<(), Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The overlay's folders have fixed short names relative to the base, so that no path of the user's has to be written in
/// an option where `:` and `,` mean something.
fn overlay_root(
    mounts: &Mounts,
    lower: usize,
    upper: Option<usize>,
    volatile: bool,
) -> Result<OwnedFd, Errno> {
    attach_in_base(mounts, lower, c"lower")?;
    let (upper_dir, work_dir) = match upper {
        Some(bind) => {
            attach_in_base(mounts, bind, c"data")?;
            (c"data/upper", c"data/work")
        }
        None => (c"upper", c"work"),
    };
    folder(upper_dir, 0o755)?;
    folder(work_dir, 0o700)?;
    rustix::fs::mkdir(c"root", Mode::from_raw_mode(0o755))?;
    let mut options = [
        FsOption::Flag(c"userxattr"),
        FsOption::Text(c"lowerdir", c"lower"),
        FsOption::Text(c"upperdir", upper_dir),
        FsOption::Text(c"workdir", work_dir),
        FsOption::Flag(c"volatile"),
    ];
    let count = options.len() - usize::from(!volatile);
    let options = &mut options[..count];
    let fs = mount::new_filesystem(c"overlay", c"overlay", options, Attributes::default())?;
    mount::attach(fs.as_fd(), mount::here(), c"root")?;
    Ok(fs)
}

/// The order matters: each of these takes away what the ones before it needed.
fn give_up_rights(confine: &Confine<'_>, inside: &Inside<'_>) -> Result<(), Failure> {
    if confine.cgroup_namespace {
        process::unshare(Namespaces::CGROUP).map_err(at(Stage::CgroupNamespace))?;
    }
    if let Some(limit) = confine.max_processes {
        process::limit_processes(limit).map_err(at(Stage::Limits))?;
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    descriptors(confine, inside).map_err(at(Stage::Descriptors))?;
    if let Some(ruleset) = confine.landlock {
        cosm_sys::landlock::restrict_self(ruleset).map_err(at(Stage::Landlock))?;
    }
    caps::drop_bounding(confine.keep).map_err(at(Stage::Capabilities))?;
    if let Some((uid, gid)) = confine.user {
        caps::become_user(uid, gid, false).map_err(at(Stage::Become))?;
        caps::die_with_parent().map_err(at(Stage::Become))?;
    }
    caps::limit_to(confine.keep).map_err(at(Stage::Capabilities))?;
    caps::no_new_privileges().map_err(at(Stage::Capabilities))?;
    cosm_sys::seccomp::install(confine.seccomp).map_err(at(Stage::Seccomp))
}

/// Nothing is inherited but the agent's socket and its first message.
fn descriptors(confine: &Confine<'_>, inside: &Inside<'_>) -> Result<(), Errno> {
    rustix::process::setsid().or_else(|e| {
        if e == Errno::PERM {
            rustix::process::getsid(None)
        } else {
            Err(e)
        }
    })?;
    let null = inside.open(c"/dev/null", OFlags::RDWR)?;
    // The two may lie where the other belongs; the parent keeps both above 10.
    process::place_fd(confine.listener, 3)?;
    process::place_fd(confine.boot, 4)?;
    for number in 0..3 {
        process::place_fd(null.as_fd(), number)?;
    }
    process::cloexec_from(5)?;
    process::default_signals()
}
