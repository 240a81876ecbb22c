//! Small things that instructions are made of: paths, ports, signals, times and sizes.

use cosm_base::units::ByteSize;

use crate::recipe::apply::join;
use crate::recipe::error::DockerfileErrorKind as Kind;
use crate::recipe::glob::Wildcard;

fn bad(what: &'static str, found: &str, expected: &'static str) -> Kind {
    Kind::Value {
        what,
        found: found.to_owned(),
        expected,
    }
}

/// A source of files: below the root of where it is from, whatever it says.
pub(in crate::recipe) fn source(text: &str, parents: bool) -> Result<String, Kind> {
    if parents {
        Wildcard::recursive(text)?;
        return Ok(text.to_owned());
    }
    let path = join("", text);
    Wildcard::new(&path[1..])?;
    Ok(match &path[1..] {
        "" => ".".to_owned(),
        path => path.to_owned(),
    })
}

/// Why a text can't name a stage.
pub(in crate::recipe) fn bad_stage_name(name: &str) -> Option<Kind> {
    let fits = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.')
        })
        && name != "scratch";
    (!fits).then(|| {
        bad(
            "the name of a stage",
            name,
            "a letter, then letters, digits, dots, dashes and underscores, and not scratch",
        )
    })
}

/// The ports of one word of `EXPOSE`: `80`, `80/udp`, `8000-8010`.
pub(in crate::recipe) fn ports(text: &str) -> Result<Vec<String>, Kind> {
    let error = || {
        bad(
            "a port",
            text,
            "a number or a range, perhaps with /tcp, /udp or /sctp",
        )
    };
    let (numbers, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = protocol.to_ascii_lowercase();
    if !["tcp", "udp", "sctp"].contains(&protocol.as_str()) {
        return Err(error());
    }
    let number = |text: &str| match text.parse::<u16>() {
        Ok(number) if number > 0 && !text.starts_with('+') => Ok(number),
        _ => Err(error()),
    };
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(error());
    }
    Ok((first..=last)
        .map(|port| format!("{port}/{protocol}"))
        .collect())
}

const SIGNALS: &str = "HUP INT QUIT ILL TRAP ABRT IOT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CLD CONT \
    STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO POLL PWR SYS RTMIN RTMAX";

/// A signal by name, with or without `SIG`, or number.
pub(super) fn signal(text: &str) -> Result<String, Kind> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let offset = |name: &str, sign| -> bool {
        name.strip_prefix(sign)
            .is_some_and(|n| n.parse::<u8>().is_ok_and(|n| (1..=30).contains(&n)))
    };
    let known = SIGNALS.split_whitespace().any(|signal| signal == name)
        || offset(name, "RTMIN+")
        || offset(name, "RTMAX-")
        || text.parse::<u8>().is_ok_and(|n| (1..=64).contains(&n));
    if known {
        Ok(text.to_owned())
    } else {
        Err(bad(
            "a signal",
            text,
            "a name such as SIGINT or a number from 1 to 64",
        ))
    }
}

/// A time as Go writes it (`1m30s`), in nanoseconds.
pub(super) fn duration(what: &'static str, text: &str) -> Result<i64, Kind> {
    const UNITS: &[(&str, f64)] = &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 60e9),
        ("h", 3600e9),
    ];
    let error = || {
        bad(
            what,
            text,
            "a time such as 30s or 1m30s, of a millisecond or more",
        )
    };
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() && text != "0" {
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(error)?;
        let number: f64 = rest[..end].parse().map_err(|_| error())?;
        rest = &rest[end..];
        let end = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let unit = UNITS.iter().find(|(unit, _)| *unit == &rest[..end]);
        total += number * unit.ok_or_else(error)?.1;
        rest = &rest[end..];
    }
    if text.is_empty() || total > 1e18 || (total > 0.0 && total < 1e6) {
        return Err(error());
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is a whole number of nanoseconds that has been found to fit"
    )]
    Ok(total.round() as i64)
}

/// A number of bytes, with Docker's units of 1024.
pub(super) fn size(text: &str) -> Result<u64, Kind> {
    let size: Result<ByteSize, _> = text.parse();
    size.map(|size| size.0)
        .map_err(|_| bad("size", text, "a number of bytes, perhaps with k, m or g"))
}

/// Permissions in octal digits.
pub(super) fn mode(what: &'static str, text: &str) -> Result<u32, Kind> {
    let digits = !text.is_empty() && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if digits && mode <= 0o7777 => Ok(mode),
        _ => Err(bad(what, text, "permissions in octal digits, such as 0755")),
    }
}

/// A user's or group's number.
pub(super) fn id(what: &'static str, text: &str) -> Result<u32, Kind> {
    text.parse().map_err(|_| bad(what, text, "a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_things_are_read() {
        assert_eq!(ports("80"), Ok(vec!["80/tcp".to_owned()]));
        assert_eq!(
            ports("80-81/UDP"),
            Ok(vec!["80/udp".to_owned(), "81/udp".to_owned()])
        );
        for port in ["", "0", "65536", "81-80", "80/x", "a", "+8", "8:8", "80/"] {
            assert!(ports(port).is_err(), "{port}");
        }
        for ok in ["SIGTERM", "int", "9", "64", "SIGRTMIN+3"] {
            assert_eq!(signal(ok).as_deref(), Ok(ok));
        }
        for text in ["", "0", "65", "SIG", "SIGX", "RTMIN+99"] {
            assert!(signal(text).is_err(), "{text}");
        }
        for (text, expected) in [
            ("30s", 30_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0", 0),
            ("5ms", 5_000_000),
        ] {
            assert_eq!(duration("x", text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "1x",
            "1us",
            "1..5s",
            "-1s",
            "9999999999h",
            "1s ",
        ] {
            assert!(duration("x", text).is_err(), "{text}");
        }
        for (text, expected) in [("1", 1), ("64k", 65536), ("1G", 1 << 30), ("2mb", 2 << 20)] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for text in ["", "k", "1x", "99999999999g", "-1"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(mode("x", "0755"), Ok(0o755));
        for text in ["", "8", "u+x", "77777", "+7"] {
            assert!(mode("x", text).is_err(), "{text}");
        }
    }

    #[test]
    fn sources_stay_below_their_root() {
        for (text, expected) in [
            (".", "."),
            ("/", "."),
            ("a/../../b/", "b"),
            ("../../x", "x"),
            ("/a/*.c", "a/*.c"),
        ] {
            assert_eq!(source(text, false).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(source("./a/./b", true).as_deref(), Ok("./a/./b"));
    }
}
