//! Streams: entries by ID, and the groups whose consumers share the work of reading them.
//!
//! The entries lie in packed leaves of a counted tree, keyed by the ID that a leaf began with ([`entry`]). A leaf takes
//! as many entries as `stream-node-max-entries` and `stream-node-max-bytes` say, counted as Redis counts them, and an entry
//! that is deleted is only marked until all of its leaf are: so trimming by whole leaves (`~`) does what it does there.
//!
//! An object's root is the tree's, its `aux` the root of the groups ([`group`]), its `aux2` a block of 40 bytes: the last
//! ID (`ms u64, seq u64`), the number of entries ever added, and the greatest ID that was deleted. A stream without this
//! block was never written. Unlike other collections a stream may be empty.

mod entry;
mod group;
mod id;
mod look;
mod named;
mod pending;
pub(super) mod serial;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod writer;

pub use entry::{Entry, Fields};
pub use group::{Consumer, Group};
pub use id::Id;
pub(super) use look::{
    look, look_at_entries, look_at_groups, look_at_pending, look_at_unread, look_to_release,
};
pub use pending::Pending;
pub use serial::Draft;
pub(crate) use writer::Claimed;
pub use writer::{Claim, Refused, Trim, TrimTo, Writer};

use holdfast_heap::{Arena, Full, Tx};

use self::entry::Head;
use super::{
    btree::{Path, Tree},
    object::{self, Encoding, Type},
    run::{self, Run},
};

/// A tree of leaves by the ID that each began with.
type LeafTree = Tree<16>;

fn tree(obj: u64) -> LeafTree {
    Tree::at(obj + object::ROOT)
}

/// Makes an empty stream under `key` and returns its object.
///
/// # Errors
/// [`Full`] if the arena has no room.
pub fn create(arena: &mut Arena, tx: &mut Tx, key: &[u8]) -> Result<u64, Full> {
    object::create(arena, tx, key, Type::Stream, Encoding::Stream)
}

/// Whether nothing was ever done to it but to make it.
pub(super) fn is_new(arena: &Arena, obj: u64) -> bool {
    arena.u64(obj + object::AUX2) == 0
}

/// What a stream knows besides its entries and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    last: Id,
    added: u64,
    deleted_max: Id,
}

impl State {
    const LEN: usize = 40;

    fn read(arena: &Arena, obj: u64) -> State {
        let at = arena.u64(obj + object::AUX2);
        if at == 0 {
            return State::default();
        }
        let [last_ms, last_seq, added, deleted_ms, deleted_seq] =
            [0, 8, 16, 24, 32].map(|word| arena.u64(at + word));
        let (last, deleted_max) = (Id::new(last_ms, last_seq), Id::new(deleted_ms, deleted_seq));
        State { last, added, deleted_max }
    }

    fn encode(&self) -> [[u8; 8]; 5] {
        let State { last, added, deleted_max } = self;
        [last.ms, last.seq, *added, deleted_max.ms, deleted_max.seq].map(u64::to_le_bytes)
    }
}

/// The head of a leaf, and its entries.
fn open(arena: &Arena, leaf: Run) -> (Head<'_>, run::Entries<'_>) {
    let mut entries = leaf.entries(arena);
    let head = entries.next().expect("a leaf begins with its head");
    (Head::decode(head.value), entries)
}

/// A stream, to read.
#[derive(Clone, Copy)]
pub struct Stream<'a> {
    arena: &'a Arena,
    obj: u64,
}

impl<'a> Stream<'a> {
    /// The stream with this object.
    pub fn new(arena: &'a Arena, obj: u64) -> Stream<'a> {
        Stream { arena, obj }
    }

    fn state(self) -> State {
        State::read(self.arena, self.obj)
    }

    /// The number of entries.
    pub fn len(self) -> u64 {
        object::count(self.arena, self.obj)
    }

    /// Whether it has no entries.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The ID of the entry that was added last, or what it was set to.
    pub fn last_id(self) -> Id {
        self.state().last
    }

    /// The number of entries that were ever added, or what it was set to.
    pub fn entries_added(self) -> u64 {
        self.state().added
    }

    /// The greatest ID of an entry that was deleted (not trimmed), or what it was set to.
    pub fn max_deleted_id(self) -> Id {
        self.state().deleted_max
    }

    /// The ID of the first entry; [`Id::MIN`] if there is none.
    pub fn first_entry_id(self) -> Id {
        self.range(Id::MIN, Id::MAX, false).next().map_or(Id::MIN, |entry| entry.id)
    }

    /// The ID of the last entry that is there; [`Id::MIN`] if there is none.
    pub fn last_entry_id(self) -> Id {
        self.range(Id::MIN, Id::MAX, true).next().map_or(Id::MIN, |entry| entry.id)
    }

    /// The entry with an ID.
    pub fn get(self, id: Id) -> Option<Entry<'a>> {
        self.range(id, id, false).next()
    }

