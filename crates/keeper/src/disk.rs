//! Watches what a guest keeps on disk where no file system of a size bounds it.
//!
//! What one look costs has to be nothing: five hundred sandboxes may be idle here. While nothing runs in the guest there is
//! no look at all, and while what runs does nothing, hardly one. Else each look asks the file system how much is free, which is one system call; only
//! when a good part of what is left to the sandbox has gone since its files were counted are they counted again.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use cosm_driver::{DiskBound, Guest, IdMap, LaunchFacts, Measured, Upper};
use cosm_spec::{ImageSource, SandboxSpec};
use tokio::time::Instant;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// As long as it gets, while what runs does nothing.
const SLOW: Duration = Duration::from_secs(32);
/// The files are counted again after so many looks in any case: who frees as much as the guest writes hides it.
const LOOKS: u32 = 60;
/// The most that one count may take.
pub(crate) const COUNT: Duration = Duration::from_secs(60);
/// Counting takes at most one part in so many of the time.
const REST: u32 = 4;
/// Less than this is no change.
const SOME: u64 = 1 << 20;
/// What a sandbox that was over its limit when it started may add: it can be cleaned up.
const ROOM: u64 = 64 << 20;

/// A count in progress.
pub(crate) type Counting = Pin<Box<dyn Future<Output = Count>>>;

/// A count.
pub(crate) struct Count {
    took: Duration,
    result: io::Result<Counted>,
}

struct Counted {
    kept: Measured,
    /// The image, of which the guest has a copy among its files; once.
    image: Option<u64>,
}

/// What is known of a guest's files.
pub(crate) struct Watch {
    folder: PathBuf,
    /// The image that a copy of is among the files, where it has not been counted yet.
    image: Option<PathBuf>,
    image_bytes: u64,
    limit: u64,
    /// The limit in force: above the other where the sandbox was over it when it started.
    allowed: u64,
    /// The guest's files at the last count. `None`: there was none yet.
    used: Option<u64>,
    /// The most that was free since then.
    free: u64,
    looks: u32,
    /// Processor time of the guest at the last look.
    cpu_us: Option<u64>,
    pause: Duration,
    next: Option<Instant>,
    not_before: Option<Instant>,
}

impl Watch {
    /// Of a guest with these files, if it has to be watched. `fresh`: there is nothing in them yet.
    pub(crate) fn of(
        facts: &LaunchFacts,
        spec: &SandboxSpec,
        folder: PathBuf,
        fresh: bool,
    ) -> Option<Self> {
        let limit = facts
            .disk
            .filter(|_| facts.disk_by == Some(DiskBound::Watched))?;
        let image = match (&spec.image, facts.upper) {
            (ImageSource::Folder(path), Some(Upper::Copy)) => Some(path.as_path().to_owned()),
            _ => None,
        };
        Some(Self {
            folder,
            used: (fresh && image.is_none()).then_some(0),
            image,
            image_bytes: 0,
            limit,
            allowed: limit,
            free: 0,
            looks: 0,
            cpu_us: None,
            pause: LOOK,
            next: None,
            not_before: None,
        })
    }

    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// When to look next; `None` while nothing runs.
    pub(crate) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Something runs in the guest again.
    pub(crate) fn arm(&mut self, now: Instant) {
        if self.next.is_none() {
            self.pause = LOOK;
            self.next = Some(now + LOOK);
            if self.free == 0 {
                // Before it can have written much.
                self.free = free(&self.folder).unwrap_or(0);
            }
        }
    }

    pub(crate) fn disarm(&mut self) {
        self.next = None;
    }

    /// Whether it looks less often than it would look at a guest that works.
    pub(crate) fn is_slow(&self) -> bool {
        self.next.is_some() && self.pause > LOOK
    }

