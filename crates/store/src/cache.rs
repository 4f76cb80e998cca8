//! Copies of items in RAM: one cache a partition, under its lock.
//!
//! Copies lie one behind another in chunks, and chunks form two queues, as in S3-FIFO (Yang et al., SOSP 2023): a
//! new copy goes to the *small* queue; when its chunk is the oldest there, the copies that were used in the meantime
//! move on to the *main* queue and the others leave, remembered for a while as *ghosts*. A copy that comes back while
//! its ghost is remembered goes to the main queue at once, and main copies stay as long as they are used. So a scan
//! passes through the small queue and drives nothing out. A chunk is the unit of memory; there are no size classes, no
//! links, and 4 bytes of header a copy.
//!
//! The cache does not know the index: whoever takes a chunk apart (`Partition`) asks the index which copies still count.

use crate::{
    chunk::{self, CHUNK_BYTES, Pool},
    digest::Digest,
    index::Handle,
    partition::PHYSICAL_DATABASES,
    probe,
};
use std::{collections::VecDeque, sync::Arc};

/// Unit of positions in a chunk, in bytes.
const GRANULE: usize = 4;
const POSITION_BITS: u32 = (CHUNK_BYTES / GRANULE).ilog2();
const CHUNKS_MAX: usize = (1 << (32 - POSITION_BITS)) - 1;
/// Uses of a copy are counted up to this.
const USES_MAX: u32 = 3;

/// Header of a copy: uses (2 bits), dead (1), long (1), database (5), key length (7), value length (16); a long one
/// has its lengths in two more words.
#[derive(Clone, Copy)]
struct Header(u32);

const DEAD: u32 = 1 << 2;
const LONG: u32 = 1 << 3;

impl Header {
    fn new(db: u8, key_len: usize, value_len: usize) -> Header {
        let db = u32::from(db) << 4;
        if key_len < 1 << 7 && value_len < 1 << 16 {
            Header(db | (key_len as u32) << 9 | (value_len as u32) << 16)
        } else {
            Header(db | LONG)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Small,
    Main,
}

struct Chunk {
    memory: chunk::Chunk,
    used: usize,
    queue: Queue,
}

/// A copy: what it is of, and the value.
#[derive(Clone, Copy)]
pub(crate) struct Copy<'a> {
    pub db: u8,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// The cache of one partition.
#[derive(Default)]
pub(crate) struct Cache {
    chunks: Vec<Option<Chunk>>,
    vacant: Vec<u32>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    small_bytes: usize,
    bytes: usize,
    dead_bytes: usize,
    copies: usize,
    ghosts: Ghosts,
    pool: Arc<Pool>,
}

impl Cache {
    /// An empty cache that takes its chunks from a pool.
    pub fn new(pool: Arc<Pool>) -> Cache {
        Cache { pool, ..Cache::default() }
    }

    /// Memory held by chunks, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.ghosts.bytes()
    }

    /// Number of live copies.
    pub fn len(&self) -> usize {
        self.copies
    }

    /// Whether so much of the memory is of dead copies that a chunk should be taken apart.
    pub fn is_sparse(&self) -> bool {
        self.dead_bytes > (self.bytes - self.dead_bytes) / 8 + 2 * CHUNK_BYTES
    }

    fn split(handle: Handle) -> (usize, usize) {
        ((handle >> POSITION_BITS) as usize - 1, (handle as usize & ((1 << POSITION_BITS) - 1)) * GRANULE)
    }

    fn chunk(&self, number: usize) -> &Chunk {
        self.chunks[number].as_ref().expect("a handle names a chunk in use")
    }

    fn header_mut(&mut self, handle: Handle) -> &mut [u8; 4] {
        let (number, at) = Cache::split(handle);
        let chunk = self.chunks[number].as_mut().expect("a handle names a chunk in use");
        chunk.memory[at..].first_chunk_mut().expect("a header")
    }

    /// The copy that a handle names.
    #[inline]
    pub fn get(&self, handle: Handle) -> Copy<'_> {
        let (number, at) = Cache::split(handle);
        decode(&self.chunk(number).memory, at).0
    }

