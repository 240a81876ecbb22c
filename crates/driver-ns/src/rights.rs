//! What a guest's root may do within its namespaces.

use cosm_spec::Profile;
use cosm_sys::caps::Caps;

/// The default profile's capabilities, each over the guest's own namespaces only.
const DEFAULT: [(u32, &str); 11] = [
    (0, "CAP_CHOWN: installing packages"),
    (1, "CAP_DAC_OVERRIDE: being root over the guest's own files"),
    (3, "CAP_FOWNER: the same"),
    (
        4,
        "CAP_FSETID: keeping set-id bits when installing packages",
    ),
    (5, "CAP_KILL: ending what other users of the guest run"),
    (6, "CAP_SETGID: running commands as others"),
    (7, "CAP_SETUID: running commands as others"),
    (
        10,
        "CAP_NET_BIND_SERVICE: serving on low ports of the guest's own network",
    ),
    (13, "CAP_NET_RAW: ping"),
    (
        18,
        "CAP_SYS_CHROOT: package tools run scripts in a root of their own",
    ),
    (
        31,
        "CAP_SETFCAP: installing packages that have file capabilities",
    ),
];

/// The capabilities of a profile's root.
pub(crate) fn of(profile: Profile) -> Caps {
    match profile {
        Profile::Restricted => Caps(0),
        Profile::Default => Caps(
            DEFAULT
                .iter()
                .fold(0, |bits, (number, _)| bits | 1 << number),
        ),
    }
}
