//! The locks of a transaction.
//!
//! Who locks several partitions takes them in the order of their numbers, so that no circle of waiting comes about (I-9).
//! A script does not know all its keys when it begins, so that it may want a partition below one that it holds. If that is
//! free, it takes it, and waits for nothing. If not, a transaction that has done nothing yet
//! [releases its locks](crate::Txn::release_locks): it unlocks all, waits, and locks all in order again. One that cannot takes its *turn*: one
//! transaction at a time may wait for partitions in any order, and everybody else gives way to it: who holds the partition
//! that it wants, and waits for another, releases all it has and begins again when that one has ended. It has not done
//! anything with its partitions then, since it has not got them all. Who has got all its partitions waits for nothing, and
//! ends. So each partition that it waits for becomes free, unless another script that has written already wants to grow,
//! too: that one finds the turn taken and itself [wanted](crate::Txn::is_wanted), and has to fail.
//!
//! A script may run for long, and lets others of its thread run meanwhile. It says before that it [holds what it has locked
//! for long](crate::Txn::hold_long), and who waits for such a partition by [`Store::try_begin`](crate::Store::try_begin) and its like waits no longer: it
//! may be of the same thread. Who waits however long it takes holds nothing meanwhile: that thread may have another one run first, which waits for what
//! would be held.

use super::{Engine, growth::NONE};
use crate::{
    partition::Partition,
    util::lock::{Guard, Lock},
};
use std::{
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

/// How often who waits looks whether it has to give way, or whether what it waits for is held for long.
const LOOK: Duration = Duration::from_millis(1);

/// A lock that is wanted is held for long, as by a slow script: its holder may be of this very thread.
#[derive(Debug)]
pub struct LockBusy;

/// Whether to wait however long it takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    Endless,
    UntilBusy,
}

/// How long a transaction that has forgotten to name a partition tries to lock it, until that is a broken invariant.
const LATE_MAX: Duration = Duration::from_secs(10);

/// What a transaction has unlocked: the numbers of partitions, and how often their keys had been written.
pub struct ReleasedLocks(Vec<(u16, u64)>);

/// Partitions that are locked.
pub(crate) struct Locks<'s> {
    engine: &'s Engine,
    first: Option<Locked<'s>>,
    /// The others, in the order of their numbers.
    more: Vec<Locked<'s>>,
    /// Whether there may be more of them later.
    may_grow: bool,
    /// Whether they are marked as held for long.
    held_long: bool,
    /// Held by the one whose turn it is to wait for more.
    turn: Option<Guard<'s, ()>>,
    /// A partition was wanted that was not named at the beginning.
    has_strayed: bool,
}

type Locked<'s> = (u16, Guard<'s, Partition>);

