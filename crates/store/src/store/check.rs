//! `Store::check`: everything that must agree, compared by full scans.

use super::{
    Store,
    runs::{RUN_BYTES, Run},
};
use crate::{
    collections::{Context, Limits, any, object},
    engine::Engine,
    format::{
        digest::Digest,
        entry_word::{EntryWord, Type, class_bytes, class_bytes_min},
        item,
    },
    partition::{Partition, cold::ColdItem, databases::PHYSICAL_DATABASES},
    txn::scratch::Scratch,
    util::lock::Guard,
};
use holdfast_heap::{Image, Load};
use holdfast_io::{Error, Result};
use holdfast_log::Lsn;
use std::sync::Arc;

/// What a check went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Keys of all databases.
    pub keys: u64,
    /// Items read from the log and compared with their entries.
    pub items: u64,
    /// Those of them that are frozen collections, which were laid out and checked, too.
    pub frozen: u64,
    /// Those of them whose values are compressed, which were expanded, too.
    pub compressed: u64,
    /// Bytes of these items' records.
    pub live_bytes: u64,
    /// Bytes allocated in the heap.
    pub heap_bytes: u64,
    /// Pages of the last checkpoint, read and compared with their checksums.
    pub heap_pages: u64,
}

/// Entries that are collected before their items are read in the order of the log, so that they take some 256 MiB at most.
const ENTRIES: usize = 8 << 20;

/// An index entry that names an item.
struct Entry {
    lsn: Lsn,
    word: EntryWord,
    /// Of its key's digest.
    h0: u64,
    partition: u16,
    db: u8,
}

/// What is found so far.
#[derive(Default)]
struct Findings {
    report: CheckReport,
    /// Bytes that the entries' items take at least.
    live: u64,
    /// Those of the items that were compared.
    compared: u64,
}

impl Store {
    /// Checks indexes, expiries, arenas, every live item, and the accounting of memory and log against full scans. Locks
    /// everything, and reads all data: for tests and offline use.
    pub fn check(&self) -> Result<CheckReport> {
        self.check_with_progress(&mut |_, _| ())
    }

    /// The same. Calls `progress` now and then with the bytes of items that were compared, and those of all.
    pub fn check_with_progress(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let heap_pages = self.load_everything()?;
        Ok(CheckReport { heap_pages, ..self.engine().check(progress)? })
    }

    /// Checks and loads all pages of the last checkpoint. Returns how many.
    fn load_everything(&self) -> Result<u64> {
        let heap_pages = self.verify_heap()?;
        // Else each page is read by itself when it is looked at.
        while self.shared().heap.load_next(Load::All, RUN_BYTES as usize)? {}
        self.engine().attach_all();
        Ok(heap_pages)
    }

    /// Checks all pages of the last checkpoint: a damaged one stops the process when it is used. Returns how many.
    pub fn verify_heap(&self) -> Result<u64> {
        let _no_checkpoint = self.maintenance.checkpoints.hold();
        Ok(self.shared().heap.verify()?.pages)
    }

    /// A copy of the heap, by partition. That of a store which has replayed all batches of this one is the same, to the
    /// last byte (I-14): for tests.
    pub fn heap_image(&self) -> Vec<Image> {
        self.engine().partitions.iter().map(|part| part.lock().arena.image()).collect()
    }
}

impl Engine {
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let (mut findings, mut entries) = (Findings::default(), Vec::new());
        let log = &self.shared.log;
        let counted = log.live_bytes();
        let all = counted.max(0) as u64;
        let parts: Vec<_> = self.partitions.iter().map(|p| p.lock()).collect();
        for part in &parts {
            let wrong =
                |what: String| Error::corrupt("heap", 0, format!("partition {}: {what}", part.number));
            for db in 0..PHYSICAL_DATABASES as u8 {
                let entry = |digest: Digest, word: EntryWord| {
                    if !word.in_heap() {
                        findings.live += class_bytes_min(word.class());
                        let lsn = ColdItem::new(&self.shared, word).lsn;
                        entries.push(Entry { lsn, word, h0: digest.h0, partition: part.number, db });
                    }
                };
                findings.report.keys += part.check_database(&self.shared, db, entry).map_err(wrong)?;
            }
            findings.report.heap_bytes += part.arena.allocated_bytes();
            part.check_memory(&self.shared).map_err(wrong)?;
            part.check_copies(&self.shared).map_err(wrong)?;
            if entries.len() >= ENTRIES {
                self.check_items(&parts, &mut entries, &mut findings, &mut |done| progress(done, all))?;
            }
        }
        self.check_items(&parts, &mut entries, &mut findings, &mut |done| progress(done, all))?;
        let live = findings.live;
        if counted != live as i64 {
            let what = format!("{counted} live bytes counted, {live} found");
            return Err(Error::corrupt("log", 0, what));
        }
        Ok(findings.report)
    }

    /// Compares entries with their items, in the order of the log, so that these are read many at a time.
    fn check_items(
        &self,
        parts: &[Guard<Partition>],
        entries: &mut Vec<Entry>,
        findings: &mut Findings,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        // What is not written yet, nobody can read.
        let written = self.shared.log.written();
        entries.retain(|entry| entry.lsn < written);
        entries.sort_unstable_by_key(|entry| entry.lsn);
        let (mut rest, mut scratch) = (&entries[..], Scratch::take());
        while !rest.is_empty() {
            let run =
                Run::read(&self.shared.log, rest, |entry| (entry.lsn, class_bytes(entry.word.class())))?;
            for entry in &rest[..run.count] {
                let record = run.at(entry.lsn);
                let limits = &parts[usize::from(entry.partition)].limits;
                self.check_item(entry, record, limits, &mut scratch, &mut findings.report).map_err(
                    |what| {
                        let (file, offset) = self.shared.log.locate(entry.lsn);
                        Error::corrupt(&file, offset, what)
                    },
                )?;
                findings.compared += class_bytes_min(entry.word.class());
            }
            rest = &rest[run.count..];
            progress(findings.compared);
        }
        scratch.put_back();
        entries.clear();
        Ok(())
    }

    /// Compares an entry with its item's record, which `bytes` begin with; the error says what is wrong.
    fn check_item(
        &self,
        entry: &Entry,
        bytes: &[u8],
        limits: &Arc<Limits>,
        scratch: &mut Scratch,
        report: &mut CheckReport,
    ) -> std::result::Result<(), String> {
        let word = entry.word;
        let (item, len) = item::decode(bytes)?;
        let real = self.shared.secret.digest(item.key);
        if real.h0 != entry.h0 || item.db != entry.db || class_bytes(word.class()) < len as u64 {
            return Err("an entry names an item that is not its key's".into());
        }
        let value = item.value(&self.shared.compression)?;
        let is_frozen = item.plain_kind() == item::FROZEN;
        if is_frozen != (word.ty() != Type::String) {
            return Err("an entry names an item of another type".into());
        }
        if is_frozen {
            let context = Context { hasher: &self.shared.hasher, limits, now_ms: 0, expired_ms: 0 };
            let fits = scratch.show(context, entry.lsn, &value).map(|obj| {
                let ty = object::ty(scratch.arena(), obj);
                (ty == word.ty()).then(|| any::check(scratch.arena(), context, obj))
            });
            scratch.clear();
            if !matches!(fits, Ok(Some(Ok(())))) {
                return Err(format!("a frozen collection cannot be laid out: {fits:?}"));
            }
            report.frozen += 1;
        }
        report.items += 1;
        report.compressed += u64::from(item.is_compressed());
        report.live_bytes += len as u64;
        Ok(())
    }
}
