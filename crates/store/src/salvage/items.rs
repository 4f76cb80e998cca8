//! Items of a damaged log.

use super::SalvagedValue;
use crate::{
    collections::serial,
    format::{
        compress::Compression,
        digest::{Digest, Secret},
        item::{self, Item},
        payload,
    },
};
use holdfast_io::{AlignedBuf, BLOCK, Result};
use holdfast_log::{BATCH_HEADER, DamagedLog, Lsn};
use std::collections::HashMap;

/// Entries that are collected before their items are read in the order of the log, so that they take some 256 MiB at most.
pub const ENTRIES: usize = 4 << 20;
/// Bytes that are read at once, unless an item is longer.
const WINDOW: usize = 1 << 20;

/// Why an item is lost, and its key, if that can be told.
type Lost = (Option<Vec<u8>>, &'static str);
/// A key and its value.
pub type KeyFound = std::result::Result<(Vec<u8>, SalvagedValue), Lost>;

/// Reads items in the order of the log.
pub struct Reader<'l> {
    log: &'l DamagedLog,
    window: AlignedBuf,
    start: Lsn,
    /// Bytes of the window that were read.
    len: usize,
}

impl<'l> Reader<'l> {
    pub fn new(log: &'l DamagedLog) -> Reader<'l> {
        Reader { log, window: AlignedBuf::zeroed(WINDOW), start: 0, len: 0 }
    }

    /// The key and the value of the item at an LSN, whose record has so many bytes at most, if `is_it` says so of it and of its key.
    /// `is_it` is also asked of the key alone, if the rest is damaged.
    pub fn item(
        &mut self,
        lsn: Lsn,
        len_max: u64,
        compression: &Compression,
        is_it: impl Fn(Option<&Item>, &[u8]) -> bool,
    ) -> KeyFound {
        let bytes = self.bytes(lsn, len_max as usize).ok_or((None, "it cannot be read"))?;
        if bytes.is_empty() {
            return Err((None, "the segment is missing"));
        }
        let known = |bytes: &[u8]| {
            let key = bytes.get(item::key_range(bytes).ok()?)?;
            is_it(None, key).then(|| key.to_vec())
        };
        let (item, _) = item::decode(bytes).map_err(|what| (known(bytes), what))?;
        if !is_it(Some(&item), item.key) {
            return Err((None, "it is another key's"));
        }
        let key = || item.key.to_vec();
        let value = item.value(compression).map_err(|what| (Some(key()), what))?;
        let value = match item.plain_kind() {
            item::STRING => SalvagedValue::String(value.into_owned()),
            item::FROZEN => {
                let ty = serial::type_of(&value).ok_or((Some(key()), "its type is not known"))?;
                SalvagedValue::Collection(ty, value.into_owned())
            }
            _ => return Err((Some(key()), "it was cancelled")),
        };
        Ok((key(), value))
    }

    /// The bytes from an LSN on, at most so many, up to the first segment that is missing.
    fn bytes(&mut self, lsn: Lsn, len: usize) -> Option<&[u8]> {
        if lsn < self.start || lsn + len as u64 > self.start + self.len as u64 {
            self.start = lsn - lsn % BLOCK as u64;
            let wanted = ((lsn - self.start) as usize + len).next_multiple_of(BLOCK).max(WINDOW);
            if wanted > self.window.len() {
                self.window = AlignedBuf::zeroed(wanted);
            }
            self.len = self.log.read(self.start, &mut self.window[..wanted]).ok()?;
        }
        let at = (lsn - self.start) as usize;
        Some(self.window[..self.len].get(at..).map_or(&[], |rest| &rest[..rest.len().min(len)]))
    }
}

/// The newest item below an LSN of each key for which some are `wanted`, in the order of the log: LSN and length of its record, and
/// its physical database.
pub fn newest(
    log: &DamagedLog,
    to: Lsn,
    secret: &Secret,
    wanted: impl Fn(Lsn, &Item, Digest) -> bool,
) -> Result<Vec<(Lsn, u64, u8)>> {
    let mut newest = HashMap::new();
    log.scan(0, to, &mut |lsn, payload| {
        // A batch that is intact has no other items.
        for (at, item, len) in payload::items(payload).flatten() {
            let (lsn, digest) = (lsn + (BATCH_HEADER + at) as u64, secret.digest(item.key));
            if wanted(lsn, &item, digest) {
                newest.insert((item.db, digest.h0, digest.h1), (lsn, len as u64, item.db));
            }
        }
    })?;
    let mut newest: Vec<_> = newest.into_values().collect();
    newest.sort_unstable();
    Ok(newest)
}
