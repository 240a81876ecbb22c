//! What a guest's root reaches of the host. Each try has a control that shows that the try itself works.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use cosm_attacks::{Case, House, Verdict, has, is_root, skip};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(isolation::secrets_of_the_host, 90),
    case!(isolation::bound_in_it_is_read, 60),
    case!(isolation::homes, 60),
    case!(isolation::sockets_with_a_path, 60),
    case!(isolation::abstract_sockets, 60),
    case!(isolation::processes, 60),
    case!(isolation::environment_and_descriptors, 60),
    case!(isolation::kernel_switches, 60),
    case!(isolation::devices, 60),
    case!(isolation::new_namespaces, 60),
    case!(isolation::network, 60),
    case!(isolation::set_user_id_on_a_bind, 60),
    case!(isolation::here_is_read_only, 60),
    case!(isolation::folder_image_is_never_changed, 60),
];

/// Places that hold what a host keeps to itself, and that a program asks for by name.
const SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/shadow-",
    "/etc/sudoers",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssl/private",
    "/etc/machine-id",
    "/root/.ssh",
    "/root/.cargo",
    "/root/.bash_history",
    "/var/lib/dpkg/status",
    "/var/lib/docker",
    "/var/log",
    "/var/spool/cron",
    "/run/docker.sock",
    "/run/systemd",
    "/run/dbus",
    "/boot",
    "/proc/1/environ",
    "/proc/kcore",
    "/sys/kernel/debug",
    "/sys/kernel/security",
];

fn secrets_of_the_host(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let mut tried = 0;
    for secret in SECRETS {
        let path = Path::new(secret);
        let outside = if path.is_dir() {
            fs::read_dir(path).map(|entries| {
                entries
                    .flatten()
                    .map(|e| e.file_name().into_encoded_bytes())
                    .collect::<Vec<_>>()
                    .concat()
            })
        } else {
            read_some(path)
        };
        let Ok(outside) = outside else { continue };
        if outside.is_empty() || *secret == "/proc/1/environ" {
            continue;
        }
        tried += 1;
        let script = format!(
            "if [ -d {secret} ]; then ls -A {secret}; else head -c 64 {secret}; fi 2>/dev/null"
        );
        let inside = house.shell("box", &script);
        let seen: Vec<u8> = inside
            .stdout
            .iter()
            .copied()
            .filter(|byte| *byte != b'\n')
            .collect();
        let wanted: Vec<u8> = outside
            .iter()
            .copied()
            .filter(|byte| *byte != b'\n')
            .take(64)
            .collect();
        assert!(
            seen.is_empty() || !wanted.starts_with(&seen[..seen.len().min(16)]),
            "the guest reads {secret}: {inside:?}"
        );
    }
    println!(
        "{tried} of {} are readable from outside, so trying them means something",
        SECRETS.len()
    );
    assert!(tried > 0, "control: some of it can be read outside");
    house.remove("box");
    Verdict::Passed
}

