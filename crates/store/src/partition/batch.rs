//! What one command, one MULTI or one script writes: redo records and items, all or nothing (I-2).

use crate::{
    format::{
        compress::Compression,
        digest::Digest,
        entry_word::{EntryWord, Type, size_class},
        item::{self, Item},
        payload::{self, Next},
    },
    partition::{Appended, observers::Notify},
};
use holdfast_heap::Tx;
use holdfast_log::{BATCH_HEADER, Log, Lsn, batch_len};
use std::sync::atomic::{Ordering::Release, fence};

/// Bytes of a buffer that are kept for the thread's next batch.
const KEPT_BYTES: usize = 1 << 20;

/// A batch that is being put together under its partitions' locks.
#[derive(Default)]
pub struct Batch {
    /// The payload: redo records, put there by the heap, and items.
    pub tx: Tx,
    /// The redo records alone, for the heap's home.
    redo: Tx,
    items: Vec<Pending>,
    /// Bytes that its items of strings and of frozen collections take, cancelled ones included.
    item_bytes: [u64; 2],
    /// The commands that it is of, as far as they were counted.
    pub(crate) calls: u64,
    /// Bytes of their keys and values.
    pub(crate) input: u64,
    /// Its items were in the log before.
    pub(crate) moves: bool,
    /// Items that an earlier batch wrote and that this one makes garbage: where in the log, and their live bytes.
    released: Vec<(Lsn, u64)>,
    /// Keys that were written.
    pub(crate) written: Vec<Written>,
    /// Whether all keys of a database were removed.
    pub(crate) flushed: bool,
}

/// A key that a batch wrote.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    pub partition: u16,
    pub db: u8,
    pub digest: Digest,
    /// Who is still to be told.
    pub notify: Notify,
}

/// An item of the batch; its index entry waits for the LSN.
pub(crate) struct Pending {
    /// Heap offset of the index entry.
    pub slot: u64,
    /// Position of the record in the payload.
    pub at: usize,
    /// Size class of the record.
    pub class: u8,
    /// The partition of the entry.
    pub partition: u16,
    /// False once a later command of the batch replaced it.
    pub wanted: bool,
    /// The value, if it is stored compressed.
    value: Option<Box<[u8]>>,
}

impl Pending {
    /// Where it is, once its batch is appended at an LSN.
    #[inline]
    pub fn lsn(&self, batch: Lsn) -> Lsn {
        batch + (BATCH_HEADER + self.at) as u64
    }
}

