//! Ranges of the host's ids, one for each sandbox that root makes.

use std::collections::HashSet;

use cosm_base::Home;
use cosm_proto::keeper::IdSlots;

/// How many ids one sandbox has.
pub const SLOT_SIZE: u32 = 1 << 16;

/// The first id of a slot; `None` where the slot is not one of these, or ids end before it.
pub fn first_id(slots: &IdSlots, slot: u32) -> Option<u32> {
    if slot >= slots.count {
        return None;
    }
    let first = slots.first.checked_add(slot.checked_mul(SLOT_SIZE)?)?;
    // The last id of all is -1, which is nobody.
    first.checked_add(SLOT_SIZE).map(|_| first)
}

/// The slots that the catalogue gives away; the others are for passing sandboxes, whose slots are locks.
pub(crate) const fn for_catalogue(slots: &IdSlots) -> IdSlots {
    IdSlots {
        first: slots.first,
        count: slots.count - slots.count / 2,
    }
}

/// Where a state folder starts to look among so many. Different ones start at different places, so that the sandboxes
/// of two of them seldom meet.
pub(crate) fn start(home: &Home, count: u32) -> u32 {
    use std::os::unix::ffi::OsStrExt as _;
    let hash = home
        .root()
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0x811c_9dc5_u32, |h, b| {
            (h ^ u32::from(*b)).wrapping_mul(0x0100_0193)
        });
    hash.checked_rem(count).unwrap_or(0)
}

/// A slot that is not taken.
pub(crate) fn choose(slots: &IdSlots, home: &Home, taken: &HashSet<u32>) -> Option<u32> {
    let first = u64::from(start(home, slots.count));
    (first..first + u64::from(slots.count))
        .filter_map(|slot| u32::try_from(slot % u64::from(slots.count)).ok())
        .find(|slot| !taken.contains(slot) && first_id(slots, *slot).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_never_overlap_and_end() {
        let slots = IdSlots {
            first: 0x7000_0000,
            count: 3,
        };
        let home = Home::new("/somewhere");
        let mut taken = HashSet::new();
        for _ in 0..3 {
            let slot = choose(&slots, &home, &taken).expect("a free one");
            assert!(taken.insert(slot));
        }
        assert_eq!(choose(&slots, &home, &taken), None);
        let ids: HashSet<_> = taken.iter().map(|s| first_id(&slots, *s)).collect();
        assert_eq!(ids.len(), 3);
        let end = IdSlots {
            first: u32::MAX - 10,
            count: 9,
        };
        assert_eq!(choose(&end, &home, &HashSet::new()), None);
        let none = IdSlots { first: 0, count: 0 };
        assert_eq!(choose(&none, &home, &HashSet::new()), None);
    }
}
