//! Commands with a terminal.

mod common;

use std::time::Duration;

use common::{Agent, command, run, shell};
use cosm_agent_client::{ExecEvent, ExecSession};
use cosm_proto::agent::{ExecStart, ExitStatus, Stdio, WindowSize};

fn on_terminal(mut start: ExecStart, rows: u16, cols: u16) -> ExecStart {
    start.stdio = Stdio::Terminal {
        size: WindowSize { rows, cols },
    };
    start
}

/// Reads until the output holds this.
async fn until(session: &mut ExecSession, text: &str) -> String {
    let mut all = Vec::new();
    let wait = async {
        loop {
            match session.output.next().await.expect("no error") {
                Some(ExecEvent::Stdout(bytes)) => all.extend(bytes),
                other => panic!("{other:?} after {}", String::from_utf8_lossy(&all)),
            }
            if String::from_utf8_lossy(&all).contains(text) {
                break;
            }
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), wait).await;
    assert!(
        waited.is_ok(),
        "no {text:?} in {:?}",
        String::from_utf8_lossy(&all)
    );
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test]
async fn it_is_a_terminal_of_the_size_asked_for() {
    let agent = Agent::start();
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM && : > /dev/tty && echo controls";
    let done = run(&agent, on_terminal(shell(script), 51, 133)).await;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(text, "51 133\r\nxterm\r\ncontrols\r\n");
    assert_eq!(
        (done.exit.report.status, done.stderr_total),
        (ExitStatus::Code(0), 0)
    );
}

#[tokio::test]
async fn it_can_be_resized_and_that_after_the_end_is_no_error() {
    let agent = Agent::start();
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut session = agent
        .client
        .exec(on_terminal(shell(script), 24, 80))
        .await
        .expect("start");
    until(&mut session, "ready").await;
    session
        .control
        .resize(WindowSize { rows: 10, cols: 20 })
        .await
        .expect("resize");
    until(&mut session, "10 20").await;
    assert_eq!(
        session
            .output
            .collect(0)
            .await
            .expect("end")
            .exit
            .report
            .status,
        ExitStatus::Code(0)
    );
    session
        .control
        .resize(WindowSize { rows: 11, cols: 21 })
        .await
        .expect("ignored");
}

#[tokio::test]
async fn typing_works_and_control_c_interrupts() {
    let agent = Agent::start();
    let mut session = agent
        .client
        .exec(on_terminal(command(&["cat"]), 24, 80))
        .await
        .expect("start");
    let mut input = session.input.take().expect("a terminal has one");
    input.write_all(b"hello\r").await.expect("type");
    until(&mut session, "hello\r\nhello\r\n").await;
    input.write_all(b"\x03").await.expect("type");
    let done = session.output.collect(100).await.expect("end");
    assert_eq!(done.exit.report.status, ExitStatus::Signal(2));
}

#[tokio::test]
async fn closing_the_input_types_its_end() {
    let agent = Agent::start();
    let mut session = agent
        .client
        .exec(on_terminal(command(&["cat"]), 24, 80))
        .await
        .expect("start");
    let mut input = session.input.take().expect("a terminal has one");
    input.write_all(b"line\n").await.expect("type");
    input.close().await.expect("close");
    let done = session.output.collect(100).await.expect("end");
    assert_eq!(done.exit.report.status, ExitStatus::Code(0));
    assert!(String::from_utf8_lossy(&done.stdout).ends_with("line\r\n"));
}

#[tokio::test]
async fn no_output_of_a_terminal_is_lost() {
    let agent = Agent::start();
    for _ in 0..10 {
        let done = run(
            &agent,
            on_terminal(
                shell("i=0; while [ $i -lt 2000 ]; do echo line$i; i=$((i+1)); done"),
                24,
                80,
            ),
        )
        .await;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(text.lines().count(), 2000);
        assert!(text.ends_with("line1999\r\n"));
    }
}

#[tokio::test]
async fn a_terminal_left_to_a_descendant_does_not_hold_the_answer() {
    let agent = Agent::start();
    let done = run(
        &agent,
        on_terminal(
            shell("trap '' HUP; setsid sleep 1000.99 & echo done; sleep 0.1"),
            24,
            80,
        ),
    )
    .await;
    assert!(String::from_utf8_lossy(&done.stdout).contains("done"));
    run(&agent, shell("pkill -f '^sleep 1000.99'")).await;
}
