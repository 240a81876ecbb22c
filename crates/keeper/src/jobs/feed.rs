//! What waits for one viewer, and what waits for the next one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::sync::Notify;

use super::Piece;

/// What a job keeps of its output for viewers to come, in bytes.
const RING: usize = 256 << 10;
/// What may wait for one viewer, in bytes.
const FEED: usize = 256 << 10;

/// The end of a job's output.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// What is not there any more.
    dropped: u64,
}

impl Ring {
    pub(super) fn push(&mut self, piece: Piece) {
        self.bytes += piece.bytes.len();
        self.pieces.push_back(piece);
        while self.bytes > RING
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.bytes -= oldest.bytes.len();
            self.dropped += oldest.bytes.len() as u64;
        }
    }
}

/// What a viewer gets next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Output(Piece),
    /// This many bytes went by.
    Lost(u64),
    /// The job no longer reads its input.
    StdinClosed,
    /// The job has ended, and all of its output was given.
    End,
}

/// What waits for one viewer.
#[derive(Debug)]
pub(super) struct Feed {
    /// The job waits for this viewer rather than let it miss anything.
    lossless: bool,
    waiting: RefCell<VecDeque<Piece>>,
    bytes: Cell<usize>,
    /// What the ring had lost before this viewer came.
    missed: Cell<u64>,
    lost: Cell<u64>,
    stdin_closed: Cell<bool>,
    ended: Cell<bool>,
    gone: Cell<bool>,
    filled: Notify,
    emptied: Notify,
    parted: Notify,
}

impl Feed {
    /// A feed that begins with what the ring holds, if `replay` says so.
    pub(super) fn new(lossless: bool, replay: bool, ring: &Ring) -> Self {
        let feed = Self {
            lossless,
            waiting: RefCell::default(),
            bytes: Cell::new(0),
            missed: Cell::new(0),
            lost: Cell::new(0),
            stdin_closed: Cell::new(false),
            ended: Cell::new(false),
            gone: Cell::new(false),
            filled: Notify::new(),
            emptied: Notify::new(),
            parted: Notify::new(),
        };
        if replay {
            feed.missed.set(ring.dropped);
            feed.bytes.set(ring.bytes);
            feed.waiting
                .borrow_mut()
                .extend(ring.pieces.iter().cloned());
        }
        feed
    }

    /// Gives a piece to the viewer. Waits for a lossless one; another that is too slow loses it.
    pub(super) async fn give(&self, piece: &Piece) {
        while self.lossless && self.is_full() && !self.gone.get() {
            self.emptied.notified().await;
        }
        if self.gone.get() {
            return;
        }
        if self.is_full() {
            self.lost.set(self.lost.get() + piece.bytes.len() as u64);
        } else {
            self.bytes.set(self.bytes.get() + piece.bytes.len());
            self.waiting.borrow_mut().push_back(piece.clone());
        }
        self.filled.notify_one();
    }

    fn is_full(&self) -> bool {
        self.bytes.get() >= FEED
    }

    pub(super) fn stdin_closed(&self) {
        self.stdin_closed.set(true);
        self.filled.notify_one();
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.ended.set(true);
        self.filled.notify_one();
    }

    /// The viewer is not there any more.
    pub(super) fn leave(&self) {
        self.gone.set(true);
        self.waiting.borrow_mut().clear();
        self.emptied.notify_one();
        self.parted.notify_one();
    }

    /// Waits until the viewer is not there any more. For one at a time.
    pub(super) async fn left(&self) {
        while !self.gone.get() {
            self.parted.notified().await;
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Waits for what comes next. Cancel-safe.
    pub(super) async fn next(&self) -> Item {
        loop {
            if let Some(item) = self.take() {
                return item;
            }
            self.filled.notified().await;
        }
    }

    fn take(&self) -> Option<Item> {
        match self.missed.take() {
            0 => {}
            missed => return Some(Item::Lost(missed)),
        }
        // What was lost while the queue was full came after all that is in it.
        let piece = self.waiting.borrow_mut().pop_front();
        if let Some(piece) = piece {
            self.bytes.set(self.bytes.get() - piece.bytes.len());
            self.emptied.notify_one();
            return Some(Item::Output(piece));
        }
        match self.lost.take() {
            0 => {}
            lost => return Some(Item::Lost(lost)),
        }
        if self.stdin_closed.take() {
            return Some(Item::StdinClosed);
        }
        self.ended.get().then_some(Item::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(length: usize) -> Piece {
        Piece {
            stderr: false,
            bytes: vec![b'x'; length].into(),
        }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(work)
    }

    #[test]
    fn the_ring_keeps_the_newest_and_counts_the_rest() {
        let mut ring = Ring::default();
        for _ in 0..10 {
            ring.push(piece(RING / 4));
        }
        assert_eq!(ring.bytes, RING);
        assert_eq!(ring.dropped, 6 * (RING as u64 / 4));
    }

    #[test]
    fn a_slow_viewer_is_told_what_it_lost() {
        block_on(async {
            let feed = Feed::new(false, false, &Ring::default());
            feed.give(&piece(FEED)).await;
            feed.give(&piece(10)).await;
            feed.give(&piece(11)).await;
            feed.end();
            assert!(matches!(feed.next().await, Item::Output(p) if p.bytes.len() == FEED));
            assert_eq!(feed.next().await, Item::Lost(21));
            assert_eq!(feed.next().await, Item::End);
        });
    }

    #[test]
    fn a_lossless_viewer_is_waited_for_until_it_leaves() {
        block_on(async {
            let feed = Feed::new(true, false, &Ring::default());
            feed.give(&piece(FEED)).await;
            let more = piece(1);
            let waits = feed.give(&more);
            tokio::pin!(waits);
            tokio::select! {
                biased;
                () = &mut waits => panic!("it was full"),
                () = tokio::task::yield_now() => {}
            }
            feed.leave();
            waits.await;
        });
    }
}