impl<'s> Locks<'s> {
    fn none(engine: &'s Engine) -> Locks<'s> {
        let (first, more, turn) = (None, Vec::new(), None);
        Locks { engine, first, more, may_grow: false, held_long: false, turn, has_strayed: false }
    }

    /// Locks partitions, given in ascending order.
    #[inline]
    pub fn take(engine: &'s Engine, partitions: &[u16], wait: LockWait) -> Result<Locks<'s>, LockBusy> {
        debug_assert!(partitions.is_sorted_by(|a, b| a < b), "I-9");
        let (&first, rest) = partitions.split_first().expect("a transaction locks at least one partition");
        let first = Some(lock(engine, first, wait)?);
        let mut locks = Locks { first, ..Locks::none(engine) };
        if !rest.is_empty() {
            locks.take_more(rest, wait)?;
        }
        Ok(locks)
    }

    fn take_more(&mut self, rest: &[u16], wait: LockWait) -> Result<(), LockBusy> {
        let engine = self.engine;
        self.more.reserve_exact(rest.len());
        while let Some(&next) = rest.get(self.more.len()) {
            let partition = &engine.partitions[next as usize];
            let guard = match partition.try_lock() {
                None if engine.growth.held_long[next as usize].load(Relaxed) => {
                    self.give_way(|| lock(engine, next, wait).map(drop), wait)?;
                    continue;
                }
                None => partition.try_lock_for(LOOK),
                guard => guard,
            };
            match guard {
                Some(guard) => self.more.push(follow(engine, next, guard)),
                None if self.is_wanted() => self.give_way(|| wait_for_turn(engine, wait).map(drop), wait)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Unlocks all until something was waited for, and locks the first one again.
    fn give_way(
        &mut self,
        wait_for: impl FnOnce() -> Result<(), LockBusy>,
        wait: LockWait,
    ) -> Result<(), LockBusy> {
        let (first, guard) = self.first.take().expect("it was locked");
        drop(guard);
        self.more.clear();
        wait_for()?;
        self.first = Some(lock(self.engine, first, wait)?);
        Ok(())
    }

    /// Whether the growing transaction waits for one of these.
    pub fn is_wanted(&self) -> bool {
        let wanted = self.engine.growth.wanted.load(SeqCst);
        self.first.iter().chain(&self.more).any(|(number, _)| u32::from(*number) == wanted)
    }

    /// Locks partitions, given in ascending order, of which there may be none, and lets there be more later. `takes_turn`:
    /// it may wait for them.
    pub fn take_growing(
        engine: &'s Engine,
        partitions: &[u16],
        takes_turn: bool,
    ) -> Result<Locks<'s>, LockBusy> {
        let wait = LockWait::UntilBusy;
        // Before it holds anything: who has the turn may want that.
        let turn = if takes_turn { Some(wait_for_turn(engine, wait)?) } else { None };
        let locks = match partitions {
            [] => Locks::none(engine),
            some => Locks::take(engine, some, wait)?,
        };
        Ok(Locks { may_grow: true, turn, ..locks })
    }

    /// Locks one more partition, unless that takes long; whether it is locked. If this is the one whose turn it is, others give
    /// way to it from then on.
    pub fn try_include(&mut self, number: u16) -> bool {
        let Err(place) = self.place(number) else { return true };
        let engine = self.engine;
        assert!(self.may_grow, "all partitions were to be named at the beginning");
        let partition = &engine.partitions[number as usize];
        let guard = partition.try_lock().or_else(|| {
            if self.turn.is_some() {
                engine.growth.wanted.store(number.into(), SeqCst);
            }
            let is_held_long = engine.growth.held_long[number as usize].load(Relaxed);
            if is_held_long { None } else { partition.try_lock_for(LOOK) }
        });
        let Some(guard) = guard else { return false };
        if self.turn.is_some() {
            engine.growth.wanted.store(NONE, SeqCst);
        }
        let locked = follow(engine, number, guard);
        engine.growth.held_long[number as usize].store(self.held_long, Relaxed);
        match &self.first {
            None => self.first = Some(locked),
            Some(_) => self.more.insert(place, locked),
        }
        true
    }

    /// Says of all whether they are held for long.
    fn mark(&mut self, held_long: bool) {
        let growth = &self.engine.growth;
        self.held_long = held_long;
        for (number, _) in self.first.iter().chain(&self.more) {
            growth.held_long[*number as usize].store(held_long, Relaxed);
        }
        if self.turn.is_some() {
            growth.turn_is_long.store(held_long, Relaxed);
        }
    }

    /// To be called before they are dropped.
    #[inline]
    pub fn end(&mut self) {
        if self.held_long {
            self.mark(false);
        }
        if self.turn.is_some() {
            self.engine.growth.wanted.store(NONE, SeqCst);
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
    /// caller's, of which [`Txn::take_strayed`](crate::Txn::take_strayed) tells; it is no reason to end the process. It grows for this once, so that
    /// all others give way to it (I-9). Only if another one grows, and wants what this one holds, can neither go on.
    #[cold]
    fn lock_late(&mut self, number: u16) -> usize {
        self.has_strayed = true;
        let (engine, started) = (self.engine, Instant::now());
        let partition = &engine.partitions[number as usize];
        let guard = loop {
            if self.turn.is_none() {
                self.turn = engine.growth.turn.try_lock();
            }
            if self.turn.is_some() {
                engine.growth.wanted.store(number.into(), SeqCst);
            }
            match partition.try_lock_for(LOOK) {
                Some(guard) => break guard,
                None => assert!(started.elapsed() < LATE_MAX, "the key's partition is locked"),
            }
        };
        if self.turn.is_some() {
            engine.growth.wanted.store(NONE, SeqCst);
        }
        let mut locked = follow(engine, number, guard);
        engine.growth.held_long[number as usize].store(self.held_long, Relaxed);
        locked.1.set_now(engine.shared.io.now_ms());
        let place = self.place(number).expect_err("it was not locked");
        self.more.insert(place, locked);
        place
    }

    /// The same to look at.
    pub fn read(&self, partition: u16) -> &Partition {
        if let Some((number, guard)) = &self.first
            && *number == partition
        {
            return guard;
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

    /// One of them, unless all were released.
    #[inline]
    pub fn one(&mut self) -> Option<&mut Partition> {
        self.first.as_mut().map(|(_, part)| &mut **part)
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

    /// How many they are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// Whether it may wait for partitions while it holds others.
    pub fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Lets it wait for partitions while it holds others, unless another one may and that takes longer than a
    /// millisecond; whether it may.
    pub fn try_take_turn(&mut self) -> bool {
        if self.turn.is_none() {
            let growth = &self.engine.growth;
            let is_long = growth.turn_is_long.load(Relaxed);
            // Not longer, since who has it may be beginning, and wait for what this one has locked.
            self.turn = if is_long { None } else { growth.turn.try_lock_for(LOOK) };
            if self.held_long {
                self.mark(true);
            }
        }
        self.has_turn()
    }

    /// Says that what is locked, now or later, may be so for long.
    pub fn hold_long(&mut self) {
        if !self.held_long {
            self.mark(true);
        }
    }

    /// Whether what is locked may be so for long.
    pub fn are_held_long(&self) -> bool {
        self.held_long
    }

    /// Unlocks everything.
    pub fn unlock(&mut self) {
        self.end();
        self.first = None;
        self.more.clear();
        self.turn = None;
    }

    /// Unlocks everything but the turn; [`Locks::reacquire_locks`] locks it again.
    pub fn release_locks(&mut self) -> ReleasedLocks {
        let numbers = self.first.iter().chain(&self.more).map(|(number, part)| (*number, part.version));
        let mut released: Vec<_> = numbers.collect();
        released.sort_unstable();
        self.end();
        *self = Locks { may_grow: true, turn: self.turn.take(), ..Locks::none(self.engine) };
        if self.has_turn() {
            self.hold_long();
        }
        ReleasedLocks(released)
    }

    /// Locks again what was unlocked; whether none of its keys was written meanwhile.
    pub fn reacquire_locks(&mut self, released: &ReleasedLocks) -> Result<bool, LockBusy> {
        let numbers: Vec<u16> = released.0.iter().map(|(number, _)| *number).collect();
        let locks = Locks::take_growing(self.engine, &numbers, false)?;
        let held_long = self.held_long;
        *self = Locks { turn: self.turn.take(), ..locks };
        self.mark(held_long);
        Ok(released.0.iter().all(|(number, version)| self.read(*number).version == *version))
    }

    /// Whether since the last call a partition was wanted that was not named at the beginning.
    #[inline]
    pub fn take_strayed(&mut self) -> bool {
        std::mem::take(&mut self.has_strayed)
    }
}

#[inline]
fn lock(engine: &Engine, number: u16, wait: LockWait) -> Result<Locked<'_>, LockBusy> {
    let partition = &engine.partitions[number as usize];
    let guard = match partition.try_lock() {
        Some(guard) => guard,
        None => wait_for(partition, &engine.growth.held_long[number as usize], wait)?,
    };
    Ok(follow(engine, number, guard))
}

fn wait_for_turn(engine: &Engine, wait: LockWait) -> Result<Guard<'_, ()>, LockBusy> {
    wait_for(&engine.growth.turn, &engine.growth.turn_is_long, wait)
}

#[cold]
fn wait_for<'s, T>(
    wanted: &'s Lock<T>,
    held_long: &AtomicBool,
    wait: LockWait,
) -> Result<Guard<'s, T>, LockBusy> {
    loop {
        if wait.is_over(held_long) {
            return Err(LockBusy);
        }
        if let Some(guard) = wanted.try_lock_for(LOOK) {
            return Ok(guard);
        }
    }
}

impl LockWait {
    fn is_over(self, held_long: &AtomicBool) -> bool {
        self == LockWait::UntilBusy && held_long.load(Relaxed)
    }
}

#[inline]
fn follow<'s>(engine: &Engine, number: u16, mut guard: Guard<'s, Partition>) -> Locked<'s> {
    guard.follow_limits(&engine.shared);
    (number, guard)
}

impl Engine {
    /// Locks a partition, unless it is held for long.
    pub fn try_lock(&self, number: u16) -> Result<Guard<'_, Partition>, LockBusy> {
        lock(self, number, LockWait::UntilBusy).map(|(_, guard)| guard)
    }
}
