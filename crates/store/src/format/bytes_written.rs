//! What was written to the medium since the data folder was made, by why: kept in the superblock.

/// Why bytes were written to the medium. The first five are counted when a batch is appended to the log, all others once they are
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCause {
    /// Items of string values that commands wrote, keys and headers included.
    Items,
    /// Redo of what commands, expiry and eviction changed in the heap: collections, the index.
    Redo,
    /// Items of collections that left the heap.
    Frozen,
    /// Items that the cleaner moved out of segments with much garbage.
    Moved,
    /// Headers of batches, and what aligns these.
    BatchHeaders,
    /// What completes the last block of a commit.
    Padding,
    /// What was written before of the block in which a commit begins, and the log's end, which a start makes durable again.
    Rewritten,
    /// Headers of segments.
    SegmentHeaders,
    /// Zeroes that new segments are filled with.
    SegmentZeroes,
    /// Pages of the heap that checkpoints wrote.
    HeapPages,
    /// Tables of these.
    HeapTables,
    /// The superblock, the file that is there while a folder is made, dictionaries, and redo that was condensed.
    Superblock,
    /// Segments that have moved to the folder below the others.
    MovedSegments,
}

impl WriteCause {
    /// All of them, in the order in which the superblock has them.
    pub const ALL: [WriteCause; 13] = [
        WriteCause::Items,
        WriteCause::Redo,
        WriteCause::Frozen,
        WriteCause::Moved,
        WriteCause::BatchHeaders,
        WriteCause::Padding,
        WriteCause::Rewritten,
        WriteCause::SegmentHeaders,
        WriteCause::SegmentZeroes,
        WriteCause::HeapPages,
        WriteCause::HeapTables,
        WriteCause::Superblock,
        WriteCause::MovedSegments,
    ];

    /// Its name in figures, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            WriteCause::Items => "items",
            WriteCause::Redo => "redo",
            WriteCause::Frozen => "frozen_items",
            WriteCause::Moved => "moved_items",
            WriteCause::BatchHeaders => "batch_headers",
            WriteCause::Padding => "padding",
            WriteCause::Rewritten => "rewritten_blocks",
            WriteCause::SegmentHeaders => "segment_headers",
            WriteCause::SegmentZeroes => "segment_zeroes",
            WriteCause::HeapPages => "heap_pages",
            WriteCause::HeapTables => "heap_tables",
            WriteCause::Superblock => "superblock",
            WriteCause::MovedSegments => "moved_segments",
        }
    }
}

/// Bytes written to the medium, by why, and what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesWritten {
    /// Bytes of the keys and values that came with commands that changed something.
    pub input: u64,
    by_cause: [u64; WriteCause::ALL.len()],
}

impl BytesWritten {
    /// Numbers that it has.
    pub(crate) const WORDS: usize = 1 + WriteCause::ALL.len();

    /// Bytes written for one reason.
    pub fn of(&self, cause: WriteCause) -> u64 {
        self.by_cause[cause as usize]
    }

    /// Bytes written in all.
    pub fn total(&self) -> u64 {
        self.by_cause.iter().sum()
    }

    /// Bytes written for each byte of keys and values that came with commands; 0 if none came.
    pub fn amplification(&self) -> f64 {
        if self.input == 0 { 0.0 } else { self.total() as f64 / self.input as f64 }
    }

    pub(crate) fn add(&mut self, cause: WriteCause, bytes: u64) {
        self.by_cause[cause as usize] += bytes;
    }

    /// Both together.
    pub(crate) fn and(mut self, other: &BytesWritten) -> BytesWritten {
        self.input = self.input.saturating_add(other.input);
        for (bytes, more) in self.by_cause.iter_mut().zip(other.by_cause) {
            *bytes = bytes.saturating_add(more);
        }
        self
    }

    /// The input and then each cause, as the superblock has them.
    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        std::array::from_fn(|at| if at == 0 { self.input } else { self.by_cause[at - 1] })
    }

    pub(crate) fn of_words(words: &[u64; Self::WORDS]) -> BytesWritten {
        BytesWritten { input: words[0], by_cause: std::array::from_fn(|at| words[at + 1]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_causes_are_numbered_in_order() {
        assert!(WriteCause::ALL.iter().enumerate().all(|(at, cause)| *cause as usize == at));
    }

    #[test]
    fn each_cause_has_its_word() {
        let mut written = BytesWritten { input: 7, ..BytesWritten::default() };
        WriteCause::ALL.into_iter().for_each(|cause| written.add(cause, 100 + cause as u64));
        let words = written.words();
        assert!(words.into_iter().eq([7].into_iter().chain(100..113)));
        assert_eq!(BytesWritten::of_words(&words), written);
    }

    #[test]
    fn sums_and_ratios() {
        let mut written = BytesWritten::default();
        assert_eq!(written.amplification(), 0.0);
        written.input = 100;
        written.add(WriteCause::Items, 150);
        written.add(WriteCause::Padding, 50);
        let twice = written.and(&written);
        assert_eq!((twice.total(), twice.input, twice.of(WriteCause::Padding)), (400, 200, 100));
        assert_eq!(twice.amplification(), 2.0);
    }
}
