//! Bytes that should be words.

use alloc::vec::Vec;

/// A number written in decimal digits and nothing else.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u32, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// `/proc/` and these parts, with slashes between them.
pub(crate) fn proc_path(parts: &[&[u8]]) -> Vec<u8> {
    let mut path = b"/proc".to_vec();
    for part in parts {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    path
}

/// A number in decimal digits.
pub(crate) fn digits(mut number: u32) -> Vec<u8> {
    let mut text = Vec::with_capacity(10);
    loop {
        text.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.reverse();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_that_fit() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        for wrong in [
            &b""[..],
            b"4294967296",
            b"-1",
            b"+1",
            b" 1",
            b"1 ",
            b"0x1",
            b"\xff",
        ] {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn digits_read_back() {
        for value in [0, 7, 10, 65_536, u32::MAX] {
            assert_eq!(number(&digits(value)), Some(value));
        }
    }
}
