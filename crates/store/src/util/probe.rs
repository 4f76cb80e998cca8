//! What the processor does for the index: sixteen one-byte fingerprints compared at once, and lines of memory fetched
//! before they are needed.

/// A bit for each byte of `bytes` that equals `byte`, the first byte's lowest.
#[inline]
pub fn matches(bytes: &[u8; 16], byte: u8) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: SSE2 is part of x86_64; the load is unaligned and within the array.
        unsafe {
            let loaded = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(loaded, _mm_set1_epi8(byte as i8))) as u32
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        bytes.iter().enumerate().fold(0, |mask, (i, &b)| mask | u32::from(b == byte) << i)
    }
}

/// Asks for memory that will be read soon.
#[inline]
pub fn prefetch<T>(memory: &[T]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // Two lines: the processor fetches them in pairs.
        const STEP: usize = 128;
        let (start, mut at) = (memory.as_ptr().cast::<i8>(), 0);
        while at < size_of_val(memory) {
            // SAFETY: the address is within the slice; a prefetch has no other requirement.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(at)) };
            at += STEP;
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = memory;
}
