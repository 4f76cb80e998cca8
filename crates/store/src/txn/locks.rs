//! The locks of a transaction.
//!
//! Who locks several partitions takes them in the order of their numbers, so that no circle of waiting comes about (I-9).
//! A script does not know all its keys when it begins, so that it may want a partition below one that it holds. If that is
//! free, it takes it, and waits for nothing. If not, a transaction that has done nothing yet can be [set
//! down](Txn::set_down): it unlocks all, waits, and locks all in order again. One that cannot takes its *turn*: one
//! transaction at a time may wait for partitions in any order, and everybody else gives way to it: who holds the partition
//! that it wants, and waits for another, releases all it has and begins again when that one has ended. It has not done
//! anything with its partitions then, since it has not got them all. Who has got all its partitions waits for nothing, and
//! ends. So each partition that it waits for becomes free, unless another script that has written already wants to grow,
//! too: that one finds the turn taken and itself [wanted](Txn::is_wanted), and has to fail.
//!
//! A script may run for long, and lets others of its thread run meanwhile. It says before that it [holds what it has locked
//! for long](Txn::hold_long), and who waits for such a partition by [`Store::try_begin`] and its like waits no longer: it
//! may be of the same thread.

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

/// How often who waits looks whether it has to give way, or whether what it waits for is held for long.
const LOOK: Duration = Duration::from_millis(1);
/// No partition.
const NONE: u32 = u32::MAX;

/// Lets one transaction at a time wait for more partitions than it began with.
pub(crate) struct Growth {
    turn: Mutex<()>,
    /// The partition that the transaction whose turn it is waits for.
    wanted: AtomicU32,
    /// Whether that one takes so long that nobody should wait for it who can do something else.
    turn_is_long: AtomicBool,
    /// The same of who has locked a partition.
    held_long: Box<[AtomicBool]>,
}

impl Growth {
    pub fn new(partitions: usize) -> Growth {
        Growth {
            turn: Mutex::default(),
            wanted: AtomicU32::new(NONE),
            turn_is_long: AtomicBool::new(false),
            held_long: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
        }
    }
}

/// What is wanted is held for long.
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

/// What a transaction has unlocked: the numbers of partitions, and how often their keys had been written.
pub struct SetDown(Vec<(u16, u64)>);

/// Partitions that are locked.
pub(crate) struct Locks<'s> {
    store: &'s Inner,
    first: Option<Locked<'s>>,
    /// The others, in the order of their numbers.
    more: Vec<Locked<'s>>,
    /// Whether there may be more of them later.
    may_grow: bool,
    /// Whether they are marked as held for long.
    held_long: bool,
    /// Held by the one whose turn it is to wait for more.
    turn: Option<MutexGuard<'s, ()>>,
    /// A partition was wanted that was not named at the beginning.
    has_strayed: bool,
}

type Locked<'s> = (u16, MutexGuard<'s, Partition>);