impl Batch {
    /// Adds an item whose index entry is at `slot` in a partition, and returns the word for this entry.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn add_item(
        &mut self,
        compression: &Compression,
        partition: u16,
        slot: u64,
        db: u8,
        ty: Type,
        key: &[u8],
        value: &[u8],
    ) -> EntryWord {
        let kind = if ty == Type::String { item::STRING } else { item::FROZEN };
        match compression.compress(value) {
            None => self.add_record(partition, ty, Item { kind, db, slot, key, stored: value }, None),
            Some(compressed) => {
                let item = Item { kind: item::compressed(kind), db, slot, key, stored: &compressed };
                self.add_record(partition, ty, item, Some(value.into()))
            }
        }
    }

    /// Adds an item as it was stored before, at another place.
    pub(crate) fn add_moved(
        &mut self,
        compression: &Compression,
        partition: u16,
        ty: Type,
        item: Item,
    ) -> EntryWord {
        if item.is_compressed() {
            // Nobody reads an item that was moved from the batch.
            return self.add_record(partition, ty, item, None);
        }
        self.add_item(compression, partition, item.slot, item.db, ty, item.key, item.stored)
    }

    fn add_record(&mut self, partition: u16, ty: Type, item: Item, value: Option<Box<[u8]>>) -> EntryWord {
        let Item { kind, db, slot, key, stored } = item;
        let before = self.tx.buf.len();
        let at = item::encode(&mut self.tx.buf, kind, db, slot, key, stored);
        self.item_bytes[usize::from(ty != Type::String)] += (self.tx.buf.len() - before) as u64;
        let class = size_class(item::record_len(key.len(), stored.len()));
        self.items.push(Pending { slot, at, class, partition, wanted: true, value });
        EntryWord::pending(ty, self.items.len() - 1)
    }

    /// The size class of a pending item, by the word of its entry.
    pub(crate) fn class(&self, word: EntryWord) -> u8 {
        self.items[word.pending_number().expect("an item of this batch")].class
    }

    /// The entry of a pending item has moved.
    pub(crate) fn retarget(&mut self, number: usize, slot: u64) {
        let pending = &mut self.items[number];
        pending.slot = slot;
        item::retarget(&mut self.tx.buf[pending.at..], slot);
    }

    /// Gives a pending item another value, if that is as long, and the item is a string of this key; whether it is.
    pub(crate) fn overwrite(&mut self, number: usize, key: &[u8], value: &[u8]) -> bool {
        item::overwrite(&mut self.tx.buf[self.items[number].at..], key, value)
    }

    /// The entry of a pending item is gone, or gets another value. Returns where the entry is: the heap offset of a location
    /// that no item is the redo of any more.
    pub(crate) fn cancel(&mut self, number: usize) -> u64 {
        let pending = &mut self.items[number];
        pending.wanted = false;
        item::cancel(&mut self.tx.buf[pending.at..]);
        pending.slot
    }

    /// The item at an LSN, of so many live bytes, is garbage once the batch is in the log.
    #[inline]
    pub(crate) fn release(&mut self, lsn: Lsn, bytes: u64) {
        self.released.push((lsn, bytes));
    }

    /// Takes what the batch has released out of the log's live bytes, as [`release`] does.
    pub(crate) fn settle_released(&self, log: &Log) {
        release(log, self.released.iter().copied());
    }

    /// The value of an item of the batch.
    pub(crate) fn value(&self, number: usize) -> &[u8] {
        match &self.items[number].value {
            Some(value) => value,
            None => self.item(number).stored,
        }
    }

    /// The key of an item of the batch.
    pub(crate) fn key(&self, number: usize) -> &[u8] {
        self.item(number).key
    }

    fn item(&self, number: usize) -> Item<'_> {
        item::decode(&self.tx.buf[self.items[number].at..]).expect("a record made by encode").0
    }

    /// Has the redo records by themselves too ([`Batch::redo`]), and takes them out of the payload unless it `keeps` them. That is not
    /// empty then: the batch is what the home's commit is known by.
    pub(crate) fn part(&mut self, keeps: bool) {
        let (mut at, payload) = (0, &self.tx.buf[..]);
        while at < payload.len() {
            at += match payload::next(&payload[at..]).expect("a payload of ours") {
                Next::Nothing(len) => len,
                Next::Item(_, len) => len,
                Next::Redo(_, record) => {
                    self.redo.buf.extend_from_slice(record);
                    record.len()
                }
            };
        }
        if keeps {
            return;
        }
        let mut items = Vec::new();
        self.item_bytes = [0; 2];
        for pending in self.items.iter_mut().filter(|pending| pending.wanted) {
            let before = items.len();
            let item = item::decode(&payload[pending.at..]).expect("a record made by encode").0;
            pending.at = item::encode(&mut items, item.kind, item.db, item.slot, item.key, item.stored);
            let is_string = item.plain_kind() == item::STRING;
            self.item_bytes[usize::from(!is_string)] += (items.len() - before) as u64;
        }
        self.tx.clear();
        self.tx.buf.extend_from_slice(&items);
        if items.is_empty() {
            self.tx.buf.push(payload::PADDING);
        }
    }

    /// The redo records, and the places of the items, now that the batch is at an LSN.
    pub(crate) fn redo(&mut self, lsn: Lsn) -> &[u8] {
        for pending in self.items.iter().filter(|pending| pending.wanted) {
            self.redo.write(pending.slot, &EntryWord::item_bytes(pending.lsn(lsn), pending.class));
        }
        &self.redo.buf
    }

    /// The items whose entries wait for their location.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Pending> + Clone {
        self.items.iter().filter(|item| item.wanted)
    }

    /// The positions in its payload of the items that it wants, once it is appended at an LSN, and for each its entry and what that is
    /// told of where the item is.
    pub(crate) fn located(&self, lsn: Lsn) -> impl Iterator<Item = (usize, u64, [u8; 6])> + Clone {
        self.pending().map(move |item| (item.at, item.slot, EntryWord::item_bytes(item.lsn(lsn), item.class)))
    }

    /// What its bytes are, once it is appended.
    #[inline]
    pub(crate) fn appended(&self) -> Appended {
        let payload = self.tx.buf.len();
        let [strings, frozen] = self.item_bytes;
        let (items, frozen, moved) = if self.moves { (0, 0, strings + frozen) } else { (strings, frozen, 0) };
        Appended {
            items,
            frozen,
            moved,
            redo: payload as u64 - items - frozen - moved,
            headers: if payload == 0 { 0 } else { batch_len(payload) - payload as u64 },
            input: self.input,
        }
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.tx.is_empty()
    }

    /// Makes it ready for the next command, after its commit.
    pub(crate) fn clear(&mut self) {
        self.tx.clear();
        self.tx.buf.shrink_to(KEPT_BYTES);
        self.redo.clear();
        self.redo.buf.shrink_to(KEPT_BYTES);
        forget(&mut self.items);
        forget(&mut self.released);
        forget(&mut self.written);
        self.flushed = false;
        self.item_bytes = [0; 2];
        (self.calls, self.input) = (0, 0);
        self.moves = false;
    }
}

