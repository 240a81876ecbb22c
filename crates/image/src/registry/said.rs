//! What errors repeat of what a registry says.

use std::fmt;

use cosm_base::text::printable;

/// How much of a blob there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundSize {
    /// That many bytes.
    Exactly(u64),
    /// There are more than were wanted.
    More,
}

impl fmt::Display for FoundSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(bytes) => write!(f, "{bytes} are there"),
            Self::More => f.write_str("more are there"),
        }
    }
}

/// What a registry said of an error, cut to a length that can be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said(String);

/// Longer words are cut.
const MAX_SAID: usize = 300;

impl Said {
    /// Reads the body of an error: `{"errors":[{"code":…,"message":…}]}`, or `{"details":…}` of a token service. Anything
    /// else, such as a proxy's page, says nothing.
    pub(crate) fn read(body: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct One {
            #[serde(default)]
            code: Option<String>,
            #[serde(default)]
            message: Option<String>,
        }
        #[derive(serde::Deserialize)]
        struct Body {
            #[serde(default)]
            errors: Vec<One>,
            #[serde(default)]
            details: Option<String>,
            #[serde(default)]
            error_description: Option<String>,
        }
        let Ok(body) = serde_json::from_slice::<Body>(body) else {
            return Self::default();
        };
        let mut parts: Vec<String> = body
            .errors
            .into_iter()
            .take(3)
            .map(|one| {
                let both: Vec<String> = [one.code, one.message].into_iter().flatten().collect();
                both.join(": ")
            })
            .collect();
        parts.extend(body.details);
        parts.extend(body.error_description);
        parts.retain(|part| !part.is_empty());
        Self(parts.join("; ").chars().take(MAX_SAID).collect())
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, " (it says: {})", printable(self.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registrys_words_are_cleaned_and_cut() {
        let said = |body: &str| Said::read(body.as_bytes()).to_string();
        assert_eq!(
            said(r#"{"errors":[{"code":"DENIED","message":"no\u001b[2J way","detail":{}}]}"#),
            " (it says: DENIED: no\\u{1b}[2J way)"
        );
        assert_eq!(
            said(r#"{"details":"incorrect username or password"}"#),
            " (it says: incorrect username or password)"
        );
        assert_eq!(said("<html>"), "");
        assert_eq!(said("{}"), "");
        let long = format!(r#"{{"details":"{}"}}"#, "x".repeat(5000));
        assert!(said(&long).len() < 400);
    }
}
