//! Where file systems can't be stacked, as in a container whose own files are an overlay: the image is copied instead.

mod support;

use std::path::PathBuf;
use std::process::Command;

use cosm_driver::{Driver as _, Upper};
use cosm_spec::{ImageSource, SandboxSpec};
use support::{Options, busybox_image, is_root, start_with};

const PLACE: &str = "COSM_TEST_STACKED";

/// Runs an ignored test in a mount namespace in which `script` went first, in a folder of its own with an image in it.
fn where_stacked(name: &str, script: &str) {
    if !is_root() {
        return println!("skipped: only root can lay an overlay over a folder of the host");
    }
    let Some(image) = busybox_image() else {
        return println!("skipped: no static busybox");
    };
    let script = format!(
        "cd {} && {script} && exec {} --exact {name} --ignored --nocapture",
        image.path().display(),
        std::env::current_exe()
            .expect("this program's path")
            .display()
    );
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-ec", &script])
        .env(PLACE, image.path())
        .output();
    match output {
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

fn place(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(PLACE).expect("run by where_stacked")).join(name)
}

/// A tmpfs holds all, since the host's own files may be an overlay already.
const OVERLAY: &str = "mkdir -p t && mount -t tmpfs t t && mkdir t/up t/work t/low t/merged && cp -a bin etc root tmp t/low && \
    mount -t overlay o -o lowerdir=t/low,upperdir=t/up,workdir=t/work t/merged && mkdir -m 700 t/merged/data";

#[test]
fn what_is_kept_on_an_overlay_is_a_copy() {
    where_stacked("kept_on_an_overlay", OVERLAY);
}

#[test]
#[ignore = "run by what_is_kept_on_an_overlay_is_a_copy"]
fn kept_on_an_overlay() {
    let data = place("t/merged/data");
    let spec = || SandboxSpec {
        image: ImageSource::Folder(place("t/low").into()),
        ..SandboxSpec::default()
    };
    let options = || Options {
        data: Some(data.clone()),
        ..Options::default()
    };
    let guest = start_with(spec(), options());
    assert_eq!(guest.facts.upper, Some(Upper::Copy));
    assert_eq!(
        guest.ok("cat /etc/kept; stat -c %u:%g /etc/kept /; readlink /bin/cat"),
        "of the image\n0:0\n0:0\nbusybox"
    );
    guest.ok("echo changed > /etc/kept; rm /bin/vi; touch /others; chown 1000:1000 /others");
    guest.stop();
    assert_eq!(
        std::fs::read_to_string(place("t/low/etc/kept")).expect("kept"),
        "of the image\n"
    );
    let guest = start_with(spec(), options());
    assert_eq!(
        guest.ok("cat /etc/kept; stat -c %u /others; ls /bin/vi 2>/dev/null | wc -l"),
        "changed\n1000\n0"
    );
    let ids = guest.facts.ids.clone();
    guest.stop();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime
        .block_on(cosm_driver_ns::NsDriver::new().remove_tree(&data.join("copy"), ids.as_ref()))
        .expect("removed");
}

#[test]
fn an_image_on_stacked_overlays_is_copied() {
    let twice = "mkdir -p t/two && mount -t tmpfs t t/two && mkdir t/two/up t/two/work t/merged2 && \
        mount -t overlay o -o lowerdir=t/merged,upperdir=t/two/up,workdir=t/two/work t/merged2";
    where_stacked("on_stacked_overlays", &format!("{OVERLAY} && {twice}"));
}

#[test]
#[ignore = "run by an_image_on_stacked_overlays_is_copied"]
fn on_stacked_overlays() {
    let spec = SandboxSpec {
        image: ImageSource::Folder(place("t/merged2").into()),
        ..SandboxSpec::default()
    };
    let guest = start_with(spec.clone(), Options::default());
    assert_eq!(guest.facts.upper, Some(Upper::CopyTmpfs));
    guest.ok("test $(cat /etc/kept | wc -w) = 3 && echo changed > /etc/kept");
    guest.stop();
    let kept = std::fs::read_to_string(place("t/merged2/etc/kept")).expect("kept");
    assert_eq!(kept, "of the image\n");
}
