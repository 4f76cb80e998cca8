//! Items that are on the medium only, and what was read of them.

use super::shared::Shared;
use crate::format::{
    digest::Digest,
    item,
    word::{Type, Word, class_bytes},
};
use holdfast_io::{Error, Result};
use holdfast_log::Lsn;

/// An item that is not in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold {
    pub(crate) lsn: Lsn,
    pub(crate) len_max: usize,
    ty: Type,
    /// Only the key is wanted; this much is known of its digest.
    pub(crate) key_of: Option<Digest>,
}

impl Cold {
    pub(crate) fn new(shared: &Shared, word: Word) -> Cold {
        let len_max = class_bytes(word.class()) as usize;
        Cold { lsn: word.lsn(shared.log.tail()), len_max, ty: word.ty(), key_of: None }
    }

    /// The key of an item, of which the index has the digest.
    pub(crate) fn key(shared: &Shared, word: Word, digest: Digest) -> Cold {
        Cold { key_of: Some(digest), ..Cold::new(shared, word) }
    }

    /// The type of the value.
    pub fn ty(&self) -> Type {
        self.ty
    }
}

/// An item that was read from the medium for a transaction. If it fails its check, and is still wanted when the
/// transaction runs again, the medium is at fault; if not, the cleaner has moved it in the meantime.
pub struct Fetched {
    pub(crate) cold: Cold,
    /// The item's record, or only its key if only that was wanted; or what is wrong with the item.
    pub(crate) bytes: std::result::Result<Vec<u8>, String>,
}

impl Fetched {
    /// Whether this is what was wanted.
    pub fn is(&self, cold: &Cold) -> bool {
        self.cold == *cold
    }

    /// The item's key, or what is wrong with the item.
    pub fn key(&self) -> std::result::Result<&[u8], &str> {
        match &self.bytes {
            Ok(key) if self.cold.key_of.is_some() => Ok(key),
            Ok(record) => Ok(item::decode(record).expect("checked when it was fetched").0.key),
            Err(why) => Err(why),
        }
    }
}

impl Shared {
    /// Reads an item's record and checks it.
    pub fn read_item(&self, cold: Cold) -> Result<Vec<u8>> {
        let mut record = self.read_record(cold, cold.len_max)?;
        let (file, offset) = self.log.locate(cold.lsn);
        let len = item::decode(&record).map_err(|what| Error::corrupt(&file, offset, what))?.1;
        record.truncate(len);
        Ok(record)
    }

    /// Reads the key of an item. Most of it may be the value, so what tells that the bytes are right is not the
    /// checksum, but the digest that the index has of the key.
    pub fn read_key(&self, cold: Cold, digest: Digest) -> Result<Vec<u8>> {
        /// Bytes that hold nearly all keys.
        const FIRST_LEN: usize = 4096;
        let mut bytes = self.read_record(cold, FIRST_LEN)?;
        let (file, offset) = self.log.locate(cold.lsn);
        let key = item::key_range(&bytes).map_err(|what| Error::corrupt(&file, offset, what))?;
        if key.end > bytes.len() {
            bytes = self.read_record(cold, key.end)?;
        }
        let key = bytes.get(key).map(<[u8]>::to_vec).unwrap_or_default();
        if self.secret.digest(&key).h0 != digest.h0 {
            return Err(Error::corrupt(&file, offset, "an item that is not its entry's"));
        }
        Ok(key)
    }

    /// Reads an item's record, or the first `len` bytes of it, perhaps with some of what lies behind it: of its length only
    /// the size class is known. Waits for one that the cleaner has just moved to be written.
    fn read_record(&self, cold: Cold, len: usize) -> Result<Vec<u8>> {
        let log = &self.log;
        // Batches are written whole.
        log.wait_written(cold.lsn + 1)?;
        let written = (log.written() - cold.lsn) as usize;
        let mut bytes = vec![0; len.min(cold.len_max).min(written)];
        let read = log.read(cold.lsn, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
