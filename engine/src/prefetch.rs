//! Hints to the processor to fetch memory that is read soon, while it goes on with other work.
//!
//! A line that lies in no cache takes as long as some hundred instructions. Where its address is known that much earlier,
//! asking for it ahead hides the wait; unlike a read, the hint holds nothing up.

/// The bytes that the processor fetches at once.
pub const LINE_BYTES: usize = 64;

/// Asks for the line on which `items` begin. Nothing but time depends on it; on processors other than x86-64 it does nothing.
#[inline]
pub fn prefetch<T>(items: &[T]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction reads nothing the program could see and never faults, whatever the address (Intel SDM,
        // PREFETCHh); this one comes from a valid slice besides.
        #[allow(unsafe_code, reason = "the hint has no safe form")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(items.as_ptr().cast());
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = items;
}

/// Asks for all lines of a short byte string, for the first lines of a long one.
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    const LINES_MAX: usize = 4;
    bytes.chunks(LINE_BYTES).take(LINES_MAX).for_each(prefetch);
    // It need not begin where a line does, and then ends on one more.
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
