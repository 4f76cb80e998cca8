//! Eviction: keys go for good where the data set is a cache and has outgrown its limit.
//!
//! As in Redis, who goes is chosen from samples: some random keys are looked at, and the worst that were seen so far are
//! remembered. A key that was used in the meantime is passed over. Writers do this before they write, each for a limited
//! time; what they leave is the maintenance thread's.
//!
//! What is counted is the data: live items in the log, collections in the heap, and a share of the index for each key. The
//! memory that an index keeps for keys that are gone is not: no eviction gives it back.

use super::sweeper::SWEEP_BYTES;
use crate::{
    engine::Engine,
    format::digest::Digest,
    partition::{Partition, budget::Memory, databases::DATABASES, index::CURSOR_BITS, shared::Shared},
    txn::{Txn, eviction::EvictOutcome},
};
use fastrand::Rng;
use holdfast_log::{Admission, Purpose};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Which keys may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionScope {
    /// All.
    All,
    /// Those that have an expiry.
    Expiring,
}

/// Which of them go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOrder {
    /// Those that were used longest ago, or least often, whichever is kept ([`Uses`](crate::Uses)).
    LeastUsed,
    /// Those that expire soonest. Only among such that expire.
    SoonestToExpire,
    /// Any.
    Random,
}

/// How keys are chosen that are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which keys may go.
    pub scope: EvictionScope,
    /// Who is the first.
    pub first: EvictionOrder,
    /// How many are looked at for each that goes: 1 to 64.
    pub samples: usize,
}

/// Whether there is room for more data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is.
    Enough,
    /// There will be: what is to go has not all gone yet.
    Soon,
    /// There is not, and no key may be evicted.
    None,
}

/// Bytes of index that a key takes, about, beside what is counted as its value.
const KEY_BYTES: u64 = 26;
/// Threads that evict at the same time.
const EVICTORS: usize = 16;
/// Candidates that an evictor remembers.
const POOL: usize = 16;
/// Keys that are evicted between two looks at the clock, and at how much the data is.
const KEYS_A_LOOK: usize = 16;
/// Keys that are looked at for each that goes, at most.
const SAMPLES_MAX: usize = 64;
/// Places that these come from, at least.
const PLACES: usize = 4;
const CURSOR_MASK: u64 = (1 << CURSOR_BITS) - 1;
/// How often a candidate is looked for until it is given up for now.
const DRAWS: usize = 64;
/// The data is counted again when so much was written, as a share of its limit, or at least so many bytes.
const LOOKS: u64 = 1024;
const LOOK_BYTES: u64 = 4 << 10;
const LOOK_BYTES_MAX: u64 = 256 << 10;

/// What eviction keeps in mind.
pub(crate) struct Evictions {
    how: Mutex<Option<Eviction>>,
    /// How often that was set.
    version: AtomicU64,
    /// More is stored than may be, as far as is known.
    over: AtomicBool,
    /// The end of the log that makes another look due.
    look_at: AtomicU64,
    /// Since when more is stored than may be: Unix time in milliseconds; and for how long it was before.
    over_since_ms: AtomicU64,
    over_ms: AtomicU64,
    /// Bytes that count beside the data, as the store's user says.
    other_bytes: AtomicU64,
    evictors: Box<[Mutex<Evictor>]>,
}

impl Default for Evictions {
    fn default() -> Evictions {
        Evictions {
            how: Mutex::default(),
            version: AtomicU64::new(0),
            over: AtomicBool::new(false),
            look_at: AtomicU64::new(0),
            over_since_ms: AtomicU64::new(0),
            over_ms: AtomicU64::new(0),
            other_bytes: AtomicU64::new(0),
            evictors: (1..=EVICTORS as u64).map(|seed| Mutex::new(Evictor::new(seed))).collect(),
        }
    }
}

impl Evictions {
    /// Sets whether and how keys are evicted.
    pub fn set(&self, shared: &Shared, eviction: Option<Eviction>) {
        // One is as good as another.
        let max = |how: Eviction| if how.first == EvictionOrder::Random { 1 } else { SAMPLES_MAX };
        *self.how.lock() = eviction.map(|how| Eviction { samples: how.samples.clamp(1, max(how)), ..how });
        self.version.fetch_add(1, Relaxed);
        shared.budget.set_evicts(eviction.is_some());
        self.look_soon();
        shared.judge_memory();
    }

