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
