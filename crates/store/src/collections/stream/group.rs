//! Groups, and their consumers.
//!
//! A group's block ([`named`]) has at offset 8 the last ID that was delivered (`ms u64, seq u64`), at 24 how many entries
//! were read (u64; all bits: unknown), at 32 what is pending, at 48 the root of the consumers. A consumer's block has at
//! offset 8 when it was seen last, at 16 when it was active last (Unix time in milliseconds; all bits: never), at 32 what
//! is pending.

use holdfast_heap::{Arena, Tx};

use super::{
    Id, Stream,
    named::{self, pending_count},
    pending::{self, Pending},
};
use crate::collections::object;

const LAST: u64 = 8;
const READ: u64 = 24;
const SEEN: u64 = 8;
const ACTIVE: u64 = 16;
const CONSUMERS: u64 = 48;
/// In the place of a number or a time: none.
const NONE: u64 = u64::MAX;

/// The root word of a stream's groups.
pub(super) fn root(obj: u64) -> u64 {
    obj + object::AUX
}

/// The root word of a group's consumers.
pub(super) fn consumers_root(group: u64) -> u64 {
    group + CONSUMERS
}

/// The words of a new group's block.
pub(super) fn words(last: Id, entries_read: Option<u64>) -> [u64; 3] {
    [last.ms, last.seq, entries_read.unwrap_or(NONE)]
}

/// The words of a new consumer's block.
pub(super) fn consumer_words(now_ms: u64) -> [u64; 3] {
    [now_ms, NONE, 0]
}

/// Says how far a group has come.
pub(super) fn set_position(arena: &mut Arena, tx: &mut Tx, group: u64, last: Id, entries_read: Option<u64>) {
    let words = words(last, entries_read).map(u64::to_le_bytes);
    arena.write_changed(tx, group + LAST, words.as_flattened());
}

/// Says that a consumer was seen, and perhaps that it was active.
pub(super) fn set_seen(arena: &mut Arena, tx: &mut Tx, consumer: u64, now_ms: u64, active: bool) {
    let words = [now_ms.to_le_bytes(), now_ms.to_le_bytes()];
    arena.write_changed(tx, consumer + SEEN, words[..1 + usize::from(active)].as_flattened());
}

/// Gives a consumer the times that it was seen and active last.
pub(super) fn set_times(arena: &mut Arena, tx: &mut Tx, consumer: u64, seen_ms: u64, active_ms: Option<u64>) {
    let words = [seen_ms.to_le_bytes(), active_ms.unwrap_or(NONE).to_le_bytes()];
    arena.write_changed(tx, consumer + SEEN, words.as_flattened());
}

pub(super) fn all(stream: Stream<'_>) -> impl ExactSizeIterator<Item = Group<'_>> {
    let Stream { arena, obj } = stream;
    let count = named::count(arena, root(obj)) as usize;
    let mut blocks = named::all(arena, root(obj));
    (0..count).map(move |_| Group { stream, at: blocks.next().expect("as many as counted") })
}

pub(super) fn find<'a>(stream: Stream<'a>, name: &[u8]) -> Option<Group<'a>> {
    named::find(stream.arena, root(stream.obj), name).map(|at| Group { stream, at })
}

/// A group of consumers.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    stream: Stream<'a>,
    pub(super) at: u64,
}

impl<'a> Group<'a> {
    pub(crate) fn at(stream: Stream<'a>, at: u64) -> Group<'a> {
        Group { stream, at }
    }

    /// Its name.
    pub fn name(self) -> &'a [u8] {
        named::name(self.stream.arena, self.at)
    }

    /// The ID of the entry that was delivered last.
    pub fn last_id(self) -> Id {
        let word = |at| self.stream.arena.u64(self.at + at);
        Id::new(word(LAST), word(LAST + 8))
    }

    /// How many entries of the stream, from its first one ever, were read up to [`Group::last_id`], if that is known.
    pub fn entries_read(self) -> Option<u64> {
        Some(self.stream.arena.u64(self.at + READ)).filter(|&read| read != NONE)
    }

    /// How many entries it has still to read, if that can be told.
    pub fn lag(self) -> Option<i64> {
        let stream = self.stream;
        let added = stream.entries_added();
        if added == 0 {
            return Some(0);
        }
        let read = match self.entries_read() {
            Some(read) if !stream.has_holes(self.last_id()) => Some(read),
            _ => stream.entries_up_to(self.last_id()),
        };
        read.map(|read| added.wrapping_sub(read) as i64)
    }

    /// How many entries are pending.
    pub fn pending_len(self) -> u64 {
        pending_count(self.stream.arena, self.at)
    }

