//! Changes of a stream.

use holdfast_heap::{Arena, Full, Tx};

use super::{
    Group, Id, LeafTree, State, Stream, entry, group, named, open,
    pending::{self, Pending},
    tree,
};
use crate::collections::{
    Context, PACKED_BYTES_MAX,
    btree::{Counted, Path},
    object,
    run::{self, Edit, New, Room, Run},
};

/// Bytes that a leaf is given at once at most; with entries that need more it grows.
const LEAF_MAX: usize = 4096;

/// Why an entry cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The stream's last ID is the greatest that there is.
    Exhausted,
    /// The ID is not greater than the last one.
    NotGreater,
    /// It is too large.
    TooLarge,
}

/// Which entries are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// The first ones, beyond this number of entries.
    Len(u64),
    /// Those with lesser IDs.
    Id(Id),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Which entries are too many.
    pub to: TrimTo,
    /// Only whole leaves are removed, which is faster.
    pub whole_leaves: bool,
    /// How many entries are removed at most; 0: any number.
    pub limit: u64,
}

/// How pending entries are claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Only those that were delivered at least this long ago, in milliseconds.
    pub idle_min_ms: u64,
    /// When they count as delivered: Unix time in milliseconds. Not in the future.
    pub delivered_ms: u64,
    /// Gives the number of deliveries this value.
    pub deliveries: Option<u64>,
    /// Counts no delivery.
    pub keep_deliveries: bool,
    /// Makes entries of the stream pending that are not.
    pub force: bool,
}

/// Changes a stream. What fails with [`Full`] leaves it as it was.
pub struct Writer<'a> {
    arena: &'a mut Arena,
    tx: &'a mut Tx,
    obj: u64,
    tree: LeafTree,
    cx: Context<'a>,
}

impl<'a> Writer<'a> {
    /// Changes the stream at `obj` within `tx`.
    pub fn new(arena: &'a mut Arena, tx: &'a mut Tx, obj: u64, cx: Context<'a>) -> Self {
        Writer { arena, tx, obj, tree: tree(obj), cx }
    }

