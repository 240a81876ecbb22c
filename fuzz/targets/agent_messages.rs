//! Payloads, read as each message that goes between host and agent.

#![no_main]

use cosm_fuzz::reads_back;
use cosm_proto::agent::*;

libfuzzer_sys::fuzz_target!(|payload: &[u8]| {
    reads_back::<AgentBoot>(payload);
    reads_back::<Hello>(payload);
    reads_back::<ExecIn>(payload);
    reads_back::<ExecOut>(payload);
    reads_back::<FileReply>(payload);
    reads_back::<TreeItem>(payload);
    reads_back::<Change>(payload);
    reads_back::<SystemReply>(payload);
});
