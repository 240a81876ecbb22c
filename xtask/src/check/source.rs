//! Rules about source text that no lint has.

use std::path::{Path, PathBuf};

use crate::error::{Result, TaskError};
use crate::repo::Repo;

/// A file longer than this is two.
const LINES: usize = 800;

pub(crate) fn check(repo: &Repo) -> Result<()> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "benches", "tests", "fuzz"] {
        collect(&repo.path(folder), &mut files)?;
    }
    let mut wrong = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(TaskError::file(file))?;
        let name = file.strip_prefix(repo.root()).unwrap_or(file);
        for complaint in complaints(name, &text) {
            println!("{}: {complaint}", name.display());
            wrong += 1;
        }
    }
    if wrong == 0 {
        Ok(())
    } else {
        Err(TaskError::Failed(format!("{wrong} source rules")))
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(TaskError::file(folder))? {
        let path = entry.map_err(TaskError::file(folder))?.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn complaints(name: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > LINES {
        found.push(format!("{lines} lines are more than {LINES}"));
    }
    let may_be_unsafe = name.starts_with("crates/sys");
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let code = code_of(line);
        if !may_be_unsafe && has_word(&code, "unsafe") {
            found.push(format!("line {number}: unsafe outside crates/sys"));
        }
        for word in ["todo!(", "unimplemented!(", "dbg!("] {
            if code.contains(word) {
                found.push(format!("line {number}: {word})"));
            }
        }
        if code.contains("#[allow(") || code.contains("#![allow(") {
            found.push(format!(
                "line {number}: #[allow] where #[expect(.., reason)] belongs"
            ));
        }
        if ["FIXME", "XXX:"].iter().any(|mark| line.contains(mark)) && !name.starts_with("xtask") {
            found.push(format!("line {number}: unfinished"));
        }
    }
    found
}

/// A line without its comment and without what stands in string literals.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut in_string = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => drop(chars.next()),
            '"' => in_string = !in_string,
            '\'' if !in_string && chars.peek() == Some(&'"') => drop(chars.next()),
            '/' if !in_string && chars.peek() == Some(&'/') => break,
            _ if in_string => {}
            _ => code.push(c),
        }
    }
    code
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|w| w == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_found_where_it_does_not_belong() {
        let other = Path::new("crates/spec/src/lib.rs");
        assert_eq!(complaints(other, "fn f() { unsafe { g() } }").len(), 1);
        assert_eq!(
            complaints(
                other,
                "#![forbid(unsafe_code)] // unsafe\nlet s = \"unsafe\";"
            )
            .len(),
            0
        );
        assert_eq!(
            complaints(Path::new("crates/sys/src/lib.rs"), "unsafe { g() }").len(),
            0
        );
    }

    #[test]
    fn long_files_are_found() {
        let text = "\n".repeat(LINES + 1);
        assert_eq!(
            complaints(Path::new("crates/spec/src/lib.rs"), &text).len(),
            1
        );
    }
}
