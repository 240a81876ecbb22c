//! Every package that is linked has a licence that deny.toml allows.

use serde_json::Value;

use crate::error::{Result, TaskError};
use crate::repo::{Repo, output};

pub(crate) fn check(repo: &Repo) -> Result<()> {
    let allowed = allowed(&repo.read("deny.toml")?)?;
    let mut wrong = 0;
    for manifest in [
        "Cargo.toml",
        "crates/agent/bin/Cargo.toml",
        "fuzz/Cargo.toml",
    ] {
        let mut cargo = repo.cargo([
            "metadata",
            "--format-version=1",
            "--locked",
            "--manifest-path",
            manifest,
        ]);
        let metadata: Value =
            serde_json::from_str(&output(&mut cargo)?).map_err(|source| TaskError::Json {
                command: "cargo metadata",
                source,
            })?;
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let licence = package["license"].as_str().unwrap_or_default();
            if !admits(&allowed, licence) {
                println!(
                    "{} {} has the licence {licence:?}",
                    package["name"], package["version"]
                );
                wrong += 1;
            }
        }
    }
    if wrong == 0 {
        Ok(())
    } else {
        Err(TaskError::Failed(format!(
            "the licences of {wrong} packages"
        )))
    }
}

/// The list `allow` of the section `[licenses]`, as cargo-deny has it.
fn allowed(text: &str) -> Result<Vec<String>> {
    let section = text
        .split_once("[licenses]")
        .map(|(_, rest)| rest.split("\n[").next().unwrap_or(rest));
    let list = section
        .and_then(|section| section.split_once("allow = ["))
        .and_then(|(_, rest)| rest.split_once(']'));
    let Some((list, _)) = list else {
        return Err(TaskError::Format {
            file: "deny.toml",
            what: "list `allow` in [licenses]".to_owned(),
        });
    };
    Ok(list
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect())
}

/// Whether an SPDX expression can be met with allowed licences alone. The old `A/B` means `A OR B`.
fn admits(allowed: &[String], expression: &str) -> bool {
    let tokens: Vec<String> = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let mut rest = tokens.iter().map(String::as_str).peekable();
    let verdict = any(allowed, &mut rest);
    verdict && rest.peek().is_none()
}

type Tokens<'a, I> = std::iter::Peekable<I>;

fn any<'a, I: Iterator<Item = &'a str>>(allowed: &[String], tokens: &mut Tokens<'a, I>) -> bool {
    let mut verdict = all(allowed, tokens);
    while tokens.next_if_eq(&"OR").is_some() {
        verdict |= all(allowed, tokens);
    }
    verdict
}

fn all<'a, I: Iterator<Item = &'a str>>(allowed: &[String], tokens: &mut Tokens<'a, I>) -> bool {
    let mut verdict = one(allowed, tokens);
    while tokens.next_if_eq(&"AND").is_some() {
        verdict &= one(allowed, tokens);
    }
    verdict
}

fn one<'a, I: Iterator<Item = &'a str>>(allowed: &[String], tokens: &mut Tokens<'a, I>) -> bool {
    match tokens.next() {
        Some("(") => any(allowed, tokens) & tokens.next_if_eq(&")").is_some(),
        Some(name) => {
            let exception = tokens.next_if_eq(&"WITH").and_then(|_| tokens.next());
            let whole = exception.map_or_else(
                || name.to_owned(),
                |exception| format!("{name} WITH {exception}"),
            );
            allowed.contains(&whole)
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged() {
        let allowed: Vec<String> = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned)
            .into();
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR GPL-2.0",
            "GPL-2.0 OR MIT",
            "(MIT OR GPL-3.0) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(admits(&allowed, good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0-only",
            "LGPL-2.1",
            "MIT AND GPL-2.0",
            "MIT WITH Other",
            "(MIT",
            "MIT MIT",
        ] {
            assert!(!admits(&allowed, bad), "{bad}");
        }
    }

    #[test]
    fn the_list_is_found() {
        let text = "[bans]\nallow = [\"x\"]\n[licenses]\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n[sources]\n";
        assert_eq!(allowed(text).expect("a list"), ["MIT", "ISC"]);
        assert!(allowed("[licenses]\n").is_err());
    }
}
