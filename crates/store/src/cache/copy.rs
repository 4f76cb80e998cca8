//! How a copy lies in a chunk: a header, the key, the value.
//!
//! The header is a word: uses (2 bits), dead (1), long (1), stamp (14), and the lengths of key (6) and value (8). A copy with
//! longer ones, or of another database than its chunk, is *long*: its 14 bits are its database (6) and the length of the key
//! (8), and the length of the value is a word of its own. A key that is too long for that has [`KEY_LEN_FOLLOWS`] there, and
//! its length in a third word.

use crate::cache::uses::STAMP_BITS;

/// Uses of a copy are counted up to this.
const USES_MAX: u32 = 3;
const DEAD: u32 = 1 << 2;
const LONG: u32 = 1 << 3;
const STAMP_AT: u32 = 4;
const STAMP_MASK: u32 = ((1 << STAMP_BITS) - 1) << STAMP_AT;
const LENGTHS_AT: u32 = STAMP_AT + STAMP_BITS;
const SHORT_KEY_BITS: u32 = 6;
const SHORT_VALUE_BITS: u32 = 32 - LENGTHS_AT - SHORT_KEY_BITS;
const DB_BITS: u32 = 6;
const KEY_LEN_FOLLOWS: u32 = (1 << (32 - LENGTHS_AT - DB_BITS)) - 1;

/// The first word of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header(u32);

impl Header {
    fn read(memory: &[u8], at: usize) -> Header {
        Header(word(memory, at))
    }

    #[inline]
    pub fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    /// How many uses were counted since the copy was looked at for eviction: 3 stands for more, too.
    pub fn uses(self) -> u32 {
        self.0 & USES_MAX
    }

    #[inline]
    pub fn stamp(self) -> u32 {
        (self.0 & STAMP_MASK) >> STAMP_AT
    }

    #[inline]
    pub fn with_stamp(self, stamp: u32) -> Header {
        Header(self.0 & !STAMP_MASK | stamp << STAMP_AT)
    }

    /// With one use more.
    #[inline]
    pub fn used(self) -> Header {
        Header(self.0 + u32::from(self.uses() < USES_MAX))
    }
}

/// A copy: what it is of, and the value.
#[derive(Clone, Copy)]
pub(crate) struct Copy<'a> {
    pub db: u8,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// What precedes key and value: one to three words.
pub(crate) struct Head {
    words: [u32; 3],
    count: usize,
}

impl Head {
    /// Of a copy with so many uses in a chunk that is of a database.
    pub fn new(chunk_db: u8, copy: Copy, uses: u32, stamp: u32) -> Head {
        let (key_len, value_len) = (copy.key.len() as u32, copy.value.len() as u32);
        let first = uses | stamp << STAMP_AT;
        if copy.db == chunk_db && key_len < 1 << SHORT_KEY_BITS && value_len < 1 << SHORT_VALUE_BITS {
            let lengths = key_len | value_len << SHORT_KEY_BITS;
            return Head { words: [first | lengths << LENGTHS_AT, 0, 0], count: 1 };
        }
        let short_len = key_len.min(KEY_LEN_FOLLOWS);
        let first = first | LONG | (u32::from(copy.db) | short_len << DB_BITS) << LENGTHS_AT;
        Head { words: [first, value_len, key_len], count: if short_len == KEY_LEN_FOLLOWS { 3 } else { 2 } }
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.count * size_of::<u32>()
    }

    /// Writes a copy of which this is the head.
    pub fn write(&self, mut target: &mut [u8], copy: Copy) {
        let mut put = |bytes: &[u8]| {
            let (head, tail) = std::mem::take(&mut target).split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            target = tail;
        };
        self.words[..self.count].iter().for_each(|word| put(&word.to_le_bytes()));
        put(copy.key);
        put(copy.value);
    }
}

fn word(memory: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*memory[at..].first_chunk().expect("a word of a copy's header"))
}

/// The header of the copy at `at`.
#[inline]
pub(crate) fn header(memory: &[u8], at: usize) -> Header {
    Header::read(memory, at)
}

/// Changes the header of the copy at `at`, all but its lengths.
#[inline]
pub(crate) fn set_header(memory: &mut [u8], at: usize, header: Header) {
    memory[at..at + 4].copy_from_slice(&header.0.to_le_bytes());
}

/// Marks the copy at `at` as dead.
pub(crate) fn kill(memory: &mut [u8], at: usize) {
    memory[at] |= DEAD as u8;
}

/// The copy at `at` in a chunk that is of a database, and where it ends.
#[inline]
pub(crate) fn decode(memory: &[u8], chunk_db: u8, at: usize) -> (Copy<'_>, usize) {
    let header = word(memory, at);
    let lengths = header >> LENGTHS_AT;
    let (db, start, key_len, value_len) = if header & LONG == 0 {
        (chunk_db, at + 4, lengths & ((1 << SHORT_KEY_BITS) - 1), lengths >> SHORT_KEY_BITS)
    } else {
        let (db, key_len, value_len) =
            (lengths as u8 & ((1 << DB_BITS) - 1), lengths >> DB_BITS, word(memory, at + 4));
        match key_len {
            KEY_LEN_FOLLOWS => (db, at + 12, word(memory, at + 8), value_len),
            _ => (db, at + 8, key_len, value_len),
        }
    };
    let end = start + key_len as usize + value_len as usize;
    let (key, value) = memory[start..end].split_at(key_len as usize);
    (Copy { db, key, value }, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_all_lengths_come_back_and_small_ones_take_a_word_beside() {
        for (key_len, value_len, db, head_len) in [
            (0, 0, 7, 4),
            (16, 100, 7, 4),
            (63, 255, 7, 4),
            (16, 100, 39, 8),
            (64, 1, 7, 8),
            (1, 256, 7, 8),
            (254, 70_000, 0, 8),
            (255, 0, 7, 12),
            (70_000, 1, 7, 12),
        ] {
            let (key, value) = (vec![1; key_len], vec![2; value_len]);
            let copy = Copy { db, key: &key, value: &value };
            let head = Head::new(7, copy, 2, 12_345);
            assert_eq!(head.len(), head_len);
            let mut memory = vec![0; 8 + head_len + key_len + value_len];
            head.write(&mut memory[8..], copy);
            let changed = header(&memory, 8).used().used().with_stamp(54);
            assert_eq!((header(&memory, 8).stamp(), header(&memory, 8).uses()), (12_345, 2));
            set_header(&mut memory, 8, changed);
            assert_eq!((header(&memory, 8).stamp(), header(&memory, 8).uses()), (54, 3));
            kill(&mut memory, 8);
            assert!(header(&memory, 8).is_dead());
            let (back, end) = decode(&memory, 7, 8);
            assert_eq!((back.db, back.key, back.value, end), (db, &key[..], &value[..], memory.len()));
        }
    }
}
