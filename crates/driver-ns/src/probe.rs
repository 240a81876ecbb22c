//! What this host allows, and which of its switches forbids the rest.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cosm_base::{RunId, SandboxId};
use cosm_driver::{
    Capabilities, Finding, IdRange, LaunchError, LaunchPhase, LaunchPlan, Level, Support,
};
use cosm_spec::{ImageSource, SandboxSpec};
use cosm_sys::process::{CloneArgs, Exit, Namespaces, fork};

use crate::host::{Caller, Host};
use crate::{disk, limits, systemd};

/// What a container that hides parts of `/proc` needs.
pub(crate) const PROC_HELP: &str = "something hides parts of /proc here, as containers do, and then no new one may be mounted: \
     start the container with `--security-opt systempaths=unconfined`";

/// Something that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub why: String,
    pub help: Option<String>,
}

impl Obstacle {
    fn new(why: &str, help: &str) -> Self {
        Self {
            why: why.to_owned(),
            help: (!help.is_empty()).then(|| help.to_owned()),
        }
    }
}

/// The switches that forbid user namespaces. `None` is a switch that this kernel does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Switches {
    root: bool,
    max_user_namespaces: Option<u64>,
    unprivileged_userns_clone: Option<u64>,
    apparmor_restrict: Option<u64>,
    seccomp: bool,
    chrooted: bool,
}

impl Switches {
    fn read() -> Self {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            root: rustix::process::geteuid().is_root(),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            seccomp: status.lines().any(|line| line == "Seccomp:\t2"),
            chrooted: is_chrooted(),
        }
    }

    /// What an error number means where the switches stand so.
    fn explain(&self, errno: i32) -> Obstacle {
        const EPERM: i32 = 1;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        const ENOSYS: i32 = 38;
        if self.max_user_namespaces == Some(0) {
            return Obstacle::new(
                "user.max_user_namespaces is 0",
                "sudo sysctl user.max_user_namespaces=15000",
            );
        }
        if !self.root && self.unprivileged_userns_clone == Some(0) {
            return Obstacle::new(
                "kernel.unprivileged_userns_clone is 0",
                "sudo sysctl kernel.unprivileged_userns_clone=1",
            );
        }
        if !self.root && self.apparmor_restrict == Some(1) {
            return Obstacle::new(
                "AppArmor keeps rights from user namespaces of programs without a profile \
                 (kernel.apparmor_restrict_unprivileged_userns is 1)",
                "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            );
        }
        match errno {
            ENOSPC => Obstacle::new(
                "there are as many user namespaces as may be, or they are nested too deep",
                "sudo sysctl user.max_user_namespaces=15000",
            ),
            EINVAL | ENOSYS if !self.seccomp => {
                Obstacle::new("this kernel has no user namespaces (CONFIG_USER_NS)", "")
            }
            EPERM if self.chrooted => Obstacle::new(
                "this process is in a chroot, in which no user namespaces may be made",
                "run cosm outside of it",
            ),
            EPERM | ENOSYS if self.seccomp => Obstacle::new(
                "a system call filter, as containers have one, forbids new namespaces",
                "start the container with `--security-opt seccomp=unconfined`",
            ),
            _ => Obstacle {
                why: format!(
                    "the kernel refuses user namespaces: {}",
                    io::Error::from_raw_os_error(errno)
                ),
                help: None,
            },
        }
    }
}

/// In a chroot the root folder is not the root of a mount.
fn is_chrooted() -> bool {
    fs::read_to_string("/proc/self/mountinfo")
        .is_ok_and(|text| !text.lines().any(|line| line.split(' ').nth(4) == Some("/")))
}

/// Whether user namespaces can be made and mounts be made in them, and if not, which switch is in the way.
pub(crate) fn user_namespaces() -> Result<(), Obstacle> {
    let args = CloneArgs {
        namespaces: Namespaces::USER.with(Namespaces::MOUNT),
        cgroup: None,
    };
    let tried = fork(&args, || {
        cosm_sys::mount::make_all_private().map_or_else(|errno| errno.raw_os_error(), |()| 0)
    });
    let errno = match tried.and_then(|child| child.wait()) {
        Ok(Exit::Code(0)) => return Ok(()),
        Ok(Exit::Code(errno)) => errno,
        Ok(Exit::Signal(_)) => 1,
        Err(errno) => errno.raw_os_error(),
    };
    Err(Switches::read().explain(errno))
}

/// Goes through a whole launch up to an agent that is no program. `Ok` where everything before that works.
async fn trial(host: &Host, image: ImageSource) -> Result<(), LaunchError> {
    let prepare = |what: &str, e| crate::launch::os(LaunchPhase::Prepare, what, e);
    let (socket, _other) = UnixStream::pair().map_err(|e| prepare("making a socket", e))?;
    let plan = LaunchPlan {
        id: SandboxId::from_random([0; 8]),
        run: RunId::from_random([0; 8]),
        spec: SandboxSpec {
            image,
            ..SandboxSpec::default()
        },
        agent: b"",
        listener: socket.into(),
        data: None,
        scripts: None,
        // Any ids do: nothing is written, and nothing lives on.
        id_range: (host.caller == Caller::Root).then_some(IdRange {
            first: 1 << 30,
            count: 65_536,
        }),
        record: Box::new(|_| Ok(())),
    };
    match crate::launch::launch(host, &crate::Stock::default(), plan).await {
        Err(LaunchError::Os {
            phase: LaunchPhase::Exec,
            ..
        }) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(prepare(
            "trying a launch",
            io::ErrorKind::InvalidData.into(),
        )),
    }
}

