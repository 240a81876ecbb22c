//! Guests for tests: started by the driver, with a stand-in for the agent that runs shell scripts.
#![expect(dead_code, reason = "no test uses all of it")]

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cosm_base::{RunId, SandboxId};
use cosm_driver::{
    Driver as _, Guest as _, GuestExit, IdRange, LaunchError, LaunchFacts, LaunchPlan, RunRecord,
};
use cosm_driver_ns::{NsDriver, NsGuest};
use cosm_spec::SandboxSpec;

const AS_USER: &str = "COSM_TEST_AS_USER";

/// The first of the ids that guests of root get in tests.
pub(crate) const FIRST_ID: u32 = 3_000_000;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a test as whoever runs the tests, and when that is root, then as an ordinary user too.
pub(crate) fn as_root_and_user(name: &str, test: impl Fn()) {
    test();
    as_user(name);
}

/// Runs the test of this name once more as an ordinary user, if root runs the tests.
pub(crate) fn as_user(name: &str) {
    if !is_root() {
        return;
    }
    let Some((uid, gid)) = ordinary_user() else {
        println!("skipped as an ordinary user: /etc/subuid names no user of /etc/passwd");
        return;
    };
    // Whoever comes next may not be able to build it.
    probe();
    let status = Command::new("setpriv")
        .args([
            &format!("--reuid={uid}"),
            &format!("--regid={gid}"),
            "--clear-groups",
            "--",
        ])
        .arg(std::env::current_exe().expect("this program's path"))
        .args(["--exact", name, "--nocapture"])
        .env(AS_USER, "1")
        .current_dir("/")
        .status();
    match status {
        Ok(status) => assert!(status.success(), "as user {uid}: {status}"),
        Err(error) => println!("skipped as an ordinary user: setpriv: {error}"),
    }
}

/// A user with subordinate ids.
pub(crate) fn ordinary_user() -> Option<(u32, u32)> {
    let ranges = std::fs::read_to_string("/etc/subuid").ok()?;
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let owns = ranges
            .lines()
            .any(|range| range.split(':').next() == Some(fields[0]));
        let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
        (owns && uid != 0).then_some((uid, gid))
    })
}

/// The stand-in for the agent, built once. A test that forks calls it first: what fails in a copy of this process is
/// not said to anybody.
pub(crate) fn probe() -> &'static [u8] {
    static PROBE: OnceLock<&'static [u8]> = OnceLock::new();
    PROBE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = folder.path().join("probe");
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../sys/tests/support/stand_in_agent.rs");
        let text = include_str!("../../../sys/tests/support/stand_in_agent.rs");
        let version = text.bytes().fold(0_u32, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("stand-in-agent-{version:08x}"));
        if let Ok(found) = std::fs::read(&built) {
            return found.leak();
        }
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition=2024", "-O", "-Cpanic=abort", "-Cstrip=symbols"]);
        rustc.args([
            "-Ctarget-feature=+crt-static",
            "-Crelocation-model=static",
            "-o",
        ]);
        let status = rustc
            .arg(&program)
            .arg(source)
            .status()
            .unwrap_or_else(|error| {
                panic!("rustc, which builds the stand-in for the agent, does not start: {error}")
            });
        assert!(status.success(), "the stand-in agent builds");
        let bytes = std::fs::read(&program).expect("the stand-in agent");
        // Kept for the tests that run as somebody else.
        let staged = built.with_extension(std::process::id().to_string());
        std::fs::write(&staged, &bytes).expect("write");
        std::fs::rename(&staged, &built).expect("rename");
        std::fs::set_permissions(&built, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        bytes.leak()
    })
}

/// What a script in a guest did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) output: String,
}

/// A running guest.
pub(crate) struct Guest {
    pub(crate) guest: NsGuest,
    pub(crate) facts: LaunchFacts,
    pub(crate) record: RunRecord,
    pub(crate) driver: NsDriver,
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

/// What a test wants besides the spec.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) data: Option<PathBuf>,
    pub(crate) scripts: Option<PathBuf>,
    pub(crate) fail_record: bool,
    /// Kills the guest's first process when it is recorded, and waits for its end.
    pub(crate) kill_at_record: bool,
    pub(crate) agent: Option<&'static [u8]>,
}

pub(crate) fn random_bytes() -> [u8; 8] {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut bytes))
        .expect("random bytes");
    bytes
}

pub(crate) fn launch(spec: SandboxSpec, options: Options) -> Result<Guest, LaunchError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("agent");
    let listener = UnixListener::bind(&socket).expect("bind");
    let recorded = Rc::new(RefCell::new(None));
    let record = Rc::clone(&recorded);
    let plan = LaunchPlan {
        id: SandboxId::from_random(random_bytes()),
        run: RunId::from_random(random_bytes()),
        spec,
        agent: options.agent.unwrap_or_else(probe),
        listener: listener.into(),
        data: options.data,
        scripts: options.scripts,
        id_range: is_root().then_some(IdRange {
            first: FIRST_ID,
            count: 65_536,
        }),
        record: Box::new(move |run| {
            *record.borrow_mut() = Some(run.clone());
            if options.kill_at_record {
                kill_and_wait(run.init.map_or(0, |init| init.pid));
            }
            if options.fail_record {
                Err(std::io::Error::other("no space"))
            } else {
                Ok(())
            }
        }),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let driver = NsDriver::new();
    let launched = runtime.block_on(driver.launch(plan))?;
    let record = recorded.borrow_mut().take().expect("the run was recorded");
    Ok(Guest {
        guest: launched.guest,
        facts: launched.facts,
        record,
        driver,
        socket,
        runtime,
        _folder: folder,
    })
}

