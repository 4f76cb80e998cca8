//! A batch's payload: the heap's redo records and items, one behind another.

use crate::item::{self, Item};

/// A record of a batch.
pub(crate) enum Record<'a> {
    /// Redo for the heap.
    Redo(&'a [u8]),
    /// An item that its batch wants, and the length of its record.
    Item(Item<'a>, usize),
}

/// The records of a payload, whose batch has passed its check, with their positions. Stops after an error.
pub(crate) fn records(payload: &[u8]) -> impl Iterator<Item = Result<(usize, Record<'_>), &'static str>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = payload.get(at..).filter(|rest| !rest.is_empty())?;
            let here = at;
            match rest[0] {
                0 => at += 1,
                item::STRING | item::FROZEN | item::CANCELLED => {
                    return Some(match item::view(rest) {
                        Ok((item, len)) => {
                            at += len;
                            if item.kind == item::CANCELLED {
                                continue;
                            }
                            Ok((here, Record::Item(item, len)))
                        }
                        Err(what) => {
                            at = payload.len();
                            Err(what)
                        }
                    });
                }
                _ => {
                    return Some(match holdfast_heap::record_len(rest) {
                        Some(len) => {
                            at += len;
                            Ok((here, Record::Redo(&rest[..len])))
                        }
                        None => {
                            at = payload.len();
                            Err("unknown record kind")
                        }
                    });
                }
            }
        }
    })
}
