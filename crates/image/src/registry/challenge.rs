//! `WWW-Authenticate`: how a registry wants to be told who asks (RFC 9110, 11.6.1).

/// A header of more bytes than this is not read further.
const MAX_HEADER: usize = 8 * 1024;
const MAX_CHALLENGES: usize = 8;
const MAX_PARAMS: usize = 16;

/// One way of telling it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// The scheme, in lower case.
    pub(crate) scheme: String,
    params: Vec<(String, String)>,
}

impl Challenge {
    /// A parameter, by its name in lower case. The first one counts.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Reads one header. What makes no sense is left out; nothing here fails.
pub(crate) fn parse(header: &str) -> Vec<Challenge> {
    let mut end = header.len().min(MAX_HEADER);
    while !header.is_char_boundary(end) {
        end -= 1;
    }
    let mut cursor = Cursor {
        rest: &header[..end],
    };
    let mut found: Vec<Challenge> = Vec::new();
    loop {
        cursor.skip(|c| c == ',' || c.is_ascii_whitespace());
        let word = cursor.take(is_token);
        if word.is_empty() {
            if cursor.next().is_none() {
                return found;
            }
            continue;
        }
        cursor.skip(|c| matches!(c, ' ' | '\t'));
        // A name with a value belongs to the challenge before it; a name alone begins the next one.
        if cursor.eat('=') {
            cursor.skip(|c| matches!(c, ' ' | '\t'));
            let value = cursor.value();
            if let Some(challenge) = found.last_mut()
                && challenge.params.len() < MAX_PARAMS
            {
                challenge.params.push((word.to_ascii_lowercase(), value));
            }
            continue;
        }
        if found.len() == MAX_CHALLENGES {
            return found;
        }
        found.push(Challenge {
            scheme: word.to_ascii_lowercase(),
            params: Vec::new(),
        });
    }
}

/// RFC 9110's tokens, and the further characters of a `token68`, which no scheme known here has.
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/:".contains(c)
}

struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        Some(c)
    }
    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }
    fn skip(&mut self, unwanted: impl Fn(char) -> bool) {
        self.take(unwanted);
    }
    fn eat(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
    fn value(&mut self) -> String {
        if !self.eat('"') {
            return self
                .take(|c| c != ',' && !c.is_ascii_whitespace())
                .to_owned();
        }
        let mut value = String::new();
        while let Some(c) = self.next() {
            match c {
                '"' => break,
                '\\' => value.extend(self.next()),
                c => value.push(c),
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(header: &str) -> Challenge {
        let mut all = parse(header);
        assert_eq!(all.len(), 1, "{header}: {all:?}");
        all.remove(0)
    }

    #[test]
    fn what_registries_send() {
        let hub = one(
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/x:pull,push""#,
        );
        assert_eq!(hub.scheme, "bearer");
        assert_eq!(hub.param("realm"), Some("https://auth.docker.io/token"));
        assert_eq!(hub.param("scope"), Some("repository:library/x:pull,push"));
        assert_eq!(hub.param("error"), None);
        let basic = one(r#"BASIC  Realm = "a \"quoted\" name" , charset=UTF-8"#);
        assert_eq!(basic.scheme, "basic");
        assert_eq!(basic.param("realm"), Some(r#"a "quoted" name"#));
        assert_eq!(basic.param("charset"), Some("UTF-8"));
        assert_eq!(one("Basic").params, []);
    }

    #[test]
    fn several_in_one_header() {
        let all = parse(r#"Negotiate, Basic realm="x", Bearer realm="https://y/t",service=z"#);
        let schemes: Vec<&str> = all.iter().map(|c| c.scheme.as_str()).collect();
        assert_eq!(schemes, ["negotiate", "basic", "bearer"]);
        assert_eq!(all[1].param("realm"), Some("x"));
        assert_eq!(all[2].param("service"), Some("z"));
    }

    #[test]
    fn garbage_is_bounded() {
        assert_eq!(parse(""), []);
        assert_eq!(parse("=\"=,,\"\u{7f}\u{e4}"), []);
        assert_eq!(
            one(r#"Bearer realm="never closed"#).param("realm"),
            Some("never closed")
        );
        assert_eq!(one("Bearer realm=").param("realm"), Some(""));
        assert!(parse(&"a,".repeat(100_000)).len() <= MAX_CHALLENGES);
        let many = parse(&format!("Bearer {}", "a=b,".repeat(100_000)));
        assert_eq!(many[0].params.len(), MAX_PARAMS);
        let long = one(&format!("Bearer realm=\"{}\"", "\u{e4}".repeat(100_000)));
        assert!(long.param("realm").expect("a realm").len() <= MAX_HEADER);
    }

    proptest! {
        #[test]
        fn nothing_panics(header in "\\PC{0,200}") {
            parse(&header);
        }
        #[test]
        fn quoted_values_are_read_back(value in "[ -~]{0,40}") {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
            let parsed = one(&format!("Bearer a=b, realm=\"{escaped}\", service=s"));
            prop_assert_eq!(parsed.param("realm"), Some(value.as_str()));
            prop_assert_eq!(parsed.param("service"), Some("s"));
        }
    }
}
