use super::*;
use proptest::prelude::*;

fn lookup(name: &str) -> Option<String> {
    match name {
        "A" => Some("a".to_owned()),
        "E" => Some(String::new()),
        "TWO" => Some("x y".to_owned()),
        "PATH" => Some("/usr/bin:/bin".to_owned()),
        "FILE" => Some("dir/sub/name.tar.gz".to_owned()),
        "STAR" => Some("a*b".to_owned()),
        _ => None,
    }
}

fn expander(escape: char, quotes: bool) -> Expander<'static> {
    Expander {
        lookup: &lookup,
        escape,
        quotes,
    }
}

#[test]
fn variables_are_put_in_as_docker_does() {
    for (text, expected) in [
        ("", ""),
        ("plain text", "plain text"),
        ("$A", "a"),
        ("${A}", "a"),
        ("x$A.y", "xa.y"),
        ("x${A}y", "xay"),
        ("$AB", ""),
        ("$", "$"),
        ("a$", "a$"),
        ("$.", "$."),
        ("$1x", "x"),
        ("\\$A", "$A"),
        ("\\\\$A", "\\a"),
        ("\\", ""),
        ("a\\ b", "a b"),
        ("'$A'", "$A"),
        ("'a\\b'", "a\\b"),
        ("\"$A\"", "a"),
        ("\"\\$A \\\" \\\\ \\n\"", "$A \" \\ \\n"),
        ("\"it's\"", "it's"),
        ("'\"'", "\""),
        ("a\"b\"'c'", "abc"),
        ("${A:-x}", "a"),
        ("${A-x}", "a"),
        ("${E:-x}", "x"),
        ("${E-x}", ""),
        ("${U:-x}", "x"),
        ("${U-x}", "x"),
        ("${U:-}", ""),
        ("${A:+x}", "x"),
        ("${E:+x}", ""),
        ("${E+x}", "x"),
        ("${U+x}", ""),
        ("${A:?no}", "a"),
        ("${E?no}", ""),
        ("${U:-${A}}", "a"),
        ("${U:-${V:-$A}b}", "ab"),
        ("${U:-'}'}", "}"),
        ("${U:-\"$A }\"}", "a }"),
        ("${U:-\\}}", "}"),
        ("$PATH:/x", "/usr/bin:/bin:/x"),
        ("${FILE#*/}", "sub/name.tar.gz"),
        ("${FILE##*/}", "name.tar.gz"),
        ("${FILE%.*}", "dir/sub/name.tar"),
        ("${FILE%%.*}", "dir/sub/name"),
        ("${FILE#nothing}", "dir/sub/name.tar.gz"),
        ("${FILE/sub/x}", "dir/x/name.tar.gz"),
        ("${FILE//r/R}", "diR/sub/name.taR.gz"),
        ("${FILE/d?r/x}", "x/sub/name.tar.gz"),
        ("${STAR#a\\*}", "b"),
        ("${U%x}", ""),
    ] {
        assert_eq!(
            expander('\\', true).text(text).as_deref(),
            Ok(expected),
            "{text}"
        );
    }
    assert_eq!(
        expander('`', true).text("C:\\x`$A$A").as_deref(),
        Ok("C:\\x$Aa")
    );
    assert_eq!(
        expander('\\', false).text("it's \"$A\" \\$A").as_deref(),
        Ok("it's \"a\" $A")
    );
}

#[test]
fn unquoted_values_are_split() {
    for (text, expected) in [
        ("", &[] as &[&str]),
        ("a b", &["a", "b"]),
        ("$TWO", &["x", "y"]),
        ("1$TWO", &["1x", "y"]),
        ("\"$TWO\"", &["x y"]),
        ("$U", &[]),
        ("a\\ b", &["a b"]),
    ] {
        let words = expander('\\', true).words(text);
        assert_eq!(
            words,
            Ok(expected.iter().map(|w| (*w).to_owned()).collect()),
            "{text}"
        );
    }
}

#[test]
fn what_means_nothing_is_an_error() {
    for (text, expected) in [
        ("'a", ExpandError::Quote { quote: '\'' }),
        ("a\"b", ExpandError::Quote { quote: '"' }),
        ("${", ExpandError::Brace),
        ("${A", ExpandError::Brace),
        ("${A:-x", ExpandError::Brace),
        ("${A:", ExpandError::Brace),
        ("${A/x}", ExpandError::Brace),
        ("${}", ExpandError::Substitution),
        ("${:-x}", ExpandError::Substitution),
        ("${A:=x}", ExpandError::Substitution),
        ("${A^}", ExpandError::Substitution),
        (
            "${U:?set me}",
            ExpandError::Required {
                name: "U".to_owned(),
                message: "set me".to_owned(),
            },
        ),
    ] {
        assert_eq!(expander('\\', true).text(text), Err(expected), "{text}");
    }
    assert_eq!(
        expander('\\', true).text(&"${U:-".repeat(100_000)),
        Err(ExpandError::TooLong)
    );
    let long = |_: &str| Some("x".repeat(MAX_TEXT / 2));
    let long = Expander {
        lookup: &long,
        escape: '\\',
        quotes: true,
    };
    assert_eq!(long.text("$A$A$A"), Err(ExpandError::TooLong));
    assert_eq!(long.text("\"$A$A$A\""), Err(ExpandError::TooLong));
}

proptest! {
    #[test]
    fn nothing_panics(text in "[A-C${}:/#%?*+\\-'\"\\\\ ☺]{0,24}") {
        for quotes in [true, false] {
            drop(expander('\\', quotes).text(&text));
            drop(expander('\\', quotes).words(&text));
        }
    }
}
