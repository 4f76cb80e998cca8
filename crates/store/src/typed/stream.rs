//! Streams.
//!
//! A stream stays when it loses its last entry: its IDs go on growing, and its groups know how far they have come. What
//! consumers do to a group is no change of the key for those who observe it.

pub use crate::collections::stream::{
    Claim, Draft, Entry, Fields, Group, Id, Pending, Refused, Stream, Trim, TrimTo,
};
use crate::{
    collections::{
        Context,
        object::Encoding,
        stream::{Claimed, Writer},
    },
    format::entry_word::Type,
    partition::observers::Notify,
    txn::{Txn, error::Result, room::FEW_ELEMENTS},
};
use holdfast_heap::{Arena, Full, Tx};

/// The ID that an entry is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// The time, or the ID after the last one if that is greater.
    Now,
    /// The first free one of a time.
    At(u64),
    /// This one.
    Exactly(Id),
}

impl NewId {
    /// The ID after `last` that this means; none if there is no such ID.
    fn after(self, last: Id, now_ms: u64) -> Option<Id> {
        match self {
            NewId::Now if now_ms > last.ms => Some(Id::new(now_ms, 0)),
            NewId::Now => last.next(),
            NewId::At(ms) if ms == last.ms => last.next().filter(|id| id.ms == ms),
            NewId::At(ms) => Some(Id::new(ms, 0)),
            NewId::Exactly(id) => Some(id),
        }
    }
}

/// What [`Txn::stream_add`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The ID of the new entry.
    pub id: Id,
    /// How many others were removed.
    pub trimmed: u64,
}

/// What was delivered to a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// How many entries.
    pub entries: u64,
    /// Whether the consumer was new.
    pub is_new: bool,
}

/// What [`Txn::stream_autoclaim`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutoClaimed {
    /// Where the next call goes on; [`Id::MIN`]: there is no more.
    pub next: Id,
    /// Pending entries that are gone from the stream, and so pending no more.
    pub gone: Vec<Id>,
    /// What was delivered to the consumer.
    pub delivered: Delivered,
}

