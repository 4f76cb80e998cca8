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
        return unsafe { append_short(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

/// The CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// As [`crc32c_append`].
///
/// # Safety
/// The processor has SSE 4.2.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
#[allow(unused_unsafe)] // Before Rust 1.87 the instructions are unsafe to call here, too.
unsafe fn append_short(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (mut crc, mut rest) = (u64::from(!crc), bytes);
    while let Some((word, behind)) = rest.split_first_chunk() {
        // SAFETY: the processor has these instructions.
        (crc, rest) = (unsafe { _mm_crc32_u64(crc, u64::from_le_bytes(*word)) }, behind);
    }
    let mut crc = crc as u32;
    if let Some((word, behind)) = rest.split_first_chunk() {
        // SAFETY: as above.
        (crc, rest) = (unsafe { _mm_crc32_u32(crc, u32::from_le_bytes(*word)) }, behind);
    }
    // SAFETY: as above.
    !rest.iter().fold(crc, |crc, &byte| unsafe { _mm_crc32_u8(crc, byte) })
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
            }
        }
    }
}
