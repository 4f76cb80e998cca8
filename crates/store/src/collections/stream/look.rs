//! Looks for what commands will use of a stream.

use std::ops;

use super::{Group, Id, State, Stream, group, is_new, named, open, pending, tree};
use crate::collections::{
    absent::{Absent, Finder},
    object,
    run::{self, Run},
};

/// Looks for so many entries from one ID to another, both included; from the last one on if `reverse`.
pub fn look(finder: &Finder, obj: u64, from: Id, to: Id, reverse: bool, count: u64) -> Result<(), Absent> {
    if is_new(finder.arena, obj) {
        return Ok(());
    }
    finder.look()(finder.arena.u64(obj + object::AUX2), State::LEN)?;
    let tree = tree(obj);
    if from > to || tree.is_empty(finder.arena) {
        return Ok(());
    }
    let [first, last] = [from, to].map(|id| {
        let id = id.to_bytes();
        tree.try_by_key(finder.arena, finder.look(), |key| key <= &id[..])
    });
    let (first, last) = (first?, last?);
    // Of the leaf that the range begins with, entries may lie before it: how many is known when the leaf is in memory.
    let leaf = if reverse { last.leaf } else { first.leaf };
    let outside = match run::look(finder, leaf) {
        Ok(()) => {
            let (head, entries) = open(finder.arena, Run::at(finder.arena, leaf));
            let entries = entries.map(|entry| head.entry(entry.value)).filter(|entry| !entry.deleted);
            let ids = entries.map(|entry| entry.entry.id);
            ids.filter(|id| if reverse { *id > to } else { *id < from }).count() as u64
        }
        Err(Absent) => 0,
    };
    let in_last = tree.count(finder.arena, &last).unwrap_or(object::count(finder.arena, obj));
    let begin = tree.before(finder.arena, &first);
    let end = tree.before(finder.arena, &last) + in_last;
    look_at_entries(
        finder,
        obj,
        if reverse {
            begin.max((end - outside).saturating_sub(count))..end - outside
        } else {
            begin + outside..end.min((begin + outside).saturating_add(count))
        },
    );
    Ok(())
}

/// Looks for the entries at these positions.
pub fn look_at_entries(finder: &Finder, obj: u64, positions: ops::Range<u64>) {
    tree(obj).try_each_leaf(finder.arena, positions, finder.look(), |leaf, _| {
        finder.go_on(run::look(finder, leaf));
    });
}

/// Looks for what there is of a stream besides its entries: its state and its groups.
pub fn look_at_groups(finder: &Finder, obj: u64) -> Result<(), Absent> {
    let state = finder.arena.u64(obj + object::AUX2);
    if state != 0 {
        finder.look()(state, State::LEN)?;
    }
    named::look_at_all(finder, group::root(obj), |block| {
        pending::look_at_all(finder, block);
        named::look_at_all(finder, group::consumers_root(block), |_| ());
    });
    Ok(())
}

/// Looks for what it takes to free so many parts of a stream, in the order in which they are freed.
pub fn look_to_release(finder: &Finder, obj: u64, budget: &mut usize) -> Result<(), Absent> {
    run::look_to_release(finder, tree(obj), budget)?;
    let state = finder.arena.u64(obj + object::AUX2);
    if state != 0 {
        finder.go_on(finder.look()(state, State::LEN));
    }
    named::look_to_release(finder, group::root(obj), budget, |group, budget| {
        finder.go_on(pending::look_to_release_group(finder, group, budget));
        let consumers = group::consumers_root(group);
        finder.go_on(named::look_to_release(finder, consumers, budget, |consumer, budget| {
            finder.go_on(pending::look_to_release_consumer(finder, consumer, budget));
        }));
    })
}

/// Looks for what a group has not delivered yet, so many entries at most, and for where they will be pending for a consumer.
pub fn look_at_unread(
    finder: &Finder,
    obj: u64,
    group: &[u8],
    consumer: &[u8],
    count: u64,
) -> Result<(), Absent> {
    let Some(group) = named::look(finder, group::root(obj), group)? else { return Ok(()) };
    let last = Group::at(Stream::new(finder.arena, obj), group).last_id();
    finder.go_on(pending::look_in_group(finder, group, (last, last), 1, |_| ()));
    finder.go_on(look_at_owned(finder, group, consumer, (last, last), 1, |_| ()));
    match last.next() {
        Some(from) => look(finder, obj, from, Id::MAX, false, count),
        None => Ok(()),
    }
}

/// Looks for what is pending in a group from one ID to another, or of it what is a consumer's, so much at most; for the entries
/// themselves, too, if they are wanted.
pub fn look_at_pending(
    finder: &Finder,
    obj: u64,
    (group, owner): (&[u8], Option<&[u8]>),
    (from, to): (Id, Id),
    count: u64,
    wants_entries: bool,
) -> Result<(), Absent> {
    let Some(group) = named::look(finder, group::root(obj), group)? else { return Ok(()) };
    let look_at_entry = |id| {
        if wants_entries {
            finder.go_on(look(finder, obj, id, id, false, 1));
        }
    };
    match owner {
        None => pending::look_in_group(finder, group, (from, to), count, |pending| {
            let consumer = pending.consumer;
            let found = named::look_at(finder, consumer);
            let id = pending.id;
            finder
                .go_on(found.and_then(|()| pending::look_in_consumer(finder, consumer, (id, id), 1, |_| ())));
            look_at_entry(id);
        }),
        Some(owner) => look_at_owned(finder, group, owner, (from, to), count, |id| {
            finder.go_on(pending::look_in_group(finder, group, (id, id), 1, |_| ()));
            look_at_entry(id);
        }),
    }
}

fn look_at_owned(
    finder: &Finder,
    group: u64,
    owner: &[u8],
    ids: (Id, Id),
    count: u64,
    each: impl FnMut(Id),
) -> Result<(), Absent> {
    match named::look(finder, group::consumers_root(group), owner)? {
        Some(consumer) => pending::look_in_consumer(finder, consumer, ids, count, each),
        None => Ok(()),
    }
}
