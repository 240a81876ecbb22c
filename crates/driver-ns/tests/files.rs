//! Images, mounts, and whose files are whose.

mod support;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use cosm_base::units::ByteSize;
use cosm_driver::{Driver as _, Upper};
use cosm_spec::{IdMode, ImageSource, Limit, Mount, MountSource, Profile, SandboxSpec};
use support::{Options, as_root_and_user, busybox_image, is_root, launch, start, start_with};

fn mount(source: &Path, target: &str, read_only: bool) -> Mount {
    Mount {
        target: target.into(),
        source: MountSource::Bind(source.into()),
        read_only,
    }
}

fn image_spec(image: &tempfile::TempDir) -> SandboxSpec {
    SandboxSpec {
        image: ImageSource::Folder(image.path().into()),
        ..SandboxSpec::default()
    }
}

/// The names of all that is in a folder, with the contents of files.
fn listing(folder: &Path) -> Vec<(String, u64, i64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("readable") {
        let entry = entry.expect("an entry");
        let data = entry.metadata().expect("metadata");
        found.push((
            entry.path().display().to_string(),
            data.len(),
            data.mtime_nsec(),
        ));
        if data.is_dir() {
            found.extend(listing(&entry.path()));
        }
    }
    found.sort();
    found
}

#[test]
fn an_image_is_copied_on_write() {
    as_root_and_user("an_image_is_copied_on_write", || {
        let Some(image) = busybox_image() else {
            return println!("skipped: no static busybox");
        };
        let before = listing(image.path());
        let guest = start(image_spec(&image));
        assert_eq!(guest.facts.upper, Some(Upper::OverlayTmpfs));
        assert_eq!(
            guest.ok("cat /etc/kept; stat -c %u:%g /etc/kept /"),
            "of the image\n0:0\n0:0"
        );
        guest.ok("echo changed > /etc/kept; rm /bin/vi; mkdir /new; mv /etc/kept /new/; ln -s x /new/y; rm -r /root");
        assert_eq!(
            guest.ok("cat /new/kept; ls -A /etc | tr '\\n' ' '"),
            "changed\ngroup hostname hosts passwd resolv.conf"
        );
        guest.ok("test -c /dev/null && echo x > /dev/null && ls /proc/self/ns > /dev/null && touch /dev/shm/x /tmp/x /run/x");
        guest.stop();
        assert_eq!(listing(image.path()), before);
    });
}

#[test]
fn what_is_kept_is_there_at_the_next_start() {
    as_root_and_user("what_is_kept_is_there_at_the_next_start", || {
        let Some(image) = busybox_image() else {
            return println!("skipped: no static busybox");
        };
        let outer = tempfile::tempdir().expect("a temporary folder");
        let data = outer.path().join("data");
        std::fs::create_dir(&data).expect("mkdir");
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).expect("chmod");
        let options = || Options {
            data: Some(data.clone()),
            ..Options::default()
        };
        let guest = start_with(image_spec(&image), options());
        assert!(
            matches!(guest.facts.upper, Some(Upper::Overlay | Upper::Copy)),
            "{:?}",
            guest.facts.upper
        );
        let written = "echo mine > /kept; mkdir -p /d/e; rm -rf /root; chmod 0 /d; rm /bin/vi";
        guest.ok(written);
        if guest
            .facts
            .ids
            .as_ref()
            .is_some_and(|ids| ids.users.iter().map(|e| e.2).sum::<u32>() > 1)
        {
            guest.ok("touch /others && chown 1000:1000 /others && su ann -s /bin/sh -c 'mkdir -m 700 /tmp/ann && touch /tmp/ann/x'");
        }
        guest.stop();
        let guest = start_with(image_spec(&image), options());
        assert_eq!(
            guest.ok("cat /kept; stat -c %a /d; ls /root /bin/vi 2>&1 | grep -c 'No such'"),
            "mine\n0\n2"
        );
        let ids = guest.facts.ids.clone();
        let driver = cosm_driver_ns::NsDriver::new();
        guest.stop();
        // Whatever its guests made can be deleted.
        block(async {
            driver
                .remove_tree(&data, ids.as_ref())
                .await
                .expect("removed");
            driver
                .remove_tree(&data, ids.as_ref())
                .await
                .expect("nothing there is fine");
        });
        assert!(!data.exists());
    });
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

