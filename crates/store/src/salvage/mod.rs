//! What is intact in a damaged data folder, key by key, without a change of the folder. Uses partitions' indexes and what is below;
//! who copies it elsewhere is told of each finding.
//!
//! What proves that a key is intact:
//! * The heap is what the log has made of the last checkpoint, up to its end: no durable batch is missing. Where one is, all that is
//!   found is as of the moment before it ([`End`]).
//! * The page of the index that has the key's entry has passed its check, and so has the page with its expiry, if it has one.
//! * The entry's item has passed its check, and its key has the entry's digest; or all pages of the entry's object have passed theirs.
//!
//! Where the page of an index is damaged, the log still has items of keys that it may have had. They are told as
//! [uncertain](Finding::Uncertain): the log does not say which keys were removed since, or have become a collection in the heap, or
//! expire. The same goes for all items if nothing of the heap can be read, and for those behind a batch that is missing.

mod heap;
mod items;

use crate::{
    format::{
        EPOCH, HEAP,
        compress::Compression,
        dictionary::Dictionaries,
        digest::Secret,
        entry_word::Type,
        filling,
        superblock::{self, Superblock},
    },
    partition::databases::{DATABASES, SYSTEM_DATABASE},
};
use heap::{DamagedHeap, Place};
use holdfast_heap::HomeMethod;
use holdfast_io::{Error, Io, Result, Tolerant};
use holdfast_log::{DamagedLog, DamagedReplay, LogOptions, Lsn};
use items::Reader;
use std::sync::Arc;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedKey {
    /// The number that clients know its database by, or [`SYSTEM_DATABASE`](crate::SYSTEM_DATABASE).
    pub db: u8,
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: SalvagedValue,
    /// When it expires: Unix time in milliseconds.
    pub expires_ms: Option<u64>,
}

/// A value, to be put elsewhere by [`Store::put_salvaged`](crate::Store::put_salvaged).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SalvagedValue {
    /// A string.
    String(Vec<u8>),
    /// Another type of value, as it is serialized when it leaves the heap.
    Collection(Type, Vec<u8>),
}

/// Why a key is not known to be as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Its entry in the index cannot be read: it may have another value by now, or none.
    NoEntry,
    /// The log has lost something before this value, and perhaps behind it.
    BehindHole,
    /// The value is intact; when it expires is not known.
    Expiry,
    /// The value is intact; which database it is in is not known.
    Database,
}

/// A key that is lost.
#[derive(Debug)]
pub struct LostKey {
    /// Its database; `None`: that is not known.
    pub db: Option<u8>,
    /// The key, if it can still be told.
    pub key: Option<Vec<u8>>,
    /// The type of its value.
    pub ty: Type,
    /// Where its value is, and what is wrong with it.
    pub error: Error,
}

/// How far the log can be followed. All keys that are told as intact are as they were then.
#[derive(Debug)]
pub struct End {
    /// The LSN.
    pub lsn: Lsn,
    /// File and offset.
    pub at: (String, u64),
    /// Bytes from there to the end of the last batch that is intact.
    pub bytes_behind: u64,
    /// What is wrong there: a durable batch is damaged or missing. `None`: nothing says that anything was durable which is not there.
    pub hole: Option<Error>,
}

/// What salvage has come upon.
#[derive(Debug)]
pub enum Finding {
    /// A part of a file is damaged, or a file is missing.
    Damage(Error),
    /// The log can be followed up to here.
    End(End),
    /// A key that is intact.
    Intact(SalvagedKey),
    /// A key that was found; whether it is as it was cannot be proved. `at`: file and offset of its value.
    Uncertain {
        /// The key, as it was found.
        key: SalvagedKey,
        /// What cannot be proved.
        doubt: Doubt,
        /// File and offset of its value.
        at: (String, u64),
    },
    /// A key that is lost.
    Lost(LostKey),
    /// So many keys of a database are lost with pages of its index, which had their names. Some of them may be among the uncertain.
    LostEntries {
        /// The database.
        db: u8,
        /// How many.
        keys: u64,
    },
}

/// Takes findings.
type Sink<'s> = dyn FnMut(Finding) -> Result<()> + 's;

/// A damaged folder, as far as it can be read.
struct Source {
    log: DamagedLog,
    /// Where the log ends, or is missing something; `None`: the checkpoint is not known.
    tail: Option<Lsn>,
    has_hole: bool,
    /// `None`: nothing of it can be found.
    heap: Option<DamagedHeap>,
    secret: Secret,
    compression: Compression,
}

/// Tells all that is in a data folder which may be damaged. `heap_bytes_max`: bytes of address space for its heap.
///
/// # Errors
/// What `sink` returns. [`Error::Unusable`] if the folder is of another format, or there is nothing to go by.
pub fn salvage(io: Arc<dyn Io>, heap_bytes_max: u64, sink: &mut Sink) -> Result<()> {
    filling::refuse(&*io)?;
    let io = Arc::new(Tolerant::new(io));
    let mut source = Source::open(io.clone(), heap_bytes_max, sink)?;
    source.entries(sink)?;
    source.log_items(sink)?;
    for (file, offset, error) in io.faults() {
        sink(Finding::Damage(Error::corrupt(&file, offset, format!("it cannot be read: {error}"))))?;
    }
    Ok(())
}