/// Takes items, with the bytes that they count as, out of the log's live bytes (I-6). Not before the batch that releases
/// them is appended: until then a crash brings them back, so the cleaner must not find their segments empty.
#[inline]
pub(super) fn release(log: &Log, items: impl IntoIterator<Item = (Lsn, u64)>) {
    // Pairs with the fence in the cleaner: who sees the bytes gone sees the batch below the log's end.
    fence(Release);
    items.into_iter().for_each(|(lsn, bytes)| log.account(lsn, -(bytes as i64)));
}

/// Empties a list, of which little memory is kept.
fn forget<T>(list: &mut Vec<T>) {
    list.clear();
    list.shrink_to(KEPT_BYTES / size_of::<T>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::compress::Codec;

    #[test]
    fn a_pending_string_is_overwritten_by_one_of_its_length_only() {
        let (mut batch, none) = (Batch::default(), Compression::default());
        batch.add_item(&none, 0, 16, 3, Type::String, b"key", b"value");
        batch.add_item(&none, 0, 32, 3, Type::Set, b"set", b"value");
        batch.add_item(&none, 0, 48, 3, Type::String, b"next", b"value");
        let bytes = batch.tx.buf.len();
        assert!(batch.overwrite(0, b"key", b"other"));
        assert!(!batch.overwrite(0, b"key", b"longer") && !batch.overwrite(0, b"kex", b"third"));
        assert!(!batch.overwrite(1, b"set", b"other"));
        let values = [0, 1, 2].map(|number| batch.value(number));
        assert_eq!((values, batch.tx.buf.len()), ([&b"other"[..], b"value", b"value"], bytes));
    }

    #[test]
    fn a_value_is_read_back_from_the_batch_as_it_was_written() {
        let (mut batch, lz4) = (Batch::default(), Compression::new(Some(Codec::Lz4)));
        let text = b"text".repeat(100);
        batch.add_item(&lz4, 0, 16, 3, Type::String, b"key", &text);
        batch.add_item(&lz4, 0, 32, 3, Type::String, b"short", b"value");
        assert!(batch.tx.buf.len() < text.len());
        assert_eq!([batch.value(0), batch.value(1)], [&text[..], b"value"]);
        assert!(!batch.overwrite(0, b"key", &b"next".repeat(100)));
    }

    #[test]
    fn a_large_batch_leaves_little_memory_taken() {
        let (mut batch, none) = (Batch::default(), Compression::default());
        for n in 0..100_000u64 {
            batch.add_item(&none, 0, 16 * n, 0, Type::String, &n.to_le_bytes(), &[7; 1000]);
            let digest = Digest { h0: n, h1: n };
            batch.written.push(Written { partition: 0, db: 0, digest, notify: Notify::All });
        }
        batch.clear();
        assert!(batch.tx.buf.capacity() <= KEPT_BYTES);
        assert!(batch.items.capacity() * size_of::<Pending>() <= KEPT_BYTES);
        assert!(batch.written.capacity() * size_of::<Written>() <= KEPT_BYTES);
        assert!(batch.tx.buf.capacity() > 0, "a little is kept");
    }
}
