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

pub mod copy;
pub mod pool;
pub mod uses;

use crate::{format::digest::Digest, util::probe};
use copy::{Copy, Head, Header};
use pool::{CHUNK_BYTES, Pool};
use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};
use uses::Meter;

/// A copy in the cache, 0: none. An entry that has none may have a mark in its place ([`uses::MARK`]).
pub type Handle = u32;

/// Unit of positions in a chunk, in bytes.
const GRANULE: usize = 4;
const POSITION_BITS: u32 = (CHUNK_BYTES / GRANULE).ilog2();
/// A handle is less than a mark is ([`uses::MARK`]).
const CHUNKS_MAX: usize = (1 << (uses::MARK.ilog2() - POSITION_BITS)) - 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Small,
    Main,
}

struct Chunk {
    memory: pool::Chunk,
    used: usize,
    queue: Queue,
    /// The database of those of its copies that do not say so themselves.
    db: u8,
    /// What the stamps of its copies are relative to, and whether they count uses.
    base: u32,
    counts: bool,
}

impl Chunk {
    /// Sees to it that stamps can tell of now.
    #[inline]
    fn follow(&mut self, meter: &Meter) {
        if self.counts != meter.counts() || !meter.reaches(self.base) {
            self.rebase(meter);
        }
    }

    /// Writes all stamps anew for a base of now. That is some 500 headers, once in hours.
    #[cold]
    fn rebase(&mut self, meter: &Meter) {
        let mut at = 0;
        while at < self.used {
            let known = self.known(meter, at);
            let header = copy::header(&self.memory, at).with_stamp(meter.stamp(known, meter.tick()));
            copy::set_header(&mut self.memory, at, header);
            at = copy::decode(&self.memory, self.db, at).1.next_multiple_of(GRANULE);
        }
        (self.base, self.counts) = (meter.tick(), meter.counts());
    }

    /// Says what is known of the uses of the copy at `at`.
    fn set_known(&mut self, meter: &Meter, at: usize, known: u32) {
        self.follow(meter);
        let old = copy::header(&self.memory, at);
        let new = old.with_stamp(meter.stamp(known, self.base));
        if new != old {
            copy::set_header(&mut self.memory, at, new);
        }
    }

    /// What is known of the uses of the copy at `at`.
    fn known(&self, meter: &Meter, at: usize) -> u32 {
        match self.counts == meter.counts() {
            true => meter.read(copy::header(&self.memory, at).stamp(), self.base),
            false => meter.unknown(),
        }
    }
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

    /// Whether a copy has left of late.
    pub fn is_ghost(&self, digest: Digest) -> bool {
        self.ghosts.find(digest).is_some()
    }

    /// Number of live copies.
    pub fn len(&self) -> usize {
        self.copies
    }

    /// Whether so much of the memory is of dead copies that a chunk should be taken apart. To copy what lives costs the more,
    /// the less is dead.
    pub fn is_sparse(&self) -> bool {
        self.dead_bytes > (self.bytes - self.dead_bytes) / 2 + 2 * CHUNK_BYTES
    }

    /// The handle of the copy at a place in a chunk.
    fn handle(number: usize, at: usize) -> Handle {
        (((number + 1) << POSITION_BITS) | (at / GRANULE)) as Handle
    }

    fn split(handle: Handle) -> (usize, usize) {
        ((handle >> POSITION_BITS) as usize - 1, (handle as usize & ((1 << POSITION_BITS) - 1)) * GRANULE)
    }

    fn chunk(&self, number: usize) -> &Chunk {
        self.chunks[number].as_ref().expect("a handle names a chunk in use")
    }

    fn chunk_mut(&mut self, number: usize) -> &mut Chunk {
        self.chunks[number].as_mut().expect("a handle names a chunk in use")
    }

