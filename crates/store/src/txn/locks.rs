//! The locks of a transaction.
//!
//! Who locks several partitions takes them in the order of their numbers, so that no circle of waiting comes about (I-9).
//! A script does not know all its keys when it begins, so that it may want a partition below one that it holds. Therefore
//! one transaction at a time may *grow*, in any order, and everybody else gives way to it: who holds the partition that
//! the growing one wants, and waits for another, releases all it has and begins again when that one has ended. It has
//! not done anything with its partitions then, since it has not got them all. Who has got all its partitions waits for
//! nothing, and ends. So each partition that the growing one waits for becomes free.
//!
//! A script may run for ever. Whoever has begun it says then that it [holds up](Store::hold_up) others, and who has begun
//! to wait for it by [`Store::try_begin`] and its like waits no longer.

use super::{Target, Txn};
use crate::{
    partition::Partition,
    store::{Inner, Store},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

/// How often who holds partitions while it waits for another looks whether it has to give way.
const GIVE_WAY: Duration = Duration::from_millis(1);
/// How often who may be held up looks whether that is so.
const LOOK: Duration = Duration::from_millis(10);
/// No partition.
const NONE: u32 = u32::MAX;

/// Lets one transaction at a time lock more partitions than it began with.
pub(crate) struct Growth {
    turn: Mutex<()>,
    /// The partition that the growing transaction waits for.
    wanted: AtomicU32,
    /// Whether it takes so long that nobody should wait for it who can do something else.
    holds_up: AtomicBool,
}

impl Default for Growth {
    fn default() -> Growth {
        Growth { turn: Mutex::default(), wanted: AtomicU32::new(NONE), holds_up: AtomicBool::new(false) }
    }
}

/// The transaction that grows takes long, and holds what is wanted.
#[derive(Debug)]
pub struct HeldUp;

/// A transaction, unless another one holds it up.
pub type Begun<'s> = Result<Txn<'s>, HeldUp>;

/// Whether to wait however long it takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Endless,
    UntilHeldUp,
}

/// How long a transaction that has forgotten to name a partition tries to lock it, until that is a broken invariant.
const LATE_MAX: Duration = Duration::from_secs(10);

/// Partitions that are locked.
pub(crate) struct Locks<'s> {
    store: &'s Inner,
    first: Option<Locked<'s>>,
    /// The others, in the order of their numbers.
    more: Vec<Locked<'s>>,
    /// Whether there may be more of them later.
    may_grow: bool,
    /// Held by the one that grows.
    turn: Option<MutexGuard<'s, ()>>,
    /// A partition was wanted that was not named at the beginning.
    has_strayed: bool,
}

type Locked<'s> = (u16, MutexGuard<'s, Partition>);

