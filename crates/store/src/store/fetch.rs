//! How what transactions found cold is read from the medium.

use super::{Store, run::RETRY};
use crate::partition::cold::{Checked, Cold, Fetched};
use holdfast_io::{Error as OpenError, ReadQueue};
use std::{io, sync::atomic::Ordering::Relaxed, thread};

/// Reads that one call has under way at a time.
const DEPTH: u32 = 128;
/// Queues that are kept for the next calls: more threads than these seldom read at a time.
const QUEUES_MAX: usize = 16;

impl Store {
    /// Reads what a transaction found cold. Blocks on the medium; call it without a transaction open.
    pub fn fetch(&self, cold: impl Into<Cold>) -> Fetched {
        let cold = cold.into();
        let read = match cold {
            Cold::Item(item) => self.shared.read_item(item),
            Cold::Page(page) => self.shared.heap.read(page).map(|()| Vec::new()),
        };
        self.fetched(cold, read)
    }

    /// Reads all that was found cold, many things at a time if the machine can; in this order. Blocks on the medium; call it without
    /// a transaction open. All of it is in memory at once, so there must not be much of it.
    pub fn fetch_all(&self, cold: &[Cold]) -> Vec<Fetched> {
        let mut fetched: Vec<Option<Fetched>> = vec![None; cold.len()];
        if let Some(mut queue) = self.queue_for(cold.len()) {
            let begun = |(cold, at): &(&Cold, u64)| self.begin_fetch(**cold, &mut queue, *at);
            let mut under_way = cold.iter().zip(0..).filter(begun).count();
            while under_way > 0 {
                let arrived = queue.wait().and_then(|()| {
                    queue.reap(|tag, read| {
                        under_way -= 1;
                        fetched[tag as usize] = self.end_fetch(cold[tag as usize], read);
                    })
                });
                if arrived.is_err() {
                    // The kernel takes no more for the moment.
                    thread::sleep(RETRY);
                }
            }
            let mut queues = self.queues.lock();
            if queues.len() < QUEUES_MAX {
                queues.push(queue);
            }
        }
        // What takes more than one read, or where there is no queue.
        let one = |(fetched, cold): (Option<Fetched>, &Cold)| fetched.unwrap_or_else(|| self.fetch(*cold));
        fetched.into_iter().zip(cold).map(one).collect()
    }

    /// A queue that nothing is under way in, if so many reads are worth one and the machine has any.
    fn queue_for(&self, reads: usize) -> Option<ReadQueue> {
        if reads < 2 {
            return None;
        }
        let kept = self.queues.lock().pop();
        kept.or_else(|| self.read_queue(DEPTH).ok())
    }

    /// A queue for a thread that has so many reads under way at most.
    ///
    /// # Errors
    /// The machine has none.
    pub fn read_queue(&self, depth: u32) -> io::Result<ReadQueue> {
        self.shared.io.read_queue(depth)
    }

    /// Asks a queue for what a transaction found cold, without waiting for anything. False if it takes more than one
    /// read, or none: then it is [`Store::fetch`] that can read it.
    pub fn begin_fetch(&self, cold: Cold, queue: &mut ReadQueue, tag: u64) -> bool {
        match cold {
            Cold::Item(item) => self.shared.begin_read_item(item, queue, tag),
            Cold::Page(page) => self.shared.heap.begin_read(page, queue, tag),
        }
    }

    /// What came for [`Store::begin_fetch`]. `None`: that was not enough, and [`Store::fetch`] is to read it.
    pub fn end_fetch(&self, cold: Cold, read: io::Result<&[u8]>) -> Option<Fetched> {
        let item = match cold {
            Cold::Item(item) => item,
            Cold::Page(page) => {
                return Some(self.fetched(cold, self.shared.heap.end_read(page, read).map(|()| Vec::new())));
            }
        };
        let failed = |e| OpenError::io(format!("read {}", self.shared.log.locate(item.lsn).0), e);
        let checked = read.map_err(failed);
        let checked = checked.and_then(|bytes| match self.shared.check_item(item, bytes)? {
            Checked::Wanted(range) => Ok(Some(bytes[range].to_vec())),
            Checked::Expanded(record) => Ok(Some(record)),
            Checked::Longer(_) => Ok(None),
        });
        Some(self.fetched(cold, checked.transpose()?))
    }

    fn fetched(&self, cold: Cold, read: holdfast_io::Result<Vec<u8>>) -> Fetched {
        let counters = &self.engine().counters;
        let counter = match cold {
            Cold::Item(item) if item.key_of.is_some() => &counters.fetched_keys,
            Cold::Item(_) => &counters.fetched,
            Cold::Page(_) => &counters.fetched_pages,
        };
        counter.fetch_add(1, Relaxed);
        Fetched { cold, bytes: read.map_err(|e| e.to_string()) }
    }
}
