//! A person at a terminal: a pseudo terminal whose other end the test holds.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::Cosm;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, tcgetattr};

struct Terminal {
    keyboard: File,
    screen: mpsc::Receiver<Vec<u8>>,
    seen: String,
    /// Held open, to look at the mode after the program has ended.
    terminal: OwnedFd,
    child: Child,
}

impl Terminal {
    /// Runs the program at a terminal of 30 rows and 100 columns. `setsid --ctty` makes it the controlling one.
    fn run(cosm: &Cosm, args: &[&str]) -> Self {
        let (controller, name) = cosm_sys::pty::open().expect("a pseudo terminal");
        cosm_sys::pty::resize(&controller, 30, 100).expect("resize");
        let open = || {
            rustix::fs::open(
                &name,
                OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .expect("open")
        };
        let program = cosm.command(args);
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .arg(program.get_program())
            .args(args);
        command.env_clear();
        for (name, value) in program.get_envs() {
            command.env(name, value.expect("set"));
        }
        command.env("TERM", "vt100");
        let child = command
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("starts");
        let keyboard = File::from(controller);
        let mut reader = keyboard.try_clone().expect("clone");
        let (tell, screen) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if tell.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            keyboard,
            screen,
            seen: String::new(),
            terminal: open(),
            child,
        }
    }

    fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("typing");
    }

    fn shows(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.seen.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("never on the screen: {text:?}; there is {:?}", self.seen),
            }
        }
    }

    fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.terminal).expect("a terminal").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    fn ends(mut self) -> Option<i32> {
        let code = self.child.wait().expect("ends").code();
        assert!(self.is_cooked(), "the terminal is as it was before");
        code
    }
}

#[test]
fn a_shell_at_a_terminal() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let mut terminal = Terminal::run(&cosm, &["exec", "-it", "box", "--", "sh"]);
    terminal.types(b"stty size; echo $TERM $((40 + 2))\r");
    terminal.shows("30 100");
    terminal.shows("vt100 42");
    assert!(!terminal.is_cooked());
    rustix::termios::tcsetwinsize(
        &terminal.terminal,
        rustix::termios::Winsize {
            ws_row: 41,
            ws_col: 99,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )
    .expect("resize");
    std::thread::sleep(Duration::from_millis(300));
    terminal.types(b"stty size\r");
    terminal.shows("41 99");
    terminal.types(b"exit 9\r");
    assert_eq!(terminal.ends(), Some(9));
}

#[test]
fn keys_detach_and_the_job_goes_on() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let mut terminal = Terminal::run(
        &cosm,
        &[
            "exec",
            "-it",
            "--detach-keys",
            "ctrl-p,ctrl-q",
            "box",
            "--",
            "cat",
        ],
    );
    terminal.types(b"hello\r");
    terminal.shows("hello\r\nhello");
    // A part of the sequence is an ordinary key.
    terminal.types(b"\x10x\r");
    terminal.shows("x\r\n");
    terminal.types(b"\x10\x11");
    terminal.shows("cosm attach box");
    assert_eq!(terminal.ends(), Some(0));
    let jobs = cosm.json(["jobs", "box", "--json"]);
    assert_eq!(jobs[0]["running"], true, "{jobs}");
    let id = jobs[0]["id"].as_str().expect("an id").to_owned();

    let mut terminal = Terminal::run(&cosm, &["attach", "box", &id]);
    terminal.shows("hello");
    terminal.types(b"again\r");
    terminal.shows("again\r\nagain");
    terminal.types(b"\x1d");
    terminal.shows("detached");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn keys_detach_from_a_main_job_and_its_sandbox_goes_on() {
    let cosm = Cosm::new();
    let mut terminal = Terminal::run(&cosm, &["run", "-it", "--name", "box", "--", "sh"]);
    terminal.types(b"stty size; echo $TERM\r");
    terminal.shows("30 100");
    terminal.shows("vt100");
    terminal.types(b"\x1d");
    terminal.shows("cosm attach box main");
    assert_eq!(terminal.ends(), Some(0));
    // Its starter is gone for longer than a lease would take to end.
    std::thread::sleep(Duration::from_millis(500));
    let jobs = cosm.json(["jobs", "box", "--json"]);
    assert_eq!(jobs[0]["running"], true, "{jobs}");

    let mut terminal = Terminal::run(&cosm, &["attach", "box"]);
    terminal.types(b"echo still $((40 + 2))\r");
    terminal.shows("still 42");
    terminal.types(b"exit 9\r");
    assert_eq!(terminal.ends(), Some(9));
    cosm.fails(9, ["wait", "box"]);

    // Started again it has a terminal, too.
    cosm.ok(["start", "box"]);
    let mut terminal = Terminal::run(&cosm, &["attach", "box"]);
    terminal.types(b"test -t 0 && exit 4\r");
    assert_eq!(terminal.ends(), Some(4));
}

#[test]
fn the_terminal_is_restored_when_the_sandbox_dies() {
    let cosm = Cosm::new();
    cosm.ok(["create", "--name", "box"]);
    let mut terminal = Terminal::run(&cosm, &["shell", "box"]);
    terminal.types(b"echo up$((1 + 1))\r");
    terminal.shows("up2");
    cosm.ok(["kill", "box"]);
    assert_ne!(terminal.ends(), Some(0));
}

#[test]
fn the_terminal_is_restored_by_a_signal() {
    let cosm = Cosm::new();
    let mut terminal = Terminal::run(&cosm, &["run", "-it"]);
    terminal.types(b"echo up$((1 + 1))\r");
    terminal.shows("up2");
    // setsid is replaced by the program, or is its parent.
    let is_it = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| words.ends_with(b"\0run\0-it\0"))
            && cosm_sys::procfs::stat(*pid).is_ok_and(|stat| stat.session == *pid)
    };
    let own = terminal.child.id().cast_signed();
    let is_below = |pid: &i32| {
        *pid == own || cosm_sys::procfs::stat(*pid).is_ok_and(|stat| stat.parent == own)
    };
    let pids = cosm_sys::procfs::pids().expect("proc");
    // The keeper leads a session and has these arguments, too, but has no terminal.
    let has_terminal = |pid: &i32| {
        std::fs::read_link(format!("/proc/{pid}/fd/0")).is_ok_and(|p| p.starts_with("/dev/pts"))
    };
    let program = pids
        .into_iter()
        .find(|pid| is_below(pid) && is_it(pid) && has_terminal(pid));
    let pid = program
        .and_then(rustix::process::Pid::from_raw)
        .expect("the program runs");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
    assert_eq!(terminal.ends(), Some(143));
    crate::common::until("it is gone", || cosm.ok(["ls", "-q"]).is_empty());
}
