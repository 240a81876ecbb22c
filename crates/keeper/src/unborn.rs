//! Guests that end before they are ready.

use std::io;

use cosm_base::ErrorKind;
use cosm_proto::agent::ExitStatus;
use cosm_proto::keeper::{EndReason, EndReport, Failure};

use crate::failure;

/// Why a guest that ended before it was ready did not start.
pub(crate) fn unborn(end: &EndReport) -> Failure {
    let how = match (end.reason, end.status) {
        (EndReason::LeaseEnded, _) => {
            return creator_gone();
        }
        (EndReason::KeeperSignalled, _) => {
            return failure::plain(
                ErrorKind::Cancelled,
                "its keeper was told to end while it started",
            );
        }
        (EndReason::Killed | EndReason::Stopped | EndReason::Replaced, _) => {
            return failure::plain(ErrorKind::Cancelled, "it was stopped while it started");
        }
        (EndReason::OutOfMemory, _) => "memory ran out".to_owned(),
        (EndReason::OutOfDisk, _) => "its files took more than they may".to_owned(),
        (_, Some(ExitStatus::Code(0))) => "its process 1 ended".to_owned(),
        // The agent ends by itself only with the number of the error that kept it from beginning.
        (_, Some(ExitStatus::Code(code))) => {
            format!("its agent gave up: {}", io::Error::from_raw_os_error(code))
        }
        (_, Some(ExitStatus::Signal(signal))) => format!("signal {signal} ended its process 1"),
        (_, None) => "its process 1 ended".to_owned(),
    };
    Failure {
        phase: Some("agent".to_owned()),
        ..failure::plain(
            ErrorKind::BootFailed,
            format!("the guest ended while it was being started: {how}"),
        )
    }
}

pub(crate) fn creator_gone() -> Failure {
    failure::plain(ErrorKind::Cancelled, "its creator ended while it started")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reason: EndReason, status: Option<ExitStatus>) -> Failure {
        unborn(&EndReport {
            status,
            reason,
            killed: false,
            usage: Default::default(),
        })
    }

    #[test]
    fn each_end_says_why_and_where() {
        for (reason, status, words) in [
            (
                EndReason::OutOfMemory,
                Some(ExitStatus::Signal(9)),
                "memory ran out",
            ),
            (EndReason::OutOfDisk, None, "its files took more"),
            (
                EndReason::GuestDied,
                Some(ExitStatus::Signal(11)),
                "signal 11",
            ),
            (
                EndReason::GuestDied,
                Some(ExitStatus::Code(93)),
                "Protocol not supported",
            ),
            (EndReason::GuestDied, None, "its process 1 ended"),
        ] {
            let failure = of(reason, status);
            assert_eq!(failure.phase.as_deref(), Some("agent"), "{failure:?}");
            assert!(failure.message.contains(words), "{failure:?}");
        }
        // What was ended on purpose did not fail.
        for reason in [EndReason::Killed, EndReason::LeaseEnded] {
            assert_eq!(of(reason, None).kind, ErrorKind::Cancelled);
        }
    }
}