    /// Something new runs in the guest.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.pause = LOOK;
        self.next = self.next.map(|at| at.min(now + LOOK));
    }

    /// A look at a guest in which something runs or not, and which has used so much processor time. True if the files are to
    /// be counted now.
    pub(crate) fn look(&mut self, now: Instant, running: bool, cpu_us: Option<u64>) -> bool {
        self.see(now, running, cpu_us, free(&self.folder).unwrap_or(0))
    }

    fn see(&mut self, now: Instant, running: bool, cpu_us: Option<u64>, free: u64) -> bool {
        self.free = self.free.max(free);
        let gone = self.free - free;
        let quiet = cpu_us.is_some() && cpu_us == self.cpu_us;
        self.cpu_us = cpu_us;
        if quiet {
            self.pause = (self.pause * 2).min(SLOW);
        } else {
            self.pause = LOOK;
            self.looks += 1;
        }
        self.next = running.then_some(now + self.pause);
        let due = match self.used {
            None => true,
            Some(used) => {
                let left = self.allowed.saturating_sub(used);
                gone >= (left / 4).max(SOME) || self.looks >= LOOKS
            }
        };
        match self.not_before.filter(|at| due && *at > now) {
            None => due,
            later => {
                self.next = later;
                false
            }
        }
    }

    /// Begins to count.
    pub(crate) fn count(&mut self, guest: &impl Guest, ids: Option<&IdMap>) -> Counting {
        self.next = None;
        let kept = guest.measure(self.folder.clone(), ids.cloned(), COUNT);
        let image = self
            .image
            .take()
            .map(|path| guest.measure(path, ids.cloned(), COUNT));
        let begun = Instant::now();
        Box::pin(async move {
            let counted = async {
                let image = match image {
                    Some(image) => Some(image.await?.bytes),
                    None => None,
                };
                Ok(Counted {
                    kept: kept.await?,
                    image,
                })
            };
            let result = counted.await;
            Count {
                took: begun.elapsed(),
                result,
            }
        })
    }

    /// Takes a count. `Ok` with what is used, if that is too much.
    ///
    /// # Errors
    /// It did not work, or not wholly.
    pub(crate) fn counted(&mut self, now: Instant, count: Count) -> io::Result<Option<u64>> {
        self.not_before = Some(now + count.took * REST);
        self.looks = 0;
        self.free = free(&self.folder).unwrap_or(0);
        self.pause = LOOK;
        self.next = Some(now + LOOK);
        let Counted { kept, image } = count.result?;
        if let Some(image) = image {
            self.image_bytes = image;
        }
        let used = kept.bytes.saturating_sub(self.image_bytes);
        if self.takes(used) {
            return Ok(Some(used));
        }
        match kept.whole {
            true => Ok(None),
            false => Err(io::Error::other("not all of its files could be counted")),
        }
    }

    /// True if that is too much.
    fn takes(&mut self, used: u64) -> bool {
        let most = used.saturating_add(ROOM);
        self.allowed = match self.used {
            None if used > self.limit => most,
            None => self.limit,
            Some(_) => self.allowed.min(most).max(self.limit),
        };
        self.used = Some(used);
        used > self.allowed
    }
}