fn read_some(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The control of all that can't be read: it is the mount that is missing, not the try that is wrong.
fn bound_in_it_is_read(house: &House) -> Verdict {
    let secret = house.folder().join("secret");
    fs::write(&secret, "hunter2").expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("ours");
    let path = secret.to_str().expect("a plain path");
    let without = house.run(["run", "--", "cat", path]);
    assert_ne!(without.code(), Some(0), "{without:?}");
    assert!(!without.text().contains("hunter2"));
    let with = house.run(["run", "--mount", path, "--", "cat", path]);
    assert_eq!(with.text(), "hunter2", "{with:?}");
    if is_root() && Path::new("/etc/shadow").exists() {
        let without = house.run(["run", "--", "cat", "/etc/shadow"]);
        assert!(!without.text().contains("root:"), "{without:?}");
        let with = house.run([
            "run",
            "--mount",
            "/etc/shadow:/mnt/shadow",
            "--",
            "cat",
            "/mnt/shadow",
        ]);
        assert!(with.text().contains("root:"), "{with:?}");
    }
    Verdict::Passed
}

fn homes(house: &House) -> Verdict {
    let done = house.try_script(&[], "find /home /root /tmp /run /srv /media /mnt -mindepth 1 2>/dev/null | head -n 20; echo HOME=$HOME");
    let found: Vec<String> = done.text().lines().map(str::to_owned).collect();
    for home in fs::read_dir("/home").into_iter().flatten().flatten() {
        let path = home.path().to_string_lossy().into_owned();
        assert!(!found.contains(&path), "{path} is seen: {done:?}");
    }
    let own = house.folder().to_str().expect("a plain path");
    let done = house.run(["run", "--", "ls", own]);
    assert_ne!(done.code(), Some(0), "{done:?}");
    assert!(Path::new(own).is_dir(), "control: it is there");
    Verdict::Passed
}

/// A client for sockets that is there on every Debian: perl-base.
fn knock(house: &House, options: &[&str], address: &str) -> cosm_attacks::Done {
    let program = format!(
        "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) or die; \
         connect(S, sockaddr_un({address})) or do {{ print \"closed: $!\"; exit 1 }}; print <S>;"
    );
    house.run(
        ["run"]
            .iter()
            .chain(options)
            .chain(&["--", "perl", "-e", &program]),
    )
}

fn greet(listener: UnixListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Who knocks may be gone.
            drop(stream.and_then(|mut stream| stream.write_all(b"welcome\n")));
        }
    });
}

fn sockets_with_a_path(house: &House) -> Verdict {
    if !has("perl") {
        return skip("there is no perl");
    }
    let folder = house.scratch("service");
    let path = folder.join("socket");
    greet(UnixListener::bind(&path).expect("a socket"));
    let address = format!("'{}'", path.display());
    let without = knock(house, &[], &address);
    assert!(without.text().contains("closed"), "{without:?}");
    let with = knock(
        house,
        &[
            "--mount",
            &format!("{}:{}:rw", folder.display(), folder.display()),
        ],
        &address,
    );
    assert_eq!(
        with.text(),
        "welcome",
        "control: bound in it answers: {with:?}"
    );
    Verdict::Passed
}

