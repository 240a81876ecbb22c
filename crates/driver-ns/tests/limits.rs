//! What a guest may use, and that it can't use more.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use cosm_base::units::ByteSize;
use cosm_driver::{DiskBound, Driver as _, Guest as _, Support};
use cosm_spec::{ImageSource, Limit, SandboxSpec};
use support::{Guest, Options, as_root_and_user, busybox_image, launch, start_with};

/// A guest with these limits, or `None` (said why) where this host can't have them; that is checked to be told well.
fn limited(what: &str, change: impl Fn(&mut SandboxSpec)) -> Option<Guest> {
    let mut spec = SandboxSpec::default();
    change(&mut spec);
    match launch(spec, Options::default()) {
        Ok(guest) => Some(guest),
        Err(error) => {
            assert!(
                matches!(error, cosm_driver::LaunchError::Unsupported { .. }),
                "{error}"
            );
            assert!(error.to_string().contains(what), "{error}");
            println!(
                "skipped: {error}; {}",
                error.help().unwrap_or("nothing helps")
            );
            None
        }
    }
}

fn left_of(guest: &Guest) -> Vec<String> {
    guest
        .record
        .cgroups
        .iter()
        .filter(|folder| Path::new(folder).exists())
        .cloned()
        .collect()
}

#[test]
fn a_memory_bomb_kills_only_itself() {
    as_root_and_user("a_memory_bomb_kills_only_itself", || {
        let bomb = "head -c 300M /dev/zero | tail -c 200M > /dev/null";
        let Some(guest) = limited("a memory limit", |s| {
            s.resources.memory = Limit::At(ByteSize::mib(64))
        }) else {
            return;
        };
        assert_eq!(guest.facts.memory, Some(64 << 20));
        assert!(!left_of(&guest).is_empty());
        guest.run(bomb);
        let usage = guest.guest.usage();
        assert!(usage.oom_kills.is_some_and(|kills| kills > 0), "{usage:?}");
        assert!(
            usage
                .peak_memory
                .is_some_and(|peak| peak > 50 << 20 && peak <= 64 << 20),
            "{usage:?}"
        );
        // What it keeps in its own files counts too.
        guest.run("head -c 100M /dev/zero > /tmp/x");
        assert_eq!(guest.ok("echo alive"), "alive");
        let folders = guest.record.cgroups.clone();
        let exit = guest.stop();
        assert!(exit.oom);
        assert!(
            folders.iter().all(|folder| !Path::new(folder).exists()),
            "{folders:?}"
        );
        // The control: without the limit the same command ends well.
        let Some(guest) = limited("a memory limit", |s| s.resources.memory = Limit::Unlimited)
        else {
            return;
        };
        guest.ok(bomb);
        guest.stop();
    });
}