/// What is free for the user on the file system of this folder.
fn free(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cosm_spec::SandboxSpec;

    const GIB: u64 = 1 << 30;

    fn watch(fresh: bool) -> Watch {
        let facts = LaunchFacts {
            disk: Some(8 * GIB),
            disk_by: Some(DiskBound::Watched),
            ..LaunchFacts::default()
        };
        Watch::of(&facts, &SandboxSpec::default(), "/".into(), fresh).expect("it is watched")
    }

    #[test]
    fn only_what_has_no_other_bound_is_watched() {
        for by in [None, Some(DiskBound::Memory), Some(DiskBound::File)] {
            let facts = LaunchFacts {
                disk: Some(8 * GIB),
                disk_by: by,
                ..LaunchFacts::default()
            };
            let watch = Watch::of(&facts, &SandboxSpec::default(), "/".into(), true);
            assert!(watch.is_none(), "{by:?}");
        }
    }

    #[test]
    fn it_sleeps_while_nothing_runs() {
        let now = Instant::now();
        let mut watch = watch(true);
        assert_eq!(watch.next(), None, "nothing has run yet");
        watch.arm(now);
        assert!(watch.next().is_some_and(|at| at == now + LOOK));
        watch.free = 100 * GIB;
        assert!(!watch.see(now, true, None, 100 * GIB));
        assert!(watch.next().is_some());
        assert!(!watch.see(now, false, None, 100 * GIB), "a last look");
        assert_eq!(watch.next(), None);
    }

    #[test]
    fn what_does_nothing_is_hardly_looked_at() {
        let now = Instant::now();
        let mut watch = watch(true);
        watch.arm(now);
        watch.free = 100 * GIB;
        let mut pauses = Vec::new();
        for cpu in [10, 10, 10, 10, 10, 10, 11] {
            assert!(!watch.see(now, true, Some(cpu), 100 * GIB));
            pauses.push((watch.next().expect("it runs") - now).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 32, 2]);
        assert!(!watch.see(now, true, Some(11), 100 * GIB) && watch.is_slow());
        watch.hurry(now);
        assert!(!watch.is_slow() && watch.next() == Some(now + LOOK));
    }

    #[test]
    fn a_good_part_of_what_is_left_makes_it_count() {
        let now = Instant::now();
        let mut watch = watch(true);
        watch.free = 100 * GIB;
        assert!(!watch.see(now, true, None, 99 * GIB));
        assert!(watch.see(now, true, None, 98 * GIB));
        // Somebody frees something: what goes from then on counts.
        assert!(!watch.takes(0));
        watch.free = 98 * GIB;
        assert!(!watch.see(now, true, None, 120 * GIB));
        assert!(watch.see(now, true, None, 118 * GIB));
        // The less is left, the less it takes.
        assert!(!watch.takes(8 * GIB - (16 << 20)));
        watch.free = 100 * GIB;
        assert!(watch.see(now, true, None, 100 * GIB - (4 << 20)));
        // Somebody who frees as much at the same time hides it only for a while.
        watch.looks = 0;
        let counts = (0..LOOKS)
            .filter(|_| watch.see(now, true, None, 100 * GIB))
            .count();
        assert_eq!(counts, 1);
    }

    #[test]
    fn counting_does_not_take_all_the_time() {
        let now = Instant::now();
        let mut watch = watch(true);
        let count = |bytes| Count {
            took: Duration::from_secs(10),
            result: Ok(Counted {
                kept: Measured { bytes, whole: true },
                image: None,
            }),
        };
        assert_eq!(watch.counted(now, count(GIB)).ok(), Some(None));
        watch.free = 100 * GIB;
        assert!(!watch.see(now + LOOK, false, None, 90 * GIB), "too soon");
        let at = watch.next().expect("not forgotten");
        assert_eq!(at, now + Duration::from_secs(40));
        assert!(watch.see(at, false, None, 90 * GIB));
        assert_eq!(watch.counted(at, count(9 * GIB)).ok(), Some(Some(9 * GIB)));
    }

    #[test]
    fn what_was_over_can_be_cleaned_up() {
        let mut old = watch(false);
        assert!(
            old.see(Instant::now(), true, None, 100 * GIB),
            "nothing is known"
        );
        assert!(!old.takes(20 * GIB), "it may start");
        assert!(!old.takes(20 * GIB + ROOM / 2));
        assert!(old.takes(20 * GIB + 2 * ROOM), "but not grow");
        let mut old = watch(false);
        assert!(!old.takes(20 * GIB));
        assert!(!old.takes(10 * GIB), "it was cleaned up a little");
        assert!(old.takes(11 * GIB), "and stays so");
        let mut old = watch(false);
        assert!(!old.takes(20 * GIB) && !old.takes(GIB) && !old.takes(8 * GIB));
        assert!(old.takes(8 * GIB + 1));
    }
}