#[test]
fn a_host_guest_keeps_its_files() {
    as_root_and_user("a_host_guest_keeps_its_files", || {
        let outer = tempfile::tempdir().expect("a temporary folder");
        let data = outer.path().join("data");
        std::fs::create_dir(&data).expect("mkdir");
        let options = || Options {
            data: Some(data.clone()),
            ..Options::default()
        };
        let guest = start_with(SandboxSpec::default(), options());
        assert_eq!(guest.facts.upper, Some(Upper::Folders));
        guest.ok("echo mine > /root/kept; touch /run/gone; rm -rf /etc/hosts; touch /dev/shm/x");
        guest.stop();
        let guest = start_with(SandboxSpec::default(), options());
        assert_eq!(
            guest.ok(
                "cat /root/kept; ls /run/gone /dev/shm/x 2>/dev/null; grep -c localhost /etc/hosts"
            ),
            "mine\n2"
        );
        let ids = guest.facts.ids.clone();
        guest.stop();
        block(cosm_driver_ns::NsDriver::new().remove_tree(&data, ids.as_ref())).expect("removed");
    });
}

#[test]
fn what_a_guest_writes_belongs_to_the_folders_owner() {
    as_root_and_user("what_a_guest_writes_belongs_to_the_folders_owner", || {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let owner = if is_root() {
            (12_345, 54_321)
        } else {
            (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
            )
        };
        chown(folder.path(), Some(owner.0), Some(owner.1)).expect("chown");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700))
            .expect("chmod");
        std::fs::write(folder.path().join("before"), "x").expect("write");
        chown(folder.path().join("before"), Some(owner.0), Some(owner.1)).expect("chown");
        let mut number = 0;
        for ids in [IdMode::Auto, IdMode::Single, IdMode::Range] {
            for user in [None, Some("1000")] {
                if ids == IdMode::Range && !is_root() && support::ordinary_user().is_none() {
                    println!("skipped: no range");
                    continue;
                }
                // Restricted runs the stand-in agent as the user itself, as the real one does for each command.
                let profile = if user.is_some() && ids != IdMode::Range {
                    Profile::Restricted
                } else {
                    Profile::Default
                };
                let spec = SandboxSpec {
                    ids,
                    profile,
                    user: user.map(str::to_owned),
                    mounts: vec![mount(folder.path(), "/work", false)],
                    ..SandboxSpec::default()
                };
                let guest = start(spec);
                number += 1;
                let become_user = if user.is_some() && ids == IdMode::Range {
                    "setpriv --reuid 1000 --regid 1000 --clear-groups"
                } else {
                    ""
                };
                guest.ok(&format!("{become_user} sh -c 'echo hi > /work/f{number} && mkdir /work/d{number} && rm /work/before && touch /work/before'"));
                let seen = guest.ok("stat -c %u:%g /work /work/before | uniq");
                let wanted = user.map_or("0:0", |_| "1000:1000");
                assert_eq!(seen, wanted, "{ids:?} {user:?}");
                guest.stop();
                for name in [
                    format!("f{number}"),
                    format!("d{number}"),
                    "before".to_owned(),
                ] {
                    let found = std::fs::metadata(folder.path().join(&name)).expect("written");
                    assert_eq!((found.uid(), found.gid()), owner, "{ids:?} {user:?} {name}");
                }
            }
        }
    });
}

#[test]
fn a_folder_of_somebody_else_is_an_error_that_says_so() {
    as_root_and_user("a_folder_of_somebody_else_is_an_error_that_says_so", || {
        if is_root() {
            return println!("skipped: root may write as anybody");
        }
        let spec = SandboxSpec {
            mounts: vec![mount(Path::new("/tmp"), "/work", false)],
            ..SandboxSpec::default()
        };
        let error = launch(spec, Options::default()).err().expect("an error");
        assert!(error.to_string().contains("/tmp"), "{error}");
        assert!(error.to_string().contains("belongs to user 0"), "{error}");
    });
}

