//! Visiting the batches of one segment, for the cleaner.

use holdfast_io::Result;

use crate::{
    Log,
    layout::{BATCH_ALIGN, Lsn},
    window::Window,
};

/// Which batches of a segment [`Log::scan_segment`] visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that overlap it.
    All,
    /// Those that lie partly in another segment: before a segment without live bytes is freed, live records
    /// elsewhere in these have to be moved.
    Crossing,
}

impl Log {
    /// Calls `f` with the LSN and payload of the batches that overlap a segment, in order. A batch that lies
    /// partly in a segment that was freed is left out: nothing in it is live, or that segment was in use (I-6).
    ///
    /// # Errors
    /// [`holdfast_io::Error::Corrupt`] if a batch fails its check, and whatever `f` returns.
    pub fn scan_segment(
        &self,
        seq: u64,
        scope: Scope,
        f: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let segment = self.segments.get(seq);
        let segment = segment.filter(|segment| !segment.is_empty()).expect("a segment that is kept");
        let entry = segment.entry();
        let start = self.segments.start_of(seq);
        let end = self.segments.start_of(seq + 1).min(self.durable());
        // The header is there before the batch is.
        let crosses = entry.crossing < start && entry.first <= self.durable();
        if crosses && self.segments.unfreed_end(entry.crossing) >= start {
            self.scan(entry.crossing, start, f)?;
        }
        let from = match scope {
            Scope::All => entry.first,
            Scope::Crossing => self.last_crossing(seq).unwrap_or(end),
        };
        self.scan(from.max(entry.first), end, f)
    }

    /// Visits the batches that start from `from` on, below `to`, but for a last one that goes on in a segment that was freed. What a pin
    /// keeps of such a segment may go at any moment.
    fn scan(&self, from: Lsn, to: Lsn, f: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        self.segments.with_window(from, self.segments.unfreed_end(from), self.crc_seed, |window| {
            let mut at = from;
            while at < to {
                if let Some(batch) = window.batch(at)? {
                    f(at, batch.payload)?;
                    at = batch.end;
                    continue;
                }
                if self.goes_on_in_a_freed_segment(window, at)? {
                    return Ok(());
                }
                return Err(self.segments.corrupt(at, "the batch fails its check"));
            }
            Ok(())
        })
    }

    /// Whether the batch at `at` cannot be read whole for this reason, rather than because it is damaged.
    fn goes_on_in_a_freed_segment(&self, window: &mut Window, at: Lsn) -> Result<bool> {
        let end = self.segments.start_of(self.segments.seq_of(at) + 1);
        let claimed = window.claimed_end(at)?;
        if claimed.is_none_or(|claimed| claimed <= end || self.segments.unfreed_end(end) >= claimed) {
            return Ok(false);
        }
        // A damaged length could say so too, but then other batches follow in the segment.
        let mut inside = at + BATCH_ALIGN as u64;
        while inside < end {
            if window.batch(inside)?.is_some() {
                return Ok(false);
            }
            inside += BATCH_ALIGN as u64;
        }
        Ok(true)
    }

    /// The batch that crosses the end of a segment, if there is one and it is known.
    fn last_crossing(&self, seq: u64) -> Option<Lsn> {
        let next = self.segments.get(seq + 1).filter(|next| !next.is_empty())?;
        let crossing = next.entry().crossing;
        (crossing < self.segments.start_of(seq + 1)).then_some(crossing)
    }
}
