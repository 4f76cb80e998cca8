//! Looking for pages that are not in memory: the descents of the collections are made with a look at each step, and stop where they
//! find something absent.

use holdfast_heap::{AbsentPage, Arena};
use std::{cell::RefCell, collections::BTreeSet, convert::Infallible};

/// Something that is looked for is not in memory.
#[derive(Debug)]
pub struct Absent;

/// Looks for pages, and keeps which are not in memory.
pub struct Finder<'a> {
    pub(in crate::collections) arena: &'a Arena,
    /// Whether the command may free what it uses, and allocate.
    pub(in crate::collections) writes: bool,
    /// How many it may find: nothing is in memory once it has.
    pages_max: usize,
    pages: RefCell<BTreeSet<AbsentPage>>,
}

impl<'a> Finder<'a> {
    /// One that has found nothing absent, and will find so many pages at most, for a command that writes, or not.
    pub fn new(arena: &'a Arena, writes: bool, pages_max: usize) -> Finder<'a> {
        Finder { arena, writes, pages_max, pages: RefCell::default() }
    }

    /// The pages that are not in memory.
    pub fn into_pages(self) -> BTreeSet<AbsentPage> {
        self.pages.into_inner()
    }

    /// Fails of a range, by its place and length, that is not in memory.
    pub(in crate::collections) fn look(&self) -> impl Fn(u64, usize) -> Result<(), Absent> {
        |offset, len| {
            let mut pages = self.pages.borrow_mut();
            let room = self.pages_max.saturating_sub(pages.len());
            let beside = self.writes.then(|| self.arena.absent_to_free(offset)).flatten();
            let mut absent = self.arena.absent(offset, len).chain(beside).peekable();
            if room > 0 && absent.peek().is_none() {
                return Ok(());
            }
            pages.extend(absent.take(room));
            Err(Absent)
        }
    }

    /// Looks for what it takes to allocate a block of so many bytes, if the command may do so.
    pub(in crate::collections) fn look_to_alloc(&self, size: usize) {
        if self.writes {
            let mut pages = self.pages.borrow_mut();
            let room = self.pages_max.saturating_sub(pages.len());
            pages.extend(self.arena.absent_to_alloc(size).take(room));
        }
    }

    /// Whether it has found as many as it may.
    pub fn is_full(&self) -> bool {
        self.pages.borrow().len() >= self.pages_max
    }

    /// Goes on to what else is wanted.
    pub(super) fn go_on(&self, _looked: Result<(), Absent>) {}
}

/// Says that all of any range is in memory: to descend without a look.
///
/// # Errors
/// None.
#[inline(always)]
pub fn no_look(_: u64, _: usize) -> Result<(), Infallible> {
    Ok(())
}
