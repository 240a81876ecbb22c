//! A stream of bytes, read as frames: the reader that fills a buffer from a socket finds the frames, the end and the
//! fault that a plain walk over the whole finds. The first byte says in how large pieces the stream comes.

#![no_main]

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use cosm_agent_client::{AgentError, wire};
use cosm_proto::frame::{self, HEADER, Kind};
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((piece, bytes)) = input.split_first() else {
        return;
    };
    // More than a socket holds would wait for a reader.
    let bytes = &bytes[..bytes.len().min(32 << 10)];
    RUNTIME.with(|runtime| runtime.block_on(read(bytes, usize::from(*piece) + 1)));
});

async fn read(bytes: &[u8], piece: usize) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let (mut peer, own) = (theirs, ours);
    own.set_nonblocking(true).expect("a socket");
    let own = tokio::net::UnixStream::from_std(own).expect("a runtime's socket");
    let (mut reader, _writer) = wire::halves(own);
    let mut rest = bytes;
    let mut pieces = bytes.chunks(piece);
    loop {
        let wanted = whole(&mut rest);
        // As many pieces come as the frame needs, and no more.
        let read = loop {
            tokio::select! {
                biased;
                read = reader.next() => break read,
                () = std::future::ready(()) => match pieces.next() {
                    Some(piece) => peer.write_all(piece).expect("the socket takes it"),
                    None => peer.shutdown(std::net::Shutdown::Write).expect("a socket"),
                },
            }
            tokio::task::yield_now().await;
        };
        match (wanted, read) {
            (Whole::Frame(kind, payload), Ok(Some(frame))) => {
                assert_eq!((kind, payload), (frame.kind, frame.payload));
            }
            (Whole::End, Ok(None))
            | (Whole::Cut, Err(AgentError::Lost))
            | (Whole::Fault, Err(AgentError::Protocol(_))) => return,
            (wanted, read) => panic!("{wanted:?} was read as {read:?}"),
        }
    }
}

#[derive(Debug)]
enum Whole<'a> {
    Frame(Kind, &'a [u8]),
    End,
    Cut,
    Fault,
}

/// The next frame of a stream that is all there.
fn whole<'a>(rest: &mut &'a [u8]) -> Whole<'a> {
    if rest.is_empty() {
        return Whole::End;
    }
    let Some((header, after)) = rest.split_first_chunk::<HEADER>() else {
        return Whole::Cut;
    };
    let Ok((kind, length)) = frame::parse_header(*header) else {
        return Whole::Fault;
    };
    if after.len() < length {
        return Whole::Cut;
    }
    let (payload, after) = after.split_at(length);
    *rest = after;
    Whole::Frame(kind, payload)
}
