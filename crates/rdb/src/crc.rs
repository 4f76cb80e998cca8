//! CRC-64 with Jones's polynomial, eight bytes at a time.

/// The polynomial, its lowest bit first.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// At `[n][byte]`: what a byte comes to with n bytes of 0 behind it.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[n - 1][byte];
            tables[n][byte] = crc >> 8 ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
}

/// The checksum of some bytes behind those that `crc` is the checksum of (0: none).
pub fn crc64(mut crc: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for word in words {
        crc ^= u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let bytes = crc.to_le_bytes();
        crc = (0..8).fold(0, |crc, at| crc ^ TABLES[7 - at][usize::from(bytes[at])]);
    }
    rest.iter().fold(crc, |crc, byte| crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)])
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
