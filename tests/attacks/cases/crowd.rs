//! Many at once.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cosm_attacks::{Case, House, Process, Running, Verdict, eventually};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(crowd::thousand_short_execs, 240),
    case!(crowd::two_hundred_runs, 240),
    case!(crowd::sixty_four_creates, 120),
    case!(crowd::more_connections_than_the_backlog, 120),
    case!(crowd::garbage_at_the_sockets, 60),
    case!(crowd::five_hundred_idle, 400),
];

/// Commands that are over, and their guests with them, before a keeper that is busy comes to anything.
fn two_hundred_runs(house: &House) -> Verdict {
    let all: Vec<Running> = (0..200)
        .map(|n| {
            let script = format!("echo {n}; exit {}", n % 3);
            Running::start(house.cosm(["run", "--", "/bin/sh", "-c", &script]))
        })
        .collect();
    for (n, running) in all.into_iter().enumerate() {
        let done = running.done(Duration::from_secs(200));
        assert_eq!(
            (done.code(), done.text()),
            (Some((n % 3) as i32), n.to_string()),
            "{done:?}"
        );
    }
    assert_eq!(house.names(), [""; 0]);
    Verdict::Passed
}

/// Each gives its own number back; none is lost, and none becomes a zombie.
fn thousand_short_execs(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let all: Vec<Running> = (0..1000)
        .map(|n| {
            Running::start(house.cosm([
                "exec",
                "box",
                "--",
                "/bin/sh",
                "-c",
                &format!("echo {n}; exit {}", n % 100),
            ]))
        })
        .collect();
    for (n, running) in all.into_iter().enumerate() {
        let done = running.done(Duration::from_secs(200));
        assert_eq!(
            (done.code(), done.text()),
            (Some((n % 100) as i32), n.to_string()),
            "{done:?}"
        );
    }
    let zombies = house.shell(
        "box",
        "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l",
    );
    assert_eq!(zombies.text(), "0");
    let left = || {
        house
            .processes()
            .iter()
            .filter(|process| !process.is_keeper() && !process.is_agent())
            .count()
    };
    assert!(
        eventually(Duration::from_secs(5), || left() == 0),
        "{:#?}",
        house.processes()
    );
    house.remove("box");
    Verdict::Passed
}

fn sixty_four_creates(house: &House) -> Verdict {
    let lone = {
        let since = Instant::now();
        house.sandbox("lone", &[]);
        since.elapsed()
    };
    let since = Instant::now();
    let all: Vec<Running> = (0..64)
        .map(|n| Running::start(house.cosm(["create", "--name", &format!("box{n}")])))
        .collect();
    for running in all {
        let done = running.done(Duration::from_secs(60));
        assert_eq!(done.code(), Some(0), "{done:?}");
    }
    println!(
        "a lone create took {lone:?}, 64 at once {:?}",
        since.elapsed()
    );
    assert_eq!(house.names().len(), 65);
    for n in [0, 31, 63] {
        assert_eq!(house.shell(&format!("box{n}"), "echo on").text(), "on");
    }
    let names = house.names();
    house.ok(["rm", "--force"]
        .into_iter()
        .chain(names.iter().map(String::as_str)));
    Verdict::Passed
}

fn sockets(house: &House) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for folder in house.folders().into_iter().skip(1) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            found.push(entry.path());
        }
    }
    found
}

/// Whoever connects and says nothing holds up nobody.
fn more_connections_than_the_backlog(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let found = sockets(house);
    assert_eq!(found.len(), 2, "{found:?}");
    let mut held = Vec::new();
    for path in &found {
        for _ in 0..400 {
            match UnixStream::connect(path) {
                Ok(stream) => held.push(stream),
                Err(error) => {
                    println!(
                        "{}: {error} after {} connections",
                        path.display(),
                        held.len()
                    );
                    break;
                }
            }
        }
    }
    println!("{} silent connections", held.len());
    let done = house.shell("box", "echo on");
    assert_eq!(done.text(), "on", "{done:?}");
    drop(held);
    let left = || {
        house
            .processes()
            .iter()
            .filter(|process| !process.is_keeper() && !process.is_agent())
            .count()
    };
    assert!(
        eventually(Duration::from_secs(10), || left() == 0),
        "{:#?}",
        house.processes()
    );
    assert_eq!(house.shell("box", "echo on").text(), "on");
    house.remove("box");
    Verdict::Passed
}

fn garbage_at_the_sockets(house: &House) -> Verdict {
    use std::io::{Read as _, Write as _};
    house.sandbox("box", &[]);
    let mut noise = cosm_attacks::Noise::new(11);
    for path in sockets(house) {
        for size in [1, 3, 4, 5, 8, 64, 5000, 300_000] {
            let mut bytes = noise.bytes(size);
            for variant in 0..3 {
                if variant == 1 && size >= 4 {
                    bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
                }
                if variant == 2 && size >= 4 {
                    bytes[..4].copy_from_slice(&4u32.to_le_bytes());
                }
                let mut stream = UnixStream::connect(&path).expect("it listens");
                stream
                    .set_read_timeout(Some(Duration::from_millis(20)))
                    .expect("a time-out");
                stream
                    .set_write_timeout(Some(Duration::from_millis(200)))
                    .expect("a time-out");
                // Being cut off is the right answer.
                drop(stream.write_all(&bytes));
                drop(stream.read(&mut [0; 64]));
            }
        }
    }
    assert_eq!(house.shell("box", "echo on").text(), "on");
    assert_eq!(house.keepers().len(), 1);
    house.remove("box");
    Verdict::Passed
}

fn five_hundred_idle(house: &House) -> Verdict {
    let count = 500;
    let mut made = 0;
    while made < count {
        let batch: Vec<Running> = (made..(made + 10).min(count))
            .map(|n| Running::start(house.cosm(["create", "--name", &format!("idle{n}")])))
            .collect();
        made += batch.len();
        for running in batch {
            let done = running.done(Duration::from_secs(60));
            assert_eq!(done.code(), Some(0), "{done:?}");
        }
    }
    let listed = house.ok(["ls", "-q"]);
    assert_eq!(listed.text().lines().count(), count);
    println!("listing {count} took {:?}", listed.took);
    let processes = house.processes();
    assert_eq!(processes.iter().filter(|p| p.is_keeper()).count(), count);
    assert_eq!(
        processes.iter().filter(|p: &&Process| p.is_agent()).count(),
        count
    );
    assert_eq!(house.shell("idle250", "echo on").text(), "on");
    let names = house.names();
    for part in names.chunks(50) {
        house.ok(["rm", "--force"]
            .into_iter()
            .chain(part.iter().map(String::as_str)));
    }
    Verdict::Passed
}
