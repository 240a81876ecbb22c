//! A command's environment.

use alloc::vec::Vec;

use cosm_proto::agent::Bytes;

use super::user::Identity;

/// Where commands are looked for when nobody says.
pub(super) const DEFAULT_PATH: &[u8] =
    b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Names and values, each name once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Environment(Vec<(Bytes, Bytes)>);

impl Environment {
    /// The sandbox's environment under the call's, completed with what a user's session has.
    pub(super) fn build(
        base: &[(Bytes, Bytes)],
        call: Vec<(Bytes, Bytes)>,
        user: &Identity,
        terminal: bool,
    ) -> Self {
        let mut this = Self(Vec::new());
        for (name, value) in base.iter().cloned().chain(call) {
            this.set(name, value);
        }
        this.set_default(b"PATH", DEFAULT_PATH);
        this.set_default(b"HOME", &user.home);
        this.set_default(b"USER", &user.name);
        this.set_default(b"LOGNAME", &user.name);
        this.set_default(b"SHELL", &user.shell);
        if terminal && this.get(b"TERM").is_none_or(<[u8]>::is_empty) {
            this.set(b"TERM".to_vec(), b"xterm".to_vec());
        }
        this
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|pair| pair.0 == name)
            .map(|pair| pair.1.as_slice())
    }

    fn set(&mut self, name: Bytes, value: Bytes) {
        match self.0.iter_mut().find(|pair| pair.0 == name) {
            Some(pair) => pair.1 = value,
            None => self.0.push((name, value)),
        }
    }

    fn set_default(&mut self, name: &[u8], value: &[u8]) {
        if self.get(name).is_none() && !value.is_empty() {
            self.0.push((name.to_vec(), value.to_vec()));
        }
    }

    /// `NAME=value` each; the first that can't be one is the error.
    pub(super) fn strings(self) -> Result<Vec<Bytes>, Bytes> {
        self.0
            .into_iter()
            .map(|(name, value)| {
                if name.is_empty()
                    || name.contains(&b'=')
                    || name.contains(&0)
                    || value.contains(&0)
                {
                    return Err(name);
                }
                let mut text = name;
                text.push(b'=');
                text.extend_from_slice(&value);
                Ok(text)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn pair(name: &[u8], value: &[u8]) -> (Bytes, Bytes) {
        (name.to_vec(), value.to_vec())
    }

    fn somebody() -> Identity {
        Identity {
            home: b"/home/x".to_vec(),
            name: b"x".to_vec(),
            shell: b"/bin/sh".to_vec(),
            ..Identity::default()
        }
    }

    #[test]
    fn the_call_wins_and_no_name_comes_twice() {
        let base = [pair(b"A", b"1"), pair(b"B", b"2")];
        let call = vec![pair(b"A", b"3"), pair(b"A", b"\xff")];
        let env = Environment::build(&base, call, &somebody(), false);
        assert_eq!(env.get(b"A"), Some(&b"\xff"[..]));
        let strings = env.strings().expect("fine");
        assert_eq!(
            strings
                .iter()
                .filter(|text| text.starts_with(b"A="))
                .count(),
            1
        );
        assert!(
            strings.contains(&b"HOME=/home/x".to_vec()) && strings.contains(&b"LOGNAME=x".to_vec())
        );
    }

    #[test]
    fn what_was_asked_for_stays() {
        let env = Environment::build(
            &[pair(b"HOME", b"/here")],
            vec![pair(b"USER", b"")],
            &somebody(),
            false,
        );
        assert_eq!(
            (env.get(b"HOME"), env.get(b"USER")),
            (Some(&b"/here"[..]), Some(&b""[..]))
        );
        assert_eq!(env.get(b"TERM"), None);
    }

    #[test]
    fn a_terminal_has_a_kind() {
        let term = |given: &[(Bytes, Bytes)]| {
            Environment::build(given, Vec::new(), &somebody(), true)
                .get(b"TERM")
                .map(<[u8]>::to_vec)
        };
        assert_eq!(term(&[]).as_deref(), Some(&b"xterm"[..]));
        assert_eq!(term(&[pair(b"TERM", b"")]).as_deref(), Some(&b"xterm"[..]));
        assert_eq!(
            term(&[pair(b"TERM", b"vt220")]).as_deref(),
            Some(&b"vt220"[..])
        );
    }

    #[test]
    fn what_can_not_be_a_variable_is_an_error() {
        for (name, value) in [
            (&b""[..], &b"x"[..]),
            (b"A=B", b"x"),
            (b"A\0", b"x"),
            (b"A", b"x\0"),
        ] {
            let env = Environment::build(&[], vec![pair(name, value)], &somebody(), false);
            assert_eq!(env.strings(), Err(name.to_vec()));
        }
    }
}