    /// The copy that a handle names.
    #[inline]
    pub fn get(&self, handle: Handle) -> Copy<'_> {
        let (number, at) = Cache::split(handle);
        let chunk = self.chunk(number);
        copy::decode(&chunk.memory, chunk.db, at).0
    }

    /// Asks for the memory of the first bytes of a copy.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        const BYTES: usize = 192;
        let (number, at) = Cache::split(handle);
        let memory = &self.chunk(number).memory;
        probe::prefetch(&memory[at..memory.len().min(at + BYTES)]);
    }

    /// What is known of the uses of a copy.
    pub fn known(&self, handle: Handle, meter: &Meter) -> u32 {
        let (number, at) = Cache::split(handle);
        self.chunk(number).known(meter, at)
    }

    /// Says what is known of the uses of a copy.
    pub fn set_known(&mut self, handle: Handle, meter: &Meter, known: u32) {
        let (number, at) = Cache::split(handle);
        self.chunk_mut(number).set_known(meter, at, known);
    }

    /// Counts a use of a copy.
    #[inline]
    pub fn touch(&mut self, handle: Handle, meter: &mut Meter) {
        let (number, at) = Cache::split(handle);
        let chunk = self.chunk_mut(number);
        chunk.follow(meter);
        let old = copy::header(&chunk.memory, at);
        let new = old.used().with_stamp(meter.touched(old.stamp(), chunk.base));
        if new != old {
            copy::set_header(&mut chunk.memory, at, new);
        }
    }

    /// Overwrites a copy's value by one of the same length, and what is known of its uses; false if it is another key's, or
    /// the length differs.
    #[inline]
    pub fn overwrite(&mut self, handle: Handle, key: &[u8], value: &[u8], meter: &Meter, known: u32) -> bool {
        let (number, at) = Cache::split(handle);
        let chunk = self.chunk_mut(number);
        let (copy, end) = copy::decode(&chunk.memory, chunk.db, at);
        let len = copy.value.len();
        if len != value.len() || copy.key != key {
            return false;
        }
        chunk.memory[end - len..end].copy_from_slice(value);
        chunk.set_known(meter, at, known);
        true
    }

    /// Takes in a copy of which so much is known; the handle, or 0 if the partition holds as many chunks as handles can
    /// name.
    pub fn insert(&mut self, digest: Digest, copy: Copy, meter: &Meter, known: u32) -> Handle {
        let queue = if self.ghosts.recall(digest) { Queue::Main } else { Queue::Small };
        self.insert_into(queue, copy, 0, meter, known)
    }

    fn insert_into(&mut self, queue: Queue, copy: Copy, uses: u32, meter: &Meter, known: u32) -> Handle {
        let list = if queue == Queue::Small { &self.small } else { &self.main };
        let last = list.back().map(|&number| (number, self.chunk(number as usize).db));
        let head_in = |db| Head::new(db, copy, uses, 0);
        let len_in = |db| head_in(db).len() + copy.key.len() + copy.value.len();
        let has_room = |&(number, db): &(u32, u8)| {
            let chunk = self.chunk(number as usize);
            chunk.memory.len() - chunk.used >= len_in(db).next_multiple_of(GRANULE)
        };
        let Some(number) = last
            .filter(has_room)
            .map(|(number, _)| number)
            .or_else(|| self.new_chunk(queue, copy.db, len_in(copy.db).next_multiple_of(GRANULE), meter))
        else {
            return 0;
        };
        let chunk = self.chunk_mut(number as usize);
        chunk.follow(meter);
        let (db, at) = (chunk.db, chunk.used);
        let len = len_in(db);
        Head::new(db, copy, uses, meter.stamp(known, chunk.base))
            .write(&mut chunk.memory[at..at + len], copy);
        chunk.used += len.next_multiple_of(GRANULE);
        self.copies += 1;
        Cache::handle(number as usize, at)
    }

    fn new_chunk(&mut self, queue: Queue, db: u8, len: usize, meter: &Meter) -> Option<u32> {
        let size = len.max(CHUNK_BYTES);
        let number = match self.vacant.pop() {
            Some(number) => number,
            None if self.chunks.len() < CHUNKS_MAX => {
                self.chunks.push(None);
                self.chunks.len() as u32 - 1
            }
            None => return None,
        };
        let (memory, base, counts) = (self.pool.take(size), meter.tick(), meter.counts());
        self.chunks[number as usize] = Some(Chunk { memory, used: 0, queue, db, base, counts });
        self.bytes += size;
        // A copy that fills a chunk alone goes in behind the one that is being filled, not in its place.
        let list = if queue == Queue::Small { &mut self.small } else { &mut self.main };
        let place = list.len() - usize::from(size > CHUNK_BYTES && !list.is_empty());
        list.insert(place, number);
        if queue == Queue::Small {
            self.small_bytes += size;
        }
        Some(number)
    }

    /// Forgets a copy whose entry no longer names it.
    pub fn kill(&mut self, handle: Handle) {
        let (number, at) = Cache::split(handle);
        let chunk = self.chunk_mut(number);
        let end = copy::decode(&chunk.memory, chunk.db, at).1;
        copy::kill(&mut chunk.memory, at);
        self.dead_bytes += (end - at).next_multiple_of(GRANULE);
        self.copies -= 1;
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
        Victim { chunk }
    }

    /// Puts a live copy of a victim back: into the main queue when the queues make room, or where it was.
    pub fn put_back(&mut self, copy: &VictimCopy<'_>, queue: Queue, meter: &Meter) -> Handle {
        self.copies -= 1;
        let uses = copy.header.uses().saturating_sub(1);
        self.insert_into(queue, copy.copy, uses, meter, copy.known)
    }

    /// Lets a live copy of a victim go, and remembers it as a ghost.
    pub fn let_go(&mut self, digest: Digest) {
        self.copies -= 1;
        self.ghosts.remember(digest, self.copies);
    }

    /// Checks that the chunks are in their queues, that the sums are right, and that these handles are those of the live
    /// copies.
    pub fn check(&self, handles: &HashSet<Handle>) -> Result<(), String> {
        let numbers: Vec<usize> =
            self.small.iter().chain(&self.main).map(|&number| number as usize).collect();
        let in_use = |number: &usize| self.chunks[*number].is_some();
        if !numbers.iter().all(in_use) || numbers.len() + self.vacant.len() != self.chunks.len() {
            return Err("chunks of copies and their queues disagree".into());
        }
        let (mut bytes, mut small_bytes, mut dead_bytes, mut copies) = (0, 0, 0, 0);
        for number in numbers {
            let chunk = self.chunk(number);
            bytes += chunk.memory.len();
            small_bytes += if chunk.queue == Queue::Small { chunk.memory.len() } else { 0 };
            let mut at = 0;
            while at < chunk.used {
                let next = copy::decode(&chunk.memory, chunk.db, at).1.next_multiple_of(GRANULE);
                if copy::header(&chunk.memory, at).is_dead() {
                    dead_bytes += next - at;
                } else if handles.contains(&Cache::handle(number, at)) {
                    copies += 1;
                } else {
                    return Err("a live copy has no entry".into());
                }
                at = next;
            }
        }
        let (found, counted) = (
            (bytes, small_bytes, dead_bytes, copies, handles.len()),
            (self.bytes, self.small_bytes, self.dead_bytes, self.copies, self.copies),
        );
        match found == counted {
            true => Ok(()),
            false => Err(format!("copies: {counted:?} counted, {found:?} found")),
        }
    }

    /// A dead copy of a victim is gone with it.
    pub fn bury(&mut self, copy: &VictimCopy<'_>) {
        self.dead_bytes -= copy.len;
    }
}

