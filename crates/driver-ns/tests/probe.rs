//! What the driver says of a host, and of hosts on which something is forbidden.

mod support;

use std::process::Command;

use cosm_driver::{Capabilities, Driver as _, Support};
use cosm_driver_ns::NsDriver;
use support::as_root_and_user;

fn capabilities() -> Capabilities {
    NsDriver::new().capabilities().clone()
}

#[test]
fn this_host_is_described() {
    as_root_and_user("this_host_is_described", || {
        let found = capabilities();
        println!("{found:#?}");
        assert!(found.launch.works(), "{:?}", found.launch);
        // What is said is what happens.
        let mut spec = cosm_spec::SandboxSpec::default();
        spec.resources.memory = cosm_spec::Limit::At(cosm_base::units::ByteSize::mib(64));
        let launched = support::launch(spec, support::Options::default());
        assert_eq!(launched.is_ok(), found.memory.works(), "{:?}", found.memory);
        if let Ok(guest) = launched {
            guest.stop();
        }
        let spec = cosm_spec::SandboxSpec {
            ids: cosm_spec::IdMode::Range,
            ..Default::default()
        };
        let launched = support::launch(spec, support::Options::default());
        assert_eq!(
            launched.is_ok(),
            found.id_range.works(),
            "{:?}",
            found.id_range
        );
        if let Ok(guest) = launched {
            guest.stop();
        }
    });
}

/// Runs one of the tests below where something is forbidden: in namespaces in which `script` went first.
fn where_forbidden(name: &str, script: &str) {
    let program = std::env::current_exe().expect("this program's path");
    let script = format!(
        "{script} && exec {} --exact {name} --ignored --nocapture",
        program.display()
    );
    let output = Command::new("unshare")
        .args(["-Urm", "--propagation", "private", "sh", "-c", &script])
        .output();
    match output {
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

#[test]
fn forbidden_namespaces_are_named() {
    where_forbidden(
        "inside_forbidden_namespaces",
        "echo 0 > /proc/sys/user/max_user_namespaces",
    );
}

#[test]
#[ignore = "run by forbidden_namespaces_are_named"]
fn inside_forbidden_namespaces() {
    let Support::No { why, help } = capabilities().launch else {
        panic!("nothing is forbidden")
    };
    assert_eq!(why, "user.max_user_namespaces is 0");
    assert_eq!(
        help.as_deref(),
        Some("sudo sysctl user.max_user_namespaces=15000")
    );
    let spec = cosm_spec::SandboxSpec {
        ids: cosm_spec::IdMode::Single,
        ..Default::default()
    };
    let error = support::launch(spec, support::Options::default())
        .err()
        .expect("an error");
    assert!(
        error
            .help()
            .is_some_and(|help| help.contains("max_user_namespaces")),
        "{error}"
    );
}

#[test]
fn a_masked_proc_is_named() {
    where_forbidden(
        "inside_a_masked_proc",
        "mount --bind /dev/null /proc/version",
    );
}

#[test]
#[ignore = "run by a_masked_proc_is_named"]
fn inside_a_masked_proc() {
    let Support::No { why, help } = capabilities().launch else {
        panic!("nothing is forbidden")
    };
    assert!(why.contains("proc"), "{why}");
    assert!(
        help.as_deref()
            .is_some_and(|help| help.contains("systempaths=unconfined")),
        "{help:?}"
    );
}
