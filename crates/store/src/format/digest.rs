//! What a key is to the index: its partition, by Redis Cluster's hash slot, and its digest.

use siphasher::sip128::SipHasher13;

/// Hash slots, as in Redis Cluster.
pub const SLOTS: usize = 16384;

/// A keyed 128-bit hash of a key: SipHash-1-3 under the secret of the data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Stored whole in the index entry: the low 13 bits name the home bucket, the top bits the directory entry.
    pub h0: u64,
    /// Gives the fingerprint and the entry's tag.
    pub h1: u64,
}

/// The secret that keys the digests of a data folder.
#[derive(Clone, Copy)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// The digest of `key`.
    #[inline]
    pub fn digest(&self, key: &[u8]) -> Digest {
        // In one go: a hasher that can be fed in parts costs twice as much.
        let hash = SipHasher13::new_with_key(&self.0).hash(key);
        Digest { h0: hash.h1, h1: hash.h2 }
    }
}

/// The hash slot of `key`: CRC16 (XMODEM) of the key, or of its hash tag `{…}` if it has one that is not empty
/// (Redis Cluster specification, "Hash tags").
#[inline]
pub fn hash_slot(key: &[u8]) -> u16 {
    // Mostly there is none, and this looks at many bytes at once.
    let tagged = if key.iter().fold(false, |any, &b| any | (b == b'{')) { hash_tag(key) } else { None };
    crc16(tagged.unwrap_or(key)) & (SLOTS as u16 - 1)
}

/// What is between the first `{` and the next `}`.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let rest = &key[key.iter().position(|&b| b == b'{')? + 1..];
    rest.iter().position(|&b| b == b'}').filter(|&close| close > 0).map(|close| &rest[..close])
}

/// `TABLES[i][b]` is the CRC of byte `b` followed by `i` zero bytes.
static TABLES: [[u16; 256]; 8] = {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut i = 1;
    while i < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[i - 1][byte];
            tables[i][byte] = (crc << 8) ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        i += 1;
    }
    tables
};

fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    let mut words = bytes.chunks_exact(8);
    for w in &mut words {
        crc = TABLES[7][(w[0] ^ (crc >> 8) as u8) as usize]
            ^ TABLES[6][(w[1] ^ crc as u8) as usize]
            ^ TABLES[5][w[2] as usize]
            ^ TABLES[4][w[3] as usize]
            ^ TABLES[3][w[4] as usize]
            ^ TABLES[2][w[5] as usize]
            ^ TABLES[1][w[6] as usize]
            ^ TABLES[0][w[7] as usize];
    }
    for &b in words.remainder() {
        crc = (crc << 8) ^ TABLES[0][((crc >> 8) as u8 ^ b) as usize];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip128::Hasher128;
    use std::hash::Hasher;

    #[test]
    fn slots_match_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"foo"), 12182);
        assert_eq!(hash_slot(b"{user1000}.following"), hash_slot(b"{user1000}.followers"));
        assert_eq!(hash_slot(b"foo{bar}{zap}"), hash_slot(b"bar"));
        assert_eq!(hash_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") & 0x3fff);
        assert_eq!(hash_slot(b"foo{{bar}}zap"), hash_slot(b"{bar"));
    }

    #[test]
    fn a_digest_is_siphash_1_3_of_128_bits() {
        let secret = Secret(*b"0123456789abcdef");
        for len in [0, 1, 7, 8, 9, 16, 100] {
            let key: Vec<u8> = (0..len).map(|i: u8| i.wrapping_mul(7)).collect();
            let mut hasher = SipHasher13::new_with_key(&secret.0);
            hasher.write(&key);
            let expected = hasher.finish128();
            assert_eq!(secret.digest(&key), Digest { h0: expected.h1, h1: expected.h2 });
        }
    }

    #[test]
    fn sliced_crc_equals_the_bytewise_one() {
        let data: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(37)).collect();
        for len in 0..data.len() {
            let bytewise = data[..len]
                .iter()
                .fold(0u16, |crc, &b| (crc << 8) ^ TABLES[0][((crc >> 8) as u8 ^ b) as usize]);
            assert_eq!(crc16(&data[..len]), bytewise);
        }
    }
}
