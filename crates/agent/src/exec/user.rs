//! Users and groups, as the guest's own files have them.
//!
//! The rules are those people know from `docker run --user`: `name`, `id`, `name:group`, `id:gid`; a name is looked
//! for before a number is read; an id that no line names is taken as it is, with group 0.

use alloc::vec::Vec;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getgid, getuid};

use crate::text::number;

/// A file larger than this is no list of users.
const MAX_FILE: usize = 4 << 20;

/// Whom a command runs as.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups.
    pub(crate) groups: Vec<u32>,
    pub(crate) name: Vec<u8>,
    pub(crate) home: Vec<u8>,
    pub(crate) shell: Vec<u8>,
    /// Whether this is to be set; else the agent's own ids are these already and can't be changed.
    pub(crate) change: bool,
}

/// What a guest says of its users.
#[derive(Debug, Clone, Copy)]
pub(super) struct Databases<'a> {
    pub(super) passwd: &'a [u8],
    pub(super) group: &'a [u8],
}

impl Identity {
    /// Finds out who that is. `fixed` says that the agent can't change its ids.
    ///
    /// # Errors
    /// `ENOENT` for a name that is not there, `EINVAL` for an impossible one, `EPERM` for another than the fixed one.
    pub(crate) fn find(who: Option<&[u8]>, fixed: bool) -> Result<Self, Errno> {
        let (passwd, group) = (file(b"/etc/passwd"), file(b"/etc/group"));
        let databases = Databases {
            passwd: &passwd,
            group: &group,
        };
        let current = (getuid().as_raw(), getgid().as_raw());
        Self::resolve(who, fixed.then_some(current), databases)
    }

    pub(super) fn resolve(
        who: Option<&[u8]>,
        fixed: Option<(u32, u32)>,
        files: Databases<'_>,
    ) -> Result<Self, Errno> {
        let (user, group) = match who {
            None => (None, None),
            Some(who) => split(who)?,
        };
        let (line, uid) = files.user(user, fixed)?;
        let group = group.map(|group| files.group(group)).transpose()?;
        if fixed.is_some_and(|fixed| uid != fixed.0 || group.is_some_and(|gid| gid != fixed.1)) {
            return Err(Errno::PERM);
        }
        let gid = match (group, fixed, &line) {
            (Some(gid), _, _) => gid,
            (None, Some(fixed), _) => fixed.1,
            (None, None, Some(line)) => line.gid,
            (None, None, None) => 0,
        };
        // As with docker, naming a group means that group and no others.
        let groups = match (&line, group) {
            (Some(line), None) => files.groups_of(line.name, gid),
            _ => Vec::from([gid]),
        };
        let or = |text: Option<&[u8]>, other: &[u8]| {
            text.filter(|text| !text.is_empty())
                .unwrap_or(other)
                .to_vec()
        };
        Ok(Self {
            uid,
            gid,
            groups,
            name: line
                .as_ref()
                .map_or_else(|| crate::text::digits(uid), |line| line.name.to_vec()),
            home: or(
                line.as_ref().map(|line| line.home),
                if uid == 0 { b"/root" } else { b"/" },
            ),
            shell: or(line.as_ref().map(|line| line.shell), b"/bin/sh"),
            change: fixed.is_none(),
        })
    }

    /// Becomes it, for good.
    ///
    /// # Errors
    /// `EPERM` without the right to; `EINVAL` for an id that is not mapped in this guest.
    pub(crate) fn assume(&self) -> rustix::io::Result<()> {
        if !self.change {
            return Ok(());
        }
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)
    }
}

/// A missing or unreadable file names nobody.
fn file(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = crate::procs::read(path, &mut bytes);
    if read.is_err() || bytes.len() > MAX_FILE {
        bytes.clear();
    }
    bytes
}

type Halves<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// `user`, `user:group` or `:group`.
fn split(who: &[u8]) -> Result<Halves<'_>, Errno> {
    let mut halves = who.splitn(2, |byte| *byte == b':');
    let user = halves.next().filter(|user| !user.is_empty());
    match halves.next() {
        None if user.is_none() => Err(Errno::INVAL),
        Some(b"") => Err(Errno::INVAL),
        group => Ok((user, group)),
    }
}

/// A line of passwd.
struct Line<'a> {
    name: &'a [u8],
    uid: u32,
    gid: u32,
    home: &'a [u8],
    shell: &'a [u8],
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let (uid, gid) = (number(fields.nth(1)?)?, number(fields.next()?)?);
        let home = fields.nth(1).unwrap_or_default();
        Some(Self {
            name,
            uid,
            gid,
            home,
            shell: fields.next().unwrap_or_default(),
        })
    }
}

fn lines(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    file.split(|byte| *byte == b'\n')
}

impl<'a> Databases<'a> {
    fn users(&self) -> impl Iterator<Item = Line<'a>> + use<'a> {
        lines(self.passwd).filter_map(Line::parse)
    }

    fn user(
        &self,
        user: Option<&[u8]>,
        fixed: Option<(u32, u32)>,
    ) -> Result<(Option<Line<'a>>, u32), Errno> {
        if let Some(user) = user
            && let Some(line) = self.users().find(|line| line.name == user)
        {
            let uid = line.uid;
            return Ok((Some(line), uid));
        }
        let uid = match user {
            None => fixed.map_or(0, |fixed| fixed.0),
            Some(user) => id(user)?,
        };
        Ok((self.users().find(|line| line.uid == uid), uid))
    }