    /// Says how many bytes count against the limit beside the data.
    pub fn set_other_bytes(&self, bytes: u64) {
        self.other_bytes.store(bytes, Relaxed);
    }

    pub fn other_bytes(&self) -> u64 {
        self.other_bytes.load(Relaxed)
    }

    /// Whether keys may have to go, as far as that can be told at once.
    #[inline]
    pub fn is_due(&self, shared: &Shared) -> bool {
        shared.budget.evicts() && (self.over.load(Relaxed) || shared.log.tail() >= self.look_at.load(Relaxed))
    }

    /// Has the data be counted before anything else is written.
    pub fn look_soon(&self) {
        self.look_at.store(0, Relaxed);
    }

    /// For how long more was stored than may be, until now and in one go, in milliseconds.
    pub fn exceeded_ms(&self, now_ms: u64) -> (u64, u64) {
        let current = match self.over.load(Relaxed) {
            true => now_ms.saturating_sub(self.over_since_ms.load(Relaxed)),
            false => 0,
        };
        (self.over_ms.load(Relaxed) + current, current)
    }

    fn set_over(&self, over: bool, now_ms: u64) {
        if self.over.swap(over, Relaxed) == over {
            return;
        }
        match over {
            true => self.over_since_ms.store(now_ms, Relaxed),
            false => {
                let since = self.over_since_ms.load(Relaxed);
                self.over_ms.fetch_add(now_ms.saturating_sub(since), Relaxed);
            }
        }
    }
}

/// Keys of a database in a partition that may be evicted.
struct Group {
    partition: u16,
    db: u8,
    keys: u64,
    /// Where the next look begins.
    cursor: u64,
}

/// A key that may be evicted. The greater its score, the rather.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    partition: u16,
    db: u8,
    pub digest: Digest,
    pub score: u64,
}

/// Who chooses keys. There are several, so that no thread waits for another one's.
struct Evictor {
    groups: Vec<Group>,
    /// Keys in all groups.
    candidates: u64,
    /// Keys that there are.
    keys: u64,
    /// Partitions in which something is being freed, which counts until it is.
    garbage: Vec<u16>,
    /// Bytes that indexes take in the heap.
    index_bytes: u64,
    /// The worst that were seen, in the order of their scores, and the version of how these were given.
    pool: Vec<Candidate>,
    version: u64,
    random: Rng,
}

impl Evictor {
    fn new(seed: u64) -> Evictor {
        Evictor {
            groups: Vec::new(),
            candidates: 0,
            keys: 0,
            garbage: Vec::new(),
            index_bytes: 0,
            pool: Vec::new(),
            version: 0,
            random: Rng::with_seed(seed),
        }
    }

    /// Counts the keys, and looks what else is to be known of the partitions.
    fn count(&mut self, engine: &Engine, scope: EvictionScope) {
        (self.candidates, self.keys, self.index_bytes) = (0, 0, 0);
        self.groups.clear();
        self.garbage.clear();
        for partition in 0..engine.partitions.len() as u16 {
            // One that is held for long, maybe by a script of this very thread, is left out.
            let Ok(part) = engine.try_lock(partition) else { continue };
            self.index_bytes += part.index_heap_bytes();
            if part.has_garbage(&engine.shared) {
                self.garbage.push(partition);
            }
            for logical in 0..DATABASES as u8 {
                let db = engine.shared.databases.physical(logical);
                self.keys += part.len(db);
                let keys = if scope == EvictionScope::All { part.len(db) } else { part.expires_len(db) };
                if keys > 0 {
                    self.candidates += keys;
                    self.groups.push(Group { partition, db, keys, cursor: 0 });
                }
            }
        }
        for at in 0..self.groups.len() {
            self.groups[at].cursor = self.random.u64(..) & CURSOR_MASK;
        }
    }

    /// Looks at some keys, and remembers those that are worse than the best one remembered.
    fn look(&mut self, engine: &Engine, how: Eviction) {
        let mut seen = 0;
        // Some from each of a few places: databases and partitions may differ, and one may have few keys.
        for _ in 0..how.samples {
            let samples = how.samples.div_ceil(PLACES).min(how.samples - seen);
            seen += self.look_at_one_place(engine, Eviction { samples, ..how });
            if seen >= how.samples {
                return;
            }
        }
    }

