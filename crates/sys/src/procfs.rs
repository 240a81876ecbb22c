//! What `/proc` says of processes.

use std::io;

/// The fields of `/proc/<pid>/stat` that are asked for here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    /// `R`, `S`, `D`, `Z` (ended but not reaped), `T`, ...
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// Clock ticks after boot at which it started: with the pid, a process's name for as long as the machine runs.
    pub start_time: u64,
}

/// Reads the text of a `stat` file. The program's name in it may hold any byte, also `)` and newlines.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let pid = std::str::from_utf8(text.get(..open)?)
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse().ok();
    Some(Stat {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}

/// What `/proc` says of a process.
///
/// # Errors
/// There is no such process (`ENOENT`, `ESRCH`).
pub fn stat(pid: i32) -> io::Result<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The inode number that names a namespace of a process: `kind` is `pid`, `user`, `mnt`, ...
///
/// # Errors
/// There is no such process or namespace, or it may not be looked at.
pub fn namespace(pid: i32, kind: &str) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(format!("/proc/{pid}/ns/{kind}"))?.ino())
}

/// The pids of all processes that `/proc` shows.
///
/// # Errors
/// `/proc` cannot be read.
pub fn pids() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        if let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            pids.push(pid);
        }
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_fields() {
        let mut text = b"42 (x) S 1 (\n) R 7 8 9".to_vec();
        for n in 0..60 {
            text.extend_from_slice(format!(" {n}").as_bytes());
        }
        let stat = parse_stat(&text).expect("a stat line");
        assert_eq!(
            (stat.pid, stat.state, stat.parent, stat.group, stat.session),
            (42, b'R', 7, 8, 9)
        );
        assert_eq!(stat.start_time, 15);
        assert_eq!(parse_stat(b"42 (x"), None);
        assert_eq!(parse_stat(b")("), None);
    }

    #[test]
    fn this_process() {
        let me = std::process::id() as i32;
        let stat = stat(me).expect("stat");
        assert_eq!(stat.pid, me);
        assert!(stat.start_time > 0);
        assert!(namespace(me, "pid").expect("namespace") > 0);
        assert!(pids().expect("pids").contains(&me));
    }
}
