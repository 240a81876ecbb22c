//! Finding the hierarchies, and this process's place in them.

use std::io;
use std::path::{Path, PathBuf};

use crate::procfs;

/// The two interfaces that the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// One hierarchy of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    pub version: Version,
    /// v1: the controllers it is mounted with. v2: those that are there for groups of its top.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub top: PathBuf,
    /// The folder of this process's own group.
    pub own: PathBuf,
}

/// All hierarchies of this machine that can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    pub hierarchies: Vec<Hierarchy>,
}

impl Layout {
    /// Looks at `/proc`.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn find() -> io::Result<Self> {
        let mounts = procfs::read_text("/proc/self/mountinfo")?;
        let groups = procfs::read_text("/proc/self/cgroup")?;
        let mut layout = Self::read(&mounts, &groups);
        for hierarchy in layout
            .hierarchies
            .iter_mut()
            .filter(|h| h.version == Version::V2)
        {
            let controllers = procfs::read_text(hierarchy.top.join("cgroup.controllers"));
            hierarchy.controllers = controllers
                .unwrap_or_default()
                .split_ascii_whitespace()
                .map(str::to_owned)
                .collect();
        }
        Ok(layout)
    }

    fn read(mounts: &str, groups: &str) -> Self {
        let hierarchies = mounts
            .lines()
            .filter_map(|line| hierarchy(line, groups))
            .collect();
        Self { hierarchies }
    }

    /// The v1 hierarchy of a controller.
    pub fn v1(&self, controller: &str) -> Option<&Hierarchy> {
        let has = |h: &&Hierarchy| {
            h.version == Version::V1 && h.controllers.iter().any(|c| c == controller)
        };
        self.hierarchies.iter().find(has)
    }

    /// The v2 hierarchy, if memory is bounded there: the one of a hybrid layout has only what v1 leaves over.
    pub fn v2(&self) -> Option<&Hierarchy> {
        self.hierarchies
            .iter()
            .find(|h| h.version == Version::V2 && h.controllers.iter().any(|c| c == "memory"))
    }

    /// `v1`, `v2`, `hybrid` or `none`.
    pub fn name(&self) -> &'static str {
        let has = |version| self.hierarchies.iter().any(|h| h.version == version);
        match (has(Version::V1), has(Version::V2)) {
            (true, true) => "hybrid",
            (true, false) => "v1",
            (false, true) => "v2",
            (false, false) => "none",
        }
    }
}

/// One line of `mountinfo`, where it is of a cgroup file system.
fn hierarchy(line: &str, groups: &str) -> Option<Hierarchy> {
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    let version = match right.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let mut left = left.split(' ').skip(3);
    let (root, top) = (
        unescape(left.next()?),
        PathBuf::from(unescape(left.next()?)),
    );
    let options: Vec<&str> = right.nth(1)?.split(',').collect();
    let own = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mine = match version {
            Version::V2 => number == "0",
            Version::V1 => number != "0" && names.split(',').all(|name| options.contains(&name)),
        };
        mine.then_some(path)
    })?;
    // A container may see only its own part of the hierarchy mounted.
    let below = own
        .strip_prefix(root.trim_end_matches('/'))
        .unwrap_or(own)
        .trim_start_matches('/');
    let own = if below.is_empty() {
        top.clone()
    } else {
        top.join(below)
    };
    let controllers = match version {
        Version::V1 => options
            .iter()
            .filter(|o| !matches!(**o, "rw" | "ro"))
            .map(|o| (*o).to_owned())
            .collect(),
        Version::V2 => Vec::new(),
    };
    Some(Hierarchy {
        version,
        controllers,
        top,
        own,
    })
}

/// `mountinfo` writes blanks and backslashes in octal.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

impl Hierarchy {
    /// Whether this process may make groups below `folder`.
    pub fn may_make_in(folder: &Path) -> bool {
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_machine() {
        let mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
            35 31 0:32 /docker/x /sys/fs/cgroup/mem\\040ory rw shared:9 - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        let groups =
            "4:memory:/docker/x/y\n2:cpu,cpuacct:/\n1:name=systemd:/a\n0::/user.slice/a:b\n";
        let layout = Layout::read(mounts, groups);
        assert_eq!(layout.name(), "hybrid");
        assert_eq!(
            layout.v1("cpuacct").expect("there").own,
            Path::new("/sys/fs/cgroup/cpu,cpuacct")
        );
        assert_eq!(
            layout.v1("memory").expect("there").own,
            Path::new("/sys/fs/cgroup/mem ory/y")
        );
        assert_eq!(layout.v1("pids"), None);
        assert_eq!(
            layout.hierarchies[2].own,
            Path::new("/sys/fs/cgroup/unified/user.slice/a:b")
        );
        assert_eq!(layout.v2(), None, "it has no memory controller");
    }
}
