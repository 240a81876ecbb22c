//! What a guest can't see and can't do, each with a control: the same attempt succeeds where the one guard is off.

mod support;

use cosm_spec::{Mount, MountSource, NetMode, Profile, SandboxSpec};
use support::{Options, as_root_and_user, launch, start};

fn bind(path: &str) -> Mount {
    Mount {
        target: path.into(),
        source: MountSource::Bind(path.into()),
        read_only: true,
    }
}

#[test]
fn the_guest_is_alone() {
    as_root_and_user("the_guest_is_alone", || {
        let guest = start(SandboxSpec {
            hostname: Some("box".into()),
            ..SandboxSpec::default()
        });
        assert_eq!(
            guest.ok("hostname; cat /etc/hostname; id -u; id -g"),
            "box\nbox\n0\n0"
        );
        let processes: usize = guest
            .ok("ls -d /proc/[0-9]* | wc -l")
            .parse()
            .expect("a number");
        assert!(processes < 6, "only its own processes: {processes}");
        assert_eq!(guest.ok("tr -d '\\0' < /proc/1/cmdline"), "cosm-agent");
        assert_eq!(
            guest.ok("cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '"),
            "lo"
        );
        assert_eq!(guest.ok("cat /proc/1/environ | wc -c"), "0");
        assert_eq!(
            guest.ok("ls /proc/1/fd | sort -n | head -5 | tr '\\n' ' '"),
            "0 1 2 3 4"
        );
        // The pid namespace's own first process leads a session without a terminal.
        assert_eq!(guest.ok("awk '{print $6, $7}' /proc/1/stat"), "1 0");
        for kind in ["mnt", "pid", "ipc", "uts", "net", "user", "cgroup", "time"] {
            let Ok(outside) = std::fs::read_link(format!("/proc/self/ns/{kind}")) else {
                continue;
            };
            assert_ne!(
                guest.ok(&format!("readlink /proc/self/ns/{kind}")),
                outside.to_string_lossy(),
                "{kind}"
            );
        }
        assert_eq!(guest.ok("grep -c cosm /proc/self/mountinfo | head -1 >/dev/null; ls -A /root /home /run/user 2>/dev/null | tr -d '\\n'"), "/home:/root:");
        guest.stop();
    });
}

#[test]
fn the_hosts_files_are_not_there() {
    as_root_and_user("the_hosts_files_are_not_there", || {
        let guest = start(SandboxSpec::default());
        for path in [
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/ssh",
            "/etc/ssl/private",
            "/etc/sudoers",
            "/boot",
            "/var/lib/dpkg",
        ] {
            guest.fails(&format!("ls {path}"));
        }
        for (path, kind) in [
            ("/home", "f"),
            ("/root", "f"),
            ("/run", "s"),
            ("/var", "s"),
            ("/tmp", "s"),
        ] {
            assert_eq!(
                guest.ok(&format!("find {path} -type {kind} 2>/dev/null")),
                "",
                "{path}"
            );
        }
        guest.fails("touch /usr/x");
        guest.fails("touch /usr/bin/sh");
        guest.fails("mount -o remount,rw /usr");
        guest.fails("umount /usr");
        assert_eq!(
            guest.ok("touch /tmp/x /root/x /home/x /var/tmp/x /run/x /dev/shm/x && echo yes"),
            "yes"
        );
        assert_eq!(
            guest.ok(
                "echo x > /dev/null; head -c 3 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c"
            ),
            "3\n3"
        );
        guest.stop();
        // The control: what is bound in can be read, by its permissions.
        let guest = start(SandboxSpec {
            mounts: vec![bind("/etc/passwd"), bind("/var/lib")],
            ..SandboxSpec::default()
        });
        guest.ok("grep -q daemon /etc/passwd && ls /var/lib/dpkg");
        guest.fails("touch /var/lib/x");
        guest.stop();
    });
}

#[test]
fn the_guests_root_is_nobody_outside() {
    as_root_and_user("the_guests_root_is_nobody_outside", || {
        // A secret of somebody else's in a folder of root's, bound in: the mount is not what keeps it, and a root that
        // was root outside could read it.
        if !support::is_root() {
            println!("skipped: only root can make a file of somebody else's");
            return;
        }
        use std::os::unix::fs::{PermissionsExt as _, chown};
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "secret").expect("write");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        chown(&secret, Some(4242), Some(4242)).expect("chown");
        let path = secret.to_str().expect("a path");
        let guest = start(SandboxSpec {
            mounts: vec![bind(folder.path().to_str().expect("a path"))],
            ..SandboxSpec::default()
        });
        guest.fails(&format!("cat {path}"));
        // The control: its permissions were all that stood in the way.
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o604)).expect("chmod");
        assert_eq!(guest.ok(&format!("cat {path}")), "secret");
        guest.stop();
    });
}

