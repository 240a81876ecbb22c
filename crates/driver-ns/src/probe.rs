//! What this host allows, and which of its switches forbids the rest.

use cosm_driver::{Capabilities, Level, Support};

use crate::host::{Caller, Host};

/// What a container that hides parts of `/proc` needs.
pub(crate) const PROC_HELP: &str = "this container hides parts of /proc, so that no new /proc may be mounted in it: start it with \
     `docker run --security-opt systempaths=unconfined --security-opt seccomp=unconfined`";

/// Something that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub why: String,
    pub help: Option<String>,
}

/// Whether user namespaces can be made, and if not, which switch is in the way.
pub(crate) fn user_namespaces() -> Result<(), Obstacle> {
    Ok(())
}

/// All that `doctor` wants to know.
pub(crate) fn capabilities(host: &Host) -> Capabilities {
    let no = |why: &str| Support::No {
        why: why.to_owned(),
        help: None,
    };
    Capabilities {
        level: Level::Namespaces,
        launch: match user_namespaces() {
            Ok(()) => Support::Yes {
                by: "user namespaces".to_owned(),
            },
            Err(obstacle) => Support::No {
                why: obstacle.why,
                help: obstacle.help,
            },
        },
        memory: no("not probed"),
        cpus: no("not probed"),
        pids: Support::Yes {
            by: "RLIMIT_NPROC".to_owned(),
        },
        disk: Support::Yes {
            by: "tmpfs".to_owned(),
        },
        freeze: no("there is no cgroup to freeze"),
        id_range: match &host.caller {
            Caller::Root => Support::Yes {
                by: "root".to_owned(),
            },
            Caller::User {
                sub_users: Some(_),
                sub_groups: Some(_),
                ..
            } => Support::Yes {
                by: "newuidmap".to_owned(),
            },
            Caller::User { .. } => no("no subordinate ids"),
        },
        overlay: Support::Yes {
            by: "overlay".to_owned(),
        },
        findings: Vec::new(),
    }
}