impl<'s> Locks<'s> {
    fn none(store: &'s Inner) -> Locks<'s> {
        let (first, more, turn) = (None, Vec::new(), None);
        Locks { store, first, more, may_grow: false, held_long: false, turn, has_strayed: false }
    }

    /// Locks partitions, given in ascending order.
    #[inline]
    pub fn take(store: &'s Inner, partitions: &[u16], patience: Patience) -> Result<Locks<'s>, HeldUp> {
        debug_assert!(partitions.is_sorted_by(|a, b| a < b), "I-9");
        let (&first, rest) = partitions.split_first().expect("a transaction locks at least one partition");
        let first = Some(lock(store, first, patience)?);
        let mut locks = Locks { first, ..Locks::none(store) };
        if !rest.is_empty() {
            locks.take_more(store, rest, patience)?;
        }
        Ok(locks)
    }

    fn take_more(&mut self, store: &'s Inner, rest: &[u16], patience: Patience) -> Result<(), HeldUp> {
        self.more.reserve_exact(rest.len());
        while let Some(&next) = rest.get(self.more.len()) {
            let partition = &store.partitions[next as usize];
            match partition.try_lock().or_else(|| partition.try_lock_for(LOOK)) {
                Some(guard) => self.more.push(follow(store, next, guard)),
                None if self.is_wanted(store) => {
                    let first = self.first.take().expect("it was locked").0;
                    self.more.clear();
                    drop(wait_for_turn(store, patience)?);
                    self.first = Some(lock(store, first, patience)?);
                }
                None if patience.is_over(&store.growth.held_long[next as usize]) => return Err(HeldUp),
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

    /// Locks partitions, given in ascending order, of which there may be none, and lets there be more later. `takes_turn`:
    /// it may wait for them.
    fn take_growing(store: &'s Inner, partitions: &[u16], takes_turn: bool) -> Result<Locks<'s>, HeldUp> {
        let patience = Patience::UntilHeldUp;
        // Before it holds anything: who has the turn may want that.
        let turn = if takes_turn { Some(wait_for_turn(store, patience)?) } else { None };
        let locks = match partitions {
            [] => Locks::none(store),
            some => Locks::take(store, some, patience)?,
        };
        Ok(Locks { may_grow: true, turn, ..locks })
    }

    /// Locks one more partition, unless that takes long; whether it is locked. If this is the one whose turn it is, others give
    /// way to it from then on.
    fn try_include(&mut self, store: &'s Inner, number: u16) -> bool {
        let Err(place) = self.place(number) else { return true };
        assert!(self.may_grow, "all partitions were to be named at the beginning");
        let partition = &store.partitions[number as usize];
        let guard = partition.try_lock().or_else(|| {
            if self.turn.is_some() {
                store.growth.wanted.store(number.into(), SeqCst);
            }
            let is_held_long = store.growth.held_long[number as usize].load(Relaxed);
            if is_held_long { None } else { partition.try_lock_for(LOOK) }
        });
        let Some(guard) = guard else { return false };
        if self.turn.is_some() {
            store.growth.wanted.store(NONE, SeqCst);
        }
        let locked = follow(store, number, guard);
        store.growth.held_long[number as usize].store(self.held_long, Relaxed);
        match &self.first {
            None => self.first = Some(locked),
            Some(_) => self.more.insert(place, locked),
        }
        true
    }

    /// Says of all whether they are held for long.
    fn mark(&mut self, store: &Inner, held_long: bool) {
        self.held_long = held_long;
        for (number, _) in self.first.iter().chain(&self.more) {
            store.growth.held_long[*number as usize].store(held_long, Relaxed);
        }
        if self.turn.is_some() {
            store.growth.turn_is_long.store(held_long, Relaxed);
        }
    }

    /// To be called before they are dropped.
    #[inline]
    pub fn end(&mut self, store: &Inner) {
        if self.held_long {
            self.mark(store, false);
        }
        if self.turn.is_some() {
            store.growth.wanted.store(NONE, SeqCst);
        }
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
            match partition.try_lock_for(LOOK) {
                Some(guard) => break guard,
                None => assert!(started.elapsed() < LATE_MAX, "the key's partition is locked"),
            }
        };
        if self.turn.is_some() {
            store.growth.wanted.store(NONE, SeqCst);
        }
        let mut locked = follow(store, number, guard);
        store.growth.held_long[number as usize].store(self.held_long, Relaxed);
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
        None => wait_for(partition, &store.growth.held_long[number as usize], patience)?,
    };
    Ok(follow(store, number, guard))
}

fn wait_for_turn(store: &Inner, patience: Patience) -> Result<MutexGuard<'_, ()>, HeldUp> {
    wait_for(&store.growth.turn, &store.growth.turn_is_long, patience)
}

#[cold]
fn wait_for<'s, T>(
    wanted: &'s Mutex<T>,
    held_long: &AtomicBool,
    patience: Patience,
) -> Result<MutexGuard<'s, T>, HeldUp> {
    loop {
        if patience.is_over(held_long) {
            return Err(HeldUp);
        }
        if let Some(guard) = wanted.try_lock_for(LOOK) {
            return Ok(guard);
        }
    }
}

impl Patience {
    fn is_over(self, held_long: &AtomicBool) -> bool {
        self == Patience::UntilHeldUp && held_long.load(Relaxed)
    }
}

#[inline]
fn follow<'s>(store: &Inner, number: u16, mut guard: MutexGuard<'s, Partition>) -> Locked<'s> {
    guard.follow_limits(&store.shared);
    (number, guard)
}

impl Inner {
    /// Locks a partition, unless it is held for long.
    pub fn try_lock(&self, number: u16) -> Result<MutexGuard<'_, Partition>, HeldUp> {
        lock(self, number, Patience::UntilHeldUp).map(|(_, guard)| guard)
    }
}

