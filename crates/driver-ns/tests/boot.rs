//! A start that fails says in which part, and why, in words.

mod support;

use std::path::Path;
use std::time::Duration;

use cosm_base::units::ByteSize;
use cosm_driver::{LaunchError, LaunchPhase};
use cosm_spec::{ImageSource, Limit, Mount, MountSource, SandboxSpec};
use support::{Options, as_root_and_user, busybox_image, is_root, launch};

/// A process that is forked meanwhile has a copy of each pipe, and who looks at one sees no end.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The error with its cause, its part and its help.
fn refusal(spec: SandboxSpec) -> (LaunchPhase, String) {
    refusal_with(spec, Options::default())
}

fn refusal_with(spec: SandboxSpec, options: Options) -> (LaunchPhase, String) {
    let error = launch(spec, options).err().expect("it can't start");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    let text = [
        Some(error.to_string()),
        cause,
        error.help().map(str::to_owned),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join("; ");
    (error.phase(), text)
}

fn of_image(image: &Path) -> SandboxSpec {
    SandboxSpec {
        image: ImageSource::Folder(image.as_os_str().as_encoded_bytes().into()),
        ..SandboxSpec::default()
    }
}

fn mounted(mut spec: SandboxSpec, source: &Path, target: &str) -> SandboxSpec {
    spec.mounts.push(Mount {
        target: target.into(),
        source: MountSource::Bind(source.as_os_str().as_encoded_bytes().into()),
        read_only: true,
    });
    spec
}

#[test]
fn an_image_that_can_not_be_mounted_on_is_told_of() {
    let _alone = alone();
    as_root_and_user("an_image_that_can_not_be_mounted_on_is_told_of", || {
        let Some(image) = busybox_image() else {
            return println!("skipped: no static busybox");
        };
        let at = |name: &str| image.path().join(name);
        std::fs::write(at("proc"), "").expect("write");
        let (phase, text) = refusal(of_image(image.path()));
        assert_eq!(phase, LaunchPhase::Mounts, "{text}");
        assert!(
            text.contains("the guest's proc on /proc") && text.contains("Not a directory"),
            "{text}"
        );
        assert!(text.contains("one is a folder"), "{text}");
        std::fs::remove_file(at("proc")).expect("remove");

        std::os::unix::fs::symlink("nowhere", at("dev")).expect("link");
        let (_, text) = refusal(of_image(image.path()));
        assert!(
            text.contains("on /dev") && text.contains("leads nowhere"),
            "{text}"
        );
        std::fs::remove_file(at("dev")).expect("remove");

        std::fs::rename(at("etc"), at("etc.kept")).expect("rename");
        std::fs::write(at("etc"), "").expect("write");
        let (_, text) = refusal(of_image(image.path()));
        assert!(
            text.contains("/etc/hostname") && text.contains("Not a directory"),
            "{text}"
        );
        std::fs::remove_file(at("etc")).expect("remove");
        std::fs::rename(at("etc.kept"), at("etc")).expect("rename");

        let bait = tempfile::tempdir().expect("a temporary folder");
        let spec = mounted(of_image(image.path()), bait.path(), "/bin/busybox");
        let (_, text) = refusal(spec);
        assert!(text.contains("Not a directory"), "{text}");
        let file = bait.path().join("file");
        std::fs::write(&file, "").expect("write");
        let (_, text) = refusal(mounted(of_image(image.path()), &file, "/etc"));
        assert!(text.contains("Is a directory"), "{text}");
        // It was the places alone.
        support::start(of_image(image.path())).stop();
    });
}

#[test]
fn an_agent_that_can_not_run_is_told_of() {
    let _alone = alone();
    as_root_and_user("an_agent_that_can_not_run_is_told_of", || {
        let garbage = Options {
            agent: Some(b"no program"),
            ..Options::default()
        };
        let (phase, text) = refusal_with(SandboxSpec::default(), garbage);
        assert_eq!(phase, LaunchPhase::Exec);
        assert!(
            text.contains("executing the agent") && text.contains("Exec format error"),
            "{text}"
        );
    });
}

#[test]
fn a_root_that_does_not_fit_is_told_of() {
    let _alone = alone();
    let mut spec = SandboxSpec::default();
    spec.resources.disk = Limit::At(ByteSize(1 << 10));
    let (phase, text) = refusal(spec);
    assert_eq!(phase, LaunchPhase::Rootfs, "{text}");
    assert!(
        text.contains("No space left") && text.contains("--disk"),
        "{text}"
    );
}

/// What can't be had in time; the guest needs longer than nothing.
#[test]
fn a_start_that_takes_too_long_is_told_of() {
    let _alone = alone();
    as_root_and_user("a_start_that_takes_too_long_is_told_of", || {
        let mut spec = SandboxSpec::default();
        spec.timeouts.boot = Duration::from_nanos(1);
        // It may be there by the first look.
        let late = (0..50).find_map(|_| launch(spec.clone(), Options::default()).err());
        let error = late.expect("it takes a while");
        assert!(matches!(error, LaunchError::TooSlow { .. }), "{error}");
        assert_eq!(error.phase(), LaunchPhase::Rootfs);
    });
}

/// What the kernel kills has no last words.
#[test]
fn a_guest_that_was_killed_while_it_began_is_told_of() {
    let _alone = alone();
    as_root_and_user("a_guest_that_was_killed_while_it_began_is_told_of", || {
        let killed = Options {
            kill_at_record: true,
            ..Options::default()
        };
        match launch(SandboxSpec::default(), killed) {
            Err(LaunchError::Killed { out_of_memory, .. }) => assert!(!out_of_memory),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it was killed"),
        }
    });
}

#[test]
fn a_guest_without_memory_to_begin_in_is_told_of() {
    let _alone = alone();
    if !is_root() {
        return println!("skipped: only root limits memory everywhere");
    }
    let mut spec = SandboxSpec::default();
    spec.resources.memory = Limit::At(ByteSize(16 << 10));
    match launch(spec, Options::default()) {
        Err(LaunchError::Killed {
            out_of_memory,
            help,
        }) => {
            assert!(out_of_memory);
            assert!(help.is_some_and(|help| help.contains("--memory")));
        }
        Err(LaunchError::Unsupported { why, .. }) => println!("skipped: {why}"),
        Err(other) => assert!(other.to_string().contains("memory"), "{other}"),
        // It had become the agent by then.
        Ok(mut guest) => assert!(guest.wait().oom),
    }
}
