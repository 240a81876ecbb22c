//! Bytes out: none lost, none waited for in vain, none kept without bound.

use std::io::Read as _;
use std::time::Duration;

use cosm_attacks::{Case, House, Running, Verdict, fingerprint, resident_kib};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(output::endless_and_nobody_reads, 60),
    case!(output::full_speed_cut_by_exit, 120),
    case!(output::slow_reader, 60),
    case!(output::many_single_bytes, 60),
    case!(output::a_child_keeps_the_pipe, 60),
    case!(output::not_utf8, 60),
    case!(output::reader_goes_away, 60),
    case!(output::log_is_bounded, 120),
];

/// What the processes of one sandbox and its viewer may take beside the program's own pages, in KiB.
const FLAT: u64 = 32 * 1024;

fn endless_and_nobody_reads(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let mut viewer =
        Running::unread(house.cosm(["exec", "box", "--", "yes", "yes, and more of it"]));
    std::thread::sleep(Duration::from_secs(3));
    for process in house.processes() {
        let size = resident_kib(process.pid);
        assert!(
            size < FLAT,
            "{process:?} holds {size} KiB of output that nobody reads"
        );
    }
    assert_eq!(
        house.shell("box", "echo free").text(),
        "free",
        "one that stands still holds up nobody else"
    );
    viewer.kill();
    drop(viewer);
    let quiet = || {
        house
            .processes()
            .iter()
            .all(|process| !process.command.starts_with("yes"))
    };
    assert!(
        cosm_attacks::eventually(Duration::from_secs(5), quiet),
        "{:#?}",
        house.processes()
    );
    house.remove("box");
    Verdict::Passed
}

/// The last byte before an exit arrives, whatever the speed.
fn full_speed_cut_by_exit(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    for size in [1, 4096, 65_536, 65_537, 1_000_003, 33_554_432] {
        let script = format!("yes 0123456789abcde | head -c {size}; exit 3");
        let expected: Vec<u8> = b"0123456789abcde\n"
            .iter()
            .copied()
            .cycle()
            .take(size)
            .collect();
        for _ in 0..if size < 100_000 { 20 } else { 3 } {
            let done = house.shell("box", &script);
            assert_eq!(done.code(), Some(3), "{done:?}");
            assert_eq!(done.stdout.len(), size);
            assert_eq!(fingerprint(&done.stdout), fingerprint(&expected));
        }
    }
    let both = house.shell(
        "box",
        "head -c 300000 /dev/zero & head -c 200000 /dev/zero >&2; wait; kill -9 $$",
    );
    assert_eq!((both.stdout.len(), both.stderr.len()), (300_000, 200_000));
    assert_eq!(both.code(), Some(137));
    house.remove("box");
    Verdict::Passed
}

fn slow_reader(house: &House) -> Verdict {
    let script = "head -c 3000000 /dev/zero; echo end; exit 5";
    let mut command = Running::unread(house.cosm(["run", "--", "/bin/sh", "-c", script]));
    let mut stdout = command.stdout().expect("a pipe");
    let mut all = Vec::new();
    let mut part = vec![0; 200_000];
    loop {
        let count = stdout.read(&mut part).expect("a pipe");
        if count == 0 {
            break;
        }
        all.extend_from_slice(&part[..count]);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(all.len(), 3_000_004);
    assert!(all.ends_with(b"end\n"));
    assert_eq!(command.done(Duration::from_secs(20)).code(), Some(5));
    Verdict::Passed
}

fn many_single_bytes(house: &House) -> Verdict {
    let done = house.try_script(
        &[],
        "dd if=/dev/zero bs=1 count=500000 2>/dev/null; printf x",
    );
    assert_eq!(done.stdout.len(), 500_001, "{:?}", done.code());
    assert_eq!(done.stdout.last(), Some(&b'x'));
    Verdict::Passed
}

fn a_child_keeps_the_pipe(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let done = house.shell("box", "sleep 1000 & echo hi");
    assert_eq!((done.code(), done.text().as_str()), (Some(0), "hi"));
    assert!(done.took < Duration::from_secs(3), "{done:?}");
    let done = house.try_script(&[], "sleep 1000 & echo hi");
    assert_eq!((done.code(), done.text().as_str()), (Some(0), "hi"));
    assert!(done.took < Duration::from_secs(3), "{done:?}");
    house.remove("box");
    Verdict::Passed
}

fn not_utf8(house: &House) -> Verdict {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    house.sandbox("box", &[]);
    let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'\n').collect();
    let done = house.run([
        bytes(b"exec"),
        bytes(b"box"),
        bytes(b"--"),
        bytes(b"printf"),
        bytes(b"%s"),
        bytes(&every),
    ]);
    assert_eq!(done.stdout, every, "arguments and output are bytes");
    let variable = [b"V=".as_slice(), &every].concat();
    let done = house.run([
        bytes(b"exec"),
        bytes(b"--env"),
        bytes(&variable),
        bytes(b"box"),
        bytes(b"--"),
        bytes(b"sh"),
        bytes(b"-c"),
        bytes(b"printf %s \"$V\""),
    ]);
    assert_eq!(done.stdout, every, "so are variables: {done:?}");
    let name = b"/tmp/\xff\xfe name\x01";
    house.ok([
        bytes(b"exec"),
        bytes(b"box"),
        bytes(b"--"),
        bytes(b"touch"),
        bytes(name),
    ]);
    house.ok([
        bytes(b"exec"),
        bytes(b"-w"),
        bytes(b"/tmp"),
        bytes(b"box"),
        bytes(b"--"),
        bytes(b"test"),
        bytes(b"-e"),
        bytes(name),
    ]);
    let out = house.scratch("out");
    let mut from = b"box:".to_vec();
    from.extend_from_slice(name);
    house.ok([bytes(b"cp"), bytes(&from), out.into_os_string()]);
    house.remove("box");
    Verdict::Passed
}

/// A viewer whose own reader goes away ends as other programs do, and so does the command.
fn reader_goes_away(house: &House) -> Verdict {
    let mut viewer = Running::unread(house.cosm(["run", "--", "yes"]));
    let mut stdout = viewer.stdout().expect("a pipe");
    let mut part = [0; 100];
    stdout.read_exact(&mut part).expect("some of it");
    drop(stdout);
    let done = viewer.done(Duration::from_secs(10));
    assert_ne!(done.code(), Some(0));
    assert!(!done.said().contains("panicked"), "{done:?}");
    Verdict::Passed
}

fn log_is_bounded(house: &House) -> Verdict {
    house.sandbox(
        "box",
        &[
            "--log-size",
            "1m",
            "--",
            "/bin/sh",
            "-c",
            "yes | head -c 30000000; echo end; sleep 1000",
        ],
    );
    let ended = || house.run(["logs", "--tail", "1", "box"]).text() == "end";
    assert!(
        cosm_attacks::eventually(Duration::from_secs(30), ended),
        "{:?}",
        house.run(["logs", "--tail", "1", "box"])
    );
    let logs = std::fs::read_dir(house.state().join("v1/sandboxes"))
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|sandbox| {
            std::fs::read_dir(sandbox.path().join("logs"))
                .into_iter()
                .flatten()
                .flatten()
        })
        .map(|log| log.metadata().map_or(0, |meta| meta.len()))
        .sum::<u64>();
    assert!(logs > 0 && logs < 3 << 20, "the logs take {logs} bytes");
    house.remove("box");
    Verdict::Passed
}