    /// The pending entries from an ID on.
    pub fn pending(self, from: Id) -> impl Iterator<Item = Pending> + use<'a> {
        pending::all(self.stream.arena, self.at, from)
    }

    /// The pending entry with an ID.
    pub fn pending_at(self, id: Id) -> Option<Pending> {
        pending::get(self.stream.arena, self.at, id)
    }

    /// The last pending entry.
    pub fn last_pending(self) -> Option<Pending> {
        pending::last(self.stream.arena, self.at)
    }

    /// Whose a pending entry of this group is.
    pub fn owner(self, pending: &Pending) -> Consumer<'a> {
        Consumer { group: self, at: pending.consumer }
    }

    /// The consumers, in the order of their names.
    pub fn consumers(self) -> impl ExactSizeIterator<Item = Consumer<'a>> + use<'a> {
        let arena = self.stream.arena;
        let count = named::count(arena, consumers_root(self.at)) as usize;
        let mut blocks = named::all(arena, consumers_root(self.at));
        (0..count).map(move |_| Consumer { group: self, at: blocks.next().expect("as many as counted") })
    }

    /// The consumer with a name.
    pub fn consumer(self, name: &[u8]) -> Option<Consumer<'a>> {
        let at = named::find(self.stream.arena, consumers_root(self.at), name)?;
        Some(Consumer { group: self, at })
    }

    /// The counter of entries read after some more entries, in order, are delivered.
    pub(super) fn entries_read_after(self, ids: &[Id]) -> Option<u64> {
        let stream = self.stream;
        let no_holes = stream.max_deleted_id() == Id::MIN;
        ids.iter().fold(self.entries_read(), |read, &id| match read {
            Some(read) if no_holes || !stream.has_holes(id) => Some(read.wrapping_add(1)),
            _ if stream.entries_added() > 0 => stream.entries_up_to(id),
            read => read,
        })
    }
}

/// A consumer of a group.
#[derive(Clone, Copy)]
pub struct Consumer<'a> {
    group: Group<'a>,
    pub(super) at: u64,
}

impl<'a> Consumer<'a> {
    /// Its name.
    pub fn name(self) -> &'a [u8] {
        named::name(self.group.stream.arena, self.at)
    }

    /// When it asked for something last: Unix time in milliseconds.
    pub fn seen_ms(self) -> u64 {
        self.group.stream.arena.u64(self.at + SEEN)
    }

    /// When it got something last.
    pub fn active_ms(self) -> Option<u64> {
        Some(self.group.stream.arena.u64(self.at + ACTIVE)).filter(|&active| active != NONE)
    }

    /// How many entries are pending.
    pub fn pending_len(self) -> u64 {
        pending_count(self.group.stream.arena, self.at)
    }

    /// The pending entries from an ID on.
    pub fn pending(self, from: Id) -> impl Iterator<Item = Pending> + use<'a> {
        let group = self.group;
        let full = move |id| group.pending_at(id).expect("a consumer's pending entry is its group's");
        pending::ids(group.stream.arena, self.at, from).map(full)
    }
}

/// Frees what a group holds, and then the last group, until `budget` is spent or all are gone (true).
pub(super) fn release_all(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: &mut usize) -> bool {
    while let Some(group) = named::last(arena, root(obj)) {
        if *budget == 0 || !release(arena, tx, group, budget) {
            return false;
        }
        named::remove_last(arena, tx, root(obj));
        *budget = budget.saturating_sub(1);
    }
    true
}

/// Frees what a group holds, until `budget` is spent or all is gone (true).
pub(super) fn release(arena: &mut Arena, tx: &mut Tx, group: u64, budget: &mut usize) -> bool {
    if !pending::release_group(arena, tx, group, budget) {
        return false;
    }
    while let Some(consumer) = named::last(arena, consumers_root(group)) {
        if !pending::release_consumer(arena, tx, consumer, budget) || *budget == 0 {
            return false;
        }
        named::remove_last(arena, tx, consumers_root(group));
        *budget -= 1;
    }
    true
}

/// Bytes allocated for a stream's groups.
pub(super) fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    let consumer = |at| named::heap_bytes(arena, at) + pending::consumer_bytes(arena, at);
    let group = |at| {
        let consumers: u64 = named::all(arena, consumers_root(at)).map(consumer).sum();
        let set = named::set(consumers_root(at)).heap_bytes(arena);
        named::heap_bytes(arena, at) + pending::group_bytes(arena, at) + set + consumers
    };
    named::set(root(obj)).heap_bytes(arena) + named::all(arena, root(obj)).map(group).sum::<u64>()
}

/// Checks a stream's groups, or says what is wrong.
pub(super) fn check(stream: Stream<'_>) -> Result<(), String> {
    let arena = stream.arena;
    named::check(arena, root(stream.obj))?;
    for group in stream.groups() {
        let wrong = |what: String| format!("group {}: {what}", group.name().escape_ascii());
        named::check(arena, consumers_root(group.at)).map_err(wrong)?;
        let len = pending::check_group(arena, group.at).map_err(wrong)?;
        let mut owned = 0;
        for consumer in group.consumers() {
            let own = pending::check_consumer(arena, consumer.at).map_err(wrong)?;
            let ids = pending::ids(arena, consumer.at, Id::MIN);
            let known =
                ids.filter_map(|id| group.pending_at(id)).filter(|p| p.consumer == consumer.at).count();
            if own != consumer.pending_len() || own != known as u64 {
                let counted = consumer.pending_len();
                return Err(wrong(format!(
                    "a consumer has {own} pending entries, counts {counted}, and {known} are its own"
                )));
            }
            owned += own;
        }
        if len != group.pending_len() || len != owned {
            return Err(wrong(format!(
                "{len} pending entries, {} counted, {owned} of consumers",
                group.pending_len()
            )));
        }
    }
    Ok(())
}
