//! A batch's payload: the heap's redo records and items, one behind another, and padding: bytes of zero.

use super::{
    entry_word::{EntryWord, size_class},
    item::{self, Item},
};
use holdfast_heap::{Record, SortedRedo};
use holdfast_io::{self as io, Error};
use holdfast_log::{BATCH_HEADER, Lsn, SEAL};

/// A byte that says nothing.
pub(crate) const PADDING: u8 = 0;

/// What a payload goes on with.
pub(crate) enum Next<'a> {
    /// Bytes that say nothing: padding, or the seal of a group.
    Nothing(usize),
    /// A redo record of the heap: what it says, and its bytes.
    Redo(Record<'a>, &'a [u8]),
    /// An item, and the length of its record.
    Item(Item<'a>, usize),
}

/// What the payload of a batch that has passed its check goes on with; `rest` is not empty.
#[inline]
pub(crate) fn next(rest: &[u8]) -> Result<Next<'_>, &'static str> {
    match rest[0] {
        PADDING => Ok(Next::Nothing(rest.iter().take_while(|byte| **byte == PADDING).count())),
        SEAL => Ok(Next::Nothing(rest.len())),
        kind if item::is_kind(kind) => item::view(rest).map(|(item, len)| Next::Item(item, len)),
        _ => {
            let split = Record::split(rest);
            let (record, behind) = split.ok_or("a redo record of no known kind, or cut short")?;
            Ok(Next::Redo(record, &rest[..rest.len() - behind.len()]))
        }
    }
}

/// What batches of the log change in the heap. Its memory is used again for the next one.
#[derive(Default)]
pub(crate) struct Changes {
    /// Entries whose items are in the batch, by heap offset, and what they say of where these are.
    located: Vec<(u64, [u8; 6])>,
}

impl Changes {
    /// Calls `f` with each change that the batch at an LSN makes, in order.
    ///
    /// # Errors
    /// Whatever `f` returns; the payload is not what it should be: then some changes may have been told.
    pub fn each(
        &mut self,
        lsn: Lsn,
        payload: &[u8],
        mut f: impl FnMut(&Record) -> io::Result<()>,
    ) -> io::Result<()> {
        self.located.clear();
        let mut at = 0;
        while at < payload.len() {
            at += match next(&payload[at..]).map_err(|what| corrupt_batch(lsn, what))? {
                Next::Nothing(len) => len,
                Next::Redo(record, bytes) => {
                    f(&record)?;
                    bytes.len()
                }
                Next::Item(item, len) => {
                    if item.kind != item::CANCELLED {
                        let at = lsn + (BATCH_HEADER + at) as u64;
                        self.located.push((item.slot, EntryWord::item_bytes(at, size_class(len))));
                    }
                    len
                }
            };
        }
        // Last, because an entry may have moved after its item's record.
        self.located.iter().try_for_each(|(offset, bytes)| f(&Record::Write { offset: *offset, bytes }))
    }

    /// Adds each change that the batch at an LSN makes to those that were sorted before. Errors as [`Changes::each`].
    pub fn sort(&mut self, lsn: Lsn, payload: &[u8], sorted: &mut SortedRedo) -> io::Result<()> {
        self.each(lsn, payload, |change| {
            sorted.add(change);
            Ok(())
        })
    }
}

/// The items of such a payload that their batch wants: the position and the length of each record. Stops after an error.
pub(crate) fn items(payload: &[u8]) -> impl Iterator<Item = Result<(usize, Item<'_>, usize), &'static str>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < payload.len() {
            let (here, rest) = (at, &payload[at..]);
            let found = match next(rest) {
                Ok(Next::Nothing(len)) => Ok((None, len)),
                Ok(Next::Redo(_, bytes)) => Ok((None, bytes.len())),
                Ok(Next::Item(item, len)) => Ok(((item.kind != item::CANCELLED).then_some(item), len)),
                Err(what) => Err(what),
            };
            at += found.as_ref().map_or(rest.len(), |(_, len)| *len);
            match found {
                Ok((None, _)) => {}
                Ok((Some(item), len)) => return Some(Ok((here, item, len))),
                Err(what) => return Some(Err(what)),
            }
        }
        None
    })
}

/// The physical database of a clock mark, which no item has.
const CLOCK: u8 = u8::MAX;

/// The payload of a batch that only says what time it is: a cancelled item, which everybody else skips.
pub(crate) fn encode_clock_mark(now_ms: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    item::encode(&mut payload, item::CANCELLED, CLOCK, 0, b"", &now_ms.to_le_bytes());
    payload
}

/// The time that a batch says: nothing behind it was appended before. Unix time in milliseconds.
pub(crate) fn clock_mark(payload: &[u8]) -> Option<u64> {
    let start = payload.iter().position(|&byte| byte != 0)?;
    let Ok(Next::Item(item, _)) = next(&payload[start..]) else { return None };
    let is_mark = item.kind == item::CANCELLED && item.db == CLOCK && item.key.is_empty();
    item.stored.try_into().ok().filter(|_| is_mark).map(u64::from_le_bytes)
}

/// The error of a batch whose payload is not what it should be.
pub(crate) fn corrupt_batch(lsn: Lsn, what: &str) -> Error {
    Error::corrupt("log", lsn, format!("batch at this LSN: {what}"))
}
