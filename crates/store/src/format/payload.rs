//! A batch's payload: the heap's redo records and items, one behind another, and padding: bytes of zero.

use super::item::{self, Item};
use holdfast_io::Error;
use holdfast_log::{Lsn, SEAL};

/// A byte that says nothing.
pub(crate) const PADDING: u8 = 0;

/// What a payload goes on with.
pub(crate) enum Next<'a> {
    /// Bytes that say nothing: one of padding, or the seal of a group.
    Nothing(usize),
    /// Redo for the heap.
    Redo,
    /// An item, and the length of its record.
    Item(Item<'a>, usize),
}

/// What the payload of a batch that has passed its check goes on with; `rest` is not empty.
#[inline]
pub(crate) fn next(rest: &[u8]) -> Result<Next<'_>, &'static str> {
    match rest[0] {
        PADDING => Ok(Next::Nothing(1)),
        SEAL => Ok(Next::Nothing(rest.len())),
        kind if item::is_kind(kind) => item::view(rest).map(|(item, len)| Next::Item(item, len)),
        _ => Ok(Next::Redo),
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
                Ok(Next::Redo) => {
                    holdfast_heap::record_len(rest).map(|len| (None, len)).ok_or("unknown record kind")
                }
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
