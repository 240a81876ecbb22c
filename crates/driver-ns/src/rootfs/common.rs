//! What every guest gets: `/dev`, `/proc`, `/sys` and the few files that name it.

use cosm_spec::NetMode;
use cosm_sys::mount::Attributes;

use super::{Builder, PLAIN, READ_ONLY, text};
use crate::tree::{Filesystem, Step};

const MASKED: &str = include_str!("../../data/masked.list");
/// Device nodes that hold nothing of the host's.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Fills `/dev`, which must be a folder in memory.
pub(super) fn dev(builder: &mut Builder<'_>, shared_memory_apart: bool) {
    for node in NODES {
        let path = text(&format!("/dev/{node}"));
        // A device can be opened only where its mount allows it.
        let attributes = Attributes {
            no_suid: true,
            no_exec: true,
            ..Attributes::default()
        };
        let bind = builder.bind(crate::tree::Bind {
            source: crate::tree::Source::Host(path.clone()),
            attributes,
            recursive: false,
            optional: false,
            phase: cosm_driver::LaunchPhase::Devices,
        });
        builder.step(Step::File {
            path: path.clone(),
            mode: 0o666,
            contents: Vec::new(),
        });
        builder.step(Step::Attach { bind, path });
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/ptmx", "pts/ptmx"),
    ] {
        builder.link(link, target);
    }
    builder.folder("/dev/pts", 0o755);
    builder.own(
        Filesystem::Terminals,
        text("/dev/pts"),
        Attributes {
            no_suid: true,
            no_exec: true,
            ..Attributes::default()
        },
        false,
    );
    builder.folder("/dev/.empty", 0o555);
    builder.folder("/dev/shm", 0o1777);
    if shared_memory_apart {
        let kind = Filesystem::Memory {
            size: text("64m"),
            mode: text("1777"),
        };
        builder.own(kind, text("/dev/shm"), PLAIN, false);
    }
}

/// `/proc` of the guest's own processes with the parts that are the host's closed, and a read-only `/sys`.
pub(super) fn proc_and_sys(builder: &mut Builder<'_>) {
    let attributes = Attributes {
        read_only: false,
        no_suid: true,
        no_devices: true,
        no_exec: true,
    };
    builder.own(Filesystem::Proc, text("/proc"), attributes, false);
    // A second lock beside the system call filter: no user namespace, and without one no other.
    builder.step(Step::Switch {
        path: text("/proc/sys/user/max_user_namespaces"),
        value: text("0"),
    });
    for line in MASKED.lines() {
        match line.split_once(' ') {
            Some(("mask", name)) => builder.step(Step::Mask {
                path: text(&format!("/proc/{name}")),
            }),
            Some(("read", name)) => builder.step(Step::Restrict {
                path: text(&format!("/proc/{name}")),
                attributes: Attributes {
                    no_exec: true,
                    ..READ_ONLY
                },
            }),
            _ => {}
        }
    }
    let attributes = Attributes {
        no_exec: true,
        ..READ_ONLY
    };
    // Nothing a guest needs is lost where the kernel refuses it: a shared network namespace is not the guest's to show.
    let own_network = builder.site.plan.spec.net == NetMode::None;
    if own_network {
        builder.own(Filesystem::Sys, text("/sys"), attributes, true);
        builder.step(Step::Mask {
            path: text("/sys/firmware"),
        });
        builder.step(Step::Mask {
            path: text("/sys/devices/virtual/powercap"),
        });
    }
}

/// The guest's host name.
pub(crate) fn host_name(plan: &cosm_driver::LaunchPlan) -> String {
    plan.spec
        .hostname
        .clone()
        .unwrap_or_else(|| plan.id.to_string())
}

/// Files that say who and where the guest is: name in /etc, contents.
pub(super) fn identity(builder: &Builder<'_>) -> Vec<(&'static str, String)> {
    let name = host_name(builder.site.plan);
    let resolver = match builder.site.plan.spec.net {
        // The host's resolvers are reachable only with the host's network.
        NetMode::Host => std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        _ => "# This sandbox has no network.\n".to_owned(),
    };
    vec![
        ("hostname", format!("{name}\n")),
        (
            "hosts",
            format!(
                "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 {name}\n"
            ),
        ),
        ("resolv.conf", resolver),
    ]
}
