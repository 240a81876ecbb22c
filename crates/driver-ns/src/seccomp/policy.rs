//! Reading the policy.

/// What happens to a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Allow,
    /// It fails with this error.
    Fail(u16),
    /// It is allowed unless bits of its first argument are set.
    UnlessFlags(u32),
    /// It is allowed for certain address families.
    Socket,
    /// It is allowed for certain values of its first argument.
    OneOf(&'static [u32]),
    /// It is allowed unless its second argument is one of these values.
    NoneOf(&'static [u32]),
}

/// A system call and what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub number: u32,
    pub action: Action,
}

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("line {0} names no system call that has a number")]
    UnknownCall(usize),
    #[error("line {0} comes before the first group")]
    NoGroup(usize),
    #[error("line {0} filters a call that has no filter")]
    NoFilter(usize),
    #[error("the compiled filter is too long")]
    TooLong,
}

pub(super) const ENOSYS: u16 = 38;
pub(super) const EPERM: u16 = 1;

/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
/// CLONE_NEWTIME, which `clone` takes for a part of the signal's number.
const NEW_TIME: u32 = 0x80;

#[derive(Clone, Copy)]
enum Group {
    Allow,
    Filter,
    Absent,
}

/// Reads the policy's text with the table of numbers. Rules are sorted by number.
pub(super) fn read(policy: &str, numbers: &str, io_uring: bool) -> Result<Vec<Rule>, PolicyError> {
    let column = if cfg!(target_arch = "x86_64") { 1 } else { 2 };
    let mut table: Vec<(&str, Option<u32>)> = numbers
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let name = fields.next()?;
            Some((name, fields.nth(column - 1)?.parse().ok()))
        })
        .collect();
    table.sort_unstable();
    let mut group = None;
    let mut rules = Vec::with_capacity(table.len());
    for (index, line) in policy.lines().enumerate() {
        let place = index + 1;
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        if line.contains('[') {
            group = match line.split(' ').next() {
                Some("allow") => Some(Group::Allow),
                Some("filter") => Some(Group::Filter),
                Some("absent") => Some(Group::Absent),
                _ => return Err(PolicyError::NoGroup(place)),
            };
            continue;
        }
        let group = group.ok_or(PolicyError::NoGroup(place))?;
        for name in line.split_ascii_whitespace() {
            let entry = table
                .binary_search_by_key(&name, |(name, _)| name)
                .map_err(|_| PolicyError::UnknownCall(place))?;
            let Some((_, Some(number))) = table.get(entry) else {
                continue;
            };
            let action = match group {
                Group::Allow => Action::Allow,
                Group::Absent if io_uring && name.starts_with("io_uring_") => Action::Allow,
                Group::Absent => Action::Fail(ENOSYS),
                Group::Filter => filter(name).ok_or(PolicyError::NoFilter(place))?,
            };
            rules.push(Rule {
                number: *number,
                action,
            });
        }
    }
    rules.sort_unstable_by_key(|rule| rule.number);
    Ok(rules)
}

fn filter(name: &str) -> Option<Action> {
    Some(match name {
        "clone" => Action::UnlessFlags(NEW_NAMESPACES),
        "unshare" => Action::UnlessFlags(NEW_NAMESPACES | NEW_TIME),
        "socket" => Action::Socket,
        // PER_LINUX, PER_LINUX32, UNAME26, both, ADDR_NO_RANDOMIZE (debuggers), and asking.
        "personality" => Action::OneOf(&[0, 8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff]),
        // TIOCSTI and TIOCLINUX.
        "ioctl" => Action::NoneOf(&[0x5412, 0x541c]),
        _ => return None,
    })
}
