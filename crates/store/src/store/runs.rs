//! Items that are read in the order of the log, many at a time.

use holdfast_io::{AlignedBuf, BLOCK, Result};
use holdfast_log::{Log, Lsn};

/// Bytes of log that are read at once, unless one item is longer.
pub const RUN_BYTES: u64 = 4 << 20;
/// Bytes between two items of a run that are read in vain: more than these take as long as another read.
const GAP_BYTES: u64 = 128 << 10;

/// Some of the log.
pub struct Run {
    /// How many of the items begin in it, at least one.
    pub count: usize,
    from: Lsn,
    bytes: AlignedBuf,
}

impl Run {
    /// Reads the log for as many of some items as lie near each other. They are in the order of the log, and written; `span` tells
    /// where one begins, and how many bytes it has at most. Less is read than wanted if a segment was freed.
    pub fn read<T>(log: &Log, items: &[T], span: impl Fn(&T) -> (Lsn, u64)) -> Result<Run> {
        let written = log.written();
        let end_of = |item: &T| {
            let (lsn, len_max) = span(item);
            (lsn + len_max).min(written)
        };
        let lsn_of = |item: &T| span(item).0;
        let from = lsn_of(&items[0]) - lsn_of(&items[0]) % BLOCK as u64;
        let mut end = end_of(&items[0]);
        let is_near = |item: &&T| {
            let is_near = lsn_of(item) <= end + GAP_BYTES && end_of(item) <= from + RUN_BYTES;
            if is_near {
                end = end.max(end_of(item));
            }
            is_near
        };
        let near = items[1..].iter().take_while(is_near).count();
        let mut bytes = AlignedBuf::zeroed(((end - from) as usize).next_multiple_of(BLOCK));
        let read = log.read(from, &mut bytes[..(end - from) as usize])?;
        let read_to = from + read as u64;
        let count = items[..=near].iter().take_while(|item| lsn_of(item) < read_to).count();
        Ok(Run { count: count.max(1), from, bytes })
    }

    /// What begins where one of its items does.
    pub fn at(&self, lsn: Lsn) -> &[u8] {
        &self.bytes[(lsn - self.from) as usize..]
    }
}