impl Source {
    fn open(io: Arc<dyn Io>, heap_bytes_max: u64, sink: &mut Sink) -> Result<Source> {
        let (superblock, options) = find_superblock(&io, sink)?;
        let from = superblock.as_ref().map(|superblock| superblock.checkpoint_lsn);
        let mut log = DamagedLog::open(io.clone(), &options, from)?;
        log.take_faults().into_iter().try_for_each(|fault| sink(Finding::Damage(fault)))?;
        let compression = Compression::default();
        let mut notes = Vec::new();
        compression.set_dictionaries(Dictionaries::read(&*io, options.store_id, &mut notes)?);
        for note in notes {
            sink(Finding::Damage(Error::Unusable(note)))?;
        }
        let Some(superblock) = superblock else {
            // Only to tell keys apart.
            let secret = Secret(options.store_id);
            return Ok(Source { log, tail: None, has_hole: false, heap: None, secret, compression });
        };
        let mut heap = match DamagedHeap::open(&io, &superblock, heap_bytes_max, sink) {
            Ok(heap) => Some(heap),
            Err(damage) => {
                sink(Finding::Damage(damage))?;
                None
            }
        };
        let (from, durable) = (superblock.checkpoint_lsn, superblock.durable_lsn);
        if superblock.home == Some(HomeMethod::Lat) {
            // What the log has from here on is older than the home, which may have it in part.
            if let Some(hole) = log.replay(from, durable, &mut |_, _| Ok(()))?.hole {
                sink(Finding::Damage(hole))?;
                heap = None;
            }
        }
        let mut wrong = None;
        let replayed = log.replay(from, durable, &mut |lsn, payload| {
            if let Err(damage) = heap.as_mut().map_or(Ok(()), |heap| heap.replay(lsn, payload)) {
                (heap, wrong) = (None, Some(damage));
            }
            Ok(())
        })?;
        if let Some(damage) = wrong {
            sink(Finding::Damage(damage))?;
        }
        let heap = heap.map(|heap| heap.finish(sink)).transpose()?;
        let secret = superblock.secret();
        let DamagedReplay { tail, bytes_behind, hole } = replayed;
        if superblock.home.is_some() {
            // The home is as of the end, whatever of the log is missing.
            hole.map_or(Ok(()), |hole| sink(Finding::Damage(hole)))?;
            let tail = Some(log.end());
            return Ok(Source { log, tail, has_hole: false, heap, secret, compression });
        }
        let has_hole = hole.is_some();
        sink(Finding::End(End { lsn: tail, at: log.locate(tail), bytes_behind, hole }))?;
        Ok(Source { log, tail: Some(tail), has_hole, heap, secret, compression })
    }

    /// The number that clients know a physical database by; `None`: none, or it is not known which.
    fn logical(&self, physical: u8) -> Option<u8> {
        match self.heap.as_ref().and_then(DamagedHeap::databases) {
            _ if physical == SYSTEM_DATABASE => Some(SYSTEM_DATABASE),
            Some(map) => map.iter().position(|&known| known == physical).map(|logical| logical as u8),
            // As long as none was exchanged for another one.
            None => Some(physical).filter(|&physical| usize::from(physical) < DATABASES),
        }
    }

    /// Whether it is known which databases there are.
    fn knows_databases(&self) -> bool {
        self.heap.as_ref().is_some_and(|heap| heap.databases().is_some())
    }

    /// Tells the keys of all entries that can be read.
    fn entries(&mut self, sink: &mut Sink) -> Result<()> {
        let Some(heap) = &self.heap else { return Ok(()) };
        let (is_certain, mut places) = (self.knows_databases(), Vec::new());
        for (partition, physical) in heap.all_databases() {
            let Some(db) = self.logical(physical) else { continue };
            let lost = heap.for_each_entry(partition, physical, &mut |entry| {
                let Some(obj) = entry.object() else {
                    places.push(entry);
                    return Ok(());
                };
                let found = heap.value(&self.secret, partition, obj, entry.word.ty(), entry.digest);
                let at = || (HEAP.to_owned(), obj);
                sink(match found {
                    Ok((key, value)) => entry.finding(db, key, value, is_certain, at()),
                    Err((key, what)) => {
                        let error = Error::corrupt(HEAP, obj, format!("{what} (this is the heap offset)"));
                        Finding::Lost(LostKey { db: Some(db), key, ty: entry.word.ty(), error })
                    }
                })
            })?;
            if lost > 0 {
                sink(Finding::LostEntries { db, keys: lost })?;
            }
            if places.len() >= items::ENTRIES {
                self.items(&mut places, is_certain, sink)?;
            }
        }
        self.items(&mut places, is_certain, sink)
    }

