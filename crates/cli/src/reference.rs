//! The reference of all commands, as it stands in `docs/cli.md`.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::args::Cli;

/// The text of `docs/cli.md`: every command's help, and the exit codes.
pub fn reference() -> String {
    let mut root = Cli::command();
    root.build();
    let mut out = String::from(
        "# The cosm program\n\n\
         ## Exit codes\n\n| code | meaning |\n| --- | --- |\n\
         | the command's own | it ran and returned that |\n\
         | 124 | its time-out passed and its processes were killed |\n\
         | 125 | cosm itself failed: wrong arguments, no such sandbox, the sandbox could not be made or was lost |\n\
         | 126 | the command was found but could not be executed |\n\
         | 127 | the command was not found |\n\
         | 128 + n | signal n ended the command |\n\n",
    );
    out.push_str(&section("cosm", &mut root.clone()));
    for command in root
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        out.push_str(&section(
            &format!("cosm {}", command.get_name()),
            &mut command.clone(),
        ));
    }
    out
}

fn section(title: &str, command: &mut Command) -> String {
    let mut out = String::new();
    let help = command
        .clone()
        .term_width(100)
        .render_long_help()
        .to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    write!(
        out,
        "## {title}\n\n```text\n{}\n```\n\n",
        lines.join("\n").trim_end()
    )
    .expect("writing to a string can't fail");
    out
}
