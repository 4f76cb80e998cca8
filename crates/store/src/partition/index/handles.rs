//! What volatile memory has beside a segment's entries: of each the handle of its cached copy, a mark of its uses, or nothing.
//!
//! Few of them lie in the order of their places, many in arrays of all places: where there is ten times more data than memory,
//! one key in ten has a copy. Marks of all others would take as much as the copies' handles in arrays. So where memory is scarce,
//! and no key must be chosen by its uses, a segment keeps only the marks of the keys that were used last, and of
//! all others knows that they were used before those.

use super::{bucket::PAGE_PLACES, layout::PAGES_MAX};
use crate::cache::{
    Handle,
    uses::{MARK, is_copy},
};
use std::{
    mem, ops,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

/// From so many of all places on they lie in arrays.
const MANY: usize = 4;
/// Below so many of all places they do not any more.
const FEW: usize = 8;
/// Marks that are kept of a segment at most where memory is scarce.
const MARKS: usize = 64;
/// How many are given up at once: to choose which takes a look at all.
const MARKS_GIVEN_UP: usize = 16;
/// Room that is made at once, in places.
const STEP: usize = 16;

/// Bytes that handles and marks take, of all indexes that count here.
#[derive(Default)]
pub struct HandleMemory {
    bytes: AtomicUsize,
    is_scarce: AtomicBool,
    has_no_marks: AtomicBool,
}

impl HandleMemory {
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Says whether only the marks of keys that were used last are to be kept.
    pub fn set_scarce(&self, on: bool) {
        self.is_scarce.store(on, Relaxed);
    }

    /// Has no marks be kept from now on.
    pub fn keep_no_marks(&self) {
        self.has_no_marks.store(true, Relaxed);
    }

    fn note(&self, before: usize, after: usize) {
        if before != after {
            self.bytes.fetch_add(after.wrapping_sub(before), Relaxed);
        }
    }
}

/// The handles and marks of a segment.
pub(super) struct Handles {
    /// Pages of the segment.
    pages: usize,
    kept: Kept,
    /// A mark of a use at or before which all keys were used of which nothing is kept; 0: no mark was given up.
    given_up: u32,
}

#[derive(Default)]
enum Kept {
    #[default]
    None,
    Few(Box<Few>),
    Many(Many),
}

#[derive(Default)]
struct Few {
    /// In ascending order.
    places: Vec<u16>,
    handles: Vec<u32>,
}

/// An array for each page: all are of one size, so that an allocator finds a use for what another segment gives back, and none is
/// copied when the segment gets one more.
struct Many {
    pages: [Option<Box<[u32; PAGE_PLACES]>>; PAGES_MAX],
    used: u32,
    copies: u32,
}

impl Handles {
    /// Those of a segment of so many pages, of whose places none has any.
    pub fn new(pages: usize) -> Handles {
        Handles { pages, kept: Kept::None, given_up: 0 }
    }

    /// The segment has so many pages now; in those that it has no more no place has a handle.
    pub fn set_pages(&mut self, memory: &HandleMemory, pages: usize) {
        let before = self.bytes();
        if let Kept::Many(many) = &mut self.kept {
            many.set_pages(pages);
        }
        self.pages = pages;
        memory.note(before, self.bytes());
    }

    fn places(&self) -> usize {
        self.pages * PAGE_PLACES
    }

    /// A mark of a use at or before which all keys were used of which nothing is kept; 0: no mark was given up.
    pub fn given_up(&self) -> u32 {
        self.given_up
    }

    /// Says so of marks that another segment has given up.
    pub fn set_given_up(&mut self, mark: u32) {
        self.given_up = mark;
    }

    /// The handle or mark at a place; 0: there is none.
    #[inline]
    pub fn get(&self, place: usize) -> u32 {
        match &self.kept {
            Kept::Many(many) => many.page(place)[place % PAGE_PLACES],
            Kept::Few(few) => few.places.binary_search(&(place as u16)).map_or(0, |at| few.handles[at]),
            Kept::None => 0,
        }
    }

    /// The handle or mark at a place where an entry is, or a mark that is no older than its own was.
    #[inline]
    pub fn get_or_given_up(&self, place: usize) -> u32 {
        match self.get(place) {
            0 => self.given_up,
            kept => kept,
        }
    }

    /// Those of some places of one page that lie one behind another, if they lie in arrays.
    #[inline]
    pub fn in_array(&self, places: ops::Range<usize>) -> Option<&[u32]> {
        match &self.kept {
            Kept::Many(many) => {
                let start = places.start % PAGE_PLACES;
                Some(&many.page(places.start)[start..start + places.len()])
            }
            _ => None,
        }
    }

    pub fn set(&mut self, memory: &HandleMemory, place: usize, handle: u32) {
        let is_left_out = handle & MARK != 0 && memory.has_no_marks.load(Relaxed);
        let handle = if is_left_out { 0 } else { handle };
        if handle == 0 && matches!(self.kept, Kept::None) {
            return;
        }
        let (before, is_scarce) = (self.bytes(), memory.is_scarce.load(Relaxed));
        let places = self.places();
        match &mut self.kept {
            Kept::Many(many) => {
                many.set(place, handle);
                let few = (places / FEW) as u32;
                if many.copies < few && (is_scarce || many.used < few) {
                    self.kept = Kept::Few(Box::new(many.to_few()));
                    self.give_up_marks(is_scarce);
                }
            }
            Kept::Few(few) => {
                few.set(place, handle);
                if handle & MARK != 0 {
                    self.give_up_marks(is_scarce);
                }
            }
            Kept::None if handle != 0 => {
                let mut few = Few::default();
                few.set(place, handle);
                self.kept = Kept::Few(Box::new(few));
            }
            Kept::None => {}
        }
        match &self.kept {
            Kept::Few(few) if few.places.len() >= places / MANY => {
                self.kept = Kept::Many(few.to_many(self.pages));
            }
            Kept::Few(few) if few.places.is_empty() => self.kept = Kept::None,
            _ => {}
        }
        memory.note(before, self.bytes());
    }

    /// Gives up the least marks of few handles if there are too many, and that is asked for.
    fn give_up_marks(&mut self, is_scarce: bool) {
        let Kept::Few(few) = &mut self.kept else { return };
        let marks = few.handles.iter().filter(|&&handle| handle & MARK != 0);
        let count = marks.clone().count();
        if !is_scarce || count <= MARKS {
            return;
        }
        let surplus = count - MARKS + MARKS_GIVEN_UP - 1;
        // A mark is the greater, the later or the more a key was used.
        let mut marks: Vec<u32> = marks.copied().collect();
        let (_, &mut greatest, _) = marks.select_nth_unstable(surplus - 1);
        self.given_up = self.given_up.max(greatest);
        let mut left = surplus;
        few.retain(|handle| {
            let goes = left > 0 && handle & MARK != 0 && handle <= greatest;
            left -= usize::from(goes);
            !goes
        });
    }

    /// Handles and marks of all places that have one.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        let (few, many): (&[u32], &[_]) = match &self.kept {
            Kept::None => (&[], &[]),
            Kept::Few(few) => (&few.handles, &[]),
            Kept::Many(many) => (&[], &many.pages),
        };
        let many = many.iter().flatten().flat_map(|page| page.iter());
        few.iter().chain(many).copied().filter(|&handle| handle != 0)
    }

    /// The handles of all cached copies.
    pub fn copies(&self) -> impl Iterator<Item = Handle> {
        self.all().filter(|&handle| is_copy(handle))
    }

    /// Forgets all of them.
    pub fn clear(&mut self, memory: &HandleMemory) {
        let before = self.bytes();
        *self = Handles::new(self.pages);
        memory.note(before, 0);
    }

    /// Bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        match &self.kept {
            Kept::None => 0,
            Kept::Few(few) => {
                size_of::<Few>()
                    + few.places.capacity() * size_of::<u16>()
                    + few.handles.capacity() * size_of::<u32>()
            }
            Kept::Many(_) => self.pages * size_of::<[u32; PAGE_PLACES]>(),
        }
    }
}