    /// Tells the keys of entries that name items.
    fn items(&self, places: &mut Vec<Place>, is_certain: bool, sink: &mut Sink) -> Result<()> {
        let tail = self.tail.expect("a heap that was replayed");
        places.sort_unstable_by_key(|place| place.word.lsn(tail));
        let mut reader = Reader::new(&self.log);
        for place in places.drain(..) {
            let Some(db) = self.logical(place.physical) else { continue };
            let lsn = place.word.lsn(tail);
            let found = reader.item(lsn, place.len_max(), &self.compression, |item, key| {
                place.has(&self.secret, key) && item.is_none_or(|item| item.db == place.physical)
            });
            sink(match found {
                Ok((key, value)) if value.ty() == place.word.ty() => {
                    place.finding(db, key, value, is_certain, self.log.locate(lsn))
                }
                Ok((key, _)) => place.lost(db, Some(key), self.corrupt(lsn, "it is of another type")),
                Err((key, what)) => place.lost(db, key, self.corrupt(lsn, what)),
            })?;
        }
        Ok(())
    }

    fn corrupt(&self, lsn: Lsn, what: &str) -> Error {
        let (file, offset) = self.log.locate(lsn);
        Error::corrupt(&file, offset, what)
    }

    /// Tells the newest items of keys of which no entry can be read.
    fn log_items(&self, sink: &mut Sink) -> Result<()> {
        let is_needed = self.has_hole || self.heap.as_ref().is_none_or(DamagedHeap::lacks_entries);
        if !is_needed {
            return Ok(());
        }
        let tail = self.tail.filter(|_| self.heap.is_some());
        let to = if self.has_hole { Lsn::MAX } else { self.tail.unwrap_or(Lsn::MAX) };
        let newest = items::newest(&self.log, to, &self.secret, |lsn, item, digest| {
            let is_behind = tail.is_some_and(|tail| lsn >= tail);
            let may_be_there = |heap: &DamagedHeap| is_behind || heap.may_have(item.db, item.key, digest);
            let is_used = !self.knows_databases() || self.logical(item.db).is_some();
            is_used && self.heap.as_ref().is_none_or(may_be_there)
        })?;
        let mut reader = Reader::new(&self.log);
        for (lsn, len, physical) in newest {
            let (at, db) = (self.log.locate(lsn), self.logical(physical));
            let found = reader.item(lsn, len, &self.compression, |_, _| true);
            let doubt = match tail.is_some_and(|tail| lsn >= tail) {
                true => Doubt::BehindHole,
                false => Doubt::NoEntry,
            };
            sink(match (found, db) {
                (Ok((key, value)), Some(db)) => {
                    Finding::Uncertain { key: SalvagedKey { db, key, value, expires_ms: None }, doubt, at }
                }
                (Ok((key, value)), None) => Finding::Lost(LostKey {
                    db,
                    key: Some(key),
                    ty: value.ty(),
                    error: self.corrupt(lsn, "the number of its database is not known"),
                }),
                (Err((key, what)), db) => {
                    Finding::Lost(LostKey { db, key, ty: Type::String, error: self.corrupt(lsn, what) })
                }
            })?;
        }
        Ok(())
    }
}

impl SalvagedValue {
    /// Its type.
    pub fn ty(&self) -> Type {
        match self {
            SalvagedValue::String(_) => Type::String,
            SalvagedValue::Collection(ty, _) => *ty,
        }
    }
}

/// The superblock, if a copy of it is intact, and what the log is to be opened with.
fn find_superblock(io: &Arc<dyn Io>, sink: &mut Sink) -> Result<(Option<Superblock>, LogOptions)> {
    let read = io.open(superblock::FILE, false).map_err(|e| Error::io("open superblock", e));
    let damage = match read.and_then(|file| Superblock::read(&*file)) {
        Ok(copies) => {
            if let Some((offset, what)) = copies.damaged() {
                sink(Finding::Damage(Error::corrupt(superblock::FILE, offset, what)))?;
            }
            let Superblock { segment_size, store_id, .. } = copies.newest;
            let options = LogOptions::to_read(segment_size, store_id, EPOCH, copies.newest.crc_seed());
            return Ok((Some(copies.newest), options));
        }
        // Another format.
        Err(error @ Error::Unusable(_)) => return Err(error),
        Err(damage) => damage,
    };
    sink(Finding::Damage(damage))?;
    let nothing = || Error::Unusable("neither the superblock nor the log can be read".into());
    let found = DamagedLog::identify(&**io)?.ok_or_else(nothing)?;
    let mut options = LogOptions::to_read(found.segment_size, found.store_id, EPOCH, 0);
    options.crc_seed = DamagedLog::find_seed(io, &options)?.ok_or_else(nothing)?;
    Ok((None, options))
}
