//! The agent answers at all: what every other test of it needs, and all that is asked of one that is emulated.

mod common;

use common::Agent;

#[tokio::test]
async fn it_answers() {
    let agent = Agent::start();
    agent.client.ping().await.expect("an answer");
    agent.client.stats().await.expect("an answer");
    let files = agent.client.files();
    let root = files.list("/").await.expect("a folder");
    assert!(root.iter().any(|entry| entry.path == b"proc"), "{root:?}");
}