    /// Asks for the memory of the first bytes of a copy.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        const BYTES: usize = 192;
        let (number, at) = Cache::split(handle);
        let memory = &self.chunk(number).memory;
        probe::prefetch(&memory[at..memory.len().min(at + BYTES)]);
    }

    /// How many uses of a copy were counted since it was looked at for eviction: 3 stands for more, too.
    pub fn uses(&self, handle: Handle) -> u8 {
        let (number, at) = Cache::split(handle);
        self.chunk(number).memory[at] & USES_MAX as u8
    }

    /// Counts a use of a copy.
    #[inline]
    pub fn touch(&mut self, handle: Handle) {
        let header = self.header_mut(handle);
        if u32::from(header[0]) & USES_MAX < USES_MAX {
            header[0] += 1;
        }
    }

    /// Overwrites a copy's value by one of the same length; false if the length differs.
    #[inline]
    pub fn overwrite(&mut self, handle: Handle, value: &[u8]) -> bool {
        let (number, at) = Cache::split(handle);
        let chunk = self.chunks[number].as_mut().expect("a handle names a chunk in use");
        let (copy, end) = decode(&chunk.memory, at);
        let len = copy.value.len();
        if len != value.len() {
            return false;
        }
        chunk.memory[end - len..end].copy_from_slice(value);
        true
    }

    /// Takes in a copy; the handle, or 0 if the partition holds as many chunks as handles can name.
    pub fn insert(&mut self, digest: Digest, db: u8, key: &[u8], value: &[u8]) -> Handle {
        let queue = if self.ghosts.recall(digest) { Queue::Main } else { Queue::Small };
        self.insert_into(queue, Header::new(db, key.len(), value.len()), key, value)
    }

    fn insert_into(&mut self, queue: Queue, header: Header, key: &[u8], value: &[u8]) -> Handle {
        let lengths = if header.0 & LONG == 0 { 0 } else { 8 };
        let len = 4 + lengths + key.len() + value.len();
        let Some((number, at)) = self.room(queue, len.next_multiple_of(GRANULE)) else { return 0 };
        let chunk = self.chunks[number as usize].as_mut().expect("a chunk with room");
        let mut target = &mut chunk.memory[at..at + len];
        let mut put = |bytes: &[u8]| {
            let (head, tail) = std::mem::take(&mut target).split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            target = tail;
        };
        put(&header.0.to_le_bytes());
        if lengths != 0 {
            put(&(key.len() as u32).to_le_bytes());
            put(&(value.len() as u32).to_le_bytes());
        }
        put(key);
        put(value);
        self.copies += 1;
        (number + 1) << POSITION_BITS | (at / GRANULE) as u32
    }

    fn room(&mut self, queue: Queue, len: usize) -> Option<(u32, usize)> {
        let list = if queue == Queue::Small { &self.small } else { &self.main };
        if let Some(&number) = list.back() {
            let chunk = self.chunks[number as usize].as_mut().expect("a queued chunk");
            if chunk.memory.len() - chunk.used >= len {
                let at = chunk.used;
                chunk.used += len;
                return Some((number, at));
            }
        }
        let size = len.max(CHUNK_BYTES);
        let number = match self.vacant.pop() {
            Some(number) => number,
            None if self.chunks.len() < CHUNKS_MAX => {
                self.chunks.push(None);
                self.chunks.len() as u32 - 1
            }
            None => return None,
        };
        self.chunks[number as usize] = Some(Chunk { memory: self.pool.take(size), used: len, queue });
        self.bytes += size;
        // A copy that fills a chunk alone goes in behind the one that is being filled, not in its place.
        let list = if queue == Queue::Small { &mut self.small } else { &mut self.main };
        let place = list.len() - usize::from(size > CHUNK_BYTES && !list.is_empty());
        list.insert(place, number);
        if queue == Queue::Small {
            self.small_bytes += size;
        }
        Some((number, 0))
    }

    /// Forgets a copy whose entry no longer names it.
    pub fn kill(&mut self, handle: Handle) {
        let (number, at) = Cache::split(handle);
        let (copy, end) = decode(&self.chunk(number).memory, at);
        debug_assert!(usize::from(copy.db) < PHYSICAL_DATABASES);
        self.dead_bytes += (end - at).next_multiple_of(GRANULE);
        self.copies -= 1;
        self.header_mut(handle)[0] |= DEAD as u8;
    }

    /// Takes the chunk out that is the next to go: the oldest of the small queue if this holds over a tenth of the
    /// memory, else the oldest of the main queue.
    pub fn pop(&mut self) -> Option<Victim> {
        let from_small = self.small_bytes * 10 > self.bytes || self.main.is_empty();
        let number = if from_small { self.small.pop_front() } else { self.main.pop_front() }?;
        Some(self.take(number))
    }

    /// Takes out the chunk of the queues' fronts; every copy in it is to be put back. For memory that is mostly dead.
    pub fn pop_sparse(&mut self) -> Option<Victim> {
        let number = self.main.pop_front().or_else(|| self.small.pop_front())?;
        Some(self.take(number))
    }

    fn take(&mut self, number: u32) -> Victim {
        let chunk = self.chunks[number as usize].take().expect("a queued chunk");
        self.vacant.push(number);
        self.bytes -= chunk.memory.len();
        if chunk.queue == Queue::Small {
            self.small_bytes -= chunk.memory.len();
        }
        Victim { chunk, at: 0 }
    }

    /// Puts a live copy of a victim back: into the main queue when the queues make room, or where it was.
    pub fn put_back(&mut self, copy: &VictimCopy<'_>, queue: Queue) -> Handle {
        self.copies -= 1;
        let used_once_less = copy.header.0 & !USES_MAX | (copy.header.0 & USES_MAX).saturating_sub(1);
        self.insert_into(queue, Header(used_once_less), copy.copy.key, copy.copy.value)
    }

    /// Lets a live copy of a victim go, and remembers it as a ghost.
    pub fn let_go(&mut self, digest: Digest) {
        self.copies -= 1;
        self.ghosts.remember(digest, self.copies);
    }

    /// A dead copy of a victim is gone with it.
    pub fn bury(&mut self, copy: &VictimCopy<'_>) {
        self.dead_bytes -= copy.len;
    }
}