/// A chunk that was taken out of the cache.
pub(crate) struct Victim {
    chunk: Chunk,
}

/// A copy in a victim.
pub(crate) struct VictimCopy<'a> {
    pub copy: Copy<'a>,
    header: Header,
    /// What is known of its uses.
    pub known: u32,
    len: usize,
}

impl VictimCopy<'_> {
    pub fn is_dead(&self) -> bool {
        self.header.is_dead()
    }

    pub fn is_used(&self) -> bool {
        self.header.uses() != 0
    }
}

impl Victim {
    pub fn queue(&self) -> Queue {
        self.chunk.queue
    }

    /// Its copies, in the order in which they came.
    pub fn copies<'a>(&'a self, meter: &'a Meter) -> impl Iterator<Item = VictimCopy<'a>> {
        let (chunk, mut next) = (&self.chunk, 0);
        std::iter::from_fn(move || {
            let at = next;
            if at >= chunk.used {
                return None;
            }
            let (copy, end) = copy::decode(&chunk.memory, chunk.db, at);
            next = end.next_multiple_of(GRANULE);
            let (header, known) = (copy::header(&chunk.memory, at), chunk.known(meter, at));
            Some(VictimCopy { copy, header, known, len: next - at })
        })
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
        // Not at every change: what it holds is lost.
        if self.table.len() < wanted || self.table.len() / 8 > wanted {
            self.table = vec![0; wanted];
        }
        let (place, mark) = self.place(digest);
        self.table[place] = mark;
    }

    /// Where a digest is, if it is remembered.
    fn find(&self, digest: Digest) -> Option<usize> {
        if self.table.is_empty() {
            return None;
        }
        let (place, mark) = self.place(digest);
        (self.table[place] == mark).then_some(place)
    }

