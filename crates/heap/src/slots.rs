//! Which slots of the file are in use.

use std::ops::Range;

/// The shortest run of free slots that is worth a write of its own.
const RUN_MIN: usize = 16;

/// Instead of a number of uses: the slot is free and takes no space of the medium.
const HOLE: u8 = u8::MAX;

/// How often each slot is named: once by a page, up to eight times as the home of tables, or not at all.
#[derive(Default)]
pub(crate) struct Slots {
    uses: Vec<u8>,
    used: usize,
    holes: usize,
}

impl Slots {
    /// Slots `0..len`, none in use.
    pub(crate) fn new(len: u32) -> Slots {
        Slots { uses: vec![0; len as usize], used: 0, holes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.uses.len()
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Slots that take space of the medium.
    pub(crate) fn allocated(&self) -> usize {
        self.len() - self.holes
    }

    /// Whether a slot is free; `None`: it is not in the file.
    pub(crate) fn is_free(&self, slot: u32) -> Option<bool> {
        self.uses.get(slot as usize).map(is_free)
    }

    /// Adds a use.
    pub(crate) fn hold(&mut self, slot: u32) {
        let uses = &mut self.uses[slot as usize];
        if *uses == HOLE {
            *uses = 0;
            self.holes -= 1;
        }
        self.used += usize::from(*uses == 0);
        *uses += 1;
    }

    /// Ends a use.
    pub(crate) fn release(&mut self, slot: u32) {
        let uses = &mut self.uses[slot as usize];
        assert!(!is_free(uses), "slot {slot} is not in use");
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
            start += self.uses[start..].iter().take_while(|uses| !is_free(uses)).count();
            let free = self.uses[start..].iter().take(max).take_while(|uses| is_free(uses)).count();
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
            let free = self.uses[start..].iter().take(n).take_while(|uses| is_free(uses)).count();
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
        let free = self.uses.iter().rev().take_while(|uses| is_free(uses)).count();
        let len = self.len() - free;
        let worthwhile = free > self.len() / 4;
        if worthwhile {
            self.holes -= self.uses[len..].iter().filter(|&&uses| uses == HOLE).count();
            self.uses.truncate(len);
        }
        worthwhile
    }

    /// Makes holes of free slots, those at the end first, until `keep` slots take space, if they are a quarter more. Returns them.
    pub(crate) fn punch(&mut self, keep: usize) -> Vec<Range<u32>> {
        let (mut runs, mut end) = (Vec::new(), self.len());
        if self.allocated() <= keep + keep / 4 {
            return runs;
        }
        while end > 0 && self.allocated() > keep {
            let run = self.uses[..end].iter().rev().take_while(|&&uses| uses == 0).count();
            let start = end - run;
            if run >= RUN_MIN {
                let surplus = run.min((self.allocated() - keep).max(RUN_MIN));
                self.uses[end - surplus..end].fill(HOLE);
                self.holes += surplus;
                runs.push((end - surplus) as u32..end as u32);
            }
            // What ended the run is no free slot that takes space.
            end = start.saturating_sub(1);
        }
        runs
    }

    /// Says that free slots take space after all.
    pub(crate) fn fill(&mut self, slots: Range<u32>) {
        for uses in &mut self.uses[slots.start as usize..slots.end as usize] {
            if *uses == HOLE {
                *uses = 0;
                self.holes -= 1;
            }
        }
    }
}

fn is_free(uses: &u8) -> bool {
    matches!(*uses, 0 | HOLE)
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
    fn holes_are_made_of_long_runs_and_filled_when_they_are_taken() {
        let mut slots = Slots::new(100);
        (0..100).filter(|slot| slot % 50 < 10 || *slot == 80).for_each(|slot| slots.hold(slot));
        assert_eq!(slots.punch(80), [], "a fifth is too much");
        assert_eq!(slots.punch(61), [81..100, 60..80], "the last ones first");
        assert_eq!((slots.allocated(), slots.len(), slots.used()), (61, 100, 21));
        let again = slots.punch(40);
        assert_eq!((&again[0], again.len()), (&(29..50), 1), "what is a hole already is none again");
        assert_eq!(
            (slots.is_free(49), slots.is_free(50), slots.is_free(100)),
            (Some(true), Some(false), None)
        );
        slots.fill(95..100);
        assert_eq!(slots.allocated(), 45);
        assert_eq!(slots.take_adjacent(40), 10..50);
        assert_eq!((slots.allocated(), slots.used()), (66, 61));
        assert!(!slots.trim());
        slots.release(80);
        assert!(slots.trim());
        assert_eq!((slots.allocated(), slots.len()), (60, 60));
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