fn trial_now(host: &Host, image: ImageSource) -> Result<(), LaunchError> {
    // With no limit asked for, a launch awaits nothing: it is ready at the first look.
    let mut trial = std::pin::pin!(trial(host, image));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match trial.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => Err(crate::launch::os(
            LaunchPhase::Prepare,
            "trying a launch",
            io::ErrorKind::WouldBlock.into(),
        )),
    }
}

fn yes(by: &str) -> Support {
    Support::Yes { by: by.to_owned() }
}

fn no(why: &str, help: Option<String>) -> Support {
    Support::No {
        why: why.to_owned(),
        help,
    }
}

fn refused(error: &LaunchError) -> Support {
    let why = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    Support::No {
        why,
        help: error.help().map(str::to_owned),
    }
}

/// All that `doctor` wants to know.
pub(crate) fn capabilities(host: &Host) -> Capabilities {
    let launch = match user_namespaces() {
        Err(obstacle) => Support::No {
            why: obstacle.why,
            help: obstacle.help,
        },
        Ok(()) => trial_now(host, ImageSource::Host)
            .map_or_else(|e| refused(&e), |()| yes("user namespaces")),
    };
    let overlay = if launch.works() {
        trial_now(host, ImageSource::Folder("/usr".into()))
            .map_or_else(|e| refused(&e), |()| yes("overlay"))
    } else {
        no("no guest can be started", None)
    };
    let groups = limits::supports(host);
    Capabilities {
        level: Level::Namespaces,
        launch,
        memory: groups.memory,
        cpus: groups.cpus,
        pids: groups.pids,
        disk: disk::support(host),
        freeze: groups.freeze,
        id_range: id_range(host),
        overlay,
        findings: findings(host),
    }
}

fn id_range(host: &Host) -> Support {
    match &host.caller {
        Caller::Root => yes("root"),
        Caller::User {
            sub_users: Some(_),
            sub_groups: Some(_),
            helpers: true,
            ..
        } => yes("newuidmap"),
        Caller::User { helpers, .. } => {
            let (why, help) = crate::ids::why_no_range(*helpers);
            no(why, Some(help.to_owned()))
        }
    }
}

fn findings(host: &Host) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |subject: &str, support| {
        found.push(Finding {
            subject: subject.to_owned(),
            support,
        })
    };
    add(
        "landlock",
        match host.landlock {
            0 => no(
                "this kernel has no Landlock, or it is not among its security modules",
                Some("add landlock to the lsm= list on the kernel's command line".to_owned()),
            ),
            version @ 1..6 => no(
                &format!(
                    "version {version} can't keep a guest on the host's network off abstract Unix sockets"
                ),
                Some("a kernel from 6.12 on".to_owned()),
            ),
            version => yes(&format!("version {version}")),
        },
    );
    add(
        "time namespaces",
        if Path::new("/proc/self/ns/time").exists() {
            yes("the kernel")
        } else {
            no("this kernel has none", None)
        },
    );
    if let Caller::User { uid, .. } = host.caller {
        // Where systemd is not in charge, as in a container, there is nothing to say of it.
        if systemd::is_there(uid) || Path::new("/run/systemd/system").exists() {
            add(
                "systemd user manager",
                if systemd::is_there(uid) {
                    yes("the session bus")
                } else {
                    no(
                        "none answers",
                        Some("sudo loginctl enable-linger $USER".to_owned()),
                    )
                },
            );
        }
        let name = crate::host::user_name(uid);
        match systemd::lingers(&name) {
            Some(true) => add("linger", yes("systemd")),
            Some(false) => add(
                "linger",
                no(
                    "sandboxes end with the last logout",
                    Some(format!("sudo loginctl enable-linger {name}")),
                ),
            ),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_named() {
        let open = Switches {
            max_user_namespaces: Some(1000),
            ..Switches::default()
        };
        let cases = [
            (
                Switches {
                    max_user_namespaces: Some(0),
                    root: true,
                    ..open
                },
                28,
                "user.max_user_namespaces=15000",
            ),
            (
                Switches {
                    unprivileged_userns_clone: Some(0),
                    ..open
                },
                1,
                "kernel.unprivileged_userns_clone=1",
            ),
            (
                Switches {
                    apparmor_restrict: Some(1),
                    ..open
                },
                1,
                "kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            (
                Switches {
                    seccomp: true,
                    ..open
                },
                1,
                "seccomp=unconfined",
            ),
            (
                Switches {
                    seccomp: true,
                    root: true,
                    ..open
                },
                38,
                "seccomp=unconfined",
            ),
            (
                Switches {
                    chrooted: true,
                    ..open
                },
                1,
                "outside",
            ),
        ];
        for (switches, errno, wanted) in cases {
            let obstacle = switches.explain(errno);
            assert!(
                obstacle
                    .help
                    .as_deref()
                    .is_some_and(|help| help.contains(wanted)),
                "{obstacle:?}"
            );
        }
        let unknown = Switches {
            root: true,
            apparmor_restrict: Some(1),
            ..open
        }
        .explain(1);
        assert_eq!(
            unknown.help, None,
            "root is not what AppArmor's switch is about: {unknown:?}"
        );
    }
}