    /// The same in one partition; returns how many keys it has seen.
    fn look_at_one_place(&mut self, engine: &Engine, how: Eviction) -> usize {
        let mut rank = self.random.u64(..) % self.candidates.max(1);
        let jump = self.random.u64(..) & CURSOR_MASK;
        let group = self.groups.iter_mut().find(|group| {
            let is_it = rank < group.keys;
            rank = rank.wrapping_sub(group.keys);
            is_it
        });
        let Some(group) = group else { return 0 };
        let (partition, db) = (group.partition, group.db);
        let mut seen = Vec::with_capacity(how.samples);
        let Ok(mut part) = engine.try_lock(partition) else { return 0 };
        part.set_now(engine.shared.io.now_ms());
        if !engine.shared.databases.is_garbage(db) {
            part.sample(&engine.shared, db, how, &mut group.cursor, &mut seen);
        }
        drop(part);
        if !seen.is_empty() {
            group.cursor = jump;
        }
        for &(digest, score) in &seen {
            let is_known = self.pool.iter().any(|c| (c.partition, c.db, c.digest) == (partition, db, digest));
            let place = self.pool.partition_point(|candidate| candidate.score < score);
            if is_known || self.pool.len() == POOL && place == 0 {
                continue;
            }
            self.pool.insert(place, Candidate { partition, db, digest, score });
            if self.pool.len() > POOL {
                self.pool.remove(0);
            }
        }
        seen.len()
    }

    /// Counts a key less.
    fn subtract(&mut self, gone: Candidate) {
        self.keys = self.keys.saturating_sub(1);
        let group =
            self.groups.iter_mut().find(|group| (group.partition, group.db) == (gone.partition, gone.db));
        if let Some(group) = group.filter(|group| group.keys > 0) {
            group.keys -= 1;
            self.candidates -= 1;
        }
    }

    /// Evicts one key; how many bytes of live items are gone with it, or why it cannot.
    fn evict(&mut self, engine: &Engine, how: Eviction) -> Result<u64, Room> {
        for _ in 0..DRAWS {
            if self.candidates == 0 {
                return Err(Room::None);
            }
            self.look(engine, how);
            while let Some(candidate) = self.pool.pop() {
                let partition = candidate.partition;
                match evict(engine, candidate, how) {
                    EvictOutcome::Evicted(bytes) => {
                        self.subtract(candidate);
                        // Who has locked it meanwhile may want what this thread's script has locked.
                        if engine.try_lock(partition).is_ok_and(|part| part.has_garbage(&engine.shared)) {
                            self.garbage.push(partition);
                        }
                        return Ok(bytes);
                    }
                    EvictOutcome::Changed => {}
                    EvictOutcome::Refused => return Err(Room::Soon),
                }
            }
        }
        Err(Room::Soon)
    }
}

impl Partition {
    /// Bytes of data, those of items aside.
    pub fn data_bytes(&self, shared: &Shared) -> u64 {
        let keys = (0..DATABASES as u8).map(|logical| self.len(shared.databases.physical(logical)));
        self.arena.allocated_bytes() - self.index_heap_bytes() + keys.sum::<u64>() * KEY_BYTES
    }

    /// Looks at some keys from a cursor on, and tells their scores. There may be none where it looks.
    fn sample(
        &mut self,
        shared: &Shared,
        db: u8,
        how: Eviction,
        cursor: &mut u64,
        seen: &mut Vec<(Digest, u64)>,
    ) {
        const BUCKETS: usize = 1024;
        let mut digests = Vec::with_capacity(32);
        let (start, mut is_around) = (*cursor, false);
        for _ in 0..BUCKETS {
            *cursor = self.digests(db, how.scope == EvictionScope::Expiring, *cursor, &mut digests);
            let was_around = is_around;
            is_around |= *cursor == 0;
            if digests.len() >= how.samples || was_around && (*cursor == 0 || *cursor > start) {
                break;
            }
        }
        digests.truncate(how.samples);
        let scored =
            digests.into_iter().filter_map(|digest| Some((digest, self.score(shared, db, digest, how)?)));
        seen.extend(scored);
    }

