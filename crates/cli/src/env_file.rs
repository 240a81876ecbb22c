//! Files of `NAME=VALUE` lines.

use cosm_base::ByteString;

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: write NAME=VALUE, NAME, or a comment that begins with '#'")]
pub(crate) struct EnvFileError {
    /// The line's number, from 1.
    pub(crate) line: usize,
}

/// A variable and its value; `None` passes on this program's.
pub(crate) type Variable = (ByteString, Option<ByteString>);

/// Reads such a file: one variable a line, values as they are (no quotes, no expansion). Empty lines and lines that
/// begin with `#` are left out; a carriage return at a line's end is, too.
///
/// # Errors
/// The first line that is none of that.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Variable>, EnvFileError> {
    let mut out = Vec::new();
    for (index, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let begin = line.trim_ascii_start();
        if begin.is_empty() || begin[0] == b'#' {
            continue;
        }
        let (name, value) = match begin.iter().position(|b| *b == b'=') {
            Some(at) => (&begin[..at], Some(&begin[at + 1..])),
            None => (begin.trim_ascii_end(), None),
        };
        if name.is_empty() || name.iter().any(|b| b.is_ascii_whitespace() || *b == 0) {
            return Err(EnvFileError { line: index + 1 });
        }
        out.push((name.into(), value.map(Into::into)));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines() {
        let variables = parse(b"# c\n\nA=1\r\n  B= x=y \nC\nD=\xff").expect("valid");
        let expected: Vec<Variable> = vec![
            ("A".into(), Some("1".into())),
            ("B".into(), Some(" x=y ".into())),
            ("C".into(), None),
            ("D".into(), Some(b"\xff".as_slice().into())),
        ];
        assert_eq!(variables, expected);
        assert_eq!(parse(b"A=1\n=x"), Err(EnvFileError { line: 2 }));
        assert_eq!(parse(b"export A=1"), Err(EnvFileError { line: 1 }));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(pairs in proptest::collection::vec(("[A-Z_]{1,8}", "[ -~]{0,20}"), 0..8)) {
            let text: String = pairs.iter().map(|(n, v)| format!("{n}={v}\n")).collect();
            let read = parse(text.as_bytes()).expect("valid");
            let expected: Vec<Variable> =
                pairs.iter().map(|(n, v)| (n.as_str().into(), Some(v.as_str().into()))).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _variables = parse(&bytes).is_ok();
        }
    }
}