fn decode(memory: &[u8], at: usize) -> (Copy<'_>, usize) {
    let word =
        |at: usize| u32::from_le_bytes(*memory[at..].first_chunk().expect("a word of a copy's header"));
    let header = word(at);
    let db = (header >> 4 & 0x1f) as u8;
    let (start, key_len, value_len) = if header & LONG == 0 {
        (at + 4, (header >> 9 & 0x7f) as usize, (header >> 16) as usize)
    } else {
        (at + 12, word(at + 4) as usize, word(at + 8) as usize)
    };
    let end = start + key_len + value_len;
    let (key, value) = memory[start..end].split_at(key_len);
    (Copy { db, key, value }, end)
}

/// A chunk that was taken out of the cache.
pub(crate) struct Victim {
    chunk: Chunk,
    at: usize,
}

/// A copy in a victim.
pub(crate) struct VictimCopy<'a> {
    pub copy: Copy<'a>,
    header: Header,
    len: usize,
}

impl VictimCopy<'_> {
    pub fn is_dead(&self) -> bool {
        self.header.0 & DEAD != 0
    }

    pub fn is_used(&self) -> bool {
        self.header.0 & USES_MAX != 0
    }
}

impl Victim {
    pub fn queue(&self) -> Queue {
        self.chunk.queue
    }

