//! Active expiry: keys and fields go when their time has come, though nobody looks at them.

use crate::{
    engine::Engine,
    partition::{cold::ColdItem, databases::PHYSICAL_DATABASES},
    txn::Txn,
};
use holdfast_io::Result;
use holdfast_log::{Admission, Lsn, Purpose};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Keys that one step of active expiry looks at in a partition, and the share of expired ones that makes it go on.
const EXPIRE_SAMPLE: usize = 20;
/// Buckets of keys among which one step looks for hashes with expired fields: some hundred keys.
const PURGE_BUCKETS: usize = 8;
/// Bytes of log that this takes, about, and those of it that may wait to be written.
const EXPIRE_BYTES: usize = 96 << 10;
const EXPIRE_UNWRITTEN_MAX: u64 = 1 << 20;
/// How long active expiry goes on at most before something else has its turn, and until it goes on.
pub const EXPIRE_SLICE: Duration = Duration::from_millis(25);
/// The same for hashes that are not in memory, and the buckets of keys among which they are looked for, while nothing is found.
const ABSENT_SLICE: Duration = Duration::from_millis(2);
const ABSENT_STEPS: usize = 64;

/// Whether expired keys are looked for.
pub(crate) struct Expiry {
    /// Else they go when somebody looks at them.
    pub is_active: AtomicBool,
    /// Until when they are not looked for all the same: Unix time in milliseconds.
    pub held_until: AtomicU64,
}

impl Default for Expiry {
    fn default() -> Expiry {
        Expiry { is_active: AtomicBool::new(true), held_until: AtomicU64::new(0) }
    }
}

impl Expiry {
    pub fn is_on(&self, now_ms: u64) -> bool {
        self.is_active.load(Relaxed) && now_ms >= self.held_until.load(Relaxed)
    }
}

/// Where active expiry is.
pub(crate) struct ExpireHand {
    /// The partition that is next.
    partition: u16,
    cursors: Vec<[ExpireCursors; PHYSICAL_DATABASES]>,
    absent: AbsentHand,
    /// The end of the log when it was kicked last.
    sent: Lsn,
}

impl ExpireHand {
    pub fn new(partitions: usize) -> ExpireHand {
        let cursors = vec![[ExpireCursors::default(); PHYSICAL_DATABASES]; partitions];
        ExpireHand { partition: 0, cursors, absent: AbsentHand::default(), sent: 0 }
    }
}

/// Where the search for expired fields of hashes that are not in memory is.
#[derive(Default)]
struct AbsentHand {
    partition: u16,
    db: u8,
    /// Among all keys.
    cursor: u64,
}

impl AbsentHand {
    /// Goes to the next database.
    fn next(&mut self, partitions: u16) {
        (self.db, self.cursor) = ((self.db + 1) % PHYSICAL_DATABASES as u8, 0);
        if self.db == 0 {
            self.partition = (self.partition + 1) % partitions;
        }
    }
}

/// Where active expiry goes on in a database of a partition.
#[derive(Clone, Copy, Default)]
struct ExpireCursors {
    /// Among the keys that have an expiry.
    keys: u64,
    /// Among all keys, for fields.
    fields: u64,
}

/// Reads what is not in memory of some hashes, and removes their expired fields. Each that is absent has its turn, but slowly, unless some are
/// found: there may be many times more of them than fit into memory, and few may have fields that expire. Whether there may be more to do.
fn purge_absent(engine: &Engine, hand: &mut ExpireHand, now_ms: u64) -> Result<bool> {
    let (shared, ExpireHand { absent: hand, sent, .. }) = (&engine.shared, hand);
    let (started, mut is_left) = (Instant::now(), false);
    for step in 0.. {
        let (steps, slice) = if is_left { (usize::MAX, EXPIRE_SLICE) } else { (ABSENT_STEPS, ABSENT_SLICE) };
        let is_time_up = step >= steps || started.elapsed() >= slice;
        if is_time_up || !shared.heap.has_absent() || !admits_expiry(engine, sent)? {
            break;
        }
        let has_any = engine.enter(hand.partition).len(hand.db) > 0;
        if !has_any || shared.databases.is_garbage(hand.db) {
            hand.next(engine.partitions.len() as u16);
            continue;
        }
        engine.fetch_until_present(|| {
            Txn::begin(engine, &[hand.partition], now_ms).absent_to_purge(hand.db, hand.cursor)
        });
        let mut txn = Txn::begin(engine, &[hand.partition], now_ms);
        is_left = txn.purge_some(hand.db, &mut hand.cursor, 1);
        txn.commit();
        if !is_left && hand.cursor == 0 {
            hand.next(engine.partitions.len() as u16);
        }
    }
    Ok(is_left)
}

/// Removes expired keys, Redis's way: looks at a few keys with an expiry, and at more while many of them have expired.
/// Then fields of hashes: looks at a few keys of any kind, so that it passes by all in time. Ends after a while, or when
/// the log takes no more; whether there may be more to do.
pub fn expire(engine: &Engine, hand: &mut ExpireHand) -> Result<bool> {
    let log = &engine.shared.log;
    let (started, now) = (Instant::now(), engine.shared.io.now_ms());
    // Each partition once at most, from where the last call has ended.
    for _ in 0..engine.partitions.len() {
        let number = hand.partition;
        let databases: Vec<u8> = {
            let partition = engine.enter(number);
            (0..PHYSICAL_DATABASES as u8).filter(|&db| partition.len(db) > 0).collect()
        };
        for db in databases {
            let cursors = &mut hand.cursors[number as usize][db as usize];
            loop {
                if started.elapsed() >= EXPIRE_SLICE || !admits_expiry(engine, &mut hand.sent)? {
                    log.kick();
                    return Ok(true);
                }
                let mut txn = Txn::begin(engine, &[number], now);
                let (seen, mut expired, cold) = txn.expire_some(db, &mut cursors.keys, EXPIRE_SAMPLE);
                let purged_all = !txn.purge_some(db, &mut cursors.fields, PURGE_BUCKETS);
                txn.commit();
                expired += expire_cold(engine, db, cold, now);
                if purged_all && (seen == 0 || expired * 10 <= seen) {
                    break;
                }
            }
        }
        hand.partition = (number + 1) % engine.partitions.len() as u16;
    }
    let is_left = purge_absent(engine, hand, now)?;
    log.kick();
    Ok(is_left)
}

/// Whether the log takes a slice of expiry. Waits for what was sent before to be written, so that the log's buffers are not
/// filled with what nobody waits for.
fn admits_expiry(engine: &Engine, sent: &mut Lsn) -> Result<bool> {
    let log = &engine.shared.log;
    if log.admit_for(EXPIRE_BYTES, Purpose::Remove) != Admission::Ok {
        return Ok(false);
    }
    if log.tail() > *sent + EXPIRE_UNWRITTEN_MAX {
        log.wait_written((*sent).min(log.tail()))?;
        log.kick();
        *sent = log.tail();
    }
    Ok(true)
}

/// Removes keys that have expired and whose names must be fetched, and returns how many are gone. Where the name cannot
/// be read, since the item has moved or is damaged, the key is left for the next time, or for who looks at it.
fn expire_cold(engine: &Engine, db: u8, cold: Vec<ColdItem>, now_ms: u64) -> usize {
    let expire = |cold: ColdItem| {
        let key = engine.shared.read_item(cold).ok()?;
        (!Txn::begin(engine, &[engine.partition_of(&key)], now_ms).exists(db, &key)).then_some(())
    };
    cold.into_iter().filter_map(expire).count()
}
