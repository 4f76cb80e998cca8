//! Sixteen one-byte fingerprints compared at once.

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
