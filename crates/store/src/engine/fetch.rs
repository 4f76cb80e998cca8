//! How what was found cold is read from the medium.

use super::Engine;
use crate::partition::cold::{Checked, Cold, Fetched};
use holdfast_heap::AbsentPage;
use holdfast_io::{Error as OpenError, ReadQueue};
use std::{io, sync::atomic::Ordering::Relaxed, thread, time::Duration};

/// Reads that one call has under way at a time.
const DEPTH: u32 = 128;
/// Queues that are kept for the next calls: more threads than these seldom read at a time.
const QUEUES_MAX: usize = 16;
/// How often it is looked for what is absent until all is in memory.
const ROUNDS: usize = 8;
/// How long a call waits that the kernel takes no more of.
const RETRY: Duration = Duration::from_millis(1);

impl Engine {
    /// See [`Store::fetch`](crate::Store::fetch).
    pub fn fetch(&self, cold: Cold) -> Fetched {
        let read = match cold {
            Cold::Item(item) => self.shared.read_item(item),
            Cold::Page(page) => self.shared.heap.read(page).map(|()| Vec::new()),
        };
        self.fetched(cold, read)
    }

    /// See [`Store::fetch_all`](crate::Store::fetch_all).
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

    /// Reads the pages that `absent` tells of until it tells of none, as what is read may tell what else is to be; but a few times only. Blocks
    /// on the medium.
    pub fn fetch_until_present(&self, mut absent: impl FnMut() -> Vec<AbsentPage>) {
        for _ in 0..ROUNDS {
            if !self.shared.heap.has_absent() {
                return;
            }
            let pages: Vec<Cold> = absent().into_iter().map(Cold::Page).collect();
            if pages.is_empty() {
                return;
            }
            // What is damaged is passed over, and told by who uses it.
            drop(self.fetch_all(&pages));
        }
    }

    /// A queue that nothing is under way in, if so many reads are worth one and the machine has any.
    fn queue_for(&self, reads: usize) -> Option<ReadQueue> {
        if reads < 2 {
            return None;
        }
        let kept = self.queues.lock().pop();
        kept.or_else(|| self.shared.io.read_queue(DEPTH).ok())
    }

    /// See [`Store::begin_fetch`](crate::Store::begin_fetch).
    pub fn begin_fetch(&self, cold: Cold, queue: &mut ReadQueue, tag: u64) -> bool {
        match cold {
            Cold::Item(item) => self.shared.begin_read_item(item, queue, tag),
            Cold::Page(page) => self.shared.heap.begin_read(page, queue, tag),
        }
    }

    /// See [`Store::end_fetch`](crate::Store::end_fetch).
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
        let counters = &self.counters;
        let counter = match cold {
            Cold::Item(item) if item.key_of.is_some() => &counters.fetched_keys,
            Cold::Item(_) => &counters.fetched,
            Cold::Page(_) => &counters.fetched_pages,
        };
        counter.fetch_add(1, Relaxed);
        if matches!(cold, Cold::Page(_)) && self.shared.budget.is_over() {
            self.shared.budget.ask_for_room();
        }
        Fetched { cold, bytes: read.map_err(|e| e.to_string()) }
    }
}
