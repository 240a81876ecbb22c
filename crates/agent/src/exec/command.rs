//! A request, checked and resolved as far as can be without being the command.

use alloc::vec::Vec;

use cosm_proto::agent::{Bytes, ExecStart, Rlimit, SpawnFailure, SpawnReason, Stdio};
use cosm_sys_guest::CString;

use super::environment::{DEFAULT_PATH, Environment};
use super::user::Identity;
use super::{failure, wrong};
use crate::boot::Guest;

/// A command that can be tried.
#[derive(Debug)]
pub(super) struct Command {
    /// Where the program may be, in the order of the search.
    pub(super) candidates: Vec<CString>,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: CString,
    pub(super) user: Identity,
    /// The user as it was asked for, to speak of.
    pub(super) user_text: Bytes,
    pub(super) rlimits: Vec<Rlimit>,
}

impl Command {
    pub(super) fn resolve(guest: &Guest, start: ExecStart) -> Result<Self, SpawnFailure> {
        let boot = &guest.boot;
        let Some(program) = start.argv.first().cloned() else {
            return Err(wrong(SpawnReason::BadRequest, b""));
        };
        if program.is_empty() {
            return Err(wrong(SpawnReason::NotFound, b""));
        }
        let asked = start.user.as_deref().or(boot.user.as_deref());
        let user = Identity::find(asked, boot.fixed_user)
            .map_err(|errno| failure(SpawnReason::BadUser, errno, asked.unwrap_or_default()))?;
        let terminal = matches!(start.stdio, Stdio::Terminal { .. });
        let env = Environment::build(&boot.env, start.env, &user, terminal);
        let candidates = candidates(&program, env.get(b"PATH").unwrap_or(DEFAULT_PATH));
        let env = env
            .strings()
            .map_err(|name| wrong(SpawnReason::BadRequest, &name))?;
        let cwd = start.cwd.unwrap_or_else(|| boot.workdir.clone());
        Ok(Self {
            candidates: strings(candidates)?,
            argv: strings(start.argv)?,
            env: strings(env)?,
            cwd: strings(Vec::from([cwd]))?.pop().unwrap_or_default(),
            user_text: asked.unwrap_or_default().to_vec(),
            user,
            rlimits: limits(&boot.rlimits, start.rlimits),
        })
    }

    /// The program as it was asked for.
    pub(super) fn program(&self) -> &[u8] {
        self.argv.first().map_or(&[], |program| program.to_bytes())
    }
}

/// The call's limits over the sandbox's.
fn limits(base: &[Rlimit], call: Vec<Rlimit>) -> Vec<Rlimit> {
    let kept = base
        .iter()
        .filter(|limit| !call.iter().any(|own| own.kind == limit.kind))
        .copied();
    let mut all: Vec<Rlimit> = kept.collect();
    all.extend(call);
    all
}

/// A name with a slash is a path; others are looked for in each folder of PATH, where an empty one is the working
/// directory.
fn candidates(program: &[u8], path: &[u8]) -> Vec<Bytes> {
    if program.contains(&b'/') {
        return Vec::from([program.to_vec()]);
    }
    path.split(|byte| *byte == b':')
        .map(|folder| {
            let mut full = if folder.is_empty() {
                b".".to_vec()
            } else {
                folder.to_vec()
            };
            full.push(b'/');
            full.extend_from_slice(program);
            full
        })
        .collect()
}

fn strings(list: Vec<Bytes>) -> Result<Vec<CString>, SpawnFailure> {
    list.into_iter()
        .map(|text| {
            CString::new(text).map_err(|error| wrong(SpawnReason::BadRequest, &error.into_vec()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cosm_proto::agent::RlimitKind;
    use std::vec;

    #[test]
    fn the_search_goes_by_path() {
        assert_eq!(
            candidates(b"a", b"/x::/y"),
            [b"/x/a".to_vec(), b"./a".to_vec(), b"/y/a".to_vec()]
        );
        assert_eq!(candidates(b"./a", b"/x"), [b"./a".to_vec()]);
    }

    #[test]
    fn a_nul_is_refused_with_its_text() {
        let refused = strings(vec![b"ok".to_vec(), b"a\0b".to_vec()]).expect_err("a NUL");
        assert_eq!(
            (refused.reason, refused.subject),
            (SpawnReason::BadRequest, b"a\0b".to_vec())
        );
    }

    #[test]
    fn the_calls_limits_win() {
        let limit = |kind, soft| Rlimit {
            kind,
            soft,
            hard: 9,
        };
        let base = [limit(RlimitKind::Core, 1), limit(RlimitKind::Cpu, 2)];
        let merged = limits(&base, vec![limit(RlimitKind::Core, 3)]);
        assert_eq!(
            merged,
            [limit(RlimitKind::Cpu, 2), limit(RlimitKind::Core, 3)]
        );
    }
}
