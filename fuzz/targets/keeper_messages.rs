//! Payloads, read as each message that goes between a keeper and whoever asks it.

#![no_main]

use cosm_fuzz::reads_back;
use cosm_proto::keeper::*;

libfuzzer_sys::fuzz_target!(|payload: &[u8]| {
    reads_back::<Plan>(payload);
    reads_back::<Event>(payload);
    reads_back::<Call>(payload);
    reads_back::<Reply>(payload);
    reads_back::<JobNotice>(payload);
});
