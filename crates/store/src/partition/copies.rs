//! Copies of values in RAM, and what is known of the uses of keys: both lie where the copies are, or in their place.

use super::{Found, Partition, databases::PHYSICAL_DATABASES, index::Slot, shared::Shared};
use crate::{
    cache::{Handle, Queue, Victim, VictimCopy, copy::Copy, uses::is_copy},
    format::digest::Digest,
};
use holdfast_log::Lsn;

impl Partition {
    /// Asks for the memory of the cached copy of an entry's value: the step behind [`Partition::prefetch_entry`].
    #[inline]
    pub fn prefetch_copy(&self, db: u8, slot: Slot) {
        if let Some(copy) = self.copy_of(db, slot) {
            self.cache.prefetch(copy);
        }
    }

    /// The cached copy of an entry's value, if it has one.
    #[inline]
    pub fn copy_of(&self, db: u8, slot: Slot) -> Option<Handle> {
        let handle = self.databases[db as usize].keys.handle(slot);
        (handle != 0).then_some(handle)
    }

    /// The value in a copy; `None` if it is another key's with the same digest.
    #[inline]
    pub fn cached(&self, copy: Handle, key: &[u8]) -> Option<&[u8]> {
        let copy = self.cache.get(copy);
        (copy.key == key).then_some(copy.value)
    }

    /// Takes note of a use of a key.
    #[inline]
    pub fn touch(&mut self, db: u8, slot: Slot) {
        let keys = &mut self.databases[db as usize].keys;
        let old = keys.handle_or_mark(slot);
        if is_copy(old) {
            self.cache.prefetch(old);
            self.cache.touch(old, &mut self.meter);
            return;
        }
        let new = self.meter.touched_mark(old);
        if new != old {
            keys.set_handle(slot, new);
        }
    }

    /// The same if its value has a copy; whether it has.
    #[inline]
    pub fn touch_copy(&mut self, db: u8, slot: Slot) -> bool {
        let copy = self.copy_of(db, slot);
        if let Some(copy) = copy {
            self.cache.prefetch(copy);
            self.cache.touch(copy, &mut self.meter);
        }
        copy.is_some()
    }

    /// What is known of the uses of a key; see [`Meter`].
    pub fn known(&self, db: u8, slot: Slot) -> u32 {
        let keys = &self.databases[db as usize].keys;
        match keys.handle(slot) {
            0 => self.meter.read_mark(keys.handle_or_mark(slot)).unwrap_or_else(|| self.meter.unknown()),
            handle => self.cache.known(handle, &self.meter),
        }
    }

    /// Says what is known of the uses of a key.
    pub fn set_known(&mut self, db: u8, slot: Slot, known: u32) {
        let keys = &mut self.databases[db as usize].keys;
        match keys.handle(slot) {
            0 => keys.set_handle(slot, self.meter.mark(known)),
            handle => self.cache.set_known(handle, &self.meter, known),
        }
    }

    /// What is to be known of a key after a look at it, which may be a use.
    pub fn known_after(&mut self, db: u8, slot: Slot, is_use: bool) -> u32 {
        let known = self.known(db, slot);
        if is_use { self.meter.used(known) } else { known }
    }

    /// What is to be known of a key that gets a value: a count that it has stays, with one use more.
    #[inline]
    pub fn known_of_new(&mut self, db: u8, found: Option<Found>, is_use: bool) -> u32 {
        match found {
            Some(found) if self.meter.counts() => self.known_after(db, found.slot, is_use),
            _ => self.meter.new_key(),
        }
    }

    /// Takes a copy of an entry's value into the cache.
    #[allow(clippy::too_many_arguments)]
    pub fn cache_value(
        &mut self,
        shared: &Shared,
        db: u8,
        slot: Slot,
        digest: Digest,
        key: &[u8],
        value: &[u8],
        known: u32,
    ) {
        if !shared.budget.keeps_copies() {
            return;
        }
        let handle = self.databases[db as usize].keys.handle(slot);
        if handle != 0 {
            if self.cache.overwrite(handle, key, value, &self.meter, known) {
                return;
            }
            self.cache.kill(handle);
        }
        let handle = match key.len() + value.len() <= shared.budget.copy_max() {
            true => self.cache.insert(digest, Copy { db, key, value }, &self.meter, known),
            false => self.meter.mark(known),
        };
        self.databases[db as usize].keys.set_handle(slot, handle);
        self.trim_cache(shared);
    }

    /// Counts a value that was read from the medium for want of a copy, if it had one of late. To be called before it gets another.
    pub fn count_return(&self, shared: &Shared, digest: Digest) {
        if self.cache.is_ghost(digest) {
            shared.budget.count_returned_copy();
        }
    }

    /// Forgets the copy of an entry's value, if there is one, but not what is known of its uses.
    pub(super) fn drop_copy(&mut self, db: u8, slot: Slot) {
        let keys = &mut self.databases[db as usize].keys;
        let handle = keys.handle(slot);
        if handle != 0 {
            keys.set_handle(slot, self.meter.mark(self.cache.known(handle, &self.meter)));
            self.cache.kill(handle);
        }
    }