    /// The stream as it is now.
    pub fn stream(&self) -> Stream<'_> {
        Stream::new(self.arena, self.obj)
    }

    fn len(&self) -> u64 {
        object::count(self.arena, self.obj)
    }

    fn count(&mut self, delta: i64) {
        object::add_count(self.arena, self.tx, self.obj, delta);
    }

    fn leaf_count(&self, path: &Path) -> u64 {
        self.tree.count(self.arena, path).unwrap_or_else(|| self.len())
    }

    /// Makes sure that the state can be written.
    fn begin(&mut self) -> Result<(), Full> {
        if super::is_new(self.arena, self.obj) {
            let at = self.arena.alloc(self.tx, State::LEN)?;
            self.arena.write(self.tx, at, State::default().encode().as_flattened());
            self.arena.write_u64(self.tx, self.obj + object::AUX2, at);
        }
        Ok(())
    }

    fn set_state(&mut self, state: State) {
        let at = self.arena.u64(self.obj + object::AUX2);
        self.arena.write_changed(self.tx, at, state.encode().as_flattened());
    }

    /// Adds an entry behind all others.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room.
    pub fn add<'f>(
        &mut self,
        id: Id,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) -> Result<Result<(), Refused>, Full> {
        let mut state = State::read(self.arena, self.obj);
        if state.last == Id::MAX {
            return Ok(Err(Refused::Exhausted));
        }
        if id <= state.last {
            return Ok(Err(Refused::NotGreater));
        }
        let Some(new) = entry::NewEntry::new(id, fields) else { return Ok(Err(Refused::TooLarge)) };
        self.begin()?;
        if self.tree.is_empty(self.arena) {
            let leaf = self.make_leaf(&new, 0)?;
            self.tree.plant(self.arena, self.tx, leaf.at);
        } else {
            let path = self.tree.last(self.arena);
            self.add_to(&path, &new)?;
        }
        self.count(1);
        state.last = id;
        state.added = state.added.wrapping_add(1);
        self.set_state(state);
        Ok(Ok(()))
    }

    /// Makes a leaf of at least `size` bytes that begins with an entry.
    fn make_leaf<'f, F>(&mut self, new: &entry::NewEntry<F>, size: usize) -> Result<Run, Full>
    where
        F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let mut entries = new.head();
        entries.extend(new.encode_first());
        Run::create(self.arena, self.tx, size, Room::Behind, New::Entries(&entries))
    }

    fn add_to<'f, F>(&mut self, path: &Path, new: &entry::NewEntry<F>) -> Result<(), Full>
    where
        F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let limits = self.cx.limits;
        let bytes_max = match limits.stream_node_max_bytes {
            0 => PACKED_BYTES_MAX,
            bytes => bytes.min(PACKED_BYTES_MAX),
        };
        let entries_max = match limits.stream_node_max_entries {
            0 => u64::MAX,
            entries => entries as u64,
        };
        let run = Run::at(self.arena, path.leaf);
        let (head, _) = open(self.arena, run);
        let (used, count) = (run.used(), self.leaf_count(path));
        if used + new.bytes >= bytes_max || count + u64::from(head.deleted) >= entries_max {
            // What comes is like what was before.
            let leaf = self.make_leaf(new, run.size.min(LEAF_MAX))?;
            let (left, right) = (Counted { leaf: path.leaf, count }, Counted { leaf: leaf.at, count: 1 });
            if let Err(full) = self.tree.split(self.arena, self.tx, path, left, &new.id.to_bytes(), right) {
                leaf.free(self.arena, self.tx);
                return Err(full);
            }
            return Ok(());
        }
        let entry = new.encode(&head);
        let edit = Edit { at: used, remove: 0, insert: New::Entries(&entry) };
        if run.room().1 >= entry.len() {
            run.splice(self.arena, self.tx, edit).expect("a run with the room that it has");
        } else {
            let size = run::HEADER + used + entry.len();
            let leaf = run.rebuild(self.arena, self.tx, edit, size + size / 2, Room::Behind)?;
            self.tree.replace(self.arena, self.tx, path, leaf.at);
        }
        self.tree.add(self.arena, self.tx, path, 1);
        Ok(())
    }

    /// Deletes an entry; false if there is none with this ID.
    pub fn delete(&mut self, id: Id) -> bool {
        if self.tree.is_empty(self.arena) {
            return false;
        }
        let path = self.tree.by_key(self.arena, |key| key <= &id.to_bytes()[..]);
        let (head, mut entries) = open(self.arena, Run::at(self.arena, path.leaf));
        let found = entries.find_map(|value| {
            let stored = head.entry(value.value);
            (stored.entry.id == id && !stored.deleted)
                .then(|| (value.value_at(), entry::deleted_flags(value.value)))
        });
        let Some(flags) = found else { return false };
        self.delete_from(&path, &[flags]);
        let mut state = State::read(self.arena, self.obj);
        state.deleted_max = state.deleted_max.max(id);
        self.set_state(state);
        true
    }

    /// Deletes entries of the path's leaf, by where their flags are and what these become.
    fn delete_from(&mut self, path: &Path, flags: &[(usize, [u8; 1])]) {
        let count = flags.len() as u64;
        if self.leaf_count(path) == count {
            return self.remove_leaf(path);
        }
        let run = Run::at(self.arena, path.leaf);
        for (at, flags) in flags {
            run.overwrite(self.arena, self.tx, *at, flags);
        }
        let at = run.entries(self.arena).next().expect("a leaf begins with its head").value_at();
        let deleted = open(self.arena, run).0.deleted + count as u32;
        run.overwrite(self.arena, self.tx, at, &entry::deleted_count(deleted));
        self.tree.add(self.arena, self.tx, path, -(count as i64));
        self.count(-(count as i64));
    }

    fn remove_leaf(&mut self, path: &Path) {
        let count = self.leaf_count(path);
        self.tree.remove(self.arena, self.tx, path);
        Run::at(self.arena, path.leaf).free(self.arena, self.tx);
        self.count(-(count as i64));
    }

    /// Removes the first entries as far as they are too many, and returns how many they were.
    pub fn trim(&mut self, trim: &Trim) -> u64 {
        let mut removed = 0;
        while !self.tree.is_empty(self.arena) {
            let len = self.len();
            if matches!(trim.to, TrimTo::Len(max) if len <= max) {
                break;
            }
            let path = self.tree.first(self.arena);
            let count = self.leaf_count(&path);
            if trim.limit > 0 && removed + count > trim.limit {
                break;
            }
            let (head, mut entries) = open(self.arena, Run::at(self.arena, path.leaf));
            let whole = match trim.to {
                TrimTo::Len(max) => len - count >= max,
                TrimTo::Id(id) => {
                    let last = entries.next_back().expect("a leaf has entries");
                    head.entry(last.value).entry.id < id
                }
            };
            if whole {
                self.remove_leaf(&path);
                removed += count;
                continue;
            }
            if !trim.whole_leaves {
                let too_many = self.first_in(&path, trim.to);
                removed += too_many.len() as u64;
                if !too_many.is_empty() {
                    self.delete_from(&path, &too_many);
                }
            }
            break;
        }
        removed
    }

    /// The entries that are too many in the path's leaf, the first one: where their flags are, and what they become.
    fn first_in(&self, path: &Path, to: TrimTo) -> Vec<(usize, [u8; 1])> {
        let (head, entries) = open(self.arena, Run::at(self.arena, path.leaf));
        let live =
            entries.map(|value| (value, head.entry(value.value))).filter(|(_, stored)| !stored.deleted);
        let too_many = live.take_while(|(_, stored)| !matches!(to, TrimTo::Id(id) if stored.entry.id >= id));
        let limit = match to {
            TrimTo::Len(max) => self.len() - max,
            TrimTo::Id(_) => u64::MAX,
        };
        let flags = |(value, _): (run::Entry, _)| (value.value_at(), entry::deleted_flags(value.value));
        too_many.take(usize::try_from(limit).unwrap_or(usize::MAX)).map(flags).collect()
    }

    /// Sets what the stream says of itself; `None` leaves it as it is.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room.
    pub fn set_ids(&mut self, last: Id, added: Option<u64>, deleted_max: Option<Id>) -> Result<(), Full> {
        self.begin()?;
        let old = State::read(self.arena, self.obj);
        let added = added.unwrap_or(old.added);
        self.set_state(State { last, added, deleted_max: deleted_max.unwrap_or(old.deleted_max) });
        Ok(())
    }

    /// The group with a name, by its block.
    pub(crate) fn group(&self, name: &[u8]) -> Option<u64> {
        named::find(self.arena, group::root(self.obj), name)
    }

    /// Makes a group that will read what comes after an ID; false if there is one of this name.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room.
    pub fn add_group(&mut self, name: &[u8], last: Id, entries_read: Option<u64>) -> Result<bool, Full> {
        self.begin()?;
        if self.group(name).is_some() {
            return Ok(false);
        }
        let words = group::words(last, entries_read);
        named::insert(self.arena, self.tx, group::root(self.obj), name, words)?;
        Ok(true)
    }

    /// Removes a group with all that is pending; false if there is none of this name.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.group(name) else { return false };
        let mut without_end = usize::MAX;
        let released = group::release(self.arena, self.tx, group, &mut without_end);
        assert!(released, "a budget without end was spent");
        named::remove(self.arena, self.tx, group::root(self.obj), name);
        true
    }

    /// Says how far a group has come; false if there is none of this name.
    pub fn set_group(&mut self, name: &[u8], last: Id, entries_read: Option<u64>) -> bool {
        let Some(group) = self.group(name) else { return false };
        group::set_position(self.arena, self.tx, group, last, entries_read);
        true
    }

    /// Says that a group has read at least up to an ID.
    pub(crate) fn advance(&mut self, group: u64, last: Id) {
        let now = Group::at(self.stream(), group);
        if last > now.last_id() {
            let read = now.entries_read();
            group::set_position(self.arena, self.tx, group, last, read);
        }
    }

    /// The consumer of a group, which is made if it is missing, and whether it was.
    pub(crate) fn consumer(&mut self, group: u64, name: &[u8]) -> Result<(u64, bool), Full> {
        let root = group::consumers_root(group);
        if let Some(consumer) = named::find(self.arena, root, name) {
            return Ok((consumer, false));
        }
        let words = group::consumer_words(self.cx.now_ms);
        Ok((named::insert(self.arena, self.tx, root, name, words)?, true))
    }

    /// Removes a consumer with all that is pending for it, and returns how much that was; `None` if there is none.
    pub(crate) fn remove_consumer(&mut self, group: u64, name: &[u8]) -> Option<u64> {
        let root = group::consumers_root(group);
        let consumer = named::find(self.arena, root, name)?;
        let ids: Vec<Id> = pending::ids(self.arena, consumer, Id::MIN).collect();
        for &id in &ids {
            pending::remove(self.arena, self.tx, group, id);
        }
        named::remove(self.arena, self.tx, root, name);
        Some(ids.len() as u64)
    }

    /// Notes that a consumer asked for something, and perhaps got it. It is made if it is missing; whether it was.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room.
    pub(crate) fn see(&mut self, group: u64, name: &[u8], active: bool) -> Result<(u64, bool), Full> {
        let (consumer, made) = self.consumer(group, name)?;
        group::set_seen(self.arena, self.tx, consumer, self.cx.now_ms, active);
        Ok((consumer, made))
    }

    /// Delivers entries to a consumer: the group has read up to the last of them, and unless `no_ack`, they are pending.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room: none is delivered.
    pub(crate) fn deliver(
        &mut self,
        group: u64,
        consumer: u64,
        ids: &[Id],
        no_ack: bool,
    ) -> Result<(), Full> {
        let Some(&last) = ids.last() else { return Ok(()) };
        let read = Group::at(self.stream(), group).entries_read_after(ids);
        if !no_ack {
            let mut before = Vec::with_capacity(ids.len());
            for &id in ids {
                before.push(pending::get(self.arena, group, id));
                let new = Pending { id, delivered_ms: self.cx.now_ms, deliveries: 1, consumer };
                if let Err(full) = pending::put(self.arena, self.tx, group, &new) {
                    before.pop();
                    self.undo(group, ids, &before);
                    return Err(full);
                }
            }
        }
        group::set_position(self.arena, self.tx, group, last, read);
        Ok(())
    }

    /// Makes entries pending as they were before.
    fn undo(&mut self, group: u64, ids: &[Id], before: &[Option<Pending>]) {
        for (&id, before) in ids.iter().zip(before) {
            pending::remove(self.arena, self.tx, group, id);
            if let Some(before) = before {
                // What it takes was free a moment ago; without it the entry is delivered once more, later.
                let _ = pending::put(self.arena, self.tx, group, before);
            }
        }
    }

    /// Counts one more delivery, now, of entries that are pending already.
    pub(crate) fn deliver_again(&mut self, group: u64, ids: &[Id]) {
        for &id in ids {
            let old = pending::get(self.arena, group, id).expect("a pending entry");
            let new = Pending { delivered_ms: self.cx.now_ms, deliveries: old.deliveries + 1, ..old };
            pending::put(self.arena, self.tx, group, &new).expect("a change in place takes no room");
        }
    }

    /// Acknowledges an entry; false if it is not pending.
    pub(crate) fn acknowledge(&mut self, group: u64, id: Id) -> bool {
        pending::remove(self.arena, self.tx, group, id)
    }

    /// Gives a pending entry to a consumer, if the entry is still there; a pending one that is not is pending no more.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room: it is whose it was.
    pub(crate) fn claim(
        &mut self,
        group: u64,
        consumer: u64,
        id: Id,
        claim: &Claim,
    ) -> Result<Claimed, Full> {
        let old = pending::get(self.arena, group, id);
        if self.stream().get(id).is_none() {
            let removed = old.is_some() && pending::remove(self.arena, self.tx, group, id);
            return Ok(if removed { Claimed::Gone } else { Claimed::No });
        }
        let deliveries = match old {
            Some(old) if self.cx.now_ms.saturating_sub(old.delivered_ms) < claim.idle_min_ms => {
                return Ok(Claimed::No);
            }
            Some(old) => old.deliveries,
            None if claim.force => 1,
            None => return Ok(Claimed::No),
        };
        let counted = deliveries.saturating_add(u64::from(!claim.keep_deliveries));
        let deliveries = claim.deliveries.unwrap_or(counted);
        let new = Pending { id, delivered_ms: claim.delivered_ms, deliveries, consumer };
        pending::put(self.arena, self.tx, group, &new)?;
        Ok(Claimed::Yes)
    }
}

/// What became of an entry that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It is the consumer's.
    Yes,
    /// It was not pending, or not long enough.
    No,
    /// It was pending, but the entry is gone.
    Gone,
}
