//! A small allocator for one thread.
//!
//! Blocks of powers of two from 16 bytes to 32 KiB come from 64 KiB runs and go back to a list for their size; what is
//! larger is a mapping of its own and goes back to the kernel.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

const SMALLEST: usize = 16;
const LARGEST: usize = 32 << 10;
const CLASSES: usize = 12;
const RUN: usize = 64 << 10;
const PAGE: usize = 4096;

pub(crate) struct Heap {
    state: UnsafeCell<State>,
}

struct State {
    free: [*mut Free; CLASSES],
    next: usize,
    end: usize,
}

struct Free {
    next: *mut Free,
}

// SAFETY: the programs of this crate have one thread.
unsafe impl Sync for Heap {}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self {
            state: UnsafeCell::new(State {
                free: [null_mut(); CLASSES],
                next: 0,
                end: 0,
            }),
        }
    }
}

/// The class of a layout, or `None` if it gets a mapping of its own.
fn class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST);
    (size <= LARGEST).then(|| (size.next_power_of_two() / SMALLEST).trailing_zeros() as usize)
}

fn map(size: usize) -> *mut u8 {
    // SAFETY: a new private mapping touches nothing that exists.
    let mapping = unsafe {
        mmap_anonymous(
            null_mut(),
            size,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    mapping.map_or(null_mut(), |address| address.cast())
}

impl State {
    fn take(&mut self, class: usize) -> *mut u8 {
        let head = self.free[class];
        if !head.is_null() {
            // SAFETY: blocks on a list are free, and hold the `Free` that `give` wrote.
            self.free[class] = unsafe { (*head).next };
            return head.cast();
        }
        let size = SMALLEST << class;
        let align = size.min(PAGE);
        let start = self.next.next_multiple_of(align);
        if self.next != 0 && start + size <= self.end {
            self.next = start + size;
            return start as *mut u8;
        }
        let run = map(RUN);
        if !run.is_null() {
            self.next = run as usize + size;
            self.end = run as usize + RUN;
        }
        run
    }

    fn give(&mut self, block: *mut u8, class: usize) {
        let block = block.cast::<Free>();
        // SAFETY: the block is at least SMALLEST bytes, aligned so, and no longer anybody's.
        unsafe {
            block.write(Free {
                next: self.free[class],
            })
        };
        self.free[class] = block;
    }
}

// SAFETY: blocks are disjoint, large enough and aligned as `class` and `take` compute; mappings are aligned to a page,
// and a larger alignment is refused.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            // SAFETY: one thread, and no call in it comes back here while the reference lives.
            Some(class) => unsafe { &mut *self.state.get() }.take(class),
            None if layout.align() > PAGE => null_mut(),
            None => map(layout.size()),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(layout) {
            // SAFETY: as in `alloc`.
            Some(class) => unsafe { &mut *self.state.get() }.give(block, class),
            None => {
                // SAFETY: `alloc` mapped this many bytes here.
                let unmapped = unsafe { munmap(block.cast(), layout.size()) };
                debug_assert!(unmapped.is_ok());
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(new_size, layout.align()) else {
            return null_mut();
        };
        match (class(layout), class(new)) {
            (Some(old), Some(new)) if old == new => block,
            (None, None) => {
                // SAFETY: `alloc` mapped this many bytes here, and they are this caller's to move.
                let moved =
                    unsafe { mremap(block.cast(), layout.size(), new_size, MremapFlags::MAYMOVE) };
                moved.map_or(null_mut(), |address| address.cast())
            }
            _ => {
                // SAFETY: `new` is a layout of the size asked for; both blocks hold at least the smaller size, and a
                // new one overlaps nothing.
                unsafe {
                    let fresh = self.alloc(new);
                    if !fresh.is_null() {
                        core::ptr::copy_nonoverlapping(block, fresh, layout.size().min(new_size));
                        self.dealloc(block, layout);
                    }
                    fresh
                }
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `alloc`.
        let block = unsafe { self.alloc(layout) };
        // A mapping is zero already.
        if !block.is_null() && class(layout).is_some() {
            // SAFETY: the block holds this many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// A block with its layout and the byte that fills it.
    type Held = (*mut u8, Layout, u8);

    fn check(held: &Held) {
        for offset in 0..held.1.size() {
            // SAFETY: the block holds this many bytes, all written when it was made.
            assert_eq!(unsafe { held.0.add(offset).read() }, held.2);
        }
    }

    fn make(heap: &Heap, size: usize, align: usize, fill: u8) -> Held {
        let layout = Layout::from_size_align(size, align).expect("a layout");
        // SAFETY: the size is not zero; the block holds it.
        unsafe {
            let block = heap.alloc(layout);
            assert!(!block.is_null() && (block as usize).is_multiple_of(align));
            block.write_bytes(fill, size);
            (block, layout, fill)
        }
    }

    fn grow(heap: &Heap, held: Held, size: usize) -> Held {
        let common = held.1.size().min(size);
        // SAFETY: the block is this heap's with this layout; the new one holds `size`.
        unsafe {
            let block = heap.realloc(held.0, held.1, size);
            assert!(!block.is_null());
            check(&(
                block,
                Layout::from_size_align(common, held.1.align()).expect("a layout"),
                held.2,
            ));
            block.write_bytes(held.2, size);
            (
                block,
                Layout::from_size_align(size, held.1.align()).expect("a layout"),
                held.2,
            )
        }
    }

    proptest! {
        /// Blocks keep what was written to them, whatever happens to others.
        #[test]
        fn blocks_are_disjoint(
            steps in proptest::collection::vec((0_u8..4, 1_usize..60_000, 0_u32..8, any::<u8>(), any::<prop::sample::Index>()), 1..50)
        ) {
            let heap = Heap::new();
            let mut held: Vec<Held> = Vec::new();
            for (what, size, align, fill, which) in steps {
                match what {
                    0 | 1 => held.push(make(&heap, if what == 0 { size % 600 + 1 } else { size }, 1 << align, fill)),
                    _ if held.is_empty() => {}
                    2 => {
                        let one = held.swap_remove(which.index(held.len()));
                        held.push(grow(&heap, one, size));
                    }
                    _ => {
                        let one = held.swap_remove(which.index(held.len()));
                        check(&one);
                        // SAFETY: it is this heap's, and nobody's any more.
                        unsafe { heap.dealloc(one.0, one.1) };
                    }
                }
            }
            for one in held {
                check(&one);
                // SAFETY: as above.
                unsafe { heap.dealloc(one.0, one.1) };
            }
        }
    }

    #[test]
    fn what_was_given_back_is_used_again() {
        let heap = Heap::new();
        let first = make(&heap, 100, 8, 1);
        // SAFETY: it is this heap's, and nobody's any more.
        unsafe { heap.dealloc(first.0, first.1) };
        assert_eq!(make(&heap, 128, 8, 2).0, first.0);
    }

    #[test]
    fn zeroed_is_zero() {
        let heap = Heap::new();
        let used = make(&heap, 64, 8, 0xff);
        // SAFETY: it is this heap's; the second block holds 64 bytes.
        unsafe {
            heap.dealloc(used.0, used.1);
            let zeroed = heap.alloc_zeroed(used.1);
            check(&(zeroed, used.1, 0));
        }
    }
}
