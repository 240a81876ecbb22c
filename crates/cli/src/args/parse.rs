//! Reading single values of the command line and of settings files. Pure functions.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use cosm_base::units::{ByteSize, UnitError, parse_duration};
use cosm_base::{
    ByteString, SandboxName,
    name::NameError,
    text::{printable, quoted},
};
use cosm_spec::{Device, Limit, Mount, MountSource, Rlimit, RlimitName, UnknownRlimit};

use super::sandbox::MountArg;
use crate::detach::{Keys, KeysError};

/// Why a value can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error(transparent)]
    Rlimit(#[from] UnknownRlimit),
    #[error("write {0}")]
    Form(&'static str),
    #[error("{} is not a number", quoted(.0))]
    Number(String),
    #[error("{} is not a signal: write a number from 1 to 64, or a name such as TERM", quoted(.0))]
    Signal(String),
    #[error("{} holds an empty path", quoted(.0))]
    EmptyPath(String),
    #[error("{} is none of {}", quoted(.0), .1)]
    Choice(String, String),
    #[error("{}: the part after the last ':' is ro or rw", quoted(.0))]
    Access(String),
}

/// Makes a reader of [`OsString`]s a value parser.
pub(crate) fn os<T, F>(read: F) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
    F: Fn(OsString) -> Result<T, ValueError> + Clone + Send + Sync + 'static,
{
    OsStringValueParser::new().try_map(read)
}

/// A time.
pub(crate) fn duration(text: &str) -> Result<Duration, UnitError> {
    parse_duration(text)
}

/// A sandbox's name.
pub(crate) fn name(text: &str) -> Result<SandboxName, NameError> {
    text.parse()
}

/// Keys that detach.
pub(crate) fn detach_keys(text: &str) -> Result<Keys, KeysError> {
    text.parse()
}

fn limit<T: FromStr>(text: &str, bad: impl FnOnce() -> ValueError) -> Result<Limit<T>, ValueError> {
    if text.eq_ignore_ascii_case("unlimited") {
        return Ok(Limit::Unlimited);
    }
    text.parse().map(Limit::At).map_err(|_| bad())
}

/// A size, or `unlimited`.
pub(crate) fn size_limit(text: &str) -> Result<Limit<ByteSize>, ValueError> {
    limit(text, || UnitError::Size(text.to_owned()).into())
}

/// A number of processors, or `unlimited`.
pub(crate) fn cpu_limit(text: &str) -> Result<Limit<f64>, ValueError> {
    limit(text, || ValueError::Number(text.to_owned()))
}

/// A number, or `unlimited`.
pub(crate) fn count_limit(text: &str) -> Result<Limit<u64>, ValueError> {
    limit(text, || ValueError::Number(text.to_owned()))
}

/// `NAME=VALUE`, or `NAME`.
pub(crate) fn env(text: OsString) -> Result<(ByteString, Option<ByteString>), ValueError> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|b| *b == b'=') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    if name.is_empty() {
        return Err(ValueError::Form("NAME=VALUE or NAME"));
    }
    Ok((name.into(), value.map(Into::into)))
}

/// `KEY=VALUE`.
pub(crate) fn label(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(ValueError::Form("KEY=VALUE")),
    }
}

/// `KEY`, or `KEY=VALUE`.
pub(crate) fn label_filter(text: &str) -> Result<(String, Option<String>), ValueError> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (text, None),
    };
    if key.is_empty() {
        return Err(ValueError::Form("KEY or KEY=VALUE"));
    }
    Ok((key.to_owned(), value))
}

/// `NAME=FILE`.
pub(crate) fn script(text: OsString) -> Result<(String, PathBuf), ValueError> {
    let form = ValueError::Form("NAME=FILE");
    let (name, file) = split_at(text.as_bytes(), b'=').ok_or(form.clone())?;
    let name = std::str::from_utf8(name).map_err(|_| form.clone())?;
    if name.is_empty() || file.is_empty() {
        return Err(form);
    }
    Ok((name.to_owned(), path(file)))
}

/// `SRC`, `SRC:DST`, `SRC:ro|rw` or `SRC:DST:ro|rw`.
pub(crate) fn mount(text: OsString) -> Result<MountArg, ValueError> {
    let bytes = text.as_bytes();
    let shown = || printable(bytes);
    let (places, read_only) = match bytes.rsplitn(2, |b| *b == b':').collect::<Vec<_>>()[..] {
        [b"ro", places] => (places, true),
        [b"rw", places] => (places, false),
        _ => (bytes, true),
    };
    let parts: Vec<&[u8]> = places.split(|b| *b == b':').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(ValueError::EmptyPath(shown()));
    }
    let (source, target) = match parts[..] {
        [source] => (source, None),
        [source, target] => (source, Some(target.into())),
        [_, _, _] => return Err(ValueError::Access(shown())),
        _ => return Err(ValueError::Form("PATH, SRC:DST or SRC:DST:rw")),
    };
    Ok(MountArg {
        source: path(source),
        target,
        read_only,
    })
}

