//! An image's links lead set-up nowhere but into the image, each with a control: the same link without `/proc` is followed.

mod support;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use cosm_driver::{LaunchError, Upper};
use cosm_spec::{ImageSource, Mount, MountSource, Profile, SandboxSpec};
use support::{Options, as_root_and_user, busybox_image, launch, start};

/// More than the highest number of a descriptor that set-up has: of the keeper, of the mounts to be made, of the pipes.
const DESCRIPTORS: std::ops::Range<u32> = 3..64;

fn spec(image: &Path, mounts: Vec<Mount>) -> SandboxSpec {
    SandboxSpec {
        image: ImageSource::Folder(image.into()),
        mounts,
        ..SandboxSpec::default()
    }
}

fn bind(source: &Path, target: &str) -> Mount {
    Mount {
        target: target.into(),
        source: MountSource::Bind(source.into()),
        read_only: true,
    }
}

/// The whole of an error, with its causes and its help.
fn text(error: &LaunchError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text + error.help().unwrap_or_default()
}

/// Folders of the host that are open in this process, as a keeper has some, and so in the process that sets a guest up.
/// They may be written by whoever sets the guest up.
struct Open {
    folder: tempfile::TempDir,
    handles: Vec<std::fs::File>,
}

impl Open {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))
            .expect("chmod");
        let handles = (0..24)
            .map(|_| std::fs::File::open(folder.path()).expect("open"))
            .collect();
        Self { folder, handles }
    }

    fn assert_untouched(&self, after: &str) {
        let found: Vec<_> = std::fs::read_dir(self.folder.path())
            .expect("list")
            .collect();
        assert!(found.is_empty(), "{after}: {found:?}");
        assert_eq!(self.handles.len(), 24);
    }
}

/// Whether set-up said what is wrong with the link. It may also find nothing behind it: nothing was open at that number.
fn refuses(spec: SandboxSpec, open: &Open, what: &str) -> bool {
    let Err(error) = launch(spec, Options::default()) else {
        panic!("{what}: it started");
    };
    open.assert_untouched(what);
    let text = text(&error);
    let said = text.contains("a link on this path, of the image");
    assert!(
        said || (what.contains("/fd/") && text.contains("No such file")),
        "{what}: {text}"
    );
    said
}

#[test]
fn an_images_etc_is_no_way_out() {
    as_root_and_user("an_images_etc_is_no_way_out", || {
        let Some(image) = busybox_image() else {
            return println!("skipped: no static busybox");
        };
        let open = Open::new();
        let etc = image.path().join("etc");
        std::fs::rename(&etc, image.path().join("real-etc")).expect("rename");
        let mut said = 0;
        for number in DESCRIPTORS {
            symlink(format!("/proc/self/fd/{number}"), &etc).expect("link");
            said += u32::from(refuses(
                spec(image.path(), Vec::new()),
                &open,
                &format!("/etc -> /proc/self/fd/{number}"),
            ));
            std::fs::remove_file(&etc).expect("remove");
        }
        assert!(said >= 24, "all that is open was tried: {said}");
        for link in ["/proc/1/root", "/proc/self/cwd", "/proc/thread-self/root"] {
            symlink(link, &etc).expect("link");
            assert!(refuses(spec(image.path(), Vec::new()), &open, link));
            std::fs::remove_file(&etc).expect("remove");
        }
        // The control: a link within the image is followed, absolute, relative or above the root.
        for link in ["/real-etc", "real-etc", "../../../real-etc"] {
            symlink(link, &etc).expect("link");
            let guest = start(SandboxSpec {
                hostname: Some("box".into()),
                ..spec(image.path(), Vec::new())
            });
            assert_eq!(guest.ok("cat /real-etc/hostname /etc/hostname"), "box\nbox");
            guest.stop();
            std::fs::remove_file(&etc).expect("remove");
        }
    });
}

