//! `cosm doctor`

use std::os::unix::fs::MetadataExt as _;

use cosm_base::exit;
use cosm_keeper::{Capabilities, Finding, Support};
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::environment;
use crate::error::{CliError, Result};
use crate::output;

const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";
const RESET: &str = "\u{1b}[0m";

pub(super) fn run(args: DoctorArgs) -> Result<u8> {
    let capabilities = cosm_keeper::capabilities();
    let own = own_findings();
    let ok = capabilities.launch.works() && own.iter().all(|finding| finding.support.works());
    if args.format.json {
        output::json(&everything(&capabilities, &own, ok))?;
    } else {
        tell(&capabilities, &own)?;
    }
    match ok {
        true => Ok(exit::OK),
        false => Err(CliError::Unfit),
    }
}

/// What the drivers don't look at: the state folder and the folder for sockets.
fn own_findings() -> Vec<Finding> {
    let home = match environment::home() {
        Ok(home) => state_folder(&home),
        Err(error) => no(
            error.to_string(),
            Some("export COSM_HOME=/path/to/a/folder".to_owned()),
        ),
    };
    let runtime = environment::runtime_dir();
    let sockets = match environment::host() {
        Ok(_) => yes(runtime.display().to_string()),
        Err(error) => no(error.to_string(), error.hints().first().cloned()),
    };
    vec![
        Finding {
            subject: "state folder".to_owned(),
            support: home,
        },
        Finding {
            subject: "folder for sockets".to_owned(),
            support: sockets,
        },
    ]
}

/// Whether the file system has locks and can be written to, tried on a file that is gone afterwards.
fn state_folder(home: &std::path::Path) -> Support {
    let Some(there) = home.ancestors().find(|path| path.exists()) else {
        return no(format!("{} is nowhere", home.display()), None);
    };
    let probe = there.join(format!(".cosm-doctor-{}", std::process::id()));
    let tried = cosm_sys::lock::LockFile::open(&probe).and_then(|file| file.try_lock(0));
    let removed = std::fs::remove_file(&probe);
    let elsewhere = || Some("export COSM_HOME=/path/on/a/local/disk".to_owned());
    match (tried, removed) {
        (Ok(_), _) => {
            let owner = there.metadata().map(|meta| meta.uid()).ok();
            match owner == Some(rustix::process::geteuid().as_raw()) {
                true => yes(format!("{}, with file locks", home.display())),
                false => no(
                    format!("{} belongs to another user", there.display()),
                    elsewhere(),
                ),
            }
        }
        (Err(error), _) => no(format!("{}: {error}", there.display()), elsewhere()),
    }
}

fn yes(by: String) -> Support {
    Support::Yes { by }
}

fn no(why: String, help: Option<String>) -> Support {
    Support::No { why, help }
}

fn parts(capabilities: &Capabilities) -> [(&'static str, &Support); 8] {
    [
        ("sandboxes", &capabilities.launch),
        ("memory limit", &capabilities.memory),
        ("processor limit", &capabilities.cpus),
        ("process limit", &capabilities.pids),
        ("disk limit", &capabilities.disk),
        ("pause and resume", &capabilities.freeze),
        ("range of user ids", &capabilities.id_range),
        ("overlay on disk", &capabilities.overlay),
    ]
}

fn tell(capabilities: &Capabilities, own: &[Finding]) -> Result<()> {
    use std::io::Write as _;
    let mut text = String::from("Driver: namespaces (shares the host's kernel)\n\n");
    let driver = parts(capabilities)
        .into_iter()
        .map(|(subject, support)| (subject.to_owned(), support));
    let found = capabilities
        .findings
        .iter()
        .chain(own)
        .map(|f| (f.subject.clone(), &f.support));
    for (subject, support) in driver.chain(found) {
        text.push_str(&line(&subject, support));
    }
    anstream::stdout()
        .write_all(text.as_bytes())
        .map_err(crate::error::os("writing output"))
}

fn line(subject: &str, support: &Support) -> String {
    match support {
        Support::Yes { by } => format!("{GREEN}yes{RESET}  {subject:<22} {by}\n"),
        Support::No { why, help } => {
            let help = help
                .as_ref()
                .map(|help| format!("\n     {:<22} to help: {help}", ""))
                .unwrap_or_default();
            format!("{RED}no{RESET}   {subject:<22} {why}{help}\n")
        }
    }
}

fn everything(capabilities: &Capabilities, own: &[Finding], ok: bool) -> Value {
    let findings: Vec<Value> = capabilities
        .findings
        .iter()
        .chain(own)
        .map(|finding| {
            let mut entry = support_json(&finding.support);
            entry["subject"] = json!(finding.subject);
            entry
        })
        .collect();
    let supports: serde_json::Map<String, Value> = parts(capabilities)
        .into_iter()
        .map(|(subject, support)| (subject.replace(' ', "_"), support_json(support)))
        .collect();
    json!({
        "ok": ok,
        "drivers": [{ "name": "namespaces", "level": capabilities.level, "can": supports }],
        "findings": findings,
    })
}

fn support_json(support: &Support) -> Value {
    match support {
        Support::Yes { by } => json!({ "works": true, "by": by }),
        Support::No { why, help } => json!({ "works": false, "why": why, "help": help }),
    }
}
