//! The files in docs/ that are made from the code: the command line's reference, exit codes, environment variables.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::error::{Result, TaskError};
use crate::repo::{Repo, output, run};

const MADE: &str = "<!-- Made by `cargo xtask gen`. -->\n\n";

/// The environment variables that the program reads. One that is read and not described here fails `check`.
const VARIABLES: &[(&str, &str)] = &[
    (
        "COSM_ID_SLOTS",
        "`FIRST:COUNT`, the ranges of 65536 ids that root's sandboxes get. Default `1879048192:4094`.",
    ),
    (
        "COSM_HOME",
        "The state folder. Default `$XDG_DATA_HOME/cosm`, else `~/.local/share/cosm`.",
    ),
    ("HOME", "Where the default state folder is found."),
    ("XDG_DATA_HOME", "The parent of the default state folder."),
    (
        "XDG_RUNTIME_DIR",
        "The parent of the folder for sockets. Without it: `/run/cosm` (root), `/run/user/UID/cosm`, `/dev/shm/cosm-UID`, `/tmp/cosm-UID`, the first that will do.",
    ),
    ("NO_COLOR", "If set and not empty, no colours."),
    ("CLICOLOR", "`0`: no colours."),
    (
        "CLICOLOR_FORCE",
        "If set and not `0`, colours although the output is no terminal.",
    ),
    (
        "TERM",
        "Passed to commands that get a terminal, unless it is empty or `dumb`: then they get `xterm`.",
    ),
    (
        "PATH",
        "Where a command that is not in the guest is looked for, to say so in the error's hint.",
    ),
    (
        "DBUS_SESSION_BUS_ADDRESS",
        "The user's bus, on which systemd is asked for a cgroup.",
    ),
    ("COLUMNS", "How wide help texts and tables may be."),
    ("LINES", "The terminal's height, where it can't be asked."),
    (
        "SHELL",
        "The shell that `completion` is for, if none is named.",
    ),
];

pub(crate) fn write(repo: &Repo) -> Result<()> {
    for (file, text) in made(repo)? {
        repo.write(file, &text)?;
        println!("wrote {file}");
    }
    Ok(())
}

pub(crate) fn check(repo: &Repo) -> Result<()> {
    let mut stale = Vec::new();
    for (file, text) in made(repo)? {
        if repo.read(file).ok().as_deref() != Some(text.as_str()) {
            stale.push(file);
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(TaskError::Failed(format!(
            "{}: `cargo xtask gen` makes it anew; comparing",
            stale.join(", ")
        )))
    }
}

fn made(repo: &Repo) -> Result<[(&'static str, String); 3]> {
    let cosm = match std::env::var_os("COSM_BIN") {
        Some(binary) => binary.into(),
        None => {
            run(&mut repo.cargo(["build", "--locked", "-p", "cosm-cli"]))?;
            repo.target().join("debug/cosm")
        }
    };
    let reference = output(Command::new(cosm).arg("__docs"))?;
    Ok([
        ("docs/cli.md", format!("{MADE}{}\n", reference.trim_end())),
        (
            "docs/exit-codes.md",
            exit_codes(&repo.read("crates/base/src/exit.rs")?)?,
        ),
        ("docs/environment.md", environment(repo)?),
    ])
}

/// The exit codes with the words that stand by them in the code.
fn exit_codes(source: &str) -> Result<String> {
    let mut text = format!(
        "{MADE}# Exit codes\n\nThe command's own code passes through where it ran.\n\n| code | meaning |\n|---|---|\n"
    );
    let mut meaning = String::new();
    let mut codes = 0;
    for line in source.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            let space = if meaning.is_empty() { "" } else { " " };
            write!(meaning, "{space}{words}").map_err(|_| TaskError::Usage("out of memory"))?;
        } else if let Some(constant) = line.strip_prefix("pub const ") {
            let value = constant
                .split_once('=')
                .map(|(_, value)| value.trim_matches([' ', ';']));
            match value.and_then(|value| value.parse::<u8>().ok()) {
                Some(128) => text.push_str("| 128 + n | Signal n ended it. |\n"),
                Some(code) => text.push_str(&format!("| {code} | {meaning} |\n")),
                None => continue,
            }
            codes += 1;
            meaning.clear();
        } else {
            meaning.clear();
        }
    }
    if codes == 0 {
        return Err(TaskError::Format {
            file: "crates/base/src/exit.rs",
            what: "exit codes".to_owned(),
        });
    }
    Ok(text)
}

fn environment(repo: &Repo) -> Result<String> {
    let mut read = Vec::new();
    variables(&repo.path("crates/cli/src"), &mut read)?;
    read.sort();
    read.dedup();
    let mut text = format!(
        "{MADE}# Environment variables\n\nOnly the command line reads them; the library reads none.\n\n| name | meaning |\n|---|---|\n"
    );
    for name in &read {
        let Some((_, meaning)) = VARIABLES.iter().find(|(known, _)| known == name) else {
            return Err(TaskError::Failed(format!(
                "describing the environment variable {name}, which cosm reads,"
            )));
        };
        text.push_str(&format!("| `{name}` | {meaning} |\n"));
    }
    Ok(text)
}

/// The names in `var("NAME")`, `var_os("NAME")` and `set("NAME")` below a folder, tests apart.
fn variables(folder: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(TaskError::file(folder))? {
        let path = entry.map_err(TaskError::file(folder))?.path();
        if path.is_dir() {
            variables(&path, found)?;
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(TaskError::file(&path))?;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for call in ["var(\"", "var_os(\"", "set(\""] {
            let names = code
                .split(call)
                .skip(1)
                .filter_map(|rest| rest.split('"').next());
            found.extend(names.map(str::to_owned));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_read_with_their_words() {
        let text = exit_codes(
            "//! x\n/// It\n/// failed.\npub const A: u8 = 125;\n/// n\npub const B: u8 = 128;\n",
        )
        .expect("codes");
        assert!(text.contains("| 125 | It failed. |"), "{text}");
        assert!(text.contains("| 128 + n |"), "{text}");
        assert!(exit_codes("fn f() {}").is_err());
    }
}
