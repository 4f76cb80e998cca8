//! `Store::check`: everything that must agree, compared by full scans.

use crate::{
    collections::{Context, object},
    item,
    partition::PHYSICAL_DATABASES,
    scratch::Scratch,
    store::{Inner, Store},
    txn::Cold,
    word::{Type, class_bytes, class_bytes_min},
};
use holdfast_heap::Image;
use holdfast_io::{Error, Result};

/// What a check went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Keys of all databases.
    pub keys: u64,
    /// Items read from the log and compared with their entries.
    pub items: u64,
    /// Those of them that are frozen collections, which were laid out and checked, too.
    pub frozen: u64,
    /// Bytes of these items' records.
    pub live_bytes: u64,
    /// Bytes allocated in the heap.
    pub heap_bytes: u64,
    /// Pages of the last checkpoint, read and compared with their checksums.
    pub heap_pages: u64,
}

impl Store {
    /// Checks indexes, expiries, arenas, every live item, and the accounting of memory and log against full scans. Locks
    /// everything, and reads all data: for tests and offline use.
    pub fn check(&self) -> Result<CheckReport> {
        // First, since a damaged page stops the process when it is used.
        let heap_pages = self.inner.verify_heap()?;
        self.inner.attach_all();
        Ok(CheckReport { heap_pages, ..self.inner.check()? })
    }

    /// A copy of the heap, by partition. That of a store which has replayed all batches of this one is the same, to the
    /// last byte (I-14): for tests.
    pub fn heap_image(&self) -> Vec<Image> {
        self.inner.partitions.iter().map(|part| part.lock().arena.image()).collect()
    }
}

impl Inner {
    fn verify_heap(&self) -> Result<u64> {
        let _no_checkpoint = self.superblock.lock();
        Ok(self.shared.heap.verify()?.pages)
    }

    fn check(&self) -> Result<CheckReport> {
        let (mut report, mut live, mut scratch) = (CheckReport::default(), 0, Scratch::take());
        let log = &self.shared.log;
        let parts: Vec<_> = self.partitions.iter().map(|p| p.lock()).collect();
        for part in &parts {
            let wrong =
                |what: String| Error::corrupt("heap", 0, format!("partition {}: {what}", part.number));
            let mut words = Vec::new();
            for db in 0..PHYSICAL_DATABASES as u8 {
                let entry = |digest, word| words.push((db, digest, word));
                report.keys += part.check_database(&self.shared, db, entry).map_err(wrong)?;
            }
            for (db, digest, word) in words {
                if word.in_heap() {
                    continue;
                }
                live += class_bytes_min(word.class());
                let cold = Cold::new(&self.shared, word);
                if cold.lsn >= log.written() {
                    continue;
                }
                let (file, offset) = log.locate(cold.lsn);
                let corrupt = |what: String| Error::corrupt(&file, offset, what);
                let record = self.read_item(cold).map_err(|e| corrupt(e.to_string()))?;
                let (item, len) = item::decode(&record).expect("checked when it was read");
                let real = self.shared.secret.digest(item.key);
                if real.h0 != digest.h0 || item.db != db || class_bytes(word.class()) < len as u64 {
                    return Err(corrupt("an entry names an item that is not its key's".into()));
                }
                if (item.kind == item::FROZEN) != (word.ty() != Type::String) {
                    return Err(corrupt("an entry names an item of another type".into()));
                }
                if item.kind == item::FROZEN {
                    let context = Context { hasher: &self.shared.hasher, limits: &part.limits, now_ms: 0 };
                    let fits = scratch.show(context, cold.lsn, item.value).map(|obj| {
                        let ty = object::ty(scratch.arena(), obj);
                        (ty == word.ty()).then(|| object::check(scratch.arena(), context, obj))
                    });
                    scratch.clear();
                    if !matches!(fits, Ok(Some(Ok(())))) {
                        return Err(corrupt(format!("a frozen collection cannot be laid out: {fits:?}")));
                    }
                    report.frozen += 1;
                }
                report.items += 1;
                report.live_bytes += len as u64;
            }
            report.heap_bytes += part.arena.allocated_bytes();
            part.check_memory(&self.shared).map_err(wrong)?;
        }
        scratch.put_back();
        let counted = log.live_bytes();
        if counted != live as i64 {
            let what = format!("{counted} live bytes counted, {live} found");
            return Err(Error::corrupt("log", 0, what));
        }
        Ok(report)
    }
}
