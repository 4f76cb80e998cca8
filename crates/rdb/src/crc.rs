//! CRC-64 with Jones's polynomial, without the library's inversions, as Redis has it.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of some bytes behind those that `crc` is the checksum of (0: none).
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Redis, crc);
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::crc64;

    #[test]
    fn known_checksums() {
        assert_eq!(crc64(0, b""), 0);
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let text = b"This is a test of the emergency broadcast system, which is longer than one word.";
        for cut in 0..text.len() {
            assert_eq!(crc64(crc64(0, &text[..cut]), &text[cut..]), crc64(0, text));
        }
    }

    /// Bit by bit, for lengths that are gone through in blocks of each size.
    #[test]
    fn long_texts() {
        let bytes: Vec<u8> = (0..5000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut sum = 0u64;
        for (len, byte) in bytes.iter().enumerate() {
            assert_eq!(crc64(0, &bytes[..len]), sum, "{len} bytes");
            sum ^= u64::from(*byte);
            (0..8).for_each(|_| sum = if sum & 1 == 1 { sum >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { sum >> 1 });
        }
    }
}