    /// How much a key is to be evicted, if it may be.
    pub fn score(&mut self, shared: &Shared, db: u8, digest: Digest, how: Eviction) -> Option<u64> {
        let found = self.find(shared, db, digest)?;
        if how.scope == EvictionScope::Expiring && !found.word.has_expiry() {
            return None;
        }
        Some(match how.first {
            EvictionOrder::Random => 0,
            EvictionOrder::LeastUsed => u64::from(self.meter().coldness(self.known(db, found.slot))),
            EvictionOrder::SoonestToExpire => u64::MAX - self.expiry(db, digest, found.word)?,
        })
    }
}

/// Bytes of data.
fn data_bytes(engine: &Engine, items: u64, keys: u64, index_bytes: u64) -> u64 {
    items + engine.shared.heap.allocated_bytes().saturating_sub(index_bytes) + keys * KEY_BYTES
}

impl Evictions {
    /// Evicts keys until there is room, or for about so long.
    pub fn make_room(&self, engine: &Engine, time: Duration) -> Room {
        let Some(how) = *self.how.lock() else { return Room::Enough };
        let Some(mut evictor) = self.evictors.iter().find_map(Mutex::try_lock) else {
            return Room::Soon;
        };
        let limit = engine.shared.budget.max() as u64;
        let look_bytes = (limit / LOOKS).clamp(LOOK_BYTES, LOOK_BYTES_MAX);
        let look_at = engine.shared.log.tail() + look_bytes;
        let room = self.evict_down_to(engine, limit, &mut evictor, how, Instant::now() + time);
        self.look_at.store(look_at, Relaxed);
        self.set_over(room != Room::Enough, engine.shared.io.now_ms());
        engine.shared.budget.set_memory(if room == Room::None { Memory::Out } else { Memory::Ok });
        room
    }

    fn evict_down_to(
        &self,
        engine: &Engine,
        limit: u64,
        evictor: &mut Evictor,
        how: Eviction,
        deadline: Instant,
    ) -> Room {
        let version = self.version.load(Relaxed);
        if std::mem::replace(&mut evictor.version, version) != version {
            evictor.pool.clear();
        }
        evictor.count(engine, how.scope);
        let others = self.other_bytes();
        loop {
            let mut items = engine.shared.log.live_bytes().max(0) as u64;
            for _ in 0..KEYS_A_LOOK {
                if others + data_bytes(engine, items, evictor.keys, evictor.index_bytes) <= limit {
                    return Room::Enough;
                }
                if let Some(&partition) = evictor.garbage.last() {
                    if engine.shared.log.admit_for(SWEEP_BYTES, Purpose::Remove) != Admission::Ok {
                        return Room::Soon;
                    }
                    let begun = Txn::try_begin(engine, &[partition], engine.shared.io.now_ms());
                    if !begun.is_ok_and(|mut txn| txn.sweep()) {
                        evictor.garbage.pop();
                    }
                    break;
                }
                match evictor.evict(engine, how) {
                    Ok(bytes) => items = items.saturating_sub(bytes),
                    Err(room) => return room,
                }
            }
            if Instant::now() >= deadline {
                return Room::Soon;
            }
        }
    }

    /// A slice of eviction for the maintenance thread; whether there is more to do.
    pub fn evict_more(&self, engine: &Engine) -> bool {
        const SLICE: Duration = Duration::from_millis(5);
        if !self.is_due(&engine.shared) {
            return false;
        }
        let room = self.make_room(engine, SLICE);
        engine.shared.log.kick();
        room == Room::Soon
    }
}

/// Evicts a key, if it is still one of those that go first. Its name, if somebody wants to know that, may have to be
/// read from the medium.
fn evict(engine: &Engine, candidate: Candidate, how: Eviction) -> EvictOutcome {
    let Candidate { partition, db, digest, score } = candidate;
    let mut name: Option<Vec<u8>> = None;
    loop {
        let Ok(mut txn) = Txn::try_begin(engine, &[partition], engine.shared.io.now_ms()) else {
            return EvictOutcome::Changed;
        };
        let may_go = |part: &mut Partition| part.score(&engine.shared, db, digest, how) >= Some(score);
        match txn.evict(db, digest, may_go, name.as_deref()) {
            Ok(tried) => return tried,
            Err(cold) => {
                drop(txn);
                match engine.shared.read_item(cold) {
                    Ok(key) => name = Some(key),
                    // It has moved, or is damaged.
                    Err(_) => return EvictOutcome::Changed,
                }
            }
        }
    }
}