impl Few {
    fn set(&mut self, place: usize, handle: u32) {
        let place = place as u16;
        match self.places.binary_search(&place) {
            Ok(at) if handle == 0 => {
                self.places.remove(at);
                self.handles.remove(at);
                self.fit();
            }
            Ok(at) => self.handles[at] = handle,
            Err(_) if handle == 0 => {}
            Err(at) => {
                self.fit();
                self.places.insert(at, place);
                self.handles.insert(at, handle);
            }
        }
    }

    /// Keeps those that are wanted.
    fn retain(&mut self, mut is_wanted: impl FnMut(u32) -> bool) {
        let mut kept = 0;
        for at in 0..self.places.len() {
            if is_wanted(self.handles[at]) {
                self.places[kept] = self.places[at];
                self.handles[kept] = self.handles[at];
                kept += 1;
            }
        }
        self.places.truncate(kept);
        self.handles.truncate(kept);
        self.fit();
    }

    /// Makes room for another one, and gives back what is too much.
    fn fit(&mut self) {
        let (len, capacity) = (self.places.len(), self.places.capacity());
        if len == capacity {
            self.places.reserve_exact(STEP);
            self.handles.reserve_exact(STEP);
        } else if capacity > len + 3 * STEP {
            self.places.shrink_to(len + STEP);
            self.handles.shrink_to(len + STEP);
        }
    }

    fn to_many(&self, pages: usize) -> Many {
        let mut many = Many { pages: Default::default(), used: 0, copies: 0 };
        many.set_pages(pages);
        for (&place, &handle) in self.places.iter().zip(&self.handles) {
            many.set(place.into(), handle);
        }
        many
    }
}