    fn group(&self, group: &[u8]) -> Result<u32, Errno> {
        let named = lines(self.group).find_map(|line| {
            let mut fields = line.split(|byte| *byte == b':');
            (fields.next()? == group)
                .then(|| number(fields.nth(1)?))
                .flatten()
        });
        named.map_or_else(|| id(group), Ok)
    }

    /// The groups that list this user as a member, its own first.
    fn groups_of(&self, user: &[u8], own: u32) -> Vec<u32> {
        let mut groups = Vec::from([own]);
        for line in lines(self.group) {
            let mut fields = line.split(|byte| *byte == b':');
            let Some(gid) = fields.nth(2).and_then(number) else {
                continue;
            };
            let members = fields.next().unwrap_or_default();
            if members
                .split(|byte| *byte == b',')
                .any(|member| member == user)
                && !groups.contains(&gid)
            {
                groups.push(gid);
            }
        }
        groups
    }
}

/// A numeric id. The kernel's "leave as it is" is nobody's id, and a number that does not fit is not cut.
fn id(text: &[u8]) -> Result<u32, Errno> {
    if !text.iter().all(u8::is_ascii_digit) {
        return Err(Errno::NOENT);
    }
    number(text)
        .filter(|id| *id != u32::MAX)
        .ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const FILES: Databases<'static> = Databases {
        passwd: b"root:x:0:0:root:/root:/bin/bash\n# not a line\nbroken:x:zero:0::/:\nann:x:1000:1001:Ann:/home/ann:/bin/zsh\n7:x:70:71::/seven:\nbare:x:5:5\n",
        group: b"root:x:0:\nwheel:x:10:root,ann\naudio:x:29:ann\nann:x:1001:\nanna:x:30:anna\nbad:x:y:ann\n",
    };

    fn who(text: &[u8]) -> Result<(u32, u32, Vec<u32>), Errno> {
        Identity::resolve(Some(text), None, FILES).map(|found| (found.uid, found.gid, found.groups))
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!(who(b"root"), Ok((0, 0, vec![0, 10])));
        assert_eq!(who(b"ann"), Ok((1000, 1001, vec![1001, 10, 29])));
        assert_eq!(who(b"1000"), who(b"ann"));
        assert_eq!(
            who(b"7"),
            Ok((70, 71, vec![71])),
            "a name made of digits is a name first"
        );
        assert_eq!(
            who(b"1"),
            Ok((1, 0, vec![0])),
            "an id that nobody has is itself, and never root"
        );
        assert_eq!(who(b"4294967294"), Ok((u32::MAX - 1, 0, vec![0])));
    }

    #[test]
    fn groups() {
        assert_eq!(who(b"ann:audio"), Ok((1000, 29, vec![29])));
        assert_eq!(who(b"ann:5"), Ok((1000, 5, vec![5])));
        assert_eq!(who(b":wheel"), Ok((0, 10, vec![10])));
    }

    #[test]
    fn nobody() {
        assert_eq!(who(b"eve"), Err(Errno::NOENT));
        assert_eq!(who(b"broken"), Err(Errno::NOENT));
        assert_eq!(who(b"ann:eve"), Err(Errno::NOENT));
        assert_eq!(who(b"-1"), Err(Errno::NOENT));
        for wrong in [
            &b""[..],
            b"ann:",
            b"4294967295",
            b"4294967296",
            b"99999999999999999999",
        ] {
            assert_eq!(who(wrong), Err(Errno::INVAL), "{wrong:?}");
        }
    }

    #[test]
    fn a_home_and_a_shell() {
        let of = |text: &[u8]| Identity::resolve(Some(text), None, FILES).expect("known");
        assert_eq!(
            (of(b"ann").home, of(b"ann").shell),
            (b"/home/ann".to_vec(), b"/bin/zsh".to_vec())
        );
        assert_eq!(
            (of(b"7").name, of(b"7").shell),
            (b"7".to_vec(), b"/bin/sh".to_vec())
        );
        assert_eq!(
            (of(b"33").name, of(b"33").home),
            (b"33".to_vec(), b"/".to_vec())
        );
        assert_eq!(of(b"bare").home, b"/");
        let nobody = Identity::resolve(
            None,
            None,
            Databases {
                passwd: b"",
                group: b"",
            },
        )
        .expect("root needs no file");
        assert_eq!(
            (nobody.uid, nobody.home, nobody.name),
            (0, b"/root".to_vec(), b"0".to_vec())
        );
    }

    #[test]
    fn fixed_ids_take_no_other() {
        let fixed = |who: Option<&[u8]>| {
            Identity::resolve(who, Some((1000, 1000)), FILES).map(|found| (found.uid, found.gid))
        };
        assert_eq!(fixed(None), Ok((1000, 1000)));
        assert_eq!(fixed(Some(b"1000")), Ok((1000, 1000)));
        assert_eq!(fixed(Some(b"ann:1000")), Ok((1000, 1000)));
        assert_eq!(fixed(Some(b"root")), Err(Errno::PERM));
        assert_eq!(fixed(Some(b"ann:audio")), Err(Errno::PERM));
    }
}
