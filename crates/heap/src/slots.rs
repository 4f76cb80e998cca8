//! Which slots of the file are in use.

use std::ops::Range;

/// The shortest run of free slots that is worth a write of its own.
const RUN_MIN: usize = 16;

/// How often each slot is named: once by a page, up to eight times as the home of tables, or not at all.
#[derive(Default)]
pub(crate) struct Slots {
    uses: Vec<u8>,
    used: usize,
}

impl Slots {
    /// Slots `0..len`, none in use.
    pub(crate) fn new(len: u32) -> Slots {
        Slots { uses: vec![0; len as usize], used: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.uses.len()
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// How often a slot is named; `None`: it is not in the file.
    pub(crate) fn uses(&self, slot: u32) -> Option<u8> {
        self.uses.get(slot as usize).copied()
    }

    /// Adds a use.
    pub(crate) fn hold(&mut self, slot: u32) {
        let uses = &mut self.uses[slot as usize];
        self.used += usize::from(*uses == 0);
        *uses += 1;
    }

    /// Ends a use.
    pub(crate) fn release(&mut self, slot: u32) {
        let uses = &mut self.uses[slot as usize];
        assert!(*uses > 0, "slot {slot} is not in use");
        *uses -= 1;
        self.used -= usize::from(*uses == 0);
    }

    /// Takes up to `max` adjacent free slots, from `cursor` on, which moves behind them.
    ///
    /// Short runs are left alone unless half of the file is free: so writes stay large, and the file no larger than
    /// twice what is in use. The cursor of a checkpoint starts at 0, which moves pages to the front over time.
    pub(crate) fn take_run(&mut self, cursor: &mut usize, max: usize) -> Range<u32> {
        let run_min = if self.used * 2 < self.len() { 1 } else { RUN_MIN.min(max) };
        let mut start = *cursor;
        let end = loop {
            start += self.uses[start..].iter().take_while(|&&uses| uses > 0).count();
            let free = self.uses[start..].iter().take(max).take_while(|&&uses| uses == 0).count();
            if start + free == self.len() {
                break start + max;
            }
            if free >= run_min {
                break start + free;
            }
            start += free;
        };
        *cursor = end;
        self.take(start..end)
    }

    /// Takes the first `n` adjacent free slots.
    pub(crate) fn take_adjacent(&mut self, n: usize) -> Range<u32> {
        let mut start = 0;
        loop {
            let free = self.uses[start..].iter().take(n).take_while(|&&uses| uses == 0).count();
            if free == n || start + free == self.len() {
                return self.take(start..start + n);
            }
            start += free + 1;
        }
    }

    fn take(&mut self, slots: Range<usize>) -> Range<u32> {
        if self.len() < slots.end {
            self.uses.resize(slots.end, 0);
        }
        let slots = slots.start as u32..u32::try_from(slots.end).expect("a file of less than 2^32 slots");
        slots.clone().for_each(|slot| self.hold(slot));
        slots
    }

    /// Forgets the free slots at the end of the file if they are a quarter of it. Returns whether they were.
    pub(crate) fn trim(&mut self) -> bool {
        let free = self.uses.iter().rev().take_while(|&&uses| uses == 0).count();
        let len = self.len() - free;
        let worthwhile = free > self.len() / 4;
        if worthwhile {
            self.uses.truncate(len);
        }
        worthwhile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_long_until_half_is_free() {
        let mut slots = Slots::default();
        let mut cursor = 0;
        assert_eq!(slots.take_run(&mut cursor, 100), 0..100);
        (10..14).chain(50..80).for_each(|slot| slots.release(slot));
        cursor = 0;
        assert_eq!(slots.take_run(&mut cursor, 20), 50..70);
        assert_eq!(slots.take_run(&mut cursor, 20), 100..120);
        (80..120).for_each(|slot| slots.release(slot));
        (20..70).for_each(|slot| slots.release(slot));
        cursor = 0;
        assert_eq!(slots.take_run(&mut cursor, 20), 10..14);
        assert_eq!(slots.take_adjacent(70), 20..90);
        assert_eq!(slots.used(), 90);
    }

    #[test]
    fn shared_slots_are_used_until_the_last_release() {
        let mut slots = Slots::new(8);
        (0..8).for_each(|_| slots.hold(2));
        assert!(slots.trim());
        assert_eq!((slots.len(), slots.used()), (3, 1));
        (0..8).for_each(|_| slots.release(2));
        assert_eq!(slots.used(), 0);
        assert!(slots.trim());
        assert_eq!(slots.take_run(&mut 0, 3), 0..3);
    }
}
