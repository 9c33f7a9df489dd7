//! Memory that several threads write at the same time, each its own tiles.

use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use crate::TouchLog;

/// Alignment of an arena that spans huge pages, so that the system can back it with them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Alignment of a smaller arena: a cache line and the widest vector.
const LINE_BYTES: usize = 64;

/// A zeroed buffer whose parts several threads may read and write at the same time.
///
/// Who may touch which part when is decided by the task graph, so access is by contract and therefore unsafe.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<f32>,
    len: usize,
}

// SAFETY: an arena owns plain memory; nothing in it belongs to a thread.
unsafe impl Send for Arena {}
// SAFETY: through `&Arena` elements are reached only by unsafe methods, whose contracts exclude data races.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates `len` zeros.
    ///
    /// # Panics
    ///
    /// If `len` elements exceed the address space. Aborts if there is no memory.
    pub fn new(len: usize) -> Arena {
        if len == 0 {
            return Arena { start: NonNull::dangling(), len };
        }
        let layout = Arena::layout(len);
        // SAFETY: the layout has at least 4 bytes, because `len` is not 0.
        let start = unsafe { alloc::alloc(layout) };
        let Some(start) = NonNull::new(start.cast::<f32>()) else {
            alloc::handle_alloc_error(layout)
        };
        if layout.align() == HUGE_PAGE_BYTES {
            ask_for_huge_pages(start, layout.size());
        }
        // SAFETY: `len` elements were allocated, and zero bytes are zeros.
        unsafe { start.as_ptr().write_bytes(0, len) };
        Arena { start, len }
    }

    fn layout(len: usize) -> Layout {
        let elements = Layout::array::<f32>(len).expect("an arena fits the address space");
        let align = if elements.size() < HUGE_PAGE_BYTES { LINE_BYTES } else { HUGE_PAGE_BYTES };
        elements.align_to(align).expect("an arena fits the address space")
    }

    /// Elements of the arena.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the arena has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of the arena for reading.
    ///
    /// # Safety
    ///
    /// Nobody writes an element of the range while the slice lives.
    ///
    /// # Panics
    ///
    /// If the range exceeds the arena.
    pub unsafe fn slice(&self, range: Range<usize>) -> &[f32] {
        let start = self.as_ptr(range.clone());
        // SAFETY: `as_ptr` checked the range; the memory is initialized; the caller excludes writers.
        unsafe { std::slice::from_raw_parts(start, range.len()) }
    }

    /// A part of the arena of which one block of a task writes its tiles.
    ///
    /// # Safety
    ///
    /// While the [`Tiles`] live, nobody else touches an element that the block reads or writes through them.
    ///
    /// # Panics
    ///
    /// If the range exceeds the arena.
    pub unsafe fn tiles(&self, range: Range<usize>) -> Tiles<'_> {
        let len = range.len();
        let start = NonNull::new(self.as_ptr(range)).expect("an arena does not start at address 0");
        Tiles { start, len, log: None, buffer: PhantomData }
    }

    /// The address of a part of the arena, for the communicator.
    ///
    /// # Panics
    ///
    /// If the range exceeds the arena.
    pub fn as_ptr(&self, range: Range<usize>) -> *mut f32 {
        check_range("arena", &range, self.len);
        self.start.as_ptr().wrapping_add(range.start)
    }

    /// The whole arena, for its only user.
    pub fn as_slice_mut(&mut self) -> &mut [f32] {
        // SAFETY: the arena owns `len` initialized elements, and `&mut self` proves that nobody else uses them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `new` allocated the memory with this very layout.
            unsafe { alloc::dealloc(self.start.as_ptr().cast(), Arena::layout(self.len)) }
        }
    }
}

/// Asks Linux for huge pages, before the memory is touched. Weights of a hundred megabytes are read once a pass: with pages of
/// 4 KiB every few dozen lines wait for a translation. Most systems give huge pages only where they are asked for.
fn ask_for_huge_pages(start: NonNull<f32>, bytes: usize) {
    // SAFETY: the memory is allocated and page-aligned, and the advice changes none of its contents.
    #[cfg(target_os = "linux")]
    let _ = unsafe {
        // Where the system has none, small pages serve as well.
        rustix::mm::madvise(start.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxHugepage)
    };
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// The output of one block of a task: a handle to a whole buffer of which the block touches only its own parts, so that
/// other threads' blocks may write theirs at the same time.
#[derive(Debug)]
pub struct Tiles<'a> {
    start: NonNull<f32>,
    len: usize,
    log: Option<&'a TouchLog>,
    buffer: PhantomData<&'a mut [f32]>,
}