impl Txn<'_> {
    /// The stream at a key.
    pub fn stream_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Stream<'_>>> {
        let obj = self.object(db, key, Type::Stream)?;
        Ok(obj.map(|located| Stream::new(self.parts(key, located).0, located.obj)))
    }

    /// Adds an entry, and then removes those that are too many. A stream that is missing is made only if `create` says so;
    /// else there is no result.
    pub fn stream_add<'f>(
        &mut self,
        db: u8,
        key: &[u8],
        id: NewId,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
        trim: Option<&Trim>,
        create: bool,
    ) -> Result<Option<std::result::Result<Added, Refused>>> {
        if let Some(trim) = trim {
            self.reserve_trim(db, key, trim)?;
        }
        let make = create.then_some(Encoding::Stream);
        self.change(db, key, Type::Stream, make, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            let last = writer.stream().last_id();
            let id = match id.after(last, context.now_ms) {
                Some(id) => id,
                None if last == Id::MAX => return Ok(Err(Refused::Exhausted)),
                None => return Ok(Err(Refused::NotGreater)),
            };
            let added = writer.add(id, fields)?;
            Ok(added.map(|()| Added { id, trimmed: trim.map_or(0, |trim| writer.trim(trim)) }))
        })
    }

    /// Deletes entries and returns how many of them were there.
    pub fn stream_delete(&mut self, db: u8, key: &[u8], ids: &[Id]) -> Result<u64> {
        let deleted = self.change(db, key, Type::Stream, None, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            Ok(ids.iter().filter(|&&id| writer.delete(id)).count() as u64)
        })?;
        Ok(deleted.unwrap_or(0))
    }

    /// Removes the entries that are too many and returns how many they were.
    pub fn stream_trim(&mut self, db: u8, key: &[u8], trim: &Trim) -> Result<u64> {
        self.reserve_trim(db, key, trim)?;
        let trimmed = self.change(db, key, Type::Stream, None, |arena, tx, context, obj| {
            Ok(Writer::new(arena, tx, obj, context).trim(trim))
        })?;
        Ok(trimmed.unwrap_or(0))
    }

    /// Has room for a trim.
    fn reserve_trim(&mut self, db: u8, key: &[u8], trim: &Trim) -> Result<()> {
        /// An entry that has a leaf of its own.
        const REDO_OF_ENTRY: usize = 128;
        let len = self.stream_at(db, key)?.map_or(0, Stream::len);
        let too_many = match trim.to {
            TrimTo::Len(max) => len.saturating_sub(max),
            TrimTo::Id(_) => len,
        };
        let limit = if trim.limit > 0 { trim.limit } else { u64::MAX };
        self.reserve_besides(too_many.min(limit) as usize * REDO_OF_ENTRY)
    }

    /// Has room for a change of up to `count` of those entries that `entries` counts of a group.
    fn reserve_group(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        count: u64,
        entries: impl FnOnce(Stream, Group) -> u64,
    ) -> Result<()> {
        if count <= FEW_ELEMENTS {
            return Ok(());
        }
        let stream = self.stream_at(db, key)?;
        let found = stream.and_then(|stream| Some((stream, stream.group(group)?)));
        let entries = found.map_or(0, |(stream, group)| entries(stream, group));
        self.reserve_elements(entries.min(count), 0)
    }

    /// Sets what a stream says of itself ([`Stream::last_id`] and so on); `None` leaves it as it is. False without the key.
    /// The last ID must not be less than that of an entry.
    pub fn stream_set_ids(
        &mut self,
        db: u8,
        key: &[u8],
        last: Id,
        added: Option<u64>,
        deleted_max: Option<Id>,
    ) -> Result<bool> {
        let set = self.quietly(db, key, None, |arena, tx, context, obj| {
            Writer::new(arena, tx, obj, context).set_ids(last, added, deleted_max)
        })?;
        Ok(set.is_some())
    }

    /// Makes a group that reads what comes after an ID (`None`: after all that is there); false if there is one of this
    /// name. A stream that is missing is made only if `create` says so; else there is no result.
    pub fn stream_add_group(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        after: Option<Id>,
        entries_read: Option<u64>,
        create: bool,
    ) -> Result<Option<bool>> {
        let make = create.then_some(Encoding::Stream);
        self.quietly(db, key, make, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            let after = after.unwrap_or_else(|| writer.stream().last_id());
            writer.add_group(group, after, entries_read)
        })
    }

    /// Says how far a group has come (`None`: through all that is there); false if there is none.
    pub fn stream_set_group(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        after: Option<Id>,
        entries_read: Option<u64>,
    ) -> Result<bool> {
        let set = self.quietly(db, key, None, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            let after = after.unwrap_or_else(|| writer.stream().last_id());
            Ok(writer.set_group(group, after, entries_read))
        })?;
        Ok(set.unwrap_or(false))
    }

    /// Removes a group; false if there is none. Those who wait in queues are told.
    pub fn stream_remove_group(&mut self, db: u8, key: &[u8], group: &[u8]) -> Result<bool> {
        self.reserve_group(db, key, group, u64::MAX, |_, group| group.pending_len())?;
        let removed = self.change_and_notify(
            Notify::Queued,
            db,
            key,
            Type::Stream,
            None,
            |arena, tx, context, obj| Ok(Writer::new(arena, tx, obj, context).remove_group(group)),
        )?;
        Ok(removed.unwrap_or(false))
    }

    /// Makes a consumer, unless there is one of this name (false). `None` without the group.
    pub fn stream_add_consumer(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        consumer: &[u8],
    ) -> Result<Option<bool>> {
        self.in_group(db, key, group, |writer, group| Ok(writer.consumer(group, consumer)?.1))
    }

    /// Removes a consumer with all that is pending for it, and returns how much that was; `None` if there is none.
    pub fn stream_remove_consumer(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        consumer: &[u8],
    ) -> Result<Option<u64>> {
        self.reserve_group(db, key, group, u64::MAX, |_, group| group.pending_len())?;
        let removed =
            self.in_group(db, key, group, |writer, group| Ok(writer.remove_consumer(group, consumer)))?;
        Ok(removed.flatten())
    }

    /// Delivers to a consumer up to `count` entries that the group has not read, and shows each to `each` before. They are
    /// pending then, unless `no_ack`. `None` without the group; without room for all, none is delivered.
    #[allow(clippy::too_many_arguments)]
    pub fn stream_read_new(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        consumer: &[u8],
        count: u64,
        no_ack: bool,
        mut each: impl FnMut(Entry),
    ) -> Result<Option<Delivered>> {
        self.reserve_group(db, key, group, count, |stream, group| {
            let most = usize::try_from(count).unwrap_or(usize::MAX);
            let from = group.last_id().next();
            from.map_or(0, |from| stream.range(from, Id::MAX, false).take(most).count() as u64)
        })?;
        self.in_group(db, key, group, |writer, group| {
            let stream = writer.stream();
            let from = Group::at(stream, group).last_id().next();
            let entries = from.into_iter().flat_map(|from| stream.range(from, Id::MAX, false));
            let mut ids = Vec::new();
            for entry in entries.take(usize::try_from(count).unwrap_or(usize::MAX)) {
                ids.push(entry.id);
                each(entry);
            }
            let (consumer, is_new) = writer.see(group, consumer, !ids.is_empty() && !no_ack)?;
            writer.deliver(group, consumer, &ids, no_ack)?;
            Ok(Delivered { entries: ids.len() as u64, is_new })
        })
    }

    /// Delivers to a consumer once more up to `count` entries, from an ID on, that are pending for it, and shows each to
    /// `each` before: its ID, and the entry unless it is gone. `None` without the group.
    #[allow(clippy::too_many_arguments)]
    pub fn stream_read_pending(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        consumer: &[u8],
        from: Id,
        count: u64,
        mut each: impl FnMut(Id, Option<Entry>),
    ) -> Result<Option<Delivered>> {
        self.reserve_group(db, key, group, count, |_, group| group.pending_len())?;
        self.in_group(db, key, group, |writer, group| {
            let (_, is_new) = writer.see(group, consumer, false)?;
            let stream = writer.stream();
            let pending =
                Group::at(stream, group).consumer(consumer).into_iter().flat_map(|own| own.pending(from));
            let (mut entries, mut there) = (0, Vec::new());
            for pending in pending.take(usize::try_from(count).unwrap_or(usize::MAX)) {
                let entry = stream.get(pending.id);
                entries += 1;
                if entry.is_some() {
                    there.push(pending.id);
                }
                each(pending.id, entry);
            }
            writer.deliver_again(group, &there);
            Ok(Delivered { entries, is_new })
        })
    }

    /// Acknowledges entries and returns how many of them were pending.
    pub fn stream_acknowledge(&mut self, db: u8, key: &[u8], group: &[u8], ids: &[Id]) -> Result<u64> {
        let acknowledged = self.in_group(db, key, group, |writer, group| {
            Ok(ids.iter().filter(|&&id| writer.acknowledge(group, id)).count() as u64)
        })?;
        Ok(acknowledged.unwrap_or(0))
    }

    /// Gives pending entries to a consumer and shows each of them to `each`. Those that are gone from the stream are
    /// pending no more. The group has then read at least up to `last`. `None` without the group; without room for all,
    /// those before are the consumer's.
    #[allow(clippy::too_many_arguments)]
    pub fn stream_claim(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        consumer: &[u8],
        claim: &Claim,
        last: Id,
        ids: &[Id],
        mut each: impl FnMut(Entry),
    ) -> Result<Option<Delivered>> {
        self.in_group(db, key, group, |writer, group| {
            let (owner, is_new) = writer.see(group, consumer, false)?;
            writer.advance(group, last);
            let mut entries = 0;
            for &id in ids {
                if writer.claim(group, owner, id, claim)? == Claimed::Yes {
                    each(writer.stream().get(id).expect("only what is there is claimed"));
                    entries += 1;
                }
            }
            if entries > 0 {
                writer.see(group, consumer, true)?;
            }
            Ok(Delivered { entries, is_new })
        })
    }

    /// Gives up to `count` pending entries, from an ID on, to a consumer, and shows each of them to `each`; those that are
    /// gone from the stream are pending no more, and count too. It looks at ten times as many at most. `None` without the
    /// group; without room for all, those before are the consumer's.
    #[allow(clippy::too_many_arguments)]
    pub fn stream_autoclaim(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        consumer: &[u8],
        claim: &Claim,
        from: Id,
        count: u64,
        mut each: impl FnMut(Entry),
    ) -> Result<Option<AutoClaimed>> {
        const LOOKS: u64 = 10;
        self.reserve_group(db, key, group, count, |_, group| group.pending_len())?;
        self.in_group(db, key, group, |writer, group| {
            let (owner, is_new) = writer.see(group, consumer, false)?;
            let mut done =
                AutoClaimed { delivered: Delivered { entries: 0, is_new }, ..AutoClaimed::default() };
            let mut next = Some(from);
            let mut looks = count.saturating_mul(LOOKS);
            loop {
                let pending = next.and_then(|next| Group::at(writer.stream(), group).pending(next).next());
                let Some(pending) = pending else { break };
                if looks == 0 || done.delivered.entries + done.gone.len() as u64 == count {
                    done.next = pending.id;
                    break;
                }
                looks -= 1;
                next = pending.id.next();
                match writer.claim(group, owner, pending.id, claim)? {
                    Claimed::Yes => {
                        each(writer.stream().get(pending.id).expect("only what is there is claimed"));
                        done.delivered.entries += 1;
                    }
                    Claimed::Gone => done.gone.push(pending.id),
                    Claimed::No => {}
                }
            }
            if done.delivered.entries > 0 {
                writer.see(group, consumer, true)?;
            }
            Ok(done)
        })
    }

    /// Changes a stream, of which nobody is told.
    fn quietly<R>(
        &mut self,
        db: u8,
        key: &[u8],
        make: Option<Encoding>,
        change: impl FnOnce(&mut Arena, &mut Tx, Context, u64) -> std::result::Result<R, Full>,
    ) -> Result<Option<R>> {
        self.change_and_notify(Notify::None, db, key, Type::Stream, make, change)
    }

    /// Changes a group, of which nobody is told. `None` without the group.
    fn in_group<R>(
        &mut self,
        db: u8,
        key: &[u8],
        group: &[u8],
        change: impl FnOnce(&mut Writer, u64) -> std::result::Result<R, Full>,
    ) -> Result<Option<R>> {
        let changed = self.quietly(db, key, None, |arena, tx, context, obj| {
            let mut writer = Writer::new(arena, tx, obj, context);
            match writer.group(group) {
                Some(group) => change(&mut writer, group).map(Some),
                None => Ok(None),
            }
        })?;
        Ok(changed.flatten())
    }
}