impl<'s> Locks<'s> {
    /// Locks partitions, given in ascending order.
    #[inline]
    pub fn take(store: &'s Inner, partitions: &[u16], patience: Patience) -> Result<Locks<'s>, HeldUp> {
        debug_assert!(partitions.is_sorted_by(|a, b| a < b), "I-9");
        let (&first, rest) = partitions.split_first().expect("a transaction locks at least one partition");
        let first = Some(lock(store, first, patience)?);
        let mut locks =
            Locks { store, first, more: Vec::new(), may_grow: false, turn: None, has_strayed: false };
        if !rest.is_empty() {
            locks.take_more(store, rest, patience)?;
        }
        Ok(locks)
    }

    fn take_more(&mut self, store: &'s Inner, rest: &[u16], patience: Patience) -> Result<(), HeldUp> {
        self.more.reserve_exact(rest.len());
        while let Some(&next) = rest.get(self.more.len()) {
            let partition = &store.partitions[next as usize];
            match partition.try_lock().or_else(|| partition.try_lock_for(GIVE_WAY)) {
                Some(guard) => self.more.push(follow(store, next, guard)),
                None if self.is_wanted(store) => {
                    let first = self.first.take().expect("it was locked").0;
                    self.more.clear();
                    drop(wait_for(store, &store.growth.turn, patience)?);
                    self.first = Some(lock(store, first, patience)?);
                }
                None if patience.is_over(store) => return Err(HeldUp),
                None => {}
            }
        }
        Ok(())
    }

    /// Whether the growing transaction waits for one of these.
    fn is_wanted(&self, store: &Inner) -> bool {
        let wanted = store.growth.wanted.load(SeqCst);
        self.first.iter().chain(&self.more).any(|(number, _)| u32::from(*number) == wanted)
    }

    /// Locks partitions, given in ascending order, and lets there be more later.
    fn begin_growing(store: &'s Inner, partitions: &[u16]) -> Result<Locks<'s>, HeldUp> {
        let mut locks =
            Locks { store, first: None, more: Vec::new(), may_grow: true, turn: None, has_strayed: false };
        partitions.iter().try_for_each(|&number| locks.include(store, number))?;
        Ok(locks)
    }

    /// Fails if another one grows and holds it up, and so only if nothing is locked yet.
    fn include(&mut self, store: &'s Inner, number: u16) -> Result<(), HeldUp> {
        let Err(place) = self.place(number) else { return Ok(()) };
        assert!(self.may_grow, "all partitions were to be named at the beginning");
        if self.turn.is_none() {
            // Before it holds anything: who has the turn may want that.
            self.turn = Some(wait_for(store, &store.growth.turn, Patience::UntilHeldUp)?);
        }
        let partition = &store.partitions[number as usize];
        let guard = partition.try_lock().unwrap_or_else(|| {
            store.growth.wanted.store(number.into(), SeqCst);
            let guard = partition.lock();
            store.growth.wanted.store(NONE, SeqCst);
            guard
        });
        let locked = follow(store, number, guard);
        match &self.first {
            None => self.first = Some(locked),
            Some(_) => self.more.insert(place, locked),
        }
        Ok(())
    }

    /// Where a partition that is not locked belongs among `more`.
    fn place(&self, number: u16) -> Result<(), usize> {
        if self.first.as_ref().is_some_and(|first| first.0 == number) {
            return Ok(());
        }
        self.more.binary_search_by_key(&number, |p| p.0).map(|_| ())
    }

    /// A partition that is locked, or else was forgotten and is locked now.
    #[inline]
    pub fn get(&mut self, partition: u16) -> &mut Partition {
        // Compared twice, since a reference that is returned here would be held below.
        if self.first.as_ref().is_none_or(|first| first.0 != partition) {
            let at = match self.more.binary_search_by_key(&partition, |p| p.0) {
                Ok(at) => at,
                Err(_) => self.lock_late(partition),
            };
            return &mut self.more[at].1;
        }
        &mut self.first.as_mut().expect("it was just compared").1
    }

    /// Locks a partition that was not named at the beginning, and returns its place among `more`. That is a mistake of the
    /// caller's, of which [`Txn::take_strayed`] tells; it is no reason to end the process. It grows for this once, so that
    /// all others give way to it (I-9). Only if another one grows, and wants what this one holds, can neither go on.
    #[cold]
    fn lock_late(&mut self, number: u16) -> usize {
        self.has_strayed = true;
        let (store, started) = (self.store, Instant::now());
        let partition = &store.partitions[number as usize];
        let guard = loop {
            if self.turn.is_none() {
                self.turn = store.growth.turn.try_lock();
            }
            if self.turn.is_some() {
                store.growth.wanted.store(number.into(), SeqCst);
            }
            match partition.try_lock_for(GIVE_WAY) {
                Some(guard) => break guard,
                None => assert!(started.elapsed() < LATE_MAX, "the key's partition is locked"),
            }
        };
        if self.turn.is_some() {
            store.growth.wanted.store(NONE, SeqCst);
        }
        let mut locked = follow(store, number, guard);
        locked.1.set_now(store.shared.io.now_ms());
        let place = self.place(number).expect_err("it was not locked");
        self.more.insert(place, locked);
        place
    }

    /// The same to look at.
    pub fn read(&self, partition: u16) -> &Partition {
        if let Some((number, guard)) = &self.first {
            if *number == partition {
                return guard;
            }
        }
        let at = self.more.binary_search_by_key(&partition, |p| p.0).expect("the key's partition is locked");
        &self.more[at].1
    }

    /// Whether something holds for any of them.
    #[inline]
    pub fn any(&self, mut holds: impl FnMut(&Partition) -> bool) -> bool {
        self.first.as_ref().is_some_and(|(_, part)| holds(part))
            || self.more.iter().any(|(_, part)| holds(part))
    }

    /// The one that was locked first, with its number.
    pub fn first(&mut self) -> (u16, &mut Partition) {
        let (number, guard) = self.first.as_mut().expect("a partition is locked");
        (*number, guard)
    }

    /// Does something with each.
    #[inline]
    pub fn each(&mut self, mut f: impl FnMut(&mut Partition)) {
        // Mostly there is no other: a chain of both is slower.
        if let Some((_, guard)) = &mut self.first {
            f(guard);
        }
        self.more.iter_mut().for_each(|(_, guard)| f(guard));
    }
}

#[inline]
fn lock(store: &Inner, number: u16, patience: Patience) -> Result<Locked<'_>, HeldUp> {
    let partition = &store.partitions[number as usize];
    let guard = match partition.try_lock() {
        Some(guard) => guard,
        None => wait_for(store, partition, patience)?,
    };
    Ok(follow(store, number, guard))
}

#[cold]
fn wait_for<'s, T>(
    store: &Inner,
    wanted: &'s Mutex<T>,
    patience: Patience,
) -> Result<MutexGuard<'s, T>, HeldUp> {
    loop {
        match wanted.try_lock_for(LOOK) {
            Some(guard) => return Ok(guard),
            None if patience.is_over(store) => return Err(HeldUp),
            None => {}
        }
    }
}