// SAFETY: `Tiles` stand for a `&mut [f32]` restricted to the parts that a block touches, which may change threads.
unsafe impl Send for Tiles<'_> {}
// SAFETY: through `&Tiles` elements are only read; the log, where there is one, is made for several threads.
unsafe impl Sync for Tiles<'_> {}

impl<'a> From<&'a mut [f32]> for Tiles<'a> {
    fn from(buffer: &'a mut [f32]) -> Tiles<'a> {
        Tiles {
            len: buffer.len(),
            start: NonNull::from(buffer).cast(),
            log: None,
            buffer: PhantomData,
        }
    }
}

impl<'a> Tiles<'a> {
    /// Tiles that note every access, so that a test can check that a task's blocks partition its output.
    pub fn recording(buffer: &'a mut [f32], log: &'a TouchLog) -> Tiles<'a> {
        Tiles { log: Some(log), ..Tiles::from(buffer) }
    }

    /// Elements of the whole buffer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of the buffer that belongs to this block, for writing.
    ///
    /// # Panics
    ///
    /// If the range exceeds the buffer.
    #[inline]
    pub fn tile(&mut self, range: Range<usize>) -> &mut [f32] {
        let start = self.touch(&range);
        // SAFETY: `touch` checked the range, and whoever made the `Tiles` keeps others off the block's parts;
        // `&mut self` keeps the block's own tiles apart.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }

    /// A part of the buffer that belongs to this block, for reading.
    ///
    /// # Panics
    ///
    /// If the range exceeds the buffer.
    #[inline]
    pub fn read(&self, range: Range<usize>) -> &[f32] {
        let start = self.touch(&range);
        // SAFETY: `touch` checked the range, and whoever made the `Tiles` keeps others off the block's parts;
        // `&self` excludes a tile of the block's own.
        unsafe { std::slice::from_raw_parts(start, range.len()) }
    }

    /// The same buffer for one more block of the pass that these tiles were made for, on any thread. Within the crate only, for
    /// [`Rounds`](crate::Rounds): passes of this crate partition their output into blocks, and no block is run twice at a time.
    pub(crate) fn for_another_block(&self) -> Tiles<'_> {
        Tiles { start: self.start, len: self.len, log: self.log, buffer: PhantomData }
    }

    /// The same tiles for a shorter time.
    pub fn reborrow(&mut self) -> Tiles<'_> {
        Tiles { start: self.start, len: self.len, log: self.log, buffer: PhantomData }
    }

    #[inline]
    fn touch(&self, range: &Range<usize>) -> *mut f32 {
        check_range("tile", range, self.len);
        if let Some(log) = self.log {
            log.record(range.clone());
        }
        self.start.as_ptr().wrapping_add(range.start)
    }
}

#[inline]
#[track_caller]
fn check_range(what: &'static str, range: &Range<usize>, len: usize) {
    if !(range.start <= range.end && range.end <= len) {
        outside(what, range, len);
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn outside(what: &'static str, range: &Range<usize>, len: usize) -> ! {
    panic!("{what} {range:?} is outside of a buffer of {len} elements");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_zeroed_and_aligned() {
        for len in [1, 100, 3 << 20] {
            let mut arena = Arena::new(len);
            assert!(arena.as_slice_mut().iter().all(|x| *x == 0.0));
            assert!(arena.as_ptr(0..0).addr().is_multiple_of(LINE_BYTES));
        }
        assert!(Arena::new(0).is_empty());
    }

    #[test]
    fn two_threads_write_their_own_tiles() {
        let mut arena = Arena::new(8);
        std::thread::scope(|scope| {
            for half in [0..4, 4..8] {
                // SAFETY: the halves are disjoint, and nobody else touches the arena meanwhile.
                let mut tiles = unsafe { arena.tiles(0..8) };
                scope.spawn(move || tiles.tile(half.clone()).fill(half.start as f32 + 1.0));
            }
        });
        assert_eq!(arena.as_slice_mut(), [1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0]);
    }

    #[test]
    #[should_panic(expected = "tile 2..5 is outside of a buffer of 4 elements")]
    fn a_tile_outside_of_the_buffer_is_refused() {
        Tiles::from(&mut [0.0; 4][..]).tile(2..5);
    }
}
