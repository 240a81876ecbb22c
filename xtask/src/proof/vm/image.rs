//! The machine's root file system, kernel and initial file system: made once, and again when the recipe changes.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::tools::{self, bound, run};
use super::super::{Ground, ProofError};

const ESSENTIAL: &str = include_str!("essential.sh");
const CUSTOMIZE: &str = include_str!("customize.sh");

/// What the machine has beyond the smallest Debian.
const INCLUDE: &str = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,uidmap,procps,kmod,python3,\
                       linux-image-cloud-amd64";

/// Half a minute with a near mirror.
const TIME_BOX: Duration = Duration::from_secs(600);

/// Room for the packages (370 MiB) and for what the proof writes.
const ROOT_MIB: u32 = 1536;

/// The files that the machine boots from.
pub(super) struct Image {
    pub(super) root: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
}

impl Image {
    /// The image in the cache, made now where it is not there.
    pub(super) fn of(ground: &Ground) -> Result<Self, ProofError> {
        let suite = ground.debian_suite()?;
        let mut recipe = DefaultHasher::new();
        (ESSENTIAL, CUSTOMIZE, INCLUDE, ROOT_MIB).hash(&mut recipe);
        let folder = ground
            .cache
            .join(format!("v2-{suite}-{:016x}", recipe.finish()));
        if !folder.exists() {
            let started = Instant::now();
            make(&suite, &folder)?;
            println!(
                "v2: made the machine's image in {:.1} s",
                started.elapsed().as_secs_f64()
            );
        }
        Ok(Self {
            root: folder.join("root.ext4"),
            kernel: folder.join("vmlinuz"),
            initrd: folder.join("initrd"),
        })
    }
}

/// Makes the image beside its place and then puts it there: what is there is whole.
fn make(suite: &str, folder: &Path) -> Result<(), ProofError> {
    let unfinished = folder.with_extension(format!("tmp-{}", std::process::id()));
    let root = unfinished.join("root");
    let image = unfinished.join("image");
    tools::folder(&image)?;
    let made = bootstrap(suite, &unfinished, &root).and_then(|()| {
        for name in ["vmlinuz", "initrd"] {
            tools::rename(&root.join(name), &image.join(name))?;
        }
        ext4(&root, &image.join("root.ext4"), ROOT_MIB)?;
        tools::rename(&image, folder)
    });
    let swept = fs::remove_dir_all(&unfinished);
    made?;
    swept.map_err(|source| ProofError::File {
        path: unfinished,
        source,
    })
}

fn bootstrap(suite: &str, scratch: &Path, root: &Path) -> Result<(), ProofError> {
    let mut mmdebstrap = bound("mmdebstrap");
    mmdebstrap.args([
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
    ]);
    mmdebstrap.arg(format!("--include={INCLUDE}"));
    for (hook, script) in [("essential", ESSENTIAL), ("customize", CUSTOMIZE)] {
        let path = scratch.join(hook);
        tools::write(&path, script, 0o755)?;
        mmdebstrap.arg(format!("--{hook}-hook={} \"$1\"", path.display()));
    }
    mmdebstrap.arg(suite).arg(root);
    run(&mut mmdebstrap, TIME_BOX)?;
    Ok(())
}

/// Packs a folder into a file system.
pub(super) fn ext4(content: &Path, image: &Path, mib: u32) -> Result<(), ProofError> {
    let mut mkfs = bound("mkfs.ext4");
    mkfs.args(["-q", "-O", "^has_journal", "-m", "0", "-d"])
        .arg(content)
        .arg(image)
        .arg(format!("{mib}M"));
    run(&mut mkfs, Duration::from_secs(120))?;
    Ok(())
}
