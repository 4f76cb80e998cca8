//! CRC-32C (Castagnoli; RFC 3720, appendix B.4), which covers what lies on a medium.
//!
//! A write of a hundred bytes takes four checksums of 8 to 150 bytes each. The library's work for a checksum begins with
//! some hundred instructions, whatever its length; for such lengths this is a fifth of that. Long ranges are left to it.

/// Bytes up to which one instruction after the other is the fastest way.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const SHORT: usize = 512;

/// The CRC-32C of what `crc` is the CRC-32C of, with `bytes` behind it.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes.len() <= SHORT && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has these instructions.
        return unsafe { short::append(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

/// The CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The CRC-32C of `head` with `bytes` behind it.
#[inline]
pub fn crc32c_of_both(head: [u8; 8], bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes.len() <= SHORT && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has these instructions.
        return unsafe { short::of_both(head, bytes) };
    }
    crc32c_append(crc32c(&head), bytes)
}

/// One instruction after the other.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unused_unsafe)] // Before Rust 1.87 the instructions are unsafe to call here, too.
mod short {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

    /// As [`super::crc32c_append`].
    ///
    /// # Safety
    /// The processor has SSE 4.2.
    #[target_feature(enable = "sse4.2")]
    pub unsafe fn append(crc: u32, bytes: &[u8]) -> u32 {
        // SAFETY: the processor has these instructions.
        unsafe { !add(!crc, bytes) }
    }

    /// As [`super::crc32c_of_both`].
    ///
    /// # Safety
    /// The processor has SSE 4.2.
    #[target_feature(enable = "sse4.2")]
    pub unsafe fn of_both(head: [u8; 8], bytes: &[u8]) -> u32 {
        // SAFETY: the processor has these instructions.
        unsafe { !add(add_words(!0, &head), bytes) }
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn add(mut crc: u32, bytes: &[u8]) -> u32 {
        let mut rest = bytes;
        // Four words a turn, since a turn costs as much as they do; of what is left there is one of each length at most.
        while let Some((words, behind)) = rest.split_first_chunk::<32>() {
            // SAFETY: the processor has these instructions.
            (crc, rest) = (unsafe { add_words(crc, words) }, behind);
        }
        if let Some((words, behind)) = rest.split_first_chunk::<16>() {
            // SAFETY: as above.
            (crc, rest) = (unsafe { add_words(crc, words) }, behind);
        }
        if let Some((word, behind)) = rest.split_first_chunk::<8>() {
            // SAFETY: as above.
            (crc, rest) = (unsafe { add_words(crc, word) }, behind);
        }
        if let Some((word, behind)) = rest.split_first_chunk() {
            // SAFETY: as above.
            (crc, rest) = (unsafe { _mm_crc32_u32(crc, u32::from_le_bytes(*word)) }, behind);
        }
        if let Some((word, behind)) = rest.split_first_chunk() {
            // SAFETY: as above.
            (crc, rest) = (unsafe { _mm_crc32_u16(crc, u16::from_le_bytes(*word)) }, behind);
        }
        match rest {
            // SAFETY: as above.
            [byte] => unsafe { _mm_crc32_u8(crc, *byte) },
            _ => crc,
        }
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    unsafe fn add_words<const N: usize>(crc: u32, words: &[u8; N]) -> u32 {
        let mut crc = u64::from(crc);
        for word in words.chunks_exact(8) {
            let word = u64::from_le_bytes(*word.first_chunk().expect("a chunk's length"));
            // SAFETY: the processor has these instructions.
            crc = unsafe { _mm_crc32_u64(crc, word) };
        }
        crc as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard_and_of_the_library() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        let bytes: Vec<u8> = (0..1200u32).map(|i| (i * i % 251) as u8).collect();
        for len in (0..80).chain([SHORT - 1, SHORT, SHORT + 1, 1200]) {
            for start in 0..8.min(bytes.len() - len + 1) {
                let part = &bytes[start..start + len];
                assert_eq!(crc32c(part), ::crc32c::crc32c(part), "{len} bytes");
                assert_eq!(crc32c_append(7, part), ::crc32c::crc32c_append(7, part), "{len} bytes");
                let both = [b"8 before", part].concat();
                assert_eq!(crc32c_of_both(*b"8 before", part), ::crc32c::crc32c(&both), "{len} bytes");
            }
        }
    }
}