impl Store {
    /// Begins a transaction that may lock more partitions later ([`Txn::try_include`]), over some to begin with, given in
    /// ascending order without repetition; there may be none. `takes_turn`: from the beginning it is the one that may wait
    /// for more, and waits until it is.
    pub fn try_begin_growing(&self, partitions: &[u16], takes_turn: bool) -> Begun<'_> {
        let locks = Locks::take_growing(&self.inner, partitions, takes_turn)?;
        Ok(Txn::with(&self.inner, locks, self.now_ms()))
    }

    /// As [`Store::try_begin_growing`], over the partition of one key. What is derived from the key is derived once.
    pub fn try_begin_growing_key<'s>(&'s self, key: &'s [u8], takes_turn: bool) -> Begun<'s> {
        let target = Target::new(&self.inner, key);
        let mut txn = self.try_begin_growing(&[target.partition], takes_turn)?;
        txn.known = Some(target);
        Ok(txn)
    }
}

impl Txn<'_> {
    /// Unlocks what was locked for a transaction that has ended by [`Txn::commit_then`].
    pub fn unlock(&mut self) {
        self.locks.end(self.store);
        self.locks.first = None;
        self.locks.more.clear();
        self.locks.turn = None;
    }
}

/// Of a transaction that was begun to grow.
impl Txn<'_> {
    /// Locks the partition of a key, if it is not locked, unless that takes longer than a millisecond; whether it is locked.
    pub fn try_include(&mut self, key: &[u8]) -> bool {
        let partition = self.target(key).partition;
        if !self.locks.try_include(self.store, partition) {
            return false;
        }
        self.locks.get(partition).set_now(self.now_ms);
        self.changes.follow(self.shared());
        true
    }

    /// Locks all partitions, up to the first that takes longer; whether all are locked.
    pub fn try_include_all(&mut self) -> bool {
        let all =
            (0..self.store.partitions.len() as u16).all(|number| self.locks.try_include(self.store, number));
        self.locks.each(|part| part.set_now(self.now_ms));
        self.changes.follow(self.shared());
        all
    }

    /// How many partitions are locked.
    pub fn partitions_len(&self) -> usize {
        usize::from(self.locks.first.is_some()) + self.locks.more.len()
    }

    /// Whether it may wait for partitions while it holds others.
    pub fn has_turn(&self) -> bool {
        self.locks.turn.is_some()
    }

    /// Lets it wait for partitions while it holds others, unless another one may and that takes longer than a
    /// millisecond; whether it may.
    pub fn try_take_turn(&mut self) -> bool {
        if self.locks.turn.is_none() {
            let growth = &self.store.growth;
            let is_long = growth.turn_is_long.load(Relaxed);
            // Not longer, since who has it may be beginning, and wait for what this one has locked.
            self.locks.turn = if is_long { None } else { growth.turn.try_lock_for(LOOK) };
            if self.locks.held_long {
                self.locks.mark(self.store, true);
            }
        }
        self.has_turn()
    }

    /// Whether the one whose turn it is waits for what this one has locked.
    pub fn is_wanted(&self) -> bool {
        !self.has_turn() && self.locks.is_wanted(self.store)
    }

    /// Says that what is locked, now or later, may be so for long, before others of this thread run.
    pub fn hold_long(&mut self) {
        if !self.locks.held_long {
            self.locks.mark(self.store, true);
        }
    }

    /// Whether what is locked may be so for long.
    pub fn holds_long(&self) -> bool {
        self.locks.held_long
    }

    /// Whether there is nothing to commit.
    pub fn is_clean(&self) -> bool {
        self.batch.is_empty()
    }

    /// Unlocks everything; there must be nothing to commit. It goes on with [`Txn::take_up`].
    pub fn set_down(&mut self) -> SetDown {
        debug_assert!(self.is_clean());
        self.forget_views();
        let locks = &self.locks;
        let numbers = locks.first.iter().chain(&locks.more).map(|(number, part)| (*number, part.version));
        let mut set_down: Vec<_> = numbers.collect();
        set_down.sort_unstable();
        self.locks.end(self.store);
        self.locks = Locks { may_grow: true, turn: self.locks.turn.take(), ..Locks::none(self.store) };
        if self.has_turn() {
            self.hold_long();
        }
        SetDown(set_down)
    }

    /// Locks again what was unlocked; whether none of its keys was written meanwhile.
    pub fn take_up(&mut self, set_down: &SetDown) -> Result<bool, HeldUp> {
        let numbers: Vec<u16> = set_down.0.iter().map(|(number, _)| *number).collect();
        let locks = Locks::take_growing(self.store, &numbers, false)?;
        let held_long = self.locks.held_long;
        self.locks = Locks { turn: self.locks.turn.take(), ..locks };
        self.locks.mark(self.store, held_long);
        self.locks.each(|part| part.set_now(self.now_ms));
        self.changes.follow(self.shared());
        Ok(set_down.0.iter().all(|(number, version)| self.locks.read(*number).version == *version))
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
}