#[test]
fn proc_is_masked() {
    as_root_and_user("proc_is_masked", || {
        let guest = start(SandboxSpec::default());
        for path in [
            "/proc/kcore",
            "/proc/keys",
            "/proc/timer_list",
            "/proc/interrupts",
        ] {
            assert_eq!(
                guest.run(&format!("cat {path} 2>/dev/null | wc -c")).output,
                "0",
                "{path}"
            );
        }
        for path in [
            "/proc/sys/kernel/hostname",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sysrq-trigger",
        ] {
            guest.fails(&format!("echo 1 > {path}"));
        }
        guest.fails("echo c > /proc/irq/default_smp_affinity");
        guest.ok("cat /proc/meminfo /proc/self/status /proc/sys/kernel/osrelease > /dev/null");
        guest.stop();
    });
}

#[test]
fn rights_are_gone() {
    as_root_and_user("rights_are_gone", || {
        let guest = start(SandboxSpec::default());
        let status = guest.ok("grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status");
        for line in [
            "CapEff:\t00000000800424fb",
            "CapBnd:\t00000000800424fb",
            "CapInh:\t0000000000000000",
            "CapAmb:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(status.contains(line), "{line} in {status}");
        }
        for attempt in [
            "unshare -U true",
            "unshare -m true",
            "unshare -n true",
            "nsenter -t 1 -m true",
            "mount -t tmpfs x /mnt",
            "chroot / mount -t proc x /mnt",
        ] {
            guest.fails(attempt);
        }
        guest.stop();
        let guest = start(SandboxSpec {
            profile: Profile::Restricted,
            ..SandboxSpec::default()
        });
        let status = guest.ok("grep -E 'Cap' /proc/self/status");
        for set in ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"] {
            assert!(
                status.contains(&format!("{set}:\t0000000000000000")),
                "{set} in {status}"
            );
        }
        for path in ["/x", "/etc/x", "/var/x", "/opt/x"] {
            assert!(
                guest.fails(&format!("touch {path}")).contains("Read-only"),
                "{path}"
            );
        }
        guest.ok("touch /tmp/x /root/x /run/x /var/tmp/x /home/x");
        guest.stop();
    });
}

#[test]
fn another_user_is_itself() {
    as_root_and_user("another_user_is_itself", || {
        let spec = |profile| SandboxSpec {
            user: Some("1000".into()),
            profile,
            ..SandboxSpec::default()
        };
        let guest = start(spec(Profile::Restricted));
        assert_eq!(
            guest.ok(
                "id -u; id -g; id -un; touch /tmp/x; stat -c %u:%a /home/user; touch /home/user/x"
            ),
            "1000\n1000\nuser\n1000:700"
        );
        guest.stop();
        let guest = start(spec(Profile::Default));
        // With a range the agent stays root and becomes the user for each command.
        let wanted = if support::is_root() { "0" } else { "1000" };
        assert_eq!(guest.ok("id -u"), wanted);
        guest.stop();
    });
}

