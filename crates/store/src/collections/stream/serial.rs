//! Streams as bytes; see [`crate::collections::serial`].
//!
//! Behind the number of entries, which may be 0:
//!
//! | field | bytes |
//! |---|---|
//! | entries: `ms, seq, number of fields, (name, value)…` | sizes and values |
//! | last ID (`ms, seq`), entries added, greatest ID deleted (`ms, seq`) | sizes |
//! | number of groups | size |
//! | groups: `name, last ID, entries read + 1 (0: unknown), number of consumers, consumers, number of pending, pending` | |
//! | … a consumer: `name, time seen, time active + 1 (0: never)` | value and sizes |
//! | … a pending entry: `ID, place of its consumer, time delivered, deliveries` | sizes |

use holdfast_heap::{Arena, Tx};

use super::{Consumer, Group, Id, Pending, State, Stream, Writer, group, pending};
use crate::collections::{
    Context,
    bytes::{self, ImportError, Reader, put_size, put_value},
    object,
};

fn put_id(out: &mut Vec<u8>, id: Id) {
    put_size(out, id.ms);
    put_size(out, id.seq);
}

fn id(reader: &mut Reader) -> Result<Id, ImportError> {
    Ok(Id::new(reader.size()?, reader.size()?))
}

/// A stream that comes from elsewhere, as [`Txn::stream_replace`](crate::Txn::stream_replace) takes it.
pub struct Draft(pub(crate) Vec<u8>);

impl Draft {
    /// A stream with its entries, in the order of their IDs, what is known of all that ever were (the last ID, how many
    /// were added, the greatest ID deleted), and so many groups, which are to be added.
    pub fn new<'f, F: ExactSizeIterator<Item = (&'f [u8], &'f [u8])>>(
        entries: impl ExactSizeIterator<Item = (Id, F)>,
        last: Id,
        added: u64,
        deleted_max: Id,
        groups: usize,
    ) -> Draft {
        let mut out = bytes::header(object::Type::Stream, entries.len() as u64);
        for (id, fields) in entries {
            put_id(&mut out, id);
            put_size(&mut out, fields.len() as u64);
            for (name, value) in fields {
                put_value(&mut out, name);
                put_value(&mut out, value);
            }
        }
        put_id(&mut out, last);
        put_size(&mut out, added);
        put_id(&mut out, deleted_max);
        put_size(&mut out, groups as u64);
        Draft(out)
    }

    /// Adds a group: its last ID, how many entries it has read, its consumers with the times when they were seen and
    /// active, and its pending entries in the order of their IDs, with the place of their consumer, the time and the number
    /// of deliveries.
    pub fn add_group<'n>(
        &mut self,
        name: &[u8],
        last: Id,
        read: Option<u64>,
        consumers: impl ExactSizeIterator<Item = (&'n [u8], u64, Option<u64>)>,
        pending: impl ExactSizeIterator<Item = (Id, usize, u64, u64)>,
    ) {
        let out = &mut self.0;
        put_value(out, name);
        put_id(out, last);
        put_size(out, read.map_or(0, |read| read.saturating_add(1)));
        put_size(out, consumers.len() as u64);
        for (name, seen_ms, active_ms) in consumers {
            put_value(out, name);
            put_size(out, seen_ms);
            put_size(out, active_ms.map_or(0, |active| active.saturating_add(1)));
        }
        put_size(out, pending.len() as u64);
        for (id, consumer, delivered_ms, deliveries) in pending {
            put_id(out, id);
            put_size(out, consumer as u64);
            put_size(out, delivered_ms);
            put_size(out, deliveries);
        }
    }
}

/// Appends what is in a stream to `out`.
pub(in crate::collections) fn export(arena: &Arena, obj: u64, out: &mut Vec<u8>) {
    let stream = Stream::new(arena, obj);
    for entry in stream.range(Id::MIN, Id::MAX, false) {
        put_id(out, entry.id);
        put_size(out, entry.fields().len() as u64);
        for (name, value) in entry.fields() {
            put_value(out, name);
            put_value(out, value);
        }
    }
    let State { last, added, deleted_max } = stream.state();
    put_id(out, last);
    put_size(out, added);
    put_id(out, deleted_max);
    put_size(out, stream.groups().len() as u64);
    stream.groups().for_each(|group| export_group(group, out));
}

