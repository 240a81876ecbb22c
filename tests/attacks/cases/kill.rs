//! `kill -9` of the creator, the keeper and the agent at every phase.

use std::time::Duration;

use cosm_attacks::{Case, House, Noise, Process, Running, Verdict, alive, eventually, kill};

use super::case;

pub(super) const CASES: &[Case] = &[
    case!(kill::two_hundred_random_kills, 420),
    case!(kill::keeper_of_a_kept_sandbox, 60),
    case!(kill::agent_of_a_kept_sandbox, 60),
    case!(kill::everything_from_inside, 60),
    case!(kill::sweeper_while_it_sweeps, 120),
];

/// The kills of one run of the loop.
const KILLS: u64 = 210;

/// How long the creator's death may be unnoticed: a second, and what a busy machine adds.
const LEASE: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Creator,
    Keeper,
    Agent,
}

/// What is being done when the victim dies.
#[derive(Debug, Clone, Copy)]
enum Scene {
    Run,
    Create,
    Exec,
    Stop,
    Remove,
}

fn two_hundred_random_kills(house: &House) -> Verdict {
    house.sandbox("bystander", &[]);
    let witness = Running::start(house.cosm([
        "exec",
        "bystander",
        "--",
        "/bin/sh",
        "-c",
        "while :; do echo on; sleep 0.05; done",
    ]));
    let bystander: Vec<i32> = house.keepers().iter().map(|keeper| keeper.pid).collect();
    assert_eq!(bystander.len(), 1);
    let seed = std::env::var("COSM_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_240_817);
    println!("seed {seed}: COSM_TEST_SEED repeats it");
    let mut noise = Noise::new(seed);
    let mut hits = 0;
    for round in 0..KILLS {
        let victim = [Victim::Creator, Victim::Keeper, Victim::Agent][noise.below(3) as usize];
        let scene = [
            Scene::Run,
            Scene::Create,
            Scene::Exec,
            Scene::Stop,
            Scene::Remove,
        ][noise.below(5) as usize];
        let pause = Duration::from_micros(noise.below(15_000));
        let hit = one_kill(house, victim, scene, pause, &bystander);
        hits += u64::from(hit);
        check_nothing_is_left(
            house,
            &bystander,
            &format!("round {round}: {victim:?} killed in {scene:?} after {pause:?}"),
        );
        if round % 20 == 0 {
            assert_eq!(house.shell("bystander", "echo alive").text(), "alive");
        }
    }
    println!("{hits} of {KILLS} victims were there to be killed");
    assert!(hits >= KILLS / 2, "most victims were never met: {hits}");
    assert!(alive(bystander[0]), "the bystander's keeper died");
    assert!(alive(witness.pid()), "the bystander's command died");
    drop(witness);
    house.remove("bystander");
    Verdict::Passed
}

/// Returns whether the victim was met.
fn one_kill(house: &House, victim: Victim, scene: Scene, pause: Duration, spare: &[i32]) -> bool {
    let running = match scene {
        Scene::Run => Running::start(house.cosm(["run", "--", "sleep", "30"])),
        Scene::Create => Running::start(house.cosm(["create", "--name", "victim"])),
        Scene::Exec => {
            house.sandbox("victim", &[]);
            Running::start(house.cosm(["exec", "victim", "--", "sleep", "30"]))
        }
        Scene::Stop => {
            house.sandbox("victim", &["--", "sleep", "30"]);
            Running::start(house.cosm(["stop", "victim"]))
        }
        Scene::Remove => {
            house.sandbox("victim", &[]);
            Running::start(house.cosm(["rm", "--force", "victim"]))
        }
    };
    std::thread::sleep(pause);
    let others = |house: &House| -> Vec<Process> {
        house
            .processes()
            .into_iter()
            .filter(|p| !spare.contains(&p.pid) && !spare.contains(&p.parent))
            .collect()
    };
    let met = match victim {
        Victim::Creator => kill(running.pid()),
        Victim::Keeper => strike(|| others(house).into_iter().find(Process::is_keeper)),
        Victim::Agent => strike(|| others(house).into_iter().find(Process::is_agent)),
    };
    if victim != Victim::Creator && matches!(scene, Scene::Run | Scene::Exec) && met {
        // Whoever waits learns of it; nobody waits for ever.
        let done = running.done(Duration::from_secs(20));
        assert_ne!(
            done.code(),
            Some(0),
            "a death that reads as success: {done:?}"
        );
    } else {
        drop(running);
    }
    met
}

/// Kills what is found, looking for a short while.
fn strike(find: impl Fn() -> Option<Process>) -> bool {
    let mut found = None;
    eventually(Duration::from_millis(60), || {
        found = find();
        found.is_some()
    });
    found.is_some_and(|process| kill(process.pid))
}

fn check_nothing_is_left(house: &House, spare: &[i32], what: &str) {
    // A leased sandbox may take its second to notice; one that was kept is removed as a user would.
    let swept = eventually(LEASE, || {
        let names = house.names();
        if names.iter().any(|name| name == "victim") {
            house.run(["rm", "--force", "victim"]);
        }
        house.names() == ["bystander"]
            && house
                .keepers()
                .iter()
                .all(|keeper| spare.contains(&keeper.pid))
    });
    assert!(
        swept,
        "{what}: {:?} and {:#?} are left",
        house.names(),
        house.keepers()
    );
    for folder in house.folders() {
        // The bystander has a folder, and two sockets; all are named by its id.
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let names: Vec<_> = entries.map(|entry| entry.path()).collect();
        let ids: std::collections::HashSet<_> = names.iter().map(|name| name.file_stem()).collect();
        assert!(ids.len() <= 1, "{what}: {names:?}");
    }
    let strangers = || -> Vec<Process> {
        let all = house.processes();
        all.iter()
            .filter(|p| p.is_agent() && !spare.contains(&p.parent))
            .cloned()
            .collect()
    };
    assert!(
        eventually(LEASE, || strangers().is_empty()),
        "{what}: {:#?} are left",
        strangers()
    );
}

fn keeper_of_a_kept_sandbox(house: &House) -> Verdict {
    house.sandbox("box", &["--", "sleep", "1000"]);
    assert_eq!(house.shell("box", "echo 1 > /tmp/kept").code(), Some(0));
    assert!(kill(house.keepers()[0].pid));
    let gone = eventually(Duration::from_secs(5), || house.processes().is_empty());
    assert!(
        gone,
        "the guest outlives its keeper: {:#?}",
        house.processes()
    );
    let listed = house.ok(["ls", "--json"]).text();
    assert!(listed.contains("crashed"), "{listed}");
    house.shell("box", "true").refused();
    house.ok(["start", "box"]);
    assert_eq!(house.shell("box", "echo again").text(), "again");
    house.remove("box");
    Verdict::Passed
}

fn agent_of_a_kept_sandbox(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let command = Running::start(house.cosm(["exec", "box", "--", "sleep", "1000"]));
    std::thread::sleep(Duration::from_millis(100));
    let agent = house
        .processes()
        .into_iter()
        .find(Process::is_agent)
        .expect("an agent");
    assert!(kill(agent.pid));
    let done = command.done(Duration::from_secs(10));
    assert!(done.code().is_some_and(|code| code != 0), "{done:?}");
    assert!(
        eventually(Duration::from_secs(5), || house.processes().is_empty()),
        "{:#?}",
        house.processes()
    );
    house.remove("box");
    Verdict::Passed
}

/// The guest's root kills all it can see, tries to kill the agent, and takes away what it can find of it.
fn everything_from_inside(house: &House) -> Verdict {
    house.sandbox("box", &[]);
    let done = house.shell(
        "box",
        "kill -9 1; kill -TERM 1; kill -STOP 1; kill -INT 1; kill -9 -1",
    );
    assert_ne!(done.code(), None, "{done:?}");
    assert_eq!(
        house.shell("box", "echo still").text(),
        "still",
        "the agent can't be killed from inside"
    );
    let sockets = house.shell("box", "grep -c agent /proc/net/unix; ls /run /tmp /");
    assert!(!sockets.text().contains("ctl"), "{sockets:?}");
    assert_eq!(
        house
            .shell("box", "rm -rf /tmp/* /run/* 2>/dev/null; echo still")
            .text(),
        "still"
    );
    house.remove("box");
    Verdict::Passed
}

/// Whoever cleans up can be killed, too; the next one goes on.
fn sweeper_while_it_sweeps(house: &House) -> Verdict {
    let mut noise = Noise::new(7);
    for _ in 0..20 {
        house.sandbox("box", &[]);
        for keeper in house.keepers() {
            assert!(kill(keeper.pid));
        }
        let mut look = Running::start(house.cosm(["rm", "--force", "box"]));
        std::thread::sleep(Duration::from_micros(noise.below(12_000)));
        for keeper in house.keepers() {
            kill(keeper.pid);
        }
        look.kill();
        drop(look);
        // Its row may be gone already, or not.
        let done = house.run(["rm", "--force", "box"]);
        assert!(
            done.code() == Some(0) || done.said().contains("box"),
            "{done:?}"
        );
        assert_eq!(house.names(), Vec::<String>::new());
    }
    Verdict::Passed
}
