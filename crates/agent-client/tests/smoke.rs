mod common;

use common::{Agent, command, framed, run, shell};

#[tokio::test]
async fn true_is_true() {
    let agent = Agent::start();
    agent.client.ping().await.expect("ping");
    let done = run(&agent, command(&["true"])).await;
    eprintln!("{done:?}");
    let done = run(&agent, shell("echo hi; echo ho >&2; exit 3")).await;
    eprintln!("{done:?}");
    let done = run(&agent, framed(shell("echo hi; echo ho >&2; exit 3"))).await;
    eprintln!("{done:?}");
    let t = std::time::Instant::now();
    let mut times = vec![];
    for _ in 0..300 {
        let t = std::time::Instant::now();
        run(&agent, command(&["/bin/true"])).await;
        times.push(t.elapsed());
    }
    times.sort();
    eprintln!(
        "p50 {:?} p99 {:?} total {:?}",
        times[150],
        times[297],
        t.elapsed()
    );
}
