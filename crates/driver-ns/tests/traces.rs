//! Nothing is left of a guest: not when it ends, not when its start fails, not when its keeper is killed.

mod support;

use std::time::{Duration, Instant};

use cosm_driver::{Driver as _, LaunchPhase};
use cosm_spec::SandboxSpec;
use support::{Options, as_root_and_user, launch, start};

/// What one test counts must not be another's.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The processes that are children of this one.
fn children() -> usize {
    let me = std::process::id() as i32;
    cosm_sys::procfs::pids()
        .expect("proc")
        .into_iter()
        .filter_map(|pid| cosm_sys::procfs::stat(pid).ok())
        .filter(|stat| stat.parent == me)
        .count()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").expect("proc")
}

fn gone(pid: i32) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        match cosm_sys::procfs::stat(pid) {
            Ok(stat) if stat.state != b'Z' => std::thread::sleep(Duration::from_millis(2)),
            _ => return true,
        }
    }
    false
}

#[test]
fn nothing_is_left() {
    let _alone = alone();
    as_root_and_user("nothing_is_left", || {
        // The first runtime of a process keeps descriptors for signals for good.
        start(SandboxSpec::default()).stop();
        let before = (children(), descriptors(), mounts());
        let guest = start(SandboxSpec::default());
        guest.ok("exec > /dev/null 2>&1; (sleep 1000 &) ; setsid sleep 1000 &");
        let pid = guest.guest.pid();
        let exit = guest.stop();
        assert_eq!((exit.code, exit.signal), (None, Some(9)));
        assert!(exit.usage.cpu_us.is_some_and(|us| us > 0));
        assert!(gone(pid));
        assert_eq!(
            (children(), descriptors(), mounts()),
            before,
            "after a guest"
        );

        let mut guest = start(SandboxSpec::default());
        // Its own processes can't kill it: the kernel keeps signals without a handler from process 1.
        guest.run("kill -9 1");
        guest.ok("true");
        guest.tell("exit");
        assert_eq!(guest.wait().code, Some(0));
        drop(guest);

        let refused = launch(
            SandboxSpec::default(),
            Options {
                fail_record: true,
                ..Options::default()
            },
        );
        let error = refused.err().expect("an error");
        assert_eq!(error.phase(), LaunchPhase::Prepare);
        assert_eq!(
            (children(), descriptors(), mounts()),
            before,
            "after a run that could not be recorded"
        );

        let garbage = Options {
            agent: Some(b"no program"),
            ..Options::default()
        };
        let error = launch(SandboxSpec::default(), garbage)
            .err()
            .expect("an error");
        assert_eq!(error.phase(), LaunchPhase::Exec, "{error}");
        assert_eq!(
            (children(), descriptors(), mounts()),
            before,
            "after an agent that is no program"
        );

        let mut spec = SandboxSpec::default();
        spec.mounts.push(cosm_spec::Mount {
            target: "/usr/no/such/place".into(),
            source: cosm_spec::MountSource::Bind("/etc/hostname".into()),
            read_only: true,
        });
        let error = launch(spec, Options::default()).err().expect("an error");
        assert_eq!(error.phase(), LaunchPhase::Mounts, "{error}");
        assert!(
            error.help().is_some_and(|help| help.contains("read-only")),
            "{error}"
        );
        assert_eq!(
            (children(), descriptors(), mounts()),
            before,
            "after a mount without a place"
        );
    });
}

/// A run whose keeper was killed: the guest dies with it, and reaping what was recorded is fine at any time.
#[test]
fn a_killed_keeper_takes_its_guest_along() {
    let _alone = alone();
    as_root_and_user("a_killed_keeper_takes_its_guest_along", || {
        use std::io::{Read as _, Write as _};
        support::probe();
        let (mut reader, mut writer) = std::io::pipe().expect("pipe");
        let keeper = cosm_sys::process::fork(&cosm_sys::process::CloneArgs::default(), || {
            let guest = start(SandboxSpec::default());
            let init = guest.record.init.expect("recorded");
            let told = writer
                .write_all(&init.pid.to_le_bytes())
                .and_then(|()| writer.write_all(&init.start_ticks.to_le_bytes()));
            if told.is_ok() {
                std::thread::sleep(Duration::from_secs(60));
            }
            1
        })
        .expect("fork");
        // With this end open nobody would see that the keeper failed.
        drop(writer);
        let (mut pid, mut ticks) = ([0; 4], [0; 8]);
        reader.read_exact(&mut pid).expect("the keeper answers");
        reader.read_exact(&mut ticks).expect("the keeper answers");
        let pid = i32::from_le_bytes(pid);
        assert_eq!(
            cosm_sys::procfs::stat(pid).expect("it runs").start_time,
            u64::from_le_bytes(ticks)
        );
        keeper.kill_and_wait().expect("kill");
        assert!(gone(pid), "the guest outlived its keeper");
    });
}

#[test]
fn reaping_ends_what_was_recorded_and_nothing_else() {
    let _alone = alone();
    as_root_and_user("reaping_ends_what_was_recorded_and_nothing_else", || {
        let mut guest = start(SandboxSpec::default());
        let pid = guest.guest.pid();
        let mut other = guest.record.clone();
        if let Some(init) = &mut other.init {
            init.start_ticks += 1;
        }
        // Groups are the run's by their name, whatever lives in them.
        other.cgroups.clear();
        guest
            .block_on(guest.driver.reap(&other))
            .expect("nothing of that name");
        assert!(
            cosm_sys::procfs::stat(pid).is_ok_and(|s| s.state != b'Z'),
            "another process with this number"
        );
        guest
            .block_on(guest.driver.reap(&guest.record))
            .expect("reaped");
        assert!(cosm_sys::procfs::stat(pid).is_ok_and(|s| s.state == b'Z'));
        guest
            .block_on(guest.driver.reap(&guest.record))
            .expect("again");
        assert_eq!(guest.wait().signal, Some(9));
        guest
            .block_on(guest.driver.reap(&guest.record))
            .expect("and when it is gone");
    });
}
