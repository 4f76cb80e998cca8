//! Streams, from the store's form to the serialized one and back.

use holdfast_rdb::{
    Strings,
    stream::{self as rdb, Entry, Pending},
};
use holdfast_store::stream::{Draft, Group, Id, Stream};
use std::{collections::HashMap, sync::Arc};

fn pair(id: Id) -> rdb::Id {
    (id.ms, id.seq)
}

fn id((ms, seq): rdb::Id) -> Id {
    Id::new(ms, seq)
}

/// What is in a stream.
pub fn export(stream: Stream) -> rdb::Stream {
    let mut names = Arc::new(Strings::default());
    let entries = stream.range(Id::MIN, Id::MAX, false).map(|entry| {
        let own = || entry.fields().map(|(name, _)| name);
        if !names.iter().eq(own()) {
            names = Arc::new(own().collect());
        }
        let values = entry.fields().map(|(_, value)| value).collect();
        Entry { id: pair(entry.id), names: names.clone(), values }
    });
    rdb::Stream {
        entries: entries.collect(),
        last: pair(stream.last_id()),
        added: stream.entries_added(),
        deleted_max: pair(stream.max_deleted_id()),
        groups: stream.groups().map(export_group).collect(),
    }
}

fn export_group(group: Group) -> rdb::Group {
    let consumers = group.consumers().map(|consumer| rdb::Consumer {
        name: consumer.name().to_vec(),
        seen_ms: consumer.seen_ms(),
        active_ms: consumer.active_ms(),
    });
    let consumers: Vec<rdb::Consumer> = consumers.collect();
    let places: HashMap<&[u8], usize> =
        consumers.iter().enumerate().map(|(place, consumer)| (&consumer.name[..], place)).collect();
    let pending = group.pending(Id::MIN).map(|pending| Pending {
        id: pair(pending.id),
        consumer: places[group.owner(&pending).name()],
        delivered_ms: pending.delivered_ms,
        deliveries: pending.deliveries,
    });
    let pending = pending.collect();
    drop(places);
    let (name, last) = (group.name().to_vec(), pair(group.last_id()));
    rdb::Group { name, last, read: group.entries_read(), consumers, pending }
}

/// A stream for the store.
pub fn draft(stream: &rdb::Stream) -> Draft {
    let entries = stream.entries.iter().map(|entry| (id(entry.id), entry.fields()));
    let groups = stream.groups.len();
    let mut draft = Draft::new(entries, id(stream.last), stream.added, id(stream.deleted_max), groups);
    for group in &stream.groups {
        draft.add_group(
            &group.name,
            id(group.last),
            group.read,
            group.consumers.iter().map(|one| (one.name.as_slice(), one.seen_ms, one.active_ms)),
            group.pending.iter().map(|one| (id(one.id), one.consumer, one.delivered_ms, one.deliveries)),
        );
    }
    draft
}