/// Kills a child of this process and waits until it is one that has ended, which is left for others to reap.
fn kill_and_wait(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
    while cosm_sys::procfs::stat(pid.as_raw_nonzero().get()).is_ok_and(|stat| stat.state != b'Z') {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a guest that must start.
pub(crate) fn start(spec: SandboxSpec) -> Guest {
    start_with(spec, Options::default())
}

pub(crate) fn start_with(spec: SandboxSpec, options: Options) -> Guest {
    launch(spec, options).unwrap_or_else(|error| {
        panic!(
            "{error}: {:?}; {:?}",
            std::error::Error::source(&error),
            error.help()
        )
    })
}

impl Guest {
    /// Runs a script and returns its output.
    pub(crate) fn run(&self, script: &str) -> Ran {
        let mut connection = UnixStream::connect(&self.socket).expect("the agent listens");
        connection
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a timeout");
        connection.write_all(script.as_bytes()).expect("write");
        connection
            .shutdown(std::net::Shutdown::Write)
            .expect("shutdown");
        let mut answer = Vec::new();
        let asked = Instant::now();
        if let Err(error) = connection.read_to_end(&mut answer) {
            panic!(
                "no answer to {script:?} after {:?}: {error}; read {:?}\n{}",
                asked.elapsed(),
                String::from_utf8_lossy(&answer),
                self.processes(),
            );
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (output, code) = answer
            .trim_end()
            .rsplit_once('\n')
            .unwrap_or(("", answer.trim_end()));
        Ran {
            code: code.parse().unwrap_or(-3),
            output: output.trim_end().to_owned(),
        }
    }

    /// What the kernel says of the guest's processes, for a test that has to give up on them.
    fn processes(&self) -> String {
        let Some(init) = self.record.init else {
            return "its first process was not recorded".to_owned();
        };
        let mut pids = vec![init.pid];
        pids.extend(cosm_sys::procfs::descendants(init.pid));
        let mut said = String::new();
        for pid in pids {
            said += &format!("process {pid}:\n");
            for file in ["stat", "wchan", "syscall", "stack", "cmdline"] {
                let text = std::fs::read(format!("/proc/{pid}/{file}"));
                let text = text.map_or_else(
                    |error| error.to_string(),
                    |bytes| String::from_utf8_lossy(&bytes).replace('\0', " "),
                );
                said += &format!("  {file}: {}\n", text.trim().replace('\n', "\n    "));
            }
        }
        said
    }

    /// Says something to the stand-in agent without waiting for an answer.
    pub(crate) fn tell(&self, what: &str) {
        let mut connection = UnixStream::connect(&self.socket).expect("the agent listens");
        connection.write_all(what.as_bytes()).expect("write");
    }

    /// Runs a script that must succeed.
    pub(crate) fn ok(&self, script: &str) -> String {
        let ran = self.run(script);
        assert_eq!(ran.code, 0, "{script}: {}", ran.output);
        ran.output
    }

    /// Runs a script that must fail.
    pub(crate) fn fails(&self, script: &str) -> String {
        let ran = self.run(script);
        assert_ne!(ran.code, 0, "{script}: {}", ran.output);
        ran.output
    }

    /// Ends the guest.
    pub(crate) fn stop(mut self) -> GuestExit {
        self.guest.kill().expect("kill");
        self.runtime.block_on(self.guest.wait())
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> GuestExit {
        self.runtime.block_on(self.guest.wait())
    }

    /// Waits for its end, but no longer than this, as a keeper does all the time.
    pub(crate) fn wait_for(&mut self, time: Duration) {
        let ended = self
            .runtime
            .block_on(async { tokio::time::timeout(time, self.guest.wait()).await });
        assert!(ended.is_err(), "it ended: {ended:?}");
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// A folder with a static shell: the smallest image.
pub(crate) fn busybox_image() -> Option<tempfile::TempDir> {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"]
        .into_iter()
        .find(|path| is_static(Path::new(path)))?;
    let image = tempfile::tempdir().expect("a temporary folder");
    std::fs::set_permissions(image.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    for folder in ["bin", "etc", "root", "tmp"] {
        std::fs::create_dir(image.path().join(folder)).expect("mkdir");
    }
    std::fs::set_permissions(
        image.path().join("tmp"),
        std::fs::Permissions::from_mode(0o1777),
    )
    .expect("chmod");
    std::fs::copy(busybox, image.path().join("bin/busybox")).expect("copy");
    let applets = Command::new(busybox)
        .arg("--list")
        .output()
        .expect("busybox runs");
    for applet in String::from_utf8_lossy(&applets.stdout)
        .lines()
        .filter(|name| *name != "busybox")
    {
        std::os::unix::fs::symlink("busybox", image.path().join("bin").join(applet)).expect("link");
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:ann:/:/bin/sh\n";
    std::fs::write(image.path().join("etc/passwd"), passwd).expect("write");
    std::fs::write(image.path().join("etc/group"), "root:x:0:\nann:x:1000:\n").expect("write");
    std::fs::write(image.path().join("etc/kept"), "of the image\n").expect("write");
    Some(image)
}

fn is_static(path: &Path) -> bool {
    Command::new("ldd")
        .arg(path)
        .output()
        .is_ok_and(|out| !out.status.success())
        && path.exists()
}