    /// Forgets the copies of all values that can be read from the medium.
    pub fn forget_copies(&mut self, shared: &Shared) {
        for db in 0..PHYSICAL_DATABASES as u8 {
            for segment in 0..self.databases[db as usize].keys.segment_count() {
                let mut slots = Vec::new();
                let keys = &self.databases[db as usize].keys;
                keys.for_each_in(&self.arena, segment, |slot, _, word| {
                    if !word.in_heap() && shared.is_readable(word) {
                        slots.push(slot);
                    }
                });
                slots.into_iter().for_each(|slot| self.drop_copy(db, slot));
            }
        }
        self.trim_cache(shared);
    }

    /// Lets copies go while there are more than may be, at most a few chunks a call, and closes up sparse memory. The other
    /// partitions are to let go as much: one that has less than its share leaves it to the memory thread.
    pub fn trim_cache(&mut self, shared: &Shared) {
        const CHUNKS_A_CALL: usize = 4;
        if self.cache.is_sparse() {
            self.close_up(shared);
        }
        self.count_cache(shared);
        if !shared.budget.copies_are_over() {
            return;
        }
        let has_share = shared.budget.is_a_share(self.cache.bytes());
        if has_share || !shared.budget.ask_for_room() {
            let mut chunks = 0;
            while chunks < CHUNKS_A_CALL && shared.budget.copies_are_over() && self.let_copies_go(shared) {
                chunks += 1;
            }
            if shared.budget.copies_are_over() {
                shared.budget.ask_for_room();
            }
        }
    }

    /// Copies what lives in a chunk to others.
    fn close_up(&mut self, shared: &Shared) {
        let Some(victim) = self.cache.pop_sparse() else { return };
        let meter = self.meter.clone();
        self.take_apart(shared, &victim, |part, copy, _, slot| {
            let handle = part.cache.put_back(copy, victim.queue(), &meter);
            part.databases[copy.copy.db as usize].keys.set_handle(slot, handle);
        });
    }

    /// Takes a chunk apart that is the next to go, and lets go what was not used since the last look and can be read from the
    /// medium; false if nothing can go for now.
    pub fn let_copies_go(&mut self, shared: &Shared) -> bool {
        /// Chunks that are looked at for one of which some may go: of the newest copies, and of the oldest ones.
        const LOOKS: usize = 3;
        let written = shared.log.written();
        if self.unwritten_at == Some(written) {
            return false;
        }
        for _ in 0..LOOKS {
            let Some(victim) = self.cache.pop() else { return false };
            if self.sort_out(shared, victim, written) {
                return true;
            }
        }
        self.unwritten_at = Some(written);
        false
    }

    /// The same with a chunk; false if none of it is below the LSN to which the log is written.
    fn sort_out(&mut self, shared: &Shared, victim: Victim, written: Lsn) -> bool {
        let (meter, mut unwritten, mut others) = (self.meter.clone(), 0, 0);
        self.take_apart(shared, &victim, |part, copy, digest, slot| {
            let keys = &mut part.databases[copy.copy.db as usize].keys;
            let is_written = shared.is_below(keys.word(&part.arena, slot), written);
            *if is_written { &mut others } else { &mut unwritten } += 1;
            let handle = if copy.is_used() || !is_written {
                part.cache.put_back(copy, Queue::Main, &meter)
            } else {
                part.cache.let_go(digest);
                meter.mark(copy.known)
            };
            part.databases[copy.copy.db as usize].keys.set_handle(slot, handle);
        });
        drop(victim);
        self.count_cache(shared);
        unwritten == 0 || others > 0
    }

    /// Buries the dead copies of a chunk, and calls `f` with each that lives and the slot of its entry.
    fn take_apart(
        &mut self,
        shared: &Shared,
        victim: &Victim,
        mut f: impl FnMut(&mut Partition, &VictimCopy, Digest, Slot),
    ) {
        /// Copies whose entries are asked for at once.
        const AHEAD: usize = 16;
        let meter = self.meter.clone();
        let mut copies = victim.copies(&meter);
        let mut group = Vec::with_capacity(AHEAD);
        loop {
            for copy in copies.by_ref() {
                if copy.is_dead() {
                    self.cache.bury(&copy);
                    continue;
                }
                let digest = shared.secret.digest(copy.copy.key);
                let place = self.prefetch_fingerprints(copy.copy.db, digest);
                group.push((copy, digest, place));
                if group.len() == AHEAD {
                    break;
                }
            }
            if group.is_empty() {
                return;
            }
            for (copy, digest, place) in &mut group {
                *place = place.and_then(|place| self.prefetch_entry(copy.copy.db, place, *digest));
            }
            for (copy, digest, place) in group.drain(..) {
                let keys = &self.databases[copy.copy.db as usize].keys;
                let place = place.filter(|&place| keys.get_at(&self.arena, place, digest).is_some());
                let slot = place.or_else(|| keys.find(&self.arena, digest));
                f(self, &copy, digest, slot.expect("a live copy has an entry"));
            }
        }
    }

    fn count_cache(&mut self, shared: &Shared) {
        let bytes = self.cache.bytes();
        if bytes != self.cache_counted {
            shared.budget.add_copies(bytes as isize - self.cache_counted as isize);
            self.cache_counted = bytes;
        }
    }
}