#[test]
fn a_fork_bomb_stays_inside() {
    as_root_and_user("a_fork_bomb_stays_inside", || {
        let Some(guest) = limited("processes", |s| s.resources.pids = Limit::At(32)) else {
            return;
        };
        let count =
            "i=0; while [ $i -lt 100 ]; do sleep 5 > /dev/null 2>&1 & i=$((i+1)); done; wait";
        let begun = Instant::now();
        let ran = guest.run(count);
        assert!(
            ran.output.contains("fork") || ran.output.contains("Resource temporarily"),
            "{ran:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20));
        let processes = guest.guest.usage().pids.expect("counted");
        assert!(processes <= 32, "{processes}");
        assert!(
            std::process::Command::new("true")
                .status()
                .is_ok_and(|s| s.success()),
            "the host can still fork"
        );
        guest.stop();
    });
}

#[test]
fn processors_are_shared_out() {
    as_root_and_user("processors_are_shared_out", || {
        let Some(guest) = limited("processors", |s| s.resources.cpus = Limit::At(0.2)) else {
            return;
        };
        assert_eq!(guest.facts.cpus, Some(0.2));
        let (begun, before) = (Instant::now(), guest.guest.usage().cpu_us.expect("counted"));
        guest.run("timeout 1 sh -c 'while :; do :; done'");
        let used = guest.guest.usage().cpu_us.expect("counted") - before;
        let share = used as f64 / begun.elapsed().as_micros() as f64;
        assert!(used > 0 && share < 0.4, "{share} of a processor");
        guest.stop();
    });
}

#[test]
fn what_a_killed_keeper_left_is_reaped() {
    as_root_and_user("what_a_killed_keeper_left_is_reaped", || {
        let Some(guest) = limited("a memory limit", |s| {
            s.resources.memory = Limit::At(ByteSize::mib(64))
        }) else {
            return;
        };
        let record = guest.record.clone();
        drop(guest);
        let driver = cosm_driver_ns::NsDriver::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        // Dropping a guest ends nothing: it still runs, in its groups, but for the one that a pause would have made.
        assert!(
            record
                .cgroups
                .iter()
                .all(|folder| Path::new(folder).exists() || folder.contains("/freezer/"))
        );
        runtime.block_on(driver.reap(&record)).expect("reaped");
        assert!(
            record
                .cgroups
                .iter()
                .all(|folder| !Path::new(folder).exists()),
            "{record:?}"
        );
        runtime.block_on(driver.reap(&record)).expect("again");
    });
}

#[test]
fn usage_is_counted_without_groups() {
    as_root_and_user("usage_is_counted_without_groups", || {
        let guest = support::start(SandboxSpec::default());
        guest.run("i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 10 > /dev/null 2>&1 &");
        let usage = guest.guest.usage();
        assert!(usage.cpu_us.is_some_and(|us| us >= 30_000), "{usage:?}");
        assert!(usage.pids.is_some_and(|n| n >= 2), "{usage:?}");
        assert!(usage.memory.is_some_and(|n| n > 0), "{usage:?}");
        let exit = guest.stop();
        assert!(exit.usage.cpu_us.is_some_and(|us| us >= 30_000), "{exit:?}");
    });
}

#[test]
fn a_disk_filler_fills_only_its_own() {
    as_root_and_user("a_disk_filler_fills_only_its_own", || {
        let outer = tempfile::tempdir().expect("a temporary folder");
        let data = outer.path().join("data");
        std::fs::create_dir(&data).expect("mkdir");
        let mut images = vec![cosm_spec::ImageSource::Host];
        let image = support::busybox_image();
        images.extend(
            image
                .as_ref()
                .map(|i| cosm_spec::ImageSource::Folder(i.path().into())),
        );
        for image in images {
            let start = || {
                let mut spec = SandboxSpec {
                    image: image.clone(),
                    ..SandboxSpec::default()
                };
                spec.resources.disk = Limit::At(ByteSize::mib(16));
                launch(
                    spec,
                    Options {
                        data: Some(data.clone()),
                        ..Options::default()
                    },
                )
            };
            let guest = match start() {
                Ok(guest) => guest,
                Err(error) => {
                    assert!(
                        matches!(error, cosm_driver::LaunchError::Unsupported { .. }),
                        "{error}"
                    );
                    return println!("skipped: {error}");
                }
            };
            assert_eq!(guest.facts.disk, Some(16 << 20));
            let full = guest.fails("dd if=/dev/zero of=/root/filler bs=65536 count=512 2>&1");
            assert!(full.contains("No space"), "{full}");
            guest.ok("rm /root/filler && echo kept > /root/kept");
            guest.stop();
            let guest =
                start().unwrap_or_else(|e| panic!("{e}: {:?}", std::error::Error::source(&e)));
            assert_eq!(guest.ok("cat /root/kept"), "kept");
            let ids = guest.facts.ids.clone();
            let driver = cosm_driver_ns::NsDriver::new();
            guest
                .block_on(async {
                    driver
                        .remove_tree(&data.join("disk.ext4"), ids.as_ref())
                        .await
                })
                .expect("removed");
            guest.stop();
            let loops = std::fs::read_dir("/sys/block")
                .expect("sysfs")
                .flatten()
                .filter(|entry| {
                    let backing = std::fs::read_to_string(entry.path().join("loop/backing_file"))
                        .unwrap_or_default();
                    backing.contains(data.to_str().expect("a path"))
                });
            let deadline = Instant::now() + Duration::from_secs(5);
            let mut left: Vec<_> = loops
                .map(|entry| entry.path().join("loop/backing_file"))
                .collect();
            while !left.is_empty() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
                left.retain(|file| file.exists());
            }
            assert!(left.is_empty(), "{left:?}");
        }
    });
}

/// The limits that nobody asked for come a little later where they would make each start slow.
#[test]
fn the_defaults_come_into_force() {
    as_root_and_user("the_defaults_come_into_force", || {
        let mut guest = support::start(SandboxSpec::default());
        if guest.facts.memory.is_none() {
            return println!("skipped: {:?}", guest.facts.notes);
        }
        // Made before, and not a child of process 1 alone.
        guest.run("(sleep 60 & (sleep 60 & sleep 60) &) > /dev/null 2>&1");
        guest.wait_for(Duration::from_millis(400));
        let group = guest
            .record
            .cgroups
            .iter()
            .find(|path| Path::new(path).join("memory.limit_in_bytes").exists());
        if let Some(group) = group {
            let limit = std::fs::read_to_string(Path::new(group).join("memory.limit_in_bytes"))
                .expect("readable");
            assert_eq!(limit.trim(), (4_u64 << 30).to_string());
            let members = cosm_sys::cgroup::members(Path::new(group)).expect("readable");
            let mut wanted = cosm_sys::procfs::descendants(guest.guest.pid());
            assert!(wanted.len() >= 3, "{wanted:?}");
            wanted.push(guest.guest.pid());
            assert!(
                wanted.iter().all(|pid| members.contains(pid)),
                "{wanted:?} in {members:?}"
            );
        }
        assert!(!left_of(&guest).is_empty());
        let folders = guest.record.cgroups.clone();
        guest.stop();
        assert!(
            folders.iter().all(|folder| !Path::new(folder).exists()),
            "{folders:?}"
        );
        // One that is over before leaves nothing either.
        let guest = support::start(SandboxSpec::default());
        let folders = guest.record.cgroups.clone();
        guest.stop();
        assert!(
            folders.iter().all(|folder| !Path::new(folder).exists()),
            "{folders:?}"
        );
    });
}

