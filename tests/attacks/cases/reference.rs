//! The same trials on cosm and on the programs that others use: where they disagree, either is wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cosm_attacks::{Case, Done, House, Running, Verdict, has, is_root, skip};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(reference::cosm, 60),
    case!(reference::bubblewrap, 60),
    case!(reference::runc, 90),
];

struct Trial {
    name: &'static str,
    script: &'static str,
    /// What it prints.
    says: &'static str,
    code: i32,
}

/// Trials with a `/bin/sh` of busybox. All of them hold in any container that isolates.
const TRIALS: &[Trial] = &[
    Trial {
        name: "its code passes",
        script: "exit 42",
        says: "",
        code: 42,
    },
    Trial {
        name: "a signal is 128 and its number",
        script: "sh -c 'kill -KILL $$'; exit $?",
        says: "",
        code: 137,
    },
    Trial {
        name: "no input is the end of file",
        script: "cat; echo end",
        says: "end",
        code: 0,
    },
    Trial {
        name: "only the loopback interface",
        script: "grep -c : /proc/net/dev",
        says: "1",
        code: 0,
    },
    Trial {
        name: "its own processes only",
        script: "[ $(ls /proc | grep -c '^[0-9]') -lt 10 ] && echo few",
        says: "few",
        code: 0,
    },
    Trial {
        name: "root in its own user table",
        script: "id -u",
        says: "0",
        code: 0,
    },
    Trial {
        name: "null swallows",
        script: "echo x > /dev/null && echo ok",
        says: "ok",
        code: 0,
    },
    Trial {
        name: "zero gives",
        script: "head -c 5 /dev/zero | wc -c",
        says: "5",
        code: 0,
    },
    Trial {
        name: "no disks",
        script: "ls /dev | grep -c -e '^[sv]da' -e '^loop' -e '^kmsg' -e '^mem$'",
        says: "0",
        code: 1,
    },
    Trial {
        name: "no switch of the kernel's",
        // The value that it has: a trial that succeeds changes nothing.
        script: "v=$(cat /proc/sys/vm/swappiness); (echo $v > /proc/sys/vm/swappiness) 2>/dev/null || echo no",
        says: "no",
        code: 0,
    },
    Trial {
        name: "no request to the kernel",
        script: "(echo h > /proc/sysrq-trigger) 2>/dev/null || echo no",
        says: "no",
        code: 0,
    },
    Trial {
        name: "memory for files",
        script: "echo x > /tmp/f && cat /tmp/f",
        says: "x",
        code: 0,
    },
    Trial {
        name: "descriptors by name",
        script: "echo x | cat /dev/stdin",
        says: "x",
        code: 0,
    },
    Trial {
        name: "orphans do not stay",
        script: "(sleep 0.1 &); sleep 0.4; grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l",
        says: "0",
        code: 0,
    },
    Trial {
        name: "the host is not there",
        script: "ls /work-of-nobody /etc/shadow 2>/dev/null | wc -l",
        says: "0",
        code: 0,
    },
];

/// A root file system of busybox alone.
pub(super) fn busybox_root(house: &House) -> Option<PathBuf> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.exists())?;
    let root = house.scratch("rootfs");
    for folder in [
        "bin", "dev", "etc", "proc", "root", "sys", "tmp", "run", "usr",
    ] {
        fs::create_dir(root.join(folder)).expect("a folder");
    }
    fs::copy(busybox, root.join("bin/busybox")).expect("busybox");
    for applet in [
        "sh", "cat", "ls", "grep", "head", "wc", "id", "sleep", "kill", "echo", "rm", "mkdir",
        "chmod", "true",
    ] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).expect("a link");
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("a file");
    fs::write(root.join("etc/group"), "root:x:0:\n").expect("a file");
    Some(root)
}

fn try_all(house: &House, run: impl Fn(&Path, &str) -> Done) -> Verdict {
    let Some(root) = busybox_root(house) else {
        return skip("there is no busybox to make a root file system of");
    };
    let mut wrong = Vec::new();
    for trial in TRIALS {
        let done = run(&root, trial.script);
        if done.text() != trial.says || done.code() != Some(trial.code) {
            wrong.push(format!("{}: {done:?}", trial.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Verdict::Passed
}

fn cosm(house: &House) -> Verdict {
    try_all(house, |root, script| {
        house.run([
            Path::new("run").as_os_str(),
            root.as_os_str(),
            "--".as_ref(),
            "/bin/sh".as_ref(),
            "-c".as_ref(),
            script.as_ref(),
        ])
    })
}

fn bubblewrap(house: &House) -> Verdict {
    if !has("bwrap") {
        return skip("there is no bwrap");
    }
    try_all(house, |root, script| {
        // Its root is root outside when root starts it, and may do to the kernel what that may.
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid",
                "65001",
                "--regid",
                "65001",
                "--clear-groups",
                "bwrap",
            ]);
            command
        } else {
            Command::new("bwrap")
        };
        house.furnish(&mut command);
        command.args([
            "--unshare-all",
            "--uid",
            "0",
            "--gid",
            "0",
            "--cap-drop",
            "ALL",
            "--ro-bind",
        ]);
        command
            .arg(root)
            .args(["/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        command.args(["--", "/bin/sh", "-c", script]);
        Running::start(command).done(Duration::from_secs(20))
    })
}

fn runc(house: &House) -> Verdict {
    if !has("runc") {
        return skip("there is no runc");
    }
    if !is_root() {
        return skip("runc's folder of bundles is made by root here");
    }
    let number = std::cell::Cell::new(0);
    try_all(house, |root, script| {
        number.set(number.get() + 1);
        let bundle = house.scratch(&format!("bundle{}", number.get()));
        let spec = Command::new("runc")
            .args(["spec", "--bundle"])
            .arg(&bundle)
            .output()
            .expect("runc");
        assert!(spec.status.success(), "{spec:?}");
        let file = bundle.join("config.json");
        let mut config: serde_json::Value =
            serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
        config["process"]["terminal"] = false.into();
        config["process"]["args"] = serde_json::json!(["/bin/sh", "-c", script]);
        config["root"] = serde_json::json!({"path": root, "readonly": true});
        if let Some(mounts) = config["mounts"].as_array_mut() {
            mounts.push(
                serde_json::json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}),
            );
        }
        fs::write(&file, config.to_string()).expect("a file");
        let mut command = Command::new("runc");
        house.furnish(&mut command);
        command.arg("--root").arg(house.folder().join("runc"));
        command.args(["run", "--bundle"]).arg(&bundle);
        command.arg(format!(
            "cosm-trial-{}-{}",
            std::process::id(),
            number.get()
        ));
        Running::start(command).done(Duration::from_secs(20))
    })
}