impl Many {
    /// Has an array for each of so many pages.
    fn set_pages(&mut self, pages: usize) {
        let (kept, gone) = self.pages.split_at_mut(pages);
        kept.iter_mut().for_each(|page| {
            page.get_or_insert_with(|| Box::new([0; PAGE_PLACES]));
        });
        gone.fill_with(|| None);
    }

    /// The array that a place is in.
    #[inline]
    fn page(&self, place: usize) -> &[u32; PAGE_PLACES] {
        self.pages[place / PAGE_PLACES].as_ref().expect("the segment has this page")
    }

    #[inline]
    fn set(&mut self, place: usize, handle: u32) {
        let page = self.pages[place / PAGE_PLACES].as_mut().expect("the segment has this page");
        let old = mem::replace(&mut page[place % PAGE_PLACES], handle);
        self.used = self.used + u32::from(handle != 0) - u32::from(old != 0);
        self.copies = self.copies + u32::from(is_copy(handle)) - u32::from(is_copy(old));
    }

    fn to_few(&self) -> Few {
        let mut few = Few::default();
        let all = self.pages.iter().flatten().flat_map(|page| page.iter());
        let used = all.enumerate().filter(|(_, handle)| **handle != 0);
        (few.places, few.handles) = used.map(|(place, &handle)| (place as u16, handle)).unzip();
        few.places.shrink_to_fit();
        few.handles.shrink_to_fit();
        few
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Pages of a segment, at first, and its places.
    const PAGES: usize = 4;
    const PLACES: usize = PAGES * PAGE_PLACES;

    /// What is set at a place: nothing, a copy or a mark.
    fn any_handle() -> impl Strategy<Value = u32> {
        prop_oneof![2 => Just(0), 2 => 1..MARK, 2 => MARK..=u32::MAX]
    }

    proptest! {
        /// Where memory is not scarce nothing is lost; where it is, no copy is, and what is told of a key whose mark was given up is
        /// no less than its mark.
        #[test]
        fn what_was_set_is_found(
            sets in proptest::collection::vec((0..2 * PLACES, any_handle(), 0..400usize), 0..100),
            is_scarce in any::<bool>(),
        ) {
            let (memory, mut handles, mut model) = (HandleMemory::default(), Handles::new(PAGES), BTreeMap::new());
            memory.set_scarce(is_scarce);
            for (place, handle, run) in sets {
                let mut places = handles.places();
                if place >= places {
                    // In place of that the segment grows, or has what lay in its extra pages no more.
                    let pages = if handles.pages < PAGES_MAX { handles.pages + 1 } else { PAGES };
                    for place in pages * PAGE_PLACES..places {
                        handles.set(&memory, place, 0);
                        model.remove(&place);
                    }
                    handles.set_pages(&memory, pages);
                    places = handles.places();
                }
                for place in (place..places).take(run) {
                    handles.set(&memory, place, handle);
                    model.insert(place, handle);
                }
                prop_assert_eq!(memory.bytes(), handles.bytes());
            }
            model.retain(|_, handle| *handle != 0);
            for (&place, &handle) in &model {
                let found = handles.get(place);
                if found != handle {
                    prop_assert!(is_scarce && found == 0 && handle & MARK != 0);
                    prop_assert!(handles.get_or_given_up(place) >= handle);
                }
            }
            let places = handles.places();
            prop_assert!((0..places).all(|place| handles.get(place) == 0 || model.contains_key(&place)));
            let copies = model.values().filter(|handle| is_copy(**handle)).count();
            prop_assert_eq!(handles.copies().count(), copies);
            if copies < PLACES / FEW && (is_scarce || model.len() < PLACES / FEW) {
                let most = if is_scarce { copies + MARKS } else { model.len() };
                prop_assert!(handles.all().count() <= most.max(PLACES / FEW + MARKS));
            }
            handles.clear(&memory);
            prop_assert_eq!(memory.bytes(), 0);
        }
    }

    #[test]
    fn few_take_little_and_many_are_few_again() {
        let (memory, mut handles) = (HandleMemory::default(), Handles::new(PAGES));
        memory.set_scarce(true);
        for place in 0..PLACES {
            handles.set(&memory, place, 1 + place as u32);
        }
        let in_arrays = |start| handles.in_array(start..start + PAGE_PLACES).is_some();
        assert!((0..PLACES).step_by(PAGE_PLACES).all(in_arrays) && memory.bytes() < PLACES * 4 + 100);
        for place in 0..PLACES {
            handles.set(&memory, place, MARK + place as u32);
        }
        let kept = handles.all().count();
        assert!(kept > MARKS - MARKS_GIVEN_UP && kept <= MARKS && handles.copies().count() == 0, "{kept}");
        assert!(memory.bytes() < 1000, "{} bytes", memory.bytes());
        assert_eq!(handles.get_or_given_up(0), MARK + (PLACES - kept) as u32 - 1);
        assert_eq!(handles.get_or_given_up(PLACES - 1), MARK + PLACES as u32 - 1);
    }
}
