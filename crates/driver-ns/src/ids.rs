//! Which ids a guest gets, and which of the host's they are.

use cosm_driver::{IdMap, LaunchError, LaunchPlan};
use cosm_spec::{IdMode, ImageSource, Profile};
use cosm_sys::idmap::Extent;

use crate::host::{Caller, Host, helpers_installed};

/// The ids of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids {
    pub users: Vec<Extent>,
    pub groups: Vec<Extent>,
    /// `newuidmap` and `newgidmap` write the maps.
    pub helper: bool,
    /// The kernel wants `setgroups` forbidden before it takes the map of an ordinary user.
    pub deny_setgroups: bool,
    /// Who builds the root: root where it is mapped.
    pub builder: (u32, u32),
    /// The guest's main user.
    pub main: (u32, u32),
    /// Whether every command runs as the main user, since the agent can't become another.
    pub fixed: bool,
}

impl Ids {
    /// Whether there is more than one id.
    pub(crate) fn is_range(&self) -> bool {
        self.users.iter().map(|e| u64::from(e.count)).sum::<u64>() > 1
    }

    /// The form in which it is written down.
    pub(crate) fn record(&self) -> IdMap {
        let triples = |map: &[Extent]| map.iter().map(|e| (e.inside, e.outside, e.count)).collect();
        IdMap {
            users: triples(&self.users),
            groups: triples(&self.groups),
            helper: self.helper,
        }
    }
}

/// Decides on the ids of a guest whose main user is `main`.
pub(crate) fn decide(plan: &LaunchPlan, host: &Host, main: (u32, u32)) -> Result<Ids, LaunchError> {
    let spec = &plan.spec;
    let restricted = spec.profile == Profile::Restricted;
    let mut ids = match &host.caller {
        Caller::Root => of_root(plan, main)?,
        Caller::User {
            uid,
            gid,
            sub_users,
            sub_groups,
            helpers,
        } => {
            let range = match (sub_users, sub_groups, helpers) {
                (Some(users), Some(groups), true) => Some((*users, *groups)),
                _ => None,
            };
            let wanted = match spec.ids {
                IdMode::Single => false,
                IdMode::Range => true,
                // Two programs have to be run for a range, which costs as much as the rest of the start. A guest of the
                // host's programs has nothing of other owners; an image has.
                IdMode::Auto => {
                    range.is_some() && !restricted && matches!(spec.image, ImageSource::Folder(_))
                }
            };
            match (wanted, range) {
                (false, _) => single(main, (*uid, *gid), true),
                (true, Some((users, groups))) => of_user(main, (*uid, *gid), users, groups)?,
                (true, None) => return Err(no_range(*helpers)),
            }
        }
    };
    ids.fixed = restricted || !ids.is_range();
    Ok(ids)
}

/// Why an ordinary user has no range, and what would help.
pub(crate) fn why_no_range(helpers: bool) -> (&'static str, &'static str) {
    if helpers {
        (
            "this user has no range in /etc/subuid and /etc/subgid",
            "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
        )
    } else if helpers_installed() {
        (
            "newuidmap and newgidmap can't get the rights they need here, as in a container",
            "as root: chmod u-s /usr/bin/newuidmap /usr/bin/newgidmap && setcap cap_setuid+ep /usr/bin/newuidmap && \
             setcap cap_setgid+ep /usr/bin/newgidmap",
        )
    } else {
        (
            "newuidmap and newgidmap are not installed",
            "install the package uidmap (shadow-utils)",
        )
    }
}

fn no_range(helpers: bool) -> LaunchError {
    let (why, help) = why_no_range(helpers);
    LaunchError::Unsupported {
        what: "a range of ids".to_owned(),
        why: why.to_owned(),
        help: Some(help.to_owned()),
    }
}

fn of_root(plan: &LaunchPlan, main: (u32, u32)) -> Result<Ids, LaunchError> {
    let Some(range) = plan
        .id_range
        .filter(|r| r.count > 0 && r.first.checked_add(r.count).is_some())
    else {
        return Err(LaunchError::Unsupported {
            what: "a guest started by root".to_owned(),
            why: "no range of ids is set aside for it, and the guest's root may not be the host's"
                .to_owned(),
            help: None,
        });
    };
    if range.first == 0 {
        return Err(LaunchError::Invalid {
            what: "the range of ids starts at the host's root".to_owned(),
            help: Some("let it start above all ids in use and off /etc/subuid".to_owned()),
        });
    }
    if plan.spec.ids == IdMode::Single {
        return Ok(single(main, (range.first, range.first), false));
    }
    if main.0 >= range.count || main.1 >= range.count {
        return Err(out_of_range(main, range.count));
    }
    let map = vec![Extent {
        inside: 0,
        outside: range.first,
        count: range.count,
    }];
    Ok(Ids {
        users: map.clone(),
        groups: map,
        helper: false,
        deny_setgroups: false,
        builder: (0, 0),
        main,
        fixed: false,
    })
}

fn out_of_range(main: (u32, u32), count: u32) -> LaunchError {
    LaunchError::Unsupported {
        what: format!("user {}:{}", main.0, main.1),
        why: format!("the guest's ids go from 0 to {}", count - 1),
        help: None,
    }
}

fn single(main: (u32, u32), own: (u32, u32), deny_setgroups: bool) -> Ids {
    Ids {
        users: vec![Extent {
            inside: main.0,
            outside: own.0,
            count: 1,
        }],
        groups: vec![Extent {
            inside: main.1,
            outside: own.1,
            count: 1,
        }],
        helper: false,
        deny_setgroups,
        builder: main,
        main,
        fixed: true,
    }
}

/// The main user is the caller, so that what it writes to the caller's folders is the caller's; all others are of the
/// caller's subordinate range.
fn of_user(
    main: (u32, u32),
    own: (u32, u32),
    users: (u32, u32),
    groups: (u32, u32),
) -> Result<Ids, LaunchError> {
    let last = users.1.min(groups.1);
    if main.0 > last || main.1 > last {
        return Err(out_of_range(main, last + 1));
    }
    Ok(Ids {
        users: around(main.0, own.0, users),
        groups: around(main.1, own.1, groups),
        helper: true,
        deny_setgroups: false,
        builder: (0, 0),
        main,
        fixed: false,
    })
}

/// A map in which `inside` is `outside` and the range fills the numbers from 0 on around it.
fn around(inside: u32, outside: u32, (first, count): (u32, u32)) -> Vec<Extent> {
    [
        Extent {
            inside: 0,
            outside: first,
            count: inside,
        },
        Extent {
            inside,
            outside,
            count: 1,
        },
        Extent {
            inside: inside + 1,
            outside: first + inside,
            count: count - inside,
        },
    ]
    .into_iter()
    .filter(|e| e.count > 0)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cosm_sys::idmap::{inside, outside};

    #[test]
    fn a_user_range_goes_around_the_main_user() {
        for main in [0, 1, 1000, 65_536] {
            let map = around(main, 1000, (100_000, 65_536));
            assert_eq!(outside(&map, main), Some(1000));
            assert_eq!(inside(&map, 1000), Some(main));
            assert_eq!(map.iter().map(|e| e.count).sum::<u32>(), 65_537);
            assert!((0..=65_536).all(|id| outside(&map, id).is_some()), "{main}");
            assert_eq!(inside(&map, 165_536), None);
        }
    }
}
