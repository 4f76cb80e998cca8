//! CRC-64 with Jones's polynomial, without the library's inversions, as Redis has it.

use crc::{CRC_64_REDIS, Crc, Table};

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The checksum of some bytes behind those that `crc` is the checksum of (0: none).
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    let mut digest = CRC.digest_with_initial(crc.reverse_bits());
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
}