/// `PATH` or `PATH:SIZE`.
pub(crate) fn tmpfs(text: OsString) -> Result<Mount, ValueError> {
    let bytes = text.as_bytes();
    let (target, size) = match split_at(bytes, b':') {
        None => (bytes, None),
        Some((target, size)) => {
            let size = String::from_utf8_lossy(size);
            (target, Some(size.parse()?))
        }
    };
    if target.is_empty() {
        return Err(ValueError::EmptyPath(printable(bytes)));
    }
    Ok(Mount {
        target: target.into(),
        source: MountSource::Tmpfs { size, mode: None },
        read_only: false,
    })
}

/// `SRC` or `SRC:DST`.
pub(crate) fn device(text: OsString) -> Result<Device, ValueError> {
    let bytes = text.as_bytes();
    let (source, target) = split_at(bytes, b':').unwrap_or((bytes, bytes));
    if source.is_empty() || target.is_empty() {
        return Err(ValueError::EmptyPath(printable(bytes)));
    }
    Ok(Device {
        source: source.into(),
        target: target.into(),
    })
}

/// `NAME=SOFT[:HARD]`.
pub(crate) fn rlimit(text: &str) -> Result<Rlimit, ValueError> {
    let (name, limits) = text
        .split_once('=')
        .ok_or(ValueError::Form("NAME=SOFT or NAME=SOFT:HARD"))?;
    let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
    rlimit_of(name, soft, hard)
}

/// A limit of its three parts.
pub(crate) fn rlimit_of(name: &str, soft: &str, hard: &str) -> Result<Rlimit, ValueError> {
    let number = |text: &str| match text {
        "unlimited" => Ok(u64::MAX),
        _ => text
            .parse()
            .or_else(|_| text.parse::<ByteSize>().map(|size| size.0))
            .map_err(|_| ValueError::Number(text.to_owned())),
    };
    Ok(Rlimit {
        name: name.parse::<RlimitName>()?,
        soft: number(soft)?,
        hard: number(hard)?,
    })
}

const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// A signal by its number or its name, with or without `SIG`.
pub(crate) fn signal(text: &str) -> Result<i32, ValueError> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = SIGNALS.iter().position(|known| *known == name);
    match (known, text.parse::<i32>()) {
        (Some(at), _) => Ok(at as i32 + 1),
        (None, Ok(number)) if (1..=64).contains(&number) => Ok(number),
        _ => Err(ValueError::Signal(text.to_owned())),
    }
}

fn split_at(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    use proptest::prelude::*;

    fn bind(source: &str, target: Option<&str>, read_only: bool) -> Result<MountArg, ValueError> {
        Ok(MountArg {
            source: source.into(),
            target: target.map(Into::into),
            read_only,
        })
    }

    #[test]
    fn mounts_are_read_only_unless_said() {
        assert_eq!(mount("/a".into()), bind("/a", None, true));
        assert_eq!(mount("/a:rw".into()), bind("/a", None, false));
        assert_eq!(mount("a:/b".into()), bind("a", Some("/b"), true));
        assert_eq!(mount("/a:/b:rw".into()), bind("/a", Some("/b"), false));
        assert_eq!(mount("/a:/b:ro".into()), bind("/a", Some("/b"), true));
        assert_eq!(
            mount("/a:/b:zz".into()),
            Err(ValueError::Access("/a:/b:zz".into()))
        );
        for bad in ["", ":", "/a:", ":/b", "/a::rw", "/a:/b:/c:rw"] {
            assert!(mount(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_bytes_are_lost() {
        let odd = OsString::from_vec(b"N\xff=\xfe=x".to_vec());
        assert_eq!(
            env(odd),
            Ok((
                b"N\xff".as_slice().into(),
                Some(b"\xfe=x".as_slice().into())
            ))
        );
        assert_eq!(env("A=".into()), Ok(("A".into(), Some("".into()))));
        assert_eq!(env("A".into()), Ok(("A".into(), None)));
        assert!(env("=x".into()).is_err());
    }

    #[test]
    fn limits() {
        assert_eq!(size_limit("unlimited"), Ok(Limit::Unlimited));
        assert_eq!(size_limit("1m"), Ok(Limit::At(ByteSize(1 << 20))));
        assert!(size_limit("x").is_err() && cpu_limit("many").is_err());
        let limit = rlimit("nofile=64:unlimited").expect("valid");
        assert_eq!((limit.soft, limit.hard), (64, u64::MAX));
        assert_eq!(rlimit("AS=1g").expect("valid").hard, 1 << 30);
        assert!(
            rlimit("nofile").is_err() && rlimit("files=1").is_err() && rlimit("cpu=x").is_err()
        );
    }

    #[test]
    fn signals() {
        for text in ["TERM", "sigterm", "15"] {
            assert_eq!(signal(text), Ok(15), "{text}");
        }
        assert!(signal("0").is_err() && signal("65").is_err() && signal("NOPE").is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let text = OsString::from_vec(bytes);
            let _results = (env(text.clone()).is_ok(), mount(text.clone()).is_ok(), tmpfs(text.clone()).is_ok(),
                device(text.clone()).is_ok(), script(text).is_ok());
        }
    }
}