#[test]
fn a_mount_point_is_no_way_out() {
    as_root_and_user("a_mount_point_is_no_way_out", || {
        let Some(image) = busybox_image() else {
            return println!("skipped: no static busybox");
        };
        let open = Open::new();
        let source = tempfile::tempdir().expect("a temporary folder");
        std::fs::set_permissions(source.path(), std::fs::Permissions::from_mode(0o755))
            .expect("chmod");
        std::fs::write(source.path().join("here"), b"").expect("write");
        let x = image.path().join("x");
        let mut links: Vec<String> = DESCRIPTORS.map(|n| format!("/proc/self/fd/{n}")).collect();
        links.extend(["/proc/1/root", "/proc/self/root", "/proc/1/cwd"].map(str::to_owned));
        let mut said = 0;
        for link in &links {
            symlink(link, &x).expect("link");
            for target in ["/x/P", "/x/P/Q", "/x"] {
                said += u32::from(refuses(
                    spec(image.path(), vec![bind(source.path(), target)]),
                    &open,
                    &format!("{target}, /x -> {link}"),
                ));
            }
            std::fs::remove_file(&x).expect("remove");
        }
        assert!(said >= 3 * 24, "all that is open was tried: {said}");
        // What is mounted may hold such a link, too.
        let hostile = tempfile::tempdir().expect("a temporary folder");
        std::fs::set_permissions(hostile.path(), std::fs::Permissions::from_mode(0o755))
            .expect("chmod");
        symlink("/proc/self/fd/5", hostile.path().join("y")).expect("link");
        for image in [ImageSource::Host, ImageSource::Folder(image.path().into())] {
            let spec = SandboxSpec {
                image,
                mounts: vec![
                    bind(hostile.path(), "/mnt/h"),
                    bind(source.path(), "/mnt/h/y/P"),
                ],
                ..SandboxSpec::default()
            };
            assert!(refuses(spec, &open, "a link in a mounted folder"));
        }
        // The control: the same mounts by way of a link within the image.
        std::fs::create_dir(image.path().join("place")).expect("mkdir");
        symlink("/place", &x).expect("link");
        for target in ["/x/P", "/x/P/Q", "/x"] {
            let guest = start(spec(image.path(), vec![bind(source.path(), target)]));
            guest.ok(&format!("test -e {target}/here"));
            guest.ok(&format!("test -e {}/here", target.replace("/x", "/place")));
            guest.stop();
        }
    });
}

#[test]
fn what_a_guest_left_is_no_way_out() {
    as_root_and_user("what_a_guest_left_is_no_way_out", || {
        let open = Open::new();
        let data = tempfile::tempdir().expect("a temporary folder");
        let options = || Options {
            data: Some(data.path().to_owned()),
            ..Options::default()
        };
        let guest = support::start_with(SandboxSpec::default(), options());
        guest.ok("rm -r /opt && ln -s /proc/self/fd/5 /opt");
        guest.stop();
        let mount = bind(Path::new("/usr/bin"), "/opt/P");
        let spec = SandboxSpec {
            mounts: vec![mount],
            ..SandboxSpec::default()
        };
        let Err(error) = launch(spec, options()) else {
            panic!("it started");
        };
        assert!(text(&error).contains("a link on this path"), "{error}");
        open.assert_untouched("a guest's own /opt");
    });
}

/// Nothing of the host's lies on, above or below the guest's root, whatever kind of root that is.
#[test]
fn above_the_root_is_the_root() {
    as_root_and_user("above_the_root_is_the_root", || {
        let Some(image) = busybox_image() else {
            return println!("skipped: no static busybox");
        };
        let mut seen = Vec::new();
        for profile in [Profile::Default, Profile::Restricted] {
            for source in [ImageSource::Host, ImageSource::Folder(image.path().into())] {
                let kept = tempfile::tempdir().expect("a temporary folder");
                for data in [None, Some(kept.path().to_owned())] {
                    let spec = SandboxSpec {
                        image: source.clone(),
                        profile,
                        ..SandboxSpec::default()
                    };
                    // The second start finds what the first one kept.
                    for _ in 0..2 {
                        let options = Options {
                            data: data.clone(),
                            ..Options::default()
                        };
                        let guest = support::start_with(spec.clone(), options);
                        assert_alone(&guest);
                        seen.push(guest.facts.upper);
                        guest.stop();
                    }
                }
            }
        }
        for upper in [Upper::Folders, Upper::FoldersTmpfs, Upper::OverlayTmpfs] {
            assert!(seen.contains(&Some(upper)), "{upper:?} was tried: {seen:?}");
        }
        // The control: what is looked for is there on the host.
        assert!(Path::new("/boot").exists());
    });
}

fn assert_alone(guest: &support::Guest) {
    let upper = guest.facts.upper;
    assert_eq!(
        guest.ok("stat -c %d:%i /.. /../.. /. | sort -u | wc -l"),
        "1",
        "{upper:?}: `..` of the root"
    );
    guest.fails("ls -d /../boot || ls -d /../../boot");
    let own = guest.ok("ls -A / | sort | tr '\\n' ' '");
    assert_eq!(
        guest.ok("ls -A /.. | sort | tr '\\n' ' '"),
        own,
        "{upper:?}"
    );
    // One mount is the root, and nothing lies on it.
    let roots = guest.ok("awk '$5 == \"/\" || $5 ~ /^\\/\\.\\./' /proc/self/mountinfo | wc -l");
    assert_eq!(roots, "1", "{upper:?}: mounts at the root");
}
