//! Names of users and groups in an image's own files.

use std::path::Path;

use cosm_driver::LaunchError;

/// The ids that `name|id[:group|:id]` means by the texts of `passwd` and `group`.
///
/// A number needs no entry; without one its group is 0, as other container engines have it.
pub(crate) fn resolve(user: &str, passwd: &str, group: &str) -> Result<(u32, u32), LaunchError> {
    let (name, group_name) = user
        .split_once(':')
        .map_or((user, None), |(n, g)| (n, Some(g)));
    let number = name.parse::<u32>().ok();
    let entry = entries(passwd, 4)
        .find(|fields| fields[0] == name || number.is_some_and(|n| fields[2].parse() == Ok(n)));
    let uid = match (entry.as_ref().map(|f| f[2].parse()), number) {
        (Some(Ok(uid)), _) | (None, Some(uid)) => uid,
        _ => return Err(unknown("user", name)),
    };
    let gid = match group_name {
        None => entry.and_then(|f| f[3].parse().ok()).unwrap_or(0),
        Some(name) => match entries(group, 3)
            .find(|fields| fields[0] == name)
            .map(|f| f[2].parse())
        {
            Some(Ok(gid)) => gid,
            _ => name.parse().map_err(|_| unknown("group", name))?,
        },
    };
    Ok((uid, gid))
}

fn entries(text: &str, least: usize) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .filter(move |fields| fields.len() >= least)
}

fn unknown(kind: &str, name: &str) -> LaunchError {
    LaunchError::Invalid {
        what: format!("the image has no {kind} {}", cosm_base::text::quoted(name)),
        help: Some(format!("give the {kind}'s number")),
    }
}

/// Reads a file of a folder image without following a link out of it.
pub(crate) fn read_in(root: &Path, name: &str) -> String {
    use rustix::fs::{Mode, OFlags, ResolveFlags};
    use std::io::Read as _;
    let open = || -> std::io::Result<String> {
        let root = rustix::fs::open(
            root,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let file = rustix::fs::openat2(
            &root,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )?;
        let mut bytes = Vec::new();
        std::fs::File::from(file)
            .take(4 << 20)
            .read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    // An image without such a file has no names.
    open().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let passwd =
            "root:x:0:0::/root:/bin/sh\nann:x:1000:100::/home/ann:/bin/sh\nbroken\n7:x:9:9::/:\n";
        let group = "root:x:0:\nusers:x:100:\nwheel:x:10:ann\n";
        let ok = |user: &str| resolve(user, passwd, group).expect(user);
        assert_eq!(ok("ann"), (1000, 100));
        assert_eq!(ok("1000"), (1000, 100));
        assert_eq!(ok("1234"), (1234, 0), "never root for want of an entry");
        assert_eq!(ok("1:5"), (1, 5));
        assert_eq!(ok("ann:wheel"), (1000, 10));
        assert_eq!(ok("0"), (0, 0));
        for bad in ["bob", "ann:nogroup", "-1", "4294967296"] {
            assert!(resolve(bad, passwd, group).is_err(), "{bad}");
        }
    }
}