    fn recall(&mut self, digest: Digest) -> bool {
        let found = self.find(digest);
        if let Some(place) = found {
            self.table[place] = 0;
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::uses::{Method, Uses};

    const DAY_MS: u64 = 86_400_000;

    fn digest(n: u64) -> Digest {
        Digest { h0: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), h1: n.wrapping_mul(0xbf58_476d_1ce4_e5b9) }
    }

    fn insert(cache: &mut Cache, meter: &Meter, n: u64, key: &[u8], value: &[u8]) -> Handle {
        cache.insert(digest(n), Copy { db: 7, key, value }, meter, meter.new_key())
    }

    #[test]
    fn copies_of_all_lengths_come_back() {
        let (mut cache, meter) = (Cache::default(), Meter::new(1));
        let cases = [(0, 0), (1, 1), (255, 65_535), (256, 1), (1, 65_536), (16, 100), (10, 5 << 20), (3, 7)];
        let handles: Vec<Handle> = cases
            .iter()
            .map(|&(k, v)| insert(&mut cache, &meter, k as u64, &vec![1; k], &vec![2; v]))
            .collect();
        for (&handle, &(k, v)) in handles.iter().zip(&cases) {
            let copy = cache.get(handle);
            assert_eq!((copy.db, copy.key, copy.value), (7, &vec![1; k][..], &vec![2; v][..]));
            let overwrite = |cache: &mut Cache, key: Vec<u8>, value: Vec<u8>| {
                cache.overwrite(handle, &key, &value, &meter, 0)
            };
            assert!(overwrite(&mut cache, vec![1; k], vec![3; v]));
            assert!(!overwrite(&mut cache, vec![1; k], vec![4; v + 1]));
            assert!(!overwrite(&mut cache, vec![1; k + 1], vec![4; v]));
            assert_eq!(cache.get(handle).value, vec![3; v]);
        }
        assert_eq!(cache.len(), cases.len());
    }

    #[test]
    fn what_is_known_of_uses_stays_with_copies_when_bases_and_methods_change() {
        let (mut cache, mut meter) = (Cache::default(), Meter::new(1));
        let method = Method::new(DAY_MS);
        meter.follow(method);
        meter.set_now(DAY_MS);
        let handles: Vec<Handle> = (0..10_000u64)
            .map(|n| {
                cache.insert(
                    digest(n),
                    Copy { db: n as u8 % 3, key: &n.to_le_bytes(), value: &[0; 40] },
                    &meter,
                    meter.new_key(),
                )
            })
            .collect();
        for hour in 0..100 {
            meter.set_now(DAY_MS + hour * 3_600_000);
            cache.touch(handles[0], &mut meter);
            cache.touch(handles[hour as usize * 100], &mut meter);
        }
        let idle =
            |cache: &Cache, meter: &Meter, n: usize| meter.idle_s(cache.known(handles[n], meter)).unwrap();
        for hour in 1..100 {
            let (age, idle) = ((99 - hour) as u32 * 3600, idle(&cache, &meter, hour * 100));
            assert!(idle >= age && idle - age <= age / 128, "{idle} instead of {age}");
            let never = meter.idle_s(cache.known(handles[hour * 100 + 1], &meter)).unwrap();
            assert!((99 * 3600..=100 * 3600).contains(&never), "{never}");
        }
        for (n, &handle) in handles.iter().enumerate() {
            let copy = cache.get(handle);
            assert_eq!((copy.db, copy.key), (n as u8 % 3, &(n as u64).to_le_bytes()[..]));
        }
        meter.follow(method.change(Uses::Count { log_factor: 10, decay_minutes: 1 }, 2 * DAY_MS));
        meter.set_now(2 * DAY_MS);
        cache.touch(handles[3], &mut meter);
        assert_eq!(cache.known(handles[3], &meter), 6);
        assert_eq!(cache.known(handles[9999], &meter), 5);
        cache.set_known(handles[9999], &meter, 200);
        meter.set_now(2 * DAY_MS + 60_000);
        assert_eq!((cache.known(handles[3], &meter), cache.known(handles[9999], &meter)), (5, 199));
    }

    #[test]
    fn a_scan_does_not_drive_out_what_is_used() {
        let (mut cache, mut meter) = (Cache::default(), Meter::new(1));
        let mut live = std::collections::HashMap::new();
        let limit = 64 * CHUNK_BYTES;
        let evict = |cache: &mut Cache, meter: &Meter, live: &mut std::collections::HashMap<u64, Handle>| {
            while cache.bytes > limit {
                let victim = cache.pop().unwrap();
                for copy in victim.copies(meter) {
                    let n = u64::from_le_bytes(copy.copy.key.try_into().unwrap());
                    assert!(live.remove(&n).is_some());
                    if copy.is_used() {
                        live.insert(n, cache.put_back(&copy, Queue::Main, meter));
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
                    Some(&handle) => cache.touch(handle, &mut meter),
                    None => {
                        assert!(round < 3, "hot copy {n} was driven out in round {round}");
                        live.insert(n, insert(&mut cache, &meter, n, &n.to_le_bytes(), &[0; 1000]));
                    }
                }
                evict(&mut cache, &meter, &mut live);
            }
            for _ in 0..2000 {
                live.insert(next, insert(&mut cache, &meter, next, &next.to_le_bytes(), &[0; 1000]));
                next += 1;
                evict(&mut cache, &meter, &mut live);
            }
            assert_eq!(cache.len(), live.len());
        }
    }
}
