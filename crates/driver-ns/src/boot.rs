//! The agent's first message.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use cosm_driver::LaunchPlan;
use cosm_proto::agent::{self, AgentBoot, RlimitKind};
use cosm_spec::RlimitName;

use crate::ids::Ids;
use crate::rootfs::SCRIPTS;

const PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the agent of this guest has to know.
pub(crate) fn message(plan: &LaunchPlan, ids: &Ids) -> AgentBoot {
    let spec = &plan.spec;
    let mut env = vec![(b"PATH".to_vec(), path(plan))];
    for (name, value) in &spec.env {
        // The last of several wins; nobody reads the others.
        env.retain(|(known, _)| known != name.as_bytes());
        env.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    }
    AgentBoot {
        version: agent::VERSION,
        env,
        workdir: spec
            .workdir
            .as_ref()
            .map_or_else(|| b"/".to_vec(), |path| path.as_bytes().to_vec()),
        user: spec.user.as_ref().map(|user| user.as_bytes().to_vec()),
        shell: spec.shell.as_ref().map(|shell| shell.as_bytes().to_vec()),
        rlimits: spec
            .rlimits
            .iter()
            .map(|limit| agent::Rlimit {
                kind: kind(limit.name),
                soft: limit.soft,
                hard: limit.hard,
            })
            .collect(),
        // A command could be born into a group of its own only by `clone3`, which the filter refuses; moving it there
        // would cost more than the command.
        cgroup: None,
        fixed_user: ids.fixed,
    }
}

/// The scripts come first, then the programs of the user's prefixes.
fn path(plan: &LaunchPlan) -> Vec<u8> {
    let scripts = plan.scripts.iter().map(|_| OsStr::new(SCRIPTS).to_owned());
    let prefixes = plan.spec.prefixes.iter().map(|prefix| {
        // A prefix may be the folder of programs itself, as ~/.local/bin is.
        let folder = prefix.as_path();
        let bin = folder.join("bin");
        if bin.is_dir() {
            bin.into_os_string()
        } else {
            folder.as_os_str().to_owned()
        }
    });
    let mut path = Vec::new();
    for folder in scripts.chain(prefixes) {
        path.extend_from_slice(folder.as_bytes());
        path.push(b':');
    }
    path.extend_from_slice(PATH);
    path
}

fn kind(name: RlimitName) -> RlimitKind {
    match name {
        RlimitName::Cpu => RlimitKind::Cpu,
        RlimitName::Fsize => RlimitKind::Fsize,
        RlimitName::Data => RlimitKind::Data,
        RlimitName::Stack => RlimitKind::Stack,
        RlimitName::Core => RlimitKind::Core,
        RlimitName::Rss => RlimitKind::Rss,
        RlimitName::Nproc => RlimitKind::Nproc,
        RlimitName::Nofile => RlimitKind::Nofile,
        RlimitName::Memlock => RlimitKind::Memlock,
        RlimitName::As => RlimitKind::As,
        RlimitName::Locks => RlimitKind::Locks,
        RlimitName::Sigpending => RlimitKind::Sigpending,
        RlimitName::Msgqueue => RlimitKind::Msgqueue,
        RlimitName::Nice => RlimitKind::Nice,
        RlimitName::Rtprio => RlimitKind::Rtprio,
        RlimitName::Rttime => RlimitKind::Rttime,
    }
}
