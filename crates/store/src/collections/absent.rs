//! Looking for pages that are not in memory: the descents of the collections are made with a look at each step, and stop where they
//! find something absent.

use holdfast_heap::{AbsentPage, Arena};
use std::{cell::RefCell, collections::BTreeSet, convert::Infallible};

/// Pages that are looked for at the same time; a command that wants more looks again when it has them.
const PAGES_MAX: usize = 1024;
/// Elements of a range that are looked for.
pub(super) const ELEMENTS_MAX: usize = 1 << 14;

/// Something that is looked for is not in memory.
#[derive(Debug)]
pub struct Absent;

/// Looks for pages, and keeps which are not in memory.
pub struct Finder<'a> {
    pub(super) arena: &'a Arena,
    /// Whether the command may free what it uses.
    frees: bool,
    pages: RefCell<BTreeSet<AbsentPage>>,
}

impl<'a> Finder<'a> {
    /// One that has found nothing absent, for a command that may free what it uses, or not.
    pub fn new(arena: &'a Arena, frees: bool) -> Finder<'a> {
        Finder { arena, frees, pages: RefCell::default() }
    }

    /// The pages that are not in memory.
    pub fn into_pages(self) -> BTreeSet<AbsentPage> {
        self.pages.into_inner()
    }

    /// Fails of a range, by its place and length, that is not in memory.
    pub(super) fn look(&self) -> impl Fn(u64, usize) -> Result<(), Absent> {
        |offset, len| {
            let beside = self.frees.then(|| self.arena.absent_to_free(offset)).flatten();
            let mut absent = self.arena.absent(offset, len).chain(beside).peekable();
            if absent.peek().is_none() {
                return Ok(());
            }
            let mut pages = self.pages.borrow_mut();
            let room = PAGES_MAX.saturating_sub(pages.len());
            pages.extend(absent.take(room));
            Err(Absent)
        }
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