    /// The entries from one ID to another, both included, backwards if `reverse`.
    pub fn range(self, from: Id, to: Id, reverse: bool) -> Range<'a> {
        let (arena, tree) = (self.arena, tree(self.obj));
        let mut range = Range { arena, tree, place: None, from, to, reverse };
        if from <= to && !tree.is_empty(arena) {
            let begin = if reverse { to } else { from }.to_bytes();
            range.enter(tree.by_key(arena, |key| key <= &begin[..]));
        }
        range
    }

    /// The leaves of the tree, and its inner nodes.
    pub fn nodes(self) -> (u64, u64) {
        tree(self.obj).nodes(self.arena)
    }

    /// The groups, in the order of their names.
    pub fn groups(self) -> impl ExactSizeIterator<Item = Group<'a>> {
        group::all(self)
    }

    /// The group with a name.
    pub fn group(self, name: &[u8]) -> Option<Group<'a>> {
        group::find(self, name)
    }

    /// Whether an entry was deleted, not trimmed, that would be found from an ID on.
    fn has_holes(self, from: Id) -> bool {
        let deleted = self.state().deleted_max;
        deleted != Id::MIN && from <= deleted && !self.is_empty() && self.first_entry_id() <= deleted
    }

    /// How many entries were added up to an ID, if that can be told.
    pub fn entries_up_to(self, id: Id) -> Option<u64> {
        let state = self.state();
        if state.added == 0 {
            return Some(0);
        }
        if id == state.last || id < state.last && self.is_empty() {
            return Some(state.added);
        }
        let first = self.first_entry_id();
        if id > first || id > state.last || state.deleted_max != Id::MIN && state.deleted_max >= first {
            return None;
        }
        Some(state.added.wrapping_sub(self.len()).wrapping_add(u64::from(id == first)))
    }
}

/// Entries of a stream; see [`Stream::range`].
#[derive(Clone)]
pub struct Range<'a> {
    arena: &'a Arena,
    tree: LeafTree,
    place: Option<(Path, Head<'a>, run::Entries<'a>)>,
    from: Id,
    to: Id,
    reverse: bool,
}

impl Range<'_> {
    fn enter(&mut self, path: Path) {
        let (head, entries) = open(self.arena, Run::at(self.arena, path.leaf));
        self.place = Some((path, head, entries));
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let (path, head, entries) = self.place.as_mut()?;
            let value = if self.reverse { entries.next_back() } else { entries.next() };
            let Some(value) = value else {
                let mut path = *path;
                let moved = if self.reverse {
                    self.tree.previous(self.arena, &mut path)
                } else {
                    self.tree.next(self.arena, &mut path)
                };
                if !moved {
                    self.place = None;
                    return None;
                }
                self.enter(path);
                continue;
            };
            let stored = head.entry(value.value);
            let id = stored.entry.id;
            let (before, behind) =
                if self.reverse { (id > self.to, id < self.from) } else { (id < self.from, id > self.to) };
            if behind {
                self.place = None;
                return None;
            }
            if !before && !stored.deleted {
                return Some(stored.entry);
            }
        }
    }
}

/// Frees leaves and groups until `budget` is spent or all are gone (true).
pub(super) fn release(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: &mut usize) -> bool {
    while *budget > 0 {
        let Some(leaf) = tree(obj).take_last(arena, tx) else { break };
        Run::at(arena, leaf).free(arena, tx);
        *budget -= 1;
    }
    if !group::release_all(arena, tx, obj, budget) || *budget == 0 {
        return false;
    }
    let state = arena.u64(obj + object::AUX2);
    if state != 0 {
        arena.free(tx, state, State::LEN);
        arena.write_u64(tx, obj + object::AUX2, 0);
    }
    true
}

/// Whether it takes long to free, as far as that can be seen at once.
pub(super) fn has_groups(arena: &Arena, obj: u64) -> bool {
    arena.u64(obj + object::AUX) != 0
}

/// Groups, and what they hold: consumers and pending entries.
pub(super) fn group_parts(arena: &Arena, obj: u64) -> u64 {
    let parts = |group: Group| 1 + group.consumers().len() as u64 + group.pending_len();
    Stream::new(arena, obj).groups().map(parts).sum()
}

/// Bytes allocated for the payload; see [`any::heap_bytes`](super::any::heap_bytes).
pub(super) fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    let leaves = tree(obj).heap_bytes(arena, |leaf| Arena::usable_size(Run::at(arena, leaf).size) as u64);
    let state = if is_new(arena, obj) { 0 } else { Arena::usable_size(State::LEN) as u64 };
    leaves + state + group::heap_bytes(arena, obj)
}

/// Checks the structure and returns the number of entries, or says what is wrong.
pub fn check(arena: &Arena, obj: u64) -> Result<u64, String> {
    let stream = Stream::new(arena, obj);
    let mut last = None;
    let sum = tree(obj).check(arena, |leaf, bound| {
        let run = Run::at(arena, leaf);
        run.check(arena)?;
        let (head, entries) = open(arena, run);
        if bound.is_some_and(|bound| bound > &head.id.to_bytes()[..]) {
            return Err(format!("leaf {leaf:#x} begins before its bound"));
        }
        let (mut live, mut deleted) = (0, 0);
        for value in entries {
            let stored = head.entry(value.value);
            let id = stored.entry.id;
            if last.is_some_and(|last| last >= id) || id == Id::MIN {
                return Err(format!("entry {id} of leaf {leaf:#x} is out of order"));
            }
            last = Some(id);
            stored.entry.fields().for_each(drop);
            *if stored.deleted { &mut deleted } else { &mut live } += 1;
        }
        if live == 0 || deleted != u64::from(head.deleted) {
            return Err(format!("leaf {leaf:#x} has {live} entries and {deleted} deleted ones"));
        }
        Ok(live)
    })?;
    if stream.len() != sum {
        return Err(format!("stream {obj:#x} counts {} entries, not {sum}", stream.len()));
    }
    if stream.last_entry_id() > stream.last_id() {
        return Err(format!("stream {obj:#x} has entries behind its last ID"));
    }
    group::check(stream)?;
    Ok(sum)
}