/// Also where others than the caller own what is closed to it, and what has no name any more.
#[test]
fn a_guests_files_are_counted() {
    as_root_and_user("a_guests_files_are_counted", || {
        let Some(image) = busybox_image() else {
            return println!("skipped: no static busybox");
        };
        for source in [ImageSource::Host, ImageSource::Folder(image.path().into())] {
            let data = tempfile::tempdir().expect("a temporary folder");
            let spec = SandboxSpec {
                image: source,
                ..SandboxSpec::default()
            };
            let options = Options {
                data: Some(data.path().to_owned()),
                ..Options::default()
            };
            let guest = start_with(spec, options);
            assert_eq!(
                (guest.facts.disk, guest.facts.disk_by),
                (Some(8 << 30), Some(DiskBound::Watched))
            );
            let count = || {
                let counting = guest.guest.measure(
                    data.path().to_owned(),
                    guest.facts.ids.clone(),
                    std::time::Duration::from_secs(30),
                );
                let found = guest.block_on(counting).expect("counted");
                assert!(found.whole, "{found:?}");
                found.bytes >> 20
            };
            let before = count();
            // A single id has nobody to give it to.
            guest.ok(
                "mkdir -p /opt/a/b && dd if=/dev/zero of=/opt/a/b/f bs=1M count=5 2>/dev/null && \
                 (chown -R 1000:1000 /opt/a || true) 2>/dev/null; chmod 000 /opt/a/b /opt/a",
            );
            assert_eq!(count() - before, 5);
            // Neither what is in memory nor what is mounted is its own on disk.
            guest.ok("dd if=/dev/zero of=/dev/shm/f bs=1M count=7 2>/dev/null");
            guest.ok(
                "(exec 7>/opt/gone 8>/dev/shm/gone; rm /opt/gone /dev/shm/gone; \
                  dd if=/dev/zero bs=1M count=3 >&7; dd if=/dev/zero bs=1M count=9 >&8; exec sleep 60) \
                 >/dev/null 2>&1 </dev/null & sleep 1",
            );
            assert_eq!(count() - before, 8);
            let ids = guest.facts.ids.clone();
            guest.stop();
            let removed = cosm_driver_ns::NsDriver::new();
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(removed.remove_tree(data.path(), ids.as_ref()))
                .expect("removed");
        }
    });
}

/// Whoever works in it stops working, those that were born before the pause and those that were left behind by their
/// parents too; a guest that was stopped when its keeper was killed is ended all the same.
#[test]
fn a_guest_is_stopped_and_resumed() {
    as_root_and_user("a_guest_is_stopped_and_resumed", || {
        let mut guest = support::start(SandboxSpec::default());
        guest.ok(
            "for i in 1 2 3; do (setsid sh -c 'while :; do echo >> /tmp/beats; sleep 0.01; done' &) ; done \
             >/dev/null 2>&1 </dev/null",
        );
        let can = guest.driver.capabilities().freeze.clone();
        match (guest.guest.freeze(true), can) {
            (Err(error), Support::No { .. }) => {
                assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
                println!("skipped: nothing can be stopped here");
                guest.stop();
                return;
            }
            (result, can) => {
                assert!(matches!(can, Support::Yes { .. }), "{can:?}");
                result.expect("it is stopped");
            }
        }
        // What it has written is seen from outside, since nothing inside could answer.
        let beats = format!("/proc/{}/root/tmp/beats", guest.guest.pid());
        let count = || std::fs::metadata(&beats).expect("beats").len();
        std::thread::sleep(Duration::from_millis(200));
        let stopped = count();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(count(), stopped, "all are stopped");
        guest.guest.freeze(false).expect("it is resumed");
        std::thread::sleep(Duration::from_millis(300));
        assert!(count() > stopped, "the control: it goes on");
        guest.guest.freeze(true).expect("it is stopped again");
        let record = guest.record.clone();
        guest.block_on(guest.driver.reap(&record)).expect("reaped");
        assert_eq!(guest.wait().signal, Some(9));
        for group in &record.cgroups {
            assert!(!Path::new(group).exists(), "{group} is left");
        }
    });
}
