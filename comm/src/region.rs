//! Memory that the communication thread reads and writes on behalf of others: the crate's raw pointers live here.

use std::ops::Range;

/// Elements of `f32` that exchanges read and write: a pointer and a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    ptr: *mut f32,
    len: usize,
}

// SAFETY: a region is an address; whoever made it promised (`Region::new`) that the communication thread may use the
// memory while an exchange is in flight, and only the communication thread does.
unsafe impl Send for Region {}
// SAFETY: as for `Send`; `&Region` offers nothing to other threads but the length.
unsafe impl Sync for Region {}

impl Region {
    /// Describes the `len` elements at `ptr`.
    ///
    /// # Safety
    /// From each submission of an exchange that uses the region until that exchange's completion:
    /// - `ptr..ptr + len` is one live allocation, readable, writable and initialized;
    /// - nobody else writes the elements that the exchange sends, and nobody else reads or writes those it receives.
    ///
    /// After a failure no completion comes. The memory must then stay valid until `on_failure` has been called with the
    /// local transport, and until the process ends with MPI (which is aborted as soon as `on_failure` returns).
    #[must_use]
    pub unsafe fn new(ptr: *mut f32, len: usize) -> Region {
        Region { ptr, len }
    }

    /// A buffer of the crate's own, whose owner neither touches nor frees it until its exchange is over.
    pub(crate) fn owned_by_caller(words: &mut [f32]) -> Region {
        Region { ptr: words.as_mut_ptr(), len: words.len() }
    }

    /// A region of so many elements without memory, to tell what an exchange would send ([`crate::Exchange::bytes_sent`]). An
    /// exchange of it must never be submitted: nobody can keep the promise of [`Region::new`] for it.
    #[must_use]
    pub fn described(len: usize) -> Region {
        Region { ptr: std::ptr::dangling_mut(), len }
    }

    /// Some elements of the region as one of their own.
    ///
    /// # Panics
    /// The range is not in the region.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Region {
        assert!(range.start <= range.end && range.end <= self.len, "range outside the region");
        Region { ptr: self.ptr.wrapping_add(range.start), len: range.len() }
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Addresses of a range of elements, to compare regions that may share memory.
    pub(crate) fn addresses(&self, range: &Range<usize>) -> Range<usize> {
        let base = self.ptr.addr();
        base + range.start * size_of::<f32>()..base + range.end * size_of::<f32>()
    }

    /// The bytes of a range of elements. Only while an exchange that uses the region is in flight.
    pub(crate) fn span(&self, range: &Range<usize>) -> Span {
        assert!(range.start <= range.end && range.end <= self.len, "range outside the region");
        let ptr = self.ptr.wrapping_add(range.start).cast();
        Span { ptr, len: (range.end - range.start) * size_of::<f32>() }
    }

    /// Runs `change` on a range of elements. Only while an exchange that receives them is in flight.
    pub(crate) fn change(&self, range: &Range<usize>, change: impl FnOnce(&mut [f32])) {
        let span = self.span(range);
        if span.len == 0 {
            return;
        }
        // SAFETY: in bounds by the assertion in `span`; live, initialized and ours alone by the contract of `new`.
        change(unsafe { std::slice::from_raw_parts_mut(span.ptr.cast::<f32>(), range.len()) });
    }
}

/// Bytes that one message reads or fills. They stay valid until the message's ticket is reported as finished, because
/// they belong to a region of an exchange in flight or to a buffer that the engine keeps with the ticket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    ptr: *mut u8,
    len: usize,
}

impl Span {
    /// The first `len` elements of a buffer that the caller keeps, without resizing it, until the ticket is finished.
    pub(crate) fn of_buffer<T: Copy>(buffer: &mut [T], len: usize) -> Span {
        assert!(len <= buffer.len(), "buffer shorter than its message");
        Span { ptr: buffer.as_mut_ptr().cast(), len: len * size_of::<T>() }
    }

    /// First byte.
    #[cfg(feature = "mpi")]
    pub(crate) fn ptr(self) -> *mut u8 {
        self.ptr
    }

    /// Number of bytes.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Copies `src`, which does not overlap and is as long, into this span.
    pub(crate) fn copy_from(self, src: Span) {
        assert!(self.len == src.len, "copy between spans of {} and {} bytes", src.len, self.len);
        // SAFETY: both are valid for `len` bytes (see the type); exchanges with overlapping sources and destinations
        // are refused when they are described (`CommError::ReadAndWritten`), and buffers overlap nothing.
        unsafe { std::ptr::copy_nonoverlapping(src.ptr, self.ptr, self.len) };
    }
}
