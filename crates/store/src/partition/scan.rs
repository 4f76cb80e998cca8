//! Walks over the keys of a database, a bucket of an index at a time.
//!
//! A cursor is the number of a partition and a cursor of its index: together at most 48 bits, so that it stays an
//! exact integer in clients whose numbers are doubles.

use crate::{
    format::entry_word::Type,
    partition::{cold::ColdItem, index::CURSOR_BITS},
};

/// Buckets that a step looks at for each key that is asked for, and at least: an index that was large once may be nearly
/// empty, and a step is to end soon all the same.
const BUCKETS_A_KEY: usize = 10;
const BUCKETS_MIN: usize = 4096;
/// Buckets that are drawn until the search for a random key goes from one to the next.
const DRAWS: usize = 100;
/// About as many keys as a bucket is home of at most.
const BUCKET_KEYS: u64 = 16;

/// What one step of a scan found.
#[derive(Default)]
pub struct ScanStep {
    /// The cursor of the next step; 0 after the last.
    pub next: u64,
    /// Keys with their types.
    pub keys: Vec<(Vec<u8>, Type)>,
    /// Items whose keys must be fetched ([`crate::Store::fetch`], [`crate::Fetched::key`]).
    pub cold: Vec<ColdItem>,
}

impl ScanStep {
    fn len(&self) -> usize {
        self.keys.len() + self.cold.len()
    }

    /// Keeps only the key with this number.
    fn pick(mut self, number: usize) -> ScanStep {
        let keys = self.keys.len();
        if number < keys {
            ScanStep { keys: vec![self.keys.swap_remove(number)], ..ScanStep::default() }
        } else {
            ScanStep { cold: vec![self.cold[number - keys]], ..ScanStep::default() }
        }
    }
}

/// One step of a scan over so many partitions. `bucket` adds the keys of one bucket, by partition and cursor of its
/// index, and returns the cursor of the next one.
pub(crate) fn scan(
    partitions: u16,
    cursor: u64,
    count: usize,
    mut bucket: impl FnMut(u16, u64, &mut ScanStep) -> Option<u64>,
) -> ScanStep {
    let mut number = cursor >> CURSOR_BITS;
    let mut at = cursor & ((1 << CURSOR_BITS) - 1);
    let mut step = ScanStep::default();
    let mut buckets = count.saturating_mul(BUCKETS_A_KEY).max(BUCKETS_MIN);
    while number < u64::from(partitions) {
        if step.len() >= count || buckets == 0 {
            step.next = number << CURSOR_BITS | at;
            return step;
        }
        buckets -= 1;
        match bucket(number as u16, at, &mut step) {
            Some(next) => at = next,
            None => (number, at) = (number + 1, 0),
        }
    }
    step
}

/// A random key; none if there is none. `lens` are the numbers of keys of the partitions, and `bucket` is that of
/// [`scan`].
pub(crate) fn random(
    lens: &[u64],
    mut random: impl FnMut() -> u64,
    mut bucket: impl FnMut(u16, u64, &mut ScanStep) -> Option<u64>,
) -> ScanStep {
    let total: u64 = lens.iter().sum();
    if total == 0 {
        return ScanStep::default();
    }
    for _ in 0..DRAWS {
        let mut rank = random() % total;
        let holds = |len: &u64| {
            rank < *len || {
                rank -= len;
                false
            }
        };
        let number = lens.iter().position(holds).expect("a rank below the sum");
        let mut step = ScanStep::default();
        bucket(number as u16, random() % (1 << CURSOR_BITS), &mut step);
        // A bucket is taken in proportion to its keys, so that each of these is as likely as any other.
        let pick = random() % BUCKET_KEYS.max(step.len() as u64);
        if pick < step.len() as u64 {
            return step.pick(pick as usize);
        }
    }
    let partitions = lens.len() as u16;
    let start = random() % (u64::from(partitions) << CURSOR_BITS);
    for mut cursor in [start, 0] {
        loop {
            let step = scan(partitions, cursor, 1, &mut bucket);
            if step.len() > 0 {
                let pick = random() as usize % step.len();
                return step.pick(pick);
            }
            cursor = step.next;
            if cursor == 0 {
                break;
            }
        }
    }
    ScanStep::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition of 64 buckets of 3 keys, named by their bucket.
    fn bucket(empty: u64, number: u16, at: u64, step: &mut ScanStep) -> Option<u64> {
        let width = CURSOR_BITS - 6;
        let index = at >> width;
        if index >= empty {
            let name = format!("{number}:{index}");
            step.keys.extend((0..3).map(|i| (format!("{name}:{i}").into_bytes(), Type::String)));
        }
        (index < 63).then_some((index + 1) << width)
    }

    #[test]
    fn a_scan_sees_each_key_once_and_a_cursor_fits_a_double() {
        for count in [1, 7, 1000] {
            let (mut seen, mut cursor) = (Vec::new(), 0);
            loop {
                let step = scan(4, cursor, count, |number, at, step| bucket(0, number, at, step));
                assert!(step.len() <= count + 2 && step.next < 1 << 53);
                seen.extend(step.keys);
                cursor = step.next;
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen.len(), 4 * 64 * 3);
            seen.sort_by(|a, b| a.0.cmp(&b.0));
            seen.dedup_by(|a, b| a.0 == b.0);
            assert_eq!(seen.len(), 4 * 64 * 3);
        }
        assert_eq!(scan(4, u64::MAX, 10, |_, _, _| unreachable!()).next, 0);
    }

    #[test]
    fn a_step_over_an_empty_index_ends() {
        let mut looked = 0;
        let step = scan(1, 0, 1, |_, at, _| {
            looked += 1;
            Some(at + 1)
        });
        assert!(looked <= BUCKETS_MIN && step.next != 0);
    }

    #[test]
    fn random_keys_are_found_however_few() {
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            state.rotate_right(23) ^ state
        };
        for empty in [0, 63] {
            let mut seen = std::collections::HashSet::new();
            for _ in 0..20_000 {
                let lens = [192, 0, 192];
                let step = random(&lens, &mut draw, |number, at, step| bucket(empty, number, at, step));
                assert_eq!(step.len(), 1);
                seen.insert(step.keys[0].0.clone());
            }
            let expected = if empty == 0 { 2 * 64 * 3 } else { 2 };
            assert!(seen.len() >= expected, "{}", seen.len());
        }
        assert_eq!(random(&[0, 0], &mut draw, |_, _, _| None).len(), 0);
        assert_eq!(random(&[5], &mut draw, |_, _, _| None).len(), 0);
    }
}