impl Patience {
    fn is_over(self, store: &Inner) -> bool {
        self == Patience::UntilHeldUp && store.growth.holds_up.load(Relaxed)
    }
}

#[inline]
fn follow<'s>(store: &Inner, number: u16, mut guard: MutexGuard<'s, Partition>) -> Locked<'s> {
    guard.follow_limits(&store.shared);
    (number, guard)
}

impl Store {
    /// Says that the transaction that grows holds others up, or that it has ended.
    pub fn hold_up(&self, is_so: bool) {
        self.inner.growth.holds_up.store(is_so, Relaxed);
    }

    /// Waits until no transaction grows, for who looks at all partitions one after the other.
    pub fn wait_for_growing(&self) -> Result<(), HeldUp> {
        let turn = &self.inner.growth.turn;
        if turn.is_locked() { wait_for(&self.inner, turn, Patience::UntilHeldUp).map(drop) } else { Ok(()) }
    }
}

impl<'s> Txn<'s> {
    pub(crate) fn begin_growing(store: &'s Inner, partitions: &[u16], now_ms: u64) -> Begun<'s> {
        Ok(Txn::with(store, Locks::begin_growing(store, partitions)?, now_ms))
    }

    pub(crate) fn begin_growing_key(store: &'s Inner, key: &'s [u8], now_ms: u64) -> Begun<'s> {
        let target = Target::new(store, key);
        let mut txn = Txn::begin_growing(store, &[target.partition], now_ms)?;
        txn.known = Some(target);
        Ok(txn)
    }

    /// Locks the partition of a key, if it is not locked; the transaction was begun to grow. Fails if another one grows and
    /// holds it up, and so only before anything is locked.
    pub fn include(&mut self, key: &[u8]) -> Result<(), HeldUp> {
        let partition = self.target(key).partition;
        self.locks.include(self.store, partition)?;
        self.locks.get(partition).set_now(self.now_ms);
        self.changes.follow(self.shared());
        Ok(())
    }

    /// Whether since the last call it has looked at keys of partitions that it was not begun with, and was not begun to grow.
    #[inline]
    pub fn take_strayed(&mut self) -> bool {
        std::mem::take(&mut self.locks.has_strayed)
    }

    /// Bytes that the transaction has to write so far.
    pub fn batch_bytes(&self) -> usize {
        self.batch.tx.buf.len()
    }

    /// Locks all partitions; the transaction was begun to grow. Fails as [`Txn::include`] does.
    pub fn include_all(&mut self) -> Result<(), HeldUp> {
        (0..self.store.partitions.len() as u16)
            .try_for_each(|number| self.locks.include(self.store, number))?;
        self.locks.each(|part| part.set_now(self.now_ms));
        self.changes.follow(self.shared());
        Ok(())
    }
}
