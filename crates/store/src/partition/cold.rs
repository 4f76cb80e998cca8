//! What is on the medium only, and what was read of it: items of the log, and pages of the heap.

use super::shared::Shared;
use crate::format::{
    digest::Digest,
    entry_word::{EntryWord, Type, class_bytes},
    item::{self, Item},
};
use holdfast_heap::{AbsentPage, PAGE};
use holdfast_io::{Error, ReadQueue, Result};
use holdfast_log::Lsn;
use std::ops::Range;

/// What a transaction needs that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cold {
    /// An item that is not in the cache.
    Item(ColdItem),
    /// A page of the heap.
    Page(AbsentPage),
}

impl From<ColdItem> for Cold {
    fn from(item: ColdItem) -> Cold {
        Cold::Item(item)
    }
}

impl Cold {
    pub(crate) fn item(shared: &Shared, word: EntryWord) -> Cold {
        Cold::Item(ColdItem::new(shared, word))
    }

    /// A number of its own among all that are cold at a time.
    pub fn id(&self) -> u64 {
        const PAGE: u64 = 1 << 63;
        match self {
            Cold::Item(item) => item.lsn << 1 | u64::from(item.key_of.is_some()),
            Cold::Page(page) => PAGE | u64::from(page.number()),
        }
    }

    /// Bytes that it takes at most.
    pub fn len_max(&self) -> usize {
        match self {
            Cold::Item(item) => item.len_max,
            Cold::Page(_) => PAGE,
        }
    }
}

/// An item that is not in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdItem {
    pub(crate) lsn: Lsn,
    len_max: usize,
    ty: Type,
    /// Only the key is wanted; this much is known of its digest.
    pub(crate) key_of: Option<Digest>,
}

impl ColdItem {
    pub(crate) fn new(shared: &Shared, word: EntryWord) -> ColdItem {
        let len_max = class_bytes(word.class()) as usize;
        ColdItem { lsn: word.lsn(shared.log.tail()), len_max, ty: word.ty(), key_of: None }
    }

    /// The key of an item, of which the index has the digest.
    pub(crate) fn key(shared: &Shared, word: EntryWord, digest: Digest) -> ColdItem {
        ColdItem { key_of: Some(digest), ..ColdItem::new(shared, word) }
    }

    /// The type of the value.
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// How many bytes of the record are read at first.
    fn first_len(&self) -> usize {
        /// Bytes that hold nearly all keys.
        const KEY_LEN: usize = 4096;
        if self.key_of.is_some() { self.len_max.min(KEY_LEN) } else { self.len_max }
    }
}

/// What the first bytes of an item's record tell.
pub(crate) enum Checked {
    /// Where in them that is which is wanted.
    Wanted(Range<usize>),
    /// The record, with its value expanded.
    Expanded(Vec<u8>),
    /// How many it takes to see that.
    Longer(usize),
}

/// What was read from the medium for a transaction. If it fails its check, and is still wanted when the transaction runs
/// again, the medium is at fault; if not, the cleaner has moved the item in the meantime, or somebody else has loaded the page.
#[derive(Debug, Clone)]
pub struct Fetched {
    pub(crate) cold: Cold,
    /// The item's record, expanded, or only its key if only that was wanted; of a page, which is in its place, nothing; or what is
    /// wrong with it.
    pub(crate) bytes: std::result::Result<Vec<u8>, String>,
}

impl Fetched {
    /// The item's LSN; that of a page is beyond all.
    pub(crate) fn lsn(&self) -> Lsn {
        match self.cold {
            Cold::Item(item) => item.lsn,
            Cold::Page(_) => Lsn::MAX,
        }
    }

    /// The number of what this is, or should be: see [`Cold::id`].
    pub fn id(&self) -> u64 {
        self.cold.id()
    }

    /// Whether it is a page of the heap, which is in its place if it could be read.
    pub fn is_page(&self) -> bool {
        matches!(self.cold, Cold::Page(_))
    }

    /// Whether this is what was wanted.
    pub fn is(&self, cold: &Cold) -> bool {
        self.cold == *cold
    }

    /// The item's key, or what is wrong with the item.
    pub fn key(&self) -> std::result::Result<&[u8], &str> {
        match &self.bytes {
            Ok(key) if matches!(self.cold, Cold::Item(item) if item.key_of.is_some()) => Ok(key),
            _ => self.item().map(|item| item.key),
        }
    }

    /// The item, or what is wrong with it. All of it must have been wanted.
    pub(crate) fn item(&self) -> std::result::Result<Item<'_>, &str> {
        let record = self.bytes.as_ref().map_err(String::as_str)?;
        Ok(item::decode(record).expect("checked when it was fetched").0)
    }
}

impl Shared {
    /// Reads what is wanted of an item and checks it.
    pub fn read_item(&self, cold: ColdItem) -> Result<Vec<u8>> {
        let mut len = cold.first_len();
        for _ in 0..2 {
            let mut bytes = self.read_record(cold, len)?;
            match self.check_item(cold, &bytes)? {
                Checked::Wanted(range) => {
                    bytes.truncate(range.end);
                    bytes.drain(..range.start);
                    return Ok(bytes);
                }
                Checked::Expanded(record) => return Ok(record),
                Checked::Longer(needed) => len = needed,
            }
        }
        Err(self.corrupt(cold, "an item's key cut short"))
    }

    fn corrupt(&self, cold: ColdItem, what: &str) -> Error {
        let (file, offset) = self.log.locate(cold.lsn);
        Error::corrupt(&file, offset, what)
    }

    /// Asks a queue for what is wanted of an item; false if that takes more than one read, or waiting.
    pub fn begin_read_item(&self, cold: ColdItem, queue: &mut ReadQueue, tag: u64) -> bool {
        // One that the cleaner has just moved is not written yet. Batches are written whole.
        let written = self.log.written().saturating_sub(cold.lsn) as usize;
        written > 0 && self.log.begin_read(cold.lsn, cold.first_len().min(written), queue, tag)
    }

    /// Looks for what is wanted among the first bytes of an item's record, with some of what lies behind it.
    pub fn check_item(&self, cold: ColdItem, bytes: &[u8]) -> Result<Checked> {
        let corrupt = |what| self.corrupt(cold, what);
        let Some(digest) = cold.key_of else {
            let expanded = item::expanded(bytes, &self.compression).map_err(corrupt)?;
            return match expanded {
                Some(record) => Ok(Checked::Expanded(record)),
                None => item::record_end(bytes).map(|len| Checked::Wanted(0..len)).map_err(corrupt),
            };
        };
        // Most of it may be the value, so what tells that the bytes are right is not the checksum, but the digest that the
        // index has of the key.
        let key = item::key_range(bytes).map_err(corrupt)?;
        if key.end > bytes.len() && bytes.len() < cold.len_max {
            return Ok(Checked::Longer(key.end));
        }
        let name = bytes.get(key.clone()).unwrap_or_default();
        let is_right = self.secret.digest(name).h0 == digest.h0;
        if is_right { Ok(Checked::Wanted(key)) } else { Err(corrupt("an item that is not its entry's")) }
    }

    /// Reads the first `len` bytes of an item's record, or all of it, perhaps with some of what lies behind it. Waits for one that
    /// the cleaner has just moved to be written.
    fn read_record(&self, cold: ColdItem, len: usize) -> Result<Vec<u8>> {
        let log = &self.log;
        log.wait_written(cold.lsn + 1)?;
        let written = (log.written() - cold.lsn) as usize;
        let mut bytes = vec![0; len.min(cold.len_max).min(written)];
        let read = log.read(cold.lsn, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