fn export_group(group: Group, out: &mut Vec<u8>) {
    put_value(out, group.name());
    put_id(out, group.last_id());
    put_size(out, group.entries_read().map_or(0, |read| read + 1));
    let consumers: Vec<Consumer> = group.consumers().collect();
    put_size(out, consumers.len() as u64);
    for consumer in &consumers {
        put_value(out, consumer.name());
        put_size(out, consumer.seen_ms());
        put_size(out, consumer.active_ms().map_or(0, |active| active + 1));
    }
    let mut places: Vec<(u64, u64)> =
        consumers.iter().zip(0..).map(|(consumer, place)| (consumer.at, place)).collect();
    places.sort_unstable();
    put_size(out, group.pending_len());
    for pending in group.pending(Id::MIN) {
        let place =
            places.binary_search_by_key(&pending.consumer, |&(at, _)| at).expect("a group's consumer");
        put_id(out, pending.id);
        put_size(out, places[place].1);
        put_size(out, pending.delivered_ms);
        put_size(out, pending.deliveries);
    }
}

/// Fills a stream of `count` entries.
pub(in crate::collections) fn fill(
    arena: &mut Arena,
    tx: &mut Tx,
    cx: Context,
    obj: u64,
    count: u64,
    reader: &mut Reader,
) -> Result<(), ImportError> {
    let mut writer = Writer::new(arena, tx, obj, cx);
    let mut greatest = Id::MIN;
    for _ in 0..count {
        greatest = id(reader)?;
        let mut fields = Vec::new();
        for _ in 0..reader.size()? {
            fields.push((reader.value()?, reader.value()?));
        }
        if fields.is_empty() {
            return Err(ImportError::Malformed("an entry without fields"));
        }
        if writer.add(greatest, fields.into_iter())?.is_err() {
            return Err(ImportError::Malformed("an entry out of order"));
        }
    }
    let (last, added, deleted_max) = (id(reader)?, reader.size()?, id(reader)?);
    if last < greatest {
        return Err(ImportError::Malformed("a last ID before an entry"));
    }
    writer.set_ids(last, Some(added), Some(deleted_max))?;
    for _ in 0..reader.size()? {
        fill_group(arena, tx, cx, obj, reader)?;
    }
    Ok(())
}

fn fill_group(
    arena: &mut Arena,
    tx: &mut Tx,
    cx: Context,
    obj: u64,
    reader: &mut Reader,
) -> Result<(), ImportError> {
    const TWICE: ImportError = ImportError::Malformed("a name is there twice");
    let (name, last, read) = (reader.value()?, id(reader)?, reader.size()?);
    let mut writer = Writer::new(arena, tx, obj, cx);
    if !writer.add_group(name, last, read.checked_sub(1))? {
        return Err(TWICE);
    }
    let group = writer.group(name).expect("just made");
    let mut consumers = Vec::new();
    for _ in 0..reader.size()? {
        let (consumer, new) = Writer::new(arena, tx, obj, cx).consumer(group, reader.value()?)?;
        if !new {
            return Err(TWICE);
        }
        let (seen_ms, active) = (reader.size()?, reader.size()?);
        group::set_times(arena, tx, consumer, seen_ms, active.checked_sub(1));
        consumers.push(consumer);
    }
    let mut before = None;
    for _ in 0..reader.size()? {
        let (id, place) = (id(reader)?, reader.size()?);
        let (delivered_ms, deliveries) = (reader.size()?, reader.size()?);
        let consumer = usize::try_from(place).ok().and_then(|place| consumers.get(place));
        let &consumer = consumer.ok_or(ImportError::Malformed("a pending entry of no consumer"))?;
        if before.is_some_and(|before| before >= id) {
            return Err(ImportError::Malformed("a pending entry out of order"));
        }
        before = Some(id);
        pending::put(arena, tx, group, &Pending { id, delivered_ms, deliveries, consumer })?;
    }
    Ok(())
}
