//! From an error number to a sentence, and to the one thing that would help.

use std::io;

use cosm_driver::{LaunchError, LaunchPhase};
use rustix::io::Errno;

use crate::child::{Failure, Stage};
use crate::host::Host;
use crate::probe;
use crate::tree::{Filesystem, Source, Step, Tree};

/// What is wrong with an image's path that can't be opened for its links.
const LOOP_HELP: &str = "a link on this path, of the image or of what is mounted there, goes in a circle or through /proc to something that a process has open; make it a folder, or a link to a path of the image";
const OPENAT2_HELP: &str = "the system call openat2 (Linux 5.6) is needed, which keeps an image's links inside of it: where a container runs cosm, its seccomp profile may be too old to know it";

const LEADS_NOWHERE_HELP: &str = "a link on this path, of the image or of what is mounted there, leads nowhere; make it a folder, or a link to a path of the image";
const NOT_OWN_HELP: &str = "a folder on this path, of the image or of what is mounted there, is closed to who has no id in the guest: an ordinary user needs an image of its own";
const OTHER_KIND_HELP: &str = "of what is mounted and the place in the image for it one is a folder and the other is not: remove the image's, or mount it elsewhere";
const NO_ROOM_HELP: &str = "the guest's root does not fit into what the sandbox may take: give it more with --disk, or with --memory where its files lie in memory";

/// Why the guest's first process ended without a word.
pub(crate) fn killed(oom_kills: Option<u64>) -> LaunchError {
    let out_of_memory = oom_kills.is_some_and(|kills| kills > 0);
    LaunchError::Killed {
        out_of_memory,
        help: out_of_memory.then(|| "give it more with --memory".to_owned()),
    }
}

/// Why no namespaces could be made.
pub(crate) fn namespaces(source: io::Error) -> LaunchError {
    let help = probe::user_namespaces().map_or_else(|obstacle| obstacle.help, |()| None);
    LaunchError::Os {
        phase: LaunchPhase::Namespaces,
        what: "making namespaces".to_owned(),
        source,
        help,
    }
}

/// Why the ids could not be mapped.
pub(crate) fn ids(source: io::Error, helper: bool) -> LaunchError {
    let (what, help) = if helper {
        (
            "newuidmap and newgidmap refused the map",
            Some("see the user's lines in /etc/subuid and /etc/subgid"),
        )
    } else {
        ("mapping the guest's ids", None)
    };
    LaunchError::Os {
        phase: LaunchPhase::Ids,
        what: what.to_owned(),
        source,
        help: help.map(str::to_owned),
    }
}

/// What a failure of the child's means.
pub(crate) fn failure(failure: Failure, tree: &Tree, host: &Host) -> LaunchError {
    let source = io::Error::from_raw_os_error(failure.errno);
    let detail = failure.detail as usize;
    let (phase, what) = match failure.stage {
        Stage::Start => (
            LaunchPhase::Namespaces,
            "keeping the guest's mounts apart".to_owned(),
        ),
        Stage::Net => (
            LaunchPhase::Namespaces,
            "making a network namespace".to_owned(),
        ),
        Stage::Open => opened(tree, detail),
        Stage::Base => (
            LaunchPhase::Rootfs,
            "making a file system in memory".to_owned(),
        ),
        Stage::Overlay => (
            LaunchPhase::Rootfs,
            "laying an overlay over the image".to_owned(),
        ),
        Stage::Copy => (LaunchPhase::Rootfs, "copying the image".to_owned()),
        Stage::Pivot => (LaunchPhase::Rootfs, "entering the guest's root".to_owned()),
        Stage::Step => match tree.steps.get(detail) {
            Some(step) => (step.phase(), step.describe(&tree.binds)),
            None => (LaunchPhase::Rootfs, "building the root".to_owned()),
        },
        Stage::ReadOnlyRoot => (LaunchPhase::Confine, "making the root read-only".to_owned()),
        Stage::Parent => (LaunchPhase::Namespaces, "waiting for the keeper".to_owned()),
        Stage::Become => (LaunchPhase::Ids, "becoming the guest's user".to_owned()),
        Stage::HostName => (LaunchPhase::Network, "setting the host name".to_owned()),
        Stage::Loopback => (
            LaunchPhase::Network,
            "bringing the loopback interface up".to_owned(),
        ),
        Stage::CgroupNamespace => (LaunchPhase::Limits, "making a cgroup namespace".to_owned()),
        Stage::Limits => (
            LaunchPhase::Limits,
            "limiting the number of processes".to_owned(),
        ),
        Stage::Descriptors => (LaunchPhase::Confine, "closing descriptors".to_owned()),
        Stage::Landlock => (LaunchPhase::Confine, "applying Landlock".to_owned()),
        Stage::Capabilities => (LaunchPhase::Confine, "dropping capabilities".to_owned()),
        Stage::Seccomp => (
            LaunchPhase::Confine,
            "installing the system call filter".to_owned(),
        ),
        Stage::Exec => (LaunchPhase::Exec, "executing the agent".to_owned()),
    };
    LaunchError::Os {
        phase,
        what,
        source,
        help: help(failure, tree, host),
    }
}

fn opened(tree: &Tree, index: usize) -> (LaunchPhase, String) {
    match tree.binds.get(index) {
        Some(bind) => {
            let name = match &bind.source {
                Source::Host(path) | Source::Base(path) => {
                    cosm_base::text::printable(path.as_bytes())
                }
                Source::Made(_) => "a mount".to_owned(),
                Source::Own(kind) => format!("a {} of the guest's own", kind.name()),
            };
            (bind.phase, format!("opening {name}"))
        }
        None => (LaunchPhase::Rootfs, "opening a mount".to_owned()),
    }
}

fn help(failure: Failure, tree: &Tree, _host: &Host) -> Option<String> {
    let errno = Errno::from_raw_os_error(failure.errno);
    let step = tree
        .steps
        .get(failure.detail as usize)
        .filter(|_| failure.stage == Stage::Step);
    let bind = tree.binds.get(failure.detail as usize);
    match (failure.stage, step, errno) {
        (Stage::Open, _, Errno::PERM)
            if matches!(bind.map(|b| &b.source), Some(Source::Own(Filesystem::Proc))) =>
        {
            Some(probe::PROC_HELP.to_owned())
        }
        (_, Some(Step::Place { .. }), Errno::ROFS) => Some(
            "the mount point is missing in something that is read-only: make it there first"
                .to_owned(),
        ),
        (_, Some(_), Errno::LOOP) => Some(LOOP_HELP.to_owned()),
        (_, Some(_), Errno::ACCESS) => Some(NOT_OWN_HELP.to_owned()),
        (_, Some(_), Errno::NOENT) => Some(LEADS_NOWHERE_HELP.to_owned()),
        (_, Some(_), Errno::NOTDIR | Errno::ISDIR) => Some(OTHER_KIND_HELP.to_owned()),
        (_, _, Errno::NOSPC | Errno::DQUOT) => Some(NO_ROOM_HELP.to_owned()),
        (Stage::Step | Stage::ReadOnlyRoot | Stage::Descriptors, _, Errno::NOSYS) => {
            Some(OPENAT2_HELP.to_owned())
        }
        (Stage::Start | Stage::Net | Stage::Open | Stage::Base, _, Errno::PERM) => {
            probe::user_namespaces()
                .err()
                .and_then(|obstacle| obstacle.help)
        }
        _ => None,
    }
}
