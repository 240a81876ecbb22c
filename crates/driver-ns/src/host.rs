//! What this process is on this host: looked at once for each driver.

use std::cell::OnceCell;
use std::path::Path;

use cosm_sys::caps::Caps;
use cosm_sys::cgroup::Layout;
use cosm_sys::{idmap, procfs};

/// The rights that a guest with a range of ids of root's, its images and its mounts need.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_SETUID: u64 = 1 << 7;
const CAP_SETGID: u64 = 1 << 6;

/// A first id and a count.
pub(crate) type Range = (u32, u32);

/// Who starts guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Root with the rights to map ids and to mount.
    Root,
    /// Anybody else, also a root without those rights.
    User {
        uid: u32,
        gid: u32,
        /// The largest subordinate range of users.
        sub_users: Option<Range>,
        /// The same of groups.
        sub_groups: Option<Range>,
        /// `newuidmap` and `newgidmap` are there and can write a map.
        helpers: bool,
    },
}

/// What is known of the host.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub caller: Caller,
    /// Version of Landlock, 0 without it.
    pub landlock: u32,
    /// Bytes of memory in all.
    pub memory: u64,
    /// The kernel's boot id.
    pub boot: u128,
    /// Where control groups are, once somebody has asked.
    layout: OnceCell<Layout>,
}

pub(crate) const NEWUIDMAP: &str = "/usr/bin/newuidmap";
pub(crate) const NEWGIDMAP: &str = "/usr/bin/newgidmap";

impl Host {
    pub(crate) fn look() -> Self {
        Self {
            caller: caller(),
            landlock: cosm_sys::landlock::version().unwrap_or(0),
            memory: memory(),
            boot: boot_id(),
            layout: OnceCell::new(),
        }
    }

    /// Where control groups are.
    pub(crate) fn layout(&self) -> std::io::Result<&Layout> {
        if self.layout.get().is_none() {
            let found = Layout::find()?;
            return Ok(self.layout.get_or_init(|| found));
        }
        Ok(self.layout.get_or_init(Layout::default))
    }
}

impl Host {
    /// Whether the kernel counts a guest's processes by its user. It does not count those of the machine's root, as whom
    /// a guest runs where root has no right to give it other ids, as in a container.
    pub(crate) fn counts_processes(&self) -> bool {
        !(matches!(self.caller, Caller::User { uid: 0, .. }) && has_all_ids())
    }
}

fn caller() -> Caller {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let Caps(rights) = cosm_sys::caps::effective().unwrap_or_default();
    let needed = CAP_SYS_ADMIN | CAP_SETUID | CAP_SETGID;
    if uid == 0 && rights & needed == needed && has_all_ids() {
        return Caller::Root;
    }
    let helpers = helpers_installed() && helpers_work();
    let (sub_users, sub_groups) = if helpers {
        subordinate(uid)
    } else {
        (None, None)
    };
    Caller::User {
        uid,
        gid,
        sub_users,
        sub_groups,
        helpers,
    }
}

/// Whether the programs that map ranges of ids are there.
pub(crate) fn helpers_installed() -> bool {
    Path::new(NEWUIDMAP).exists() && Path::new(NEWGIDMAP).exists()
}

/// Whether those programs have the rights that they need. As set-user-id programs they need those of an administrator of
/// the host, which a container keeps from its root as well; with capabilities of their own, one is enough.
fn helpers_work() -> bool {
    use rustix::thread::{CapabilitySet, capability_is_in_bounding_set, no_new_privs};
    // The right of a file to give its program rights is gone with the one, and bounded by the other.
    let gains_none = no_new_privs().unwrap_or(false);
    let administers = capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap_or(true);
    let have_their_own = || {
        [NEWUIDMAP, NEWGIDMAP].iter().all(|program| {
            let mut value = [0_u8; 64];
            rustix::fs::getxattr(*program, c"security.capability", &mut value).is_ok()
        })
    };
    !gains_none && (administers || have_their_own())
}

/// The name of a user, empty where `/etc/passwd` has none.
pub(crate) fn user_name(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let id = uid.to_string();
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&id.as_str()))
        .map_or_else(String::new, |fields| fields[0].to_owned())
}

fn subordinate(uid: u32) -> (Option<Range>, Option<Range>) {
    let name = user_name(uid);
    let largest = |file: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        idmap::subordinate_ranges(&text, &name, uid)
            .into_iter()
            .max_by_key(|(_, count)| *count)
    };
    (largest("/etc/subuid"), largest("/etc/subgid"))
}

/// Whether this process sees all of the machine's ids, so that there are some to give away. In a user namespace root is
/// an ordinary user of few ids.
fn has_all_ids() -> bool {
    procfs::read_text("/proc/self/uid_map")
        .is_ok_and(|text| text.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// Numbers of processes start anew with each boot; this one doesn't.
pub(crate) fn boot_id() -> u128 {
    let text = procfs::read_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
}
