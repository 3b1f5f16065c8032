//! Hints to the processor to load memory that will be read soon.
//!
//! Loading a line that is in no cache takes as long as some hundred instructions. A hint that is given that much earlier hides
//! the wait. Unlike a read, it does not stall the processor.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Prefetches the cache line on which `items` begins. It affects time only, and does nothing on processors other than x86-64.
#[inline]
pub fn prefetch<T>(items: &[T]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction has no result and never faults, whatever the address (Intel SDM, PREFETCHh). Besides, this
        // address comes from a valid slice.
        #[allow(unsafe_code, reason = "the hint has no safe form")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(items.as_ptr().cast());
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = items;
}

/// Prefetches all cache lines of a short byte string, and the first ones of a long one.
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    const LINES_MAX: usize = 4;
    bytes.chunks(LINE_BYTES).take(LINES_MAX).for_each(prefetch);
    // A string that does not begin at the start of a line ends on one more line.
    if bytes.len() <= LINES_MAX * LINE_BYTES
        && let Some(last) = bytes.last_chunk::<1>()
    {
        prefetch(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_slice_may_be_asked_for() {
        let bytes = vec![7_u8; 3 * LINE_BYTES];
        for start in [0, 1, LINE_BYTES, bytes.len()] {
            prefetch(&bytes[start..]);
        }
        prefetch::<u64>(&[]);
        prefetch_bytes(&bytes);
        prefetch_bytes(&[]);
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}