#[test]
fn abstract_sockets_of_a_shared_network_are_out_of_reach() {
    as_root_and_user(
        "abstract_sockets_of_a_shared_network_are_out_of_reach",
        || {
            use std::os::linux::net::SocketAddrExt as _;
            use std::os::unix::net::{SocketAddr, UnixListener};
            let name = format!("cosm-test-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).expect("a name");
            let _listener = UnixListener::bind_addr(&address).expect("bind");
            let connect = format!(
                "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')\""
            );
            if std::process::Command::new("sh")
                .args(["-c", &connect])
                .status()
                .is_ok_and(|s| !s.success())
            {
                println!("skipped: no python3 to connect with");
                return;
            }
            let spec = |net| SandboxSpec {
                net,
                ..SandboxSpec::default()
            };
            let guest = start(spec(NetMode::None));
            assert!(guest.fails(&connect).contains("refused"));
            guest.stop();
            match launch(spec(NetMode::Host), Options::default()) {
                Ok(guest) => {
                    // The control is the connection from outside above: same name, same network namespace.
                    assert!(
                        guest.fails(&connect).contains("not permitted"),
                        "Landlock keeps it away"
                    );
                    let inside = guest.ok("readlink /proc/self/ns/net");
                    assert_eq!(
                        inside,
                        std::fs::read_link("/proc/self/ns/net")
                            .expect("a link")
                            .to_string_lossy()
                    );
                    guest.stop();
                }
                Err(error) => assert!(error.to_string().contains("Landlock"), "{error}"),
            }
        },
    );
}

/// What the filter answers in a guest, beside what the same call answers outside of it.
#[test]
fn the_system_call_filter_answers() {
    as_root_and_user("the_system_call_filter_answers", || {
        const ENOSYS: i32 = 38;
        const EPERM: i32 = 1;
        // Arguments with which the call, were it let through, says something else.
        let calls = [
            (libc::SYS_clone3, "0, 0", ENOSYS),
            (libc::SYS_io_uring_setup, "0, 0", ENOSYS),
            (libc::SYS_keyctl, "0, -3, 0", EPERM),
            (libc::SYS_add_key, "0, 0, 0, 0, 0", EPERM),
            (libc::SYS_bpf, "0, 0, 0", EPERM),
            (libc::SYS_perf_event_open, "0, 0, -1, -1, 0", EPERM),
            (libc::SYS_userfaultfd, "-1", EPERM),
            (libc::SYS_setns, "-1, 0", EPERM),
            (libc::SYS_open_tree, "-1, 0, 0", EPERM),
            (libc::SYS_unshare, "0x10000000 | 0x800", EPERM),
            (libc::SYS_clone, "0x10000000 | 0x10000", EPERM),
            (libc::SYS_socket, "38, 5, 0", EPERM),
            (libc::SYS_socket, "16, 3, 12", EPERM),
            (libc::SYS_ioctl, "-1, 0x5412, 0", EPERM),
        ];
        let script = |number: i64, arguments: &str| {
            format!(
                "python3 -c \"import ctypes; l = ctypes.CDLL(None, use_errno=True); r = l.syscall({number}, {arguments}); print(ctypes.get_errno() if r == -1 else 0)\""
            )
        };
        let outside = |script: &str| {
            let output = std::process::Command::new("sh")
                .args(["-c", script])
                .output()
                .expect("sh");
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse::<i32>()
                .ok()
        };
        if outside(&script(libc::SYS_getpid, "0")).is_none() {
            return println!("skipped: no python3 to call with");
        }
        let guest = start(SandboxSpec::default());
        for (number, arguments, wanted) in calls {
            let script = script(number, arguments);
            assert_eq!(
                guest.ok(&script),
                wanted.to_string(),
                "{number} {arguments}"
            );
            // The control: without the filter each of them is known and answers otherwise, if root asks.
            if support::is_root() {
                assert_ne!(outside(&script), Some(wanted), "{number} {arguments}");
            }
        }
        assert_eq!(guest.ok("cat /proc/sys/user/max_user_namespaces"), "0");
        guest.stop();
        let guest = start(SandboxSpec {
            io_uring: true,
            ..SandboxSpec::default()
        });
        assert_ne!(guest.ok(&script(libc::SYS_io_uring_setup, "0, 0")), "38");
        guest.stop();
    });
}

#[test]
fn the_default_root_can_do_its_work() {
    as_root_and_user("the_default_root_can_do_its_work", || {
        let device = cosm_spec::Device {
            source: "/dev/zero".into(),
            target: "/dev/nothing/zero".into(),
        };
        let guest = start(SandboxSpec {
            devices: vec![device],
            ..SandboxSpec::default()
        });
        assert_eq!(guest.ok("head -c 5 /dev/nothing/zero | wc -c"), "5");
        // Its own network, names of its own, and tracing its own.
        for (there, script) in [
            ("command -v ping", "ping -c 1 -W 5 127.0.0.1"),
            (
                "python3 -c 'import socket'",
                "python3 -c \"import socket as s; l = s.create_server(('127.0.0.1', 80)); \
                 s.create_connection(('127.0.0.1', 80)); s.create_server(('::1', 81), family=s.AF_INET6)\"",
            ),
            (
                "command -v strace",
                "strace -f -o /tmp/trace sh -c true && grep -q exit_group /tmp/trace",
            ),
            (
                "python3 -c 'import multiprocessing'",
                "python3 -c \"import threading, multiprocessing as m; t = threading.Thread(target=print); t.start(); \
                 t.join(); m.Lock(); m.Pool(2).map(abs, [1])\"",
            ),
        ] {
            if guest.run(there).code == 0 {
                guest.ok(script);
            } else {
                println!("skipped: no {there}");
            }
        }
        guest.stop();
    });
}