fn abstract_sockets(house: &House) -> Verdict {
    if !has("perl") {
        return skip("there is no perl");
    }
    let name = format!("cosm-attack-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    greet(UnixListener::bind_addr(&address).expect("a socket"));
    let code = format!(
        "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un(\"\\0{name}\")) or exit 1; print <S>;"
    );
    let outside = std::process::Command::new("perl")
        .args(["-e", &code])
        .output()
        .expect("perl");
    assert_eq!(outside.stdout, b"welcome\n", "control: outside it answers");
    let none = knock(house, &[], &format!("\"\\0{name}\""));
    assert!(none.text().contains("closed"), "{none:?}");
    // With the host's network only Landlock stands between (ABI 6), or the mode has to be asked for.
    let host = knock(house, &["--net", "host"], &format!("\"\\0{name}\""));
    println!("with --net host: {host:?}");
    Verdict::Passed
}

fn processes(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let own = std::process::id();
    let done = house.shell(
        "box",
        &format!("ls /proc | grep -c '^[0-9]'; kill -0 {own} 2>&1; ls /proc/{own} 2>&1"),
    );
    let count: u32 = done
        .text()
        .lines()
        .next()
        .and_then(|line| line.parse().ok())
        .unwrap_or(u32::MAX);
    assert!(count < 12, "{count} processes are seen: {done:?}");
    assert!(
        Path::new(&format!("/proc/{own}")).exists(),
        "control: outside it is seen"
    );
    house.remove("box");
    Verdict::Passed
}

fn environment_and_descriptors(house: &House) -> Verdict {
    let secret = fs::File::open("/etc/passwd").expect("a file");
    let mut command = house.cosm([
        "run",
        "--",
        "/bin/sh",
        "-c",
        "env; echo --; ls -l /proc/self/fd | grep -v ' -> /proc'; echo --; tty",
    ]);
    command
        .env("AWS_SECRET_ACCESS_KEY", "hunter2")
        .env("LD_PRELOAD", "");
    let done = cosm_attacks::Running::start(command).done(std::time::Duration::from_secs(20));
    assert!(!done.text().contains("hunter2"), "{done:?}");
    assert!(!done.text().contains("passwd"), "{done:?}");
    assert!(done.text().contains("not a tty"), "{done:?}");
    drop(secret);
    let given = house.run(["run", "--env", "KEY=hunter2", "--", "env"]);
    assert!(
        given.text().contains("KEY=hunter2"),
        "control: what is given arrives: {given:?}"
    );
    // Not in what everybody of this machine can read, either.
    house.sandbox("box", &["--env", "KEY=hunter2"]);
    for process in house.processes() {
        assert!(!process.command.contains("hunter2"), "{process:?}");
    }
    house.remove("box");
    Verdict::Passed
}

/// Each is given the value that it has, so that a success does the host no harm.
fn kernel_switches(house: &House) -> Verdict {
    let writes = "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/overcommit_memory \
                  /proc/sysrq-trigger /proc/irq/default_smp_affinity /sys/kernel/uevent_helper /sys/fs/cgroup/cgroup.procs \
                  /proc/sys/fs/binfmt_misc/register; do \
                  v=$(cat $f 2>/dev/null || echo x); [ -e $f ] && ( echo $v > $f ) 2>/dev/null && echo $f; done; true";
    let done = house.try_script(&[], writes);
    assert_eq!(done.text(), "", "written: {done:?}");
    let control = house.try_script(&[], "echo x > /tmp/f && echo /tmp/f");
    assert_eq!(
        control.text(),
        "/tmp/f",
        "control: writing works where it may"
    );
    let mounts = house.try_script(&[], "mount -t tmpfs none /mnt 2>&1; mount -o remount,rw / 2>&1; mount -t proc p /mnt 2>&1; touch /usr/x 2>&1; ls /usr/x");
    assert_ne!(mounts.code(), Some(0), "{mounts:?}");
    Verdict::Passed
}

fn devices(house: &House) -> Verdict {
    let done = house.try_script(&[], "ls /dev; mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk | wc -c; mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem | wc -c; true");
    for device in ["mem", "kmsg", "sda", "vda", "loop0", "kvm", "port", "fuse"] {
        assert!(
            !done.text().lines().any(|line| line == device),
            "{device} is there: {done:?}"
        );
    }
    assert!(
        !done.text().lines().any(|line| line == "1"),
        "a device made inside could be read: {done:?}"
    );
    let usual = house.try_script(&[], "echo x > /dev/null && head -c 3 /dev/zero | wc -c && head -c 2 /dev/urandom | wc -c && echo y > /dev/full");
    assert_eq!(
        usual.text(),
        "3\n2",
        "control: the usual ones work: {usual:?}"
    );
    assert_ne!(usual.code(), Some(0));
    Verdict::Passed
}

fn new_namespaces(house: &House) -> Verdict {
    if !has("unshare") {
        return skip("there is no unshare");
    }
    for flag in [
        "--user", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup",
    ] {
        let done = house.run(["run", "--", "unshare", flag, "--", "true"]);
        assert_ne!(done.code(), Some(0), "unshare {flag} worked: {done:?}");
    }
    let threads = house.run([
        "run",
        "--",
        "perl",
        "-e",
        "my $p = fork; exit 0 unless $p; waitpid $p, 0; print 'forked'",
    ]);
    if has("perl") {
        assert_eq!(
            threads.text(),
            "forked",
            "control: plain clones work: {threads:?}"
        );
    }
    Verdict::Passed
}

fn network(house: &House) -> Verdict {
    let interfaces = |options: &[&str]| house.try_script(options, "grep -c : /proc/net/dev").text();
    assert_eq!(interfaces(&[]), "1", "only the loopback interface");
    let outside = fs::read_to_string("/proc/net/dev")
        .unwrap_or_default()
        .lines()
        .filter(|line| line.contains(':'))
        .count();
    assert_eq!(
        interfaces(&["--net", "host"]),
        outside.to_string(),
        "control: the host's are the host's"
    );
    if has("perl") {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let code = format!(
            "use IO::Socket::INET; print IO::Socket::INET->new('127.0.0.1:{port}') ? 'open' : 'closed'"
        );
        assert_eq!(
            house.run(["run", "--", "perl", "-e", &code]).text(),
            "closed"
        );
        assert_eq!(
            house
                .run(["run", "--net", "host", "--", "perl", "-e", &code])
                .text(),
            "open",
            "control"
        );
        let own = "use IO::Socket::INET; my $l = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die; \
                   print IO::Socket::INET->new('127.0.0.1:' . $l->sockport) ? 'open' : 'closed'";
        assert_eq!(
            house.run(["run", "--", "perl", "-e", own]).text(),
            "open",
            "its own loopback is up"
        );
    }
    Verdict::Passed
}

/// What a guest leaves in a folder belongs to the folder's owner, also a program that runs as its owner, and nobody else.
fn set_user_id_on_a_bind(house: &House) -> Verdict {
    let folder = house.scratch("shared");
    if is_root() {
        std::os::unix::fs::chown(&folder, Some(65_001), Some(65_002)).expect("root may");
    }
    let owner = fs::metadata(&folder).expect("ours").uid();
    let mount = format!("{0}:{0}:rw", folder.display());
    let script = format!(
        "cp /bin/true {0}/suid; chmod 6755 {0}/suid; mknod {0}/disk b 254 0; echo x > {0}/file",
        folder.display()
    );
    house.try_script(&["--mount", &mount], &script);
    let file: PathBuf = folder.join("file");
    assert_eq!(
        fs::metadata(&file)
            .expect("control: the guest may write here")
            .uid(),
        owner
    );
    assert!(!folder.join("disk").exists(), "a device node came out");
    if let Ok(meta) = fs::metadata(folder.join("suid")) {
        assert_eq!(
            meta.uid(),
            owner,
            "a set-user-id program of somebody else's came out: mode {:o}",
            meta.mode()
        );
    }
    Verdict::Passed
}

fn here_is_read_only(house: &House) -> Verdict {
    let folder = house.scratch("project");
    fs::write(folder.join("x.sh"), "echo from here; echo changed > x.sh").expect("a file");
    let here = |option: &str| {
        let mut command = house.cosm(["run", option, "--", "sh", "x.sh"]);
        command.current_dir(&folder);
        cosm_attacks::Running::start(command).done(std::time::Duration::from_secs(20))
    };
    let done = here("--here");
    assert_eq!(done.text(), "from here", "{done:?}");
    assert!(
        fs::read_to_string(folder.join("x.sh"))
            .expect("a file")
            .starts_with("echo from"),
        "it was changed"
    );
    here("--here=rw");
    assert_eq!(
        fs::read_to_string(folder.join("x.sh")).expect("a file"),
        "changed\n",
        "control: writable when asked for"
    );
    Verdict::Passed
}

fn folder_image_is_never_changed(house: &House) -> Verdict {
    let Some(root) = super::reference::busybox_root(house) else {
        return skip("there is no busybox to make a root file system of");
    };
    let text = root.to_str().expect("a plain path");
    fs::write(root.join("data"), "as it was").expect("a file");
    let script = "echo changed > /data; rm -rf /bin/ls; mkdir /new; chmod 700 /etc; cat /data";
    let done = house.run(["run", text, "--", "/bin/sh", "-c", script]);
    assert_eq!(
        done.text(),
        "changed",
        "control: inside it is changed: {done:?}"
    );
    assert_eq!(
        fs::read_to_string(root.join("data")).expect("a file"),
        "as it was"
    );
    assert!(root.join("bin/ls").exists() && !root.join("new").exists());
    Verdict::Passed
}