    /// The next copy, in the order in which they came.
    pub fn next_copy(&mut self) -> Option<VictimCopy<'_>> {
        if self.at >= self.chunk.used {
            return None;
        }
        let at = self.at;
        let memory = &self.chunk.memory;
        let header = Header(u32::from_le_bytes(*memory[at..].first_chunk().expect("a header")));
        let (copy, end) = decode(memory, at);
        self.at = end.next_multiple_of(GRANULE);
        Some(VictimCopy { copy, header, len: self.at - at })
    }
}

/// Digests of copies that left unused, as many as there are copies; an older one gives way to a newer one in its place.
#[derive(Default)]
struct Ghosts {
    table: Vec<u32>,
}

impl Ghosts {
    fn bytes(&self) -> usize {
        self.table.capacity() * 4
    }

    fn place(&self, digest: Digest) -> (usize, u32) {
        (digest.h1 as usize & (self.table.len() - 1), (digest.h0 as u32).max(1))
    }

    fn remember(&mut self, digest: Digest, copies: usize) {
        let wanted = copies.next_power_of_two().clamp(64, 1 << 22);
        if self.table.len() < wanted {
            self.table = vec![0; wanted];
        }
        let (place, mark) = self.place(digest);
        self.table[place] = mark;
    }

    fn recall(&mut self, digest: Digest) -> bool {
        if self.table.is_empty() {
            return false;
        }
        let (place, mark) = self.place(digest);
        let found = self.table[place] == mark;
        if found {
            self.table[place] = 0;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u64) -> Digest {
        Digest { h0: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), h1: n.wrapping_mul(0xbf58_476d_1ce4_e5b9) }
    }

    #[test]
    fn copies_of_all_lengths_come_back() {
        let mut cache = Cache::default();
        let cases = [(0, 0), (1, 1), (255, 65_535), (256, 1), (1, 65_536), (16, 100), (10, 5 << 20), (3, 7)];
        let handles: Vec<Handle> =
            cases.iter().map(|&(k, v)| cache.insert(digest(k as u64), 7, &vec![1; k], &vec![2; v])).collect();
        for (&handle, &(k, v)) in handles.iter().zip(&cases) {
            let copy = cache.get(handle);
            assert_eq!((copy.db, copy.key, copy.value), (7, &vec![1; k][..], &vec![2; v][..]));
            assert!(cache.overwrite(handle, &vec![3; v]) && !cache.overwrite(handle, &vec![3; v + 1]));
            assert_eq!(cache.get(handle).value, vec![3; v]);
        }
        assert_eq!(cache.len(), cases.len());
    }

    #[test]
    fn a_scan_does_not_drive_out_what_is_used() {
        let mut cache = Cache::default();
        let mut live = std::collections::HashMap::new();
        let limit = 64 * CHUNK_BYTES;
        let evict = |cache: &mut Cache, live: &mut std::collections::HashMap<u64, Handle>| {
            while cache.bytes > limit {
                let mut victim = cache.pop().unwrap();
                while let Some(copy) = victim.next_copy() {
                    let n = u64::from_le_bytes(copy.copy.key.try_into().unwrap());
                    assert!(live.remove(&n).is_some());
                    if copy.is_used() {
                        live.insert(n, cache.put_back(&copy, Queue::Main));
                    } else {
                        cache.let_go(digest(n));
                    }
                }
            }
        };
        let hot = 1000u64;
        let mut next = hot;
        for round in 0..200 {
            for n in 0..hot {
                match live.get(&n) {
                    Some(&handle) => cache.touch(handle),
                    None => {
                        assert!(round < 3, "hot copy {n} was driven out in round {round}");
                        live.insert(n, cache.insert(digest(n), 0, &n.to_le_bytes(), &[0; 1000]));
                    }
                }
                evict(&mut cache, &mut live);
            }
            for _ in 0..2000 {
                live.insert(next, cache.insert(digest(next), 0, &next.to_le_bytes(), &[0; 1000]));
                next += 1;
                evict(&mut cache, &mut live);
            }
            assert_eq!(cache.len(), live.len());
        }
    }
}