#[test]
fn mounts_nest_whatever_their_order() {
    as_root_and_user("mounts_nest_whatever_their_order", || {
        let (outer, inner) = (
            tempfile::tempdir().expect("a folder"),
            tempfile::tempdir().expect("a folder"),
        );
        std::fs::create_dir(outer.path().join("sub")).expect("mkdir");
        std::fs::write(outer.path().join("file"), "outer").expect("write");
        std::fs::write(inner.path().join("file"), "inner").expect("write");
        for folder in [&outer, &inner] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
                .expect("chmod");
        }
        let spec = SandboxSpec {
            mounts: vec![
                mount(&inner.path().join("file"), "/a/b/sub/one", true),
                mount(inner.path(), "/a/b/sub", false),
                Mount {
                    target: "/scratch".into(),
                    source: MountSource::Tmpfs {
                        size: Some(ByteSize::mib(1)),
                        mode: Some(0o700),
                    },
                    read_only: false,
                },
                mount(outer.path(), "/a/b", true),
            ],
            ..SandboxSpec::default()
        };
        let guest = start(spec);
        assert_eq!(
            guest.ok("cat /a/b/file /a/b/sub/file /a/b/sub/one"),
            "outerinnerinner"
        );
        guest.fails("touch /a/b/x");
        guest.fails("echo x > /a/b/sub/one");
        guest.ok("touch /a/b/sub/x");
        assert_eq!(guest.ok("stat -c %a /scratch"), "700");
        assert!(
            guest
                .fails("head -c 2M /dev/zero > /scratch/x")
                .contains("No space")
        );
        guest.stop();
        let absent = launch(
            SandboxSpec {
                mounts: vec![mount(Path::new("/no/such"), "/x", true)],
                ..SandboxSpec::default()
            },
            Options::default(),
        );
        assert_eq!(
            absent.err().expect("an error").to_string(),
            "mount path does not exist: /no/such"
        );
    });
}

#[test]
fn scripts_and_prefixes_are_read_only() {
    as_root_and_user("scripts_and_prefixes_are_read_only", || {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("hello");
        std::fs::write(&script, "#!/bin/sh\necho hello\n").expect("write");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
            .expect("chmod");
        let spec = SandboxSpec {
            prefixes: vec![folder.path().into()],
            ..SandboxSpec::default()
        };
        let guest = start_with(
            spec,
            Options {
                scripts: Some(folder.path().to_owned()),
                ..Options::default()
            },
        );
        let prefix = folder.path().display();
        assert_eq!(
            guest.ok(&format!("/run/cosm/scripts/hello; {prefix}/hello")),
            "hello\nhello"
        );
        guest.fails("touch /run/cosm/scripts/x");
        guest.fails(&format!("touch {prefix}/x"));
        guest.stop();
    });
}

#[test]
fn memory_for_files_is_bounded() {
    as_root_and_user("memory_for_files_is_bounded", || {
        let mut spec = SandboxSpec::default();
        spec.resources.disk = Limit::At(ByteSize::mib(4));
        let guest = start(spec);
        let full = guest.fails("head -c 8M /dev/zero > /root/x");
        assert!(full.contains("No space"), "{full}");
        guest.fails(
            "rm /root/x; i=0; while [ $i -lt 100000 ]; do : > /tmp/$i || exit 1; i=$((i+1)); done",
        );
        guest.stop();
    });
}

#[test]
fn an_image_that_is_none_is_an_error() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for (path, wanted) in [
        (file.path(), "rootfs bind path is not a directory"),
        (Path::new("/no/such"), "rootfs bind path does not exist"),
    ] {
        let spec = SandboxSpec {
            image: ImageSource::Folder(path.into()),
            ..SandboxSpec::default()
        };
        let error = launch(spec, Options::default()).err().expect("an error");
        assert!(error.to_string().starts_with(wanted), "{error}");
    }
}

#[test]
fn a_restricted_guest_writes_only_where_nothing_is_kept() {
    as_root_and_user(
        "a_restricted_guest_writes_only_where_nothing_is_kept",
        || {
            let outer = tempfile::tempdir().expect("a temporary folder");
            let image = busybox_image();
            let mut cases = vec![(ImageSource::Host, None)];
            let data = |name: &str| {
                let data = outer.path().join(name);
                std::fs::create_dir(&data).expect("mkdir");
                Some(data)
            };
            cases.push((ImageSource::Host, data("host")));
            if let Some(image) = &image {
                cases.push((ImageSource::Folder(image.path().into()), None));
                cases.push((ImageSource::Folder(image.path().into()), data("image")));
            }
            for (image, data) in cases {
                let spec = SandboxSpec {
                    image,
                    profile: Profile::Restricted,
                    ..SandboxSpec::default()
                };
                let guest = start_with(
                    spec,
                    Options {
                        data: data.clone(),
                        ..Options::default()
                    },
                );
                for path in ["/x", "/etc/x", "/etc/passwd", "/dev/x", "/usr/x", "/bin/x"] {
                    guest.fails(&format!("echo x >> {path}"));
                }
                guest.ok("touch /tmp/x /var/tmp/x /run/x /dev/shm/x && echo x > /dev/null");
                let ids = guest.facts.ids.clone();
                guest.stop();
                if let Some(data) = data {
                    block(cosm_driver_ns::NsDriver::new().remove_tree(&data, ids.as_ref()))
                        .expect("removed");
                }
            }
        },
    );
}
