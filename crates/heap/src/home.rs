//! The heap's home in storage-class memory. There it lies as it is, each byte at its offset, and every transaction changes it in
//! place: a checkpoint has nothing to write, and a start nothing to replay. How a transaction is made atomic is one of the methods of
//! Giles, Doshi, Varman: Persisting In-Memory Databases Using SCM (2016).
//!
//! What all read is the heap in memory, which has every change at once: it is the alias table of all transactions, so that none has to look
//! one up. What a transaction has changed waits in a queue, and the home gets it when the log's commit comes by that makes its batch durable:
//! all that wait then share the fences. Whoever waits for the log waits for both. docs/format.md says what is in the files.

mod lines;
mod undo;

use std::{
    borrow::Cow,
    collections::HashSet,
    mem, slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Io, Result, WORD};
use parking_lot::Mutex;

use crate::{EXTENT, MAX_BYTES, owner::NOBODY, tx::Record};
use undo::{Undo, UndoLog};

/// The folder of all its files.
pub const FOLDER: &str = "home";
const OWNERS: &str = "home/owners";
const PAGES: &str = "home/pages";
const MAGIC: &[u8; 8] = b"HFHOMEOW";
/// Where the words of the extents begin in the file of owners.
const WORDS_AT: u64 = BLOCK as u64;
/// Bytes of stores that are gathered before they are made, but by `cow`.
const BATCH_BYTES: usize = 64 << 10;
static ZEROES: [u8; EXTENT as usize] = [0; EXTENT as usize];

/// How a transaction changes the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// What was there is made durable in an undo log before each store (copy on write), and each transaction waits for its commit.
    Cow,
    /// The log of the store has the changes, durably, before any is made (a redo log, and a local alias table).
    Lat,
    /// Stores are gathered, with an undo log of them that is made durable once for all (local alias table, batched).
    Latb,
    /// They are just made: a power cut leaves some of them. For a lower bound of what the others cost.
    None,
}

impl Method {
    /// All, with their names.
    pub const NAMES: [(&'static str, Method); 4] =
        [("cow", Method::Cow), ("lat", Method::Lat), ("latb", Method::Latb), ("none", Method::None)];

    /// The one with a name.
    pub fn named(name: &str) -> Option<Method> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }
}

/// Transactions and what they took, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeStats {
    /// Transactions.
    pub transactions: u64,
    /// Stores to the home.
    pub stores: u64,
    /// Bytes of the largest undo log.
    pub undo_bytes_max: u64,
}

/// A place in the home, as undo logs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// An offset in the heap.
    Page(u64),
    /// The owner of an extent.
    Owner(u32),
}

/// The home, and how it is changed.
pub struct Home {
    io: Arc<dyn Io>,
    store_id: [u8; 16],
    method: Method,
    owners: Arc<dyn File>,
    pages: Arc<dyn File>,
    room: Mutex<Room>,
    queue: Mutex<Queue>,
    /// Made when it is needed first. Locked by who commits.
    undo: Mutex<Option<UndoLog>>,
    /// What is to be undone, in order, if it could not be on the medium since that is only read.
    pending: Vec<Undo>,
    transactions: AtomicU64,
    stores: AtomicU64,
    undo_bytes_max: AtomicU64,
}

/// How far the files reach.
struct Room {
    /// Extents that there is memory for.
    extents: u32,
    /// Of these, such as nobody had so far: they are zero.
    unused: HashSet<u32>,
}

/// Transactions that wait for a commit, in the order of the log.
#[derive(Default)]
struct Queue {
    /// The redo records of all.
    redo: Vec<u8>,
    /// The LSN of each, and where its records end.
    transactions: Vec<(u64, usize)>,
}

/// One store to the home.
struct Store<'r> {
    place: Place,
    bytes: Cow<'r, [u8]>,
}

impl Home {
    /// Makes an empty home, where there may be an old or unfinished one. It is the heap's when something durable says so.
    pub fn create(io: Arc<dyn Io>, store_id: [u8; 16], arenas: u16, method: Method) -> Result<Arc<Home>> {
        Home::remove(&*io)?;
        let open = |name: &str| io.open(name, true).map_err(|e| Error::io(format!("create {name}"), e));
        let (owners, pages) = (open(OWNERS)?, open(PAGES)?);
        owners
            .write_at(&[&header(store_id, arenas)], 0, Durability::Durable)
            .map_err(|e| Error::io(format!("write {OWNERS}"), e))?;
        let home = Home::new(io, store_id, method, owners, pages, 0);
        home.sync()?;
        Ok(Arc::new(home))
    }

    /// Opens it, and takes back what transactions had done that were not over. `method`: how it is changed from now on.
    pub fn open(io: Arc<dyn Io>, store_id: [u8; 16], arenas: u16, method: Method) -> Result<Arc<Home>> {
        let open = |name: &str| io.open(name, false).map_err(|e| Error::io(format!("open {name}"), e));
        let (owners, pages) = (open(OWNERS)?, open(PAGES)?);
        let mut block = vec![0; BLOCK];
        read(&*owners, &mut block, 0)?;
        if block != *header(store_id, arenas) {
            return Err(Error::corrupt(OWNERS, 0, "the header is not that of this store's home"));
        }
        let len =
            |file: &dyn File| file.len().map_err(|e| Error::io(format!("length of {}", file.name()), e));
        let words = len(&*owners)?.saturating_sub(WORDS_AT) / WORD as u64;
        let extents = (len(&*pages)? / EXTENT).min(words).min(MAX_BYTES / EXTENT);
        let mut home = Home::new(io, store_id, method, owners, pages, extents as u32);
        if !home.io.is_read_only() {
            [&home.owners, &home.pages].into_iter().try_for_each(|file| keep_len(&**file))?;
        }
        home.roll_back()?;
        Ok(Arc::new(home))
    }

    fn new(
        io: Arc<dyn Io>,
        store_id: [u8; 16],
        method: Method,
        owners: Arc<dyn File>,
        pages: Arc<dyn File>,
        extents: u32,
    ) -> Home {
        let room = Mutex::new(Room { extents, unused: HashSet::new() });
        let (transactions, stores, undo_bytes_max) = Default::default();
        Home {
            io,
            store_id,
            method,
            owners,
            pages,
            room,
            queue: Mutex::default(),
            undo: Mutex::default(),
            pending: Vec::new(),
            transactions,
            stores,
            undo_bytes_max,
        }
    }

    /// Removes what there is of a home.
    pub fn remove(io: &dyn Io) -> Result<()> {
        let names = io.list(FOLDER).map_err(|e| Error::io(format!("list {FOLDER}"), e))?;
        for name in &names {
            let name = format!("{FOLDER}/{name}");
            io.remove(&name).map_err(|e| Error::io(format!("remove {name}"), e))?;
        }
        if names.is_empty() {
            return Ok(());
        }
        io.sync_dir(FOLDER).map_err(|e| Error::io(format!("sync {FOLDER}"), e))
    }

    /// How it is changed.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Figures.
    pub fn stats(&self) -> HomeStats {
        HomeStats {
            transactions: self.transactions.load(Relaxed),
            stores: self.stores.load(Relaxed),
            undo_bytes_max: self.undo_bytes_max.load(Relaxed),
        }
    }

    /// Makes the names and lengths of its files durable, and all that was stored.
    pub fn sync(&self) -> Result<()> {
        self.fence()?;
        for file in [&self.owners, &self.pages] {
            file.sync().map_err(|e| Error::io(format!("sync {}", file.name()), e))?;
        }
        for folder in [FOLDER, ""] {
            self.io.sync_dir(folder).map_err(|e| Error::io(format!("sync {FOLDER}"), e))?;
        }
        Ok(())
    }

    /// Has a transaction wait for a commit. `append` gives the log its batch, adds its redo records to those of the others, and returns the LSN of the
    /// batch: one after another, so that the queue has the order of the log.
    pub fn enqueue(&self, append: impl FnOnce(&mut Vec<u8>) -> u64) -> u64 {
        let queue = &mut *self.queue.lock();
        let lsn = append(&mut queue.redo);
        queue.transactions.push((lsn, queue.redo.len()));
        lsn
    }

    /// Commits the transactions that have LSNs below `end`. `write` makes their batches durable, and with them what this thread has stored before;
    /// it is called once. After a power cut each transaction is there as a whole or not at all, and only with those before it,
    /// except by [`Method::None`].
    ///
    /// After an error nobody knows what is durable: nothing more may be committed until the next start.
    pub fn commit(&self, end: u64, write: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let group = self.queue.lock().take(end);
        self.transactions.fetch_add(group.transactions.len() as u64, Relaxed);
        let pieces = group.pieces();
        match self.method {
            _ if pieces.is_empty() => write(),
            Method::Lat => {
                write()?;
                pieces.into_iter().try_for_each(|redo| self.store_each(records(redo)))?;
                self.fence()
            }
            Method::None => {
                pieces.into_iter().try_for_each(|redo| self.store_each(records(redo)))?;
                write()
            }
            Method::Cow | Method::Latb => self.undoable(&pieces, write),
        }
    }

    /// Commits with an undo log, for each piece anew.
    fn undoable(&self, pieces: &[&[u8]], write: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let mut undo = self.undo.lock();
        let undo = match &mut *undo {
            Some(undo) => undo,
            none => none.insert(UndoLog::create(&*self.io, self.store_id)?),
        };
        // What is stored refers to what is written, so that this comes first, and its fence is the one of the undo log, too.
        let mut is_written = false;
        let mut fence = || if mem::replace(&mut is_written, true) { self.fence() } else { write() };
        for redo in pieces {
            match self.method {
                Method::Cow => {
                    self.each_store(records(redo), |store| {
                        self.note(undo, slice::from_ref(&store))?;
                        self.fence()?;
                        self.store(&store)
                    })?;
                    fence()?;
                }
                _ => {
                    self.each_batch(records(redo), |stores| {
                        self.note(undo, stores)?;
                        fence()?;
                        stores.iter().try_for_each(|store| self.store(store))
                    })?;
                    self.fence()?;
                }
            }
            self.undo_bytes_max.fetch_max(undo.len(), Relaxed);
            undo.clear(&*self.io)?;
        }
        if is_written { Ok(()) } else { write() }
    }

    /// Stores what is in some places to the undo log; durable once this thread has fenced.
    fn note(&self, undo: &mut UndoLog, stores: &[Store]) -> Result<()> {
        let mut old = Vec::new();
        for store in stores {
            old.resize(store.bytes.len(), 0);
            self.load(store.place, &mut old)?;
            undo.push(store.place, &old);
        }
        undo.store()
    }

    /// Calls `f` with the stores that some redo records come to, many at once, of which none share a line.
    fn each_batch<'r>(
        &self,
        records: impl IntoIterator<Item = Result<Record<'r>>>,
        mut f: impl FnMut(&[Store]) -> Result<()>,
    ) -> Result<()> {
        let (mut batch, mut len) = (Vec::new(), 0);
        let mut put =
            |batch: &mut Vec<_>| f(&lines::merge(mem::take(batch), |place, bytes| self.load(place, bytes))?);
        self.each_store(records, |store| {
            len += store.bytes.len();
            batch.push(store);
            if len > BATCH_BYTES {
                len = 0;
                return put(&mut batch);
            }
            Ok(())
        })?;
        if batch.is_empty() { Ok(()) } else { put(&mut batch) }
    }

    /// Does what a redo record says, as far as it concerns extents that there is memory for; durable once this thread has fenced.
    pub fn apply(&self, record: &Record) -> Result<()> {
        self.store_each([Ok(*record)])
    }

    fn store_each<'r>(&self, records: impl IntoIterator<Item = Result<Record<'r>>>) -> Result<()> {
        self.each_batch(records, |stores| stores.iter().try_for_each(|store| self.store(store)))
    }

    /// Calls `f` with the stores that some redo records come to.
    fn each_store<'r>(
        &self,
        records: impl IntoIterator<Item = Result<Record<'r>>>,
        mut f: impl FnMut(Store<'r>) -> Result<()>,
    ) -> Result<()> {
        for record in records {
            let (offset, bytes) = match record? {
                Record::Write { offset, bytes } => (offset, Cow::Borrowed(bytes)),
                Record::Fill { offset, len, byte } => (offset, Cow::Owned(vec![byte; len])),
                Record::Owner { extent, owner, used } => {
                    self.make_ready(extent, owner)?;
                    let word = owner_word(owner, used);
                    f(Store { place: Place::Owner(extent), bytes: Cow::Owned(word.to_le_bytes().to_vec()) })?;
                    continue;
                }
            };
            // What a start replays may change extents that nobody has any more, or not yet.
            if offset + bytes.len() as u64 <= u64::from(self.room.lock().extents) * EXTENT {
                f(Store { place: Place::Page(offset), bytes })?;
            }
        }
        Ok(())
    }

    /// Makes an extent zero that is about to get an owner. Nobody has it, so this need not be undone.
    fn make_ready(&self, extent: u32, owner: u16) -> Result<()> {
        if u64::from(extent) >= MAX_BYTES / EXTENT {
            return Err(Error::corrupt(PAGES, 0, format!("there is no extent {extent}")));
        }
        self.allocate(extent, 1)?;
        if owner == NOBODY || self.room.lock().unused.remove(&extent) {
            return Ok(());
        }
        self.store(&Store { place: Place::Page(u64::from(extent) * EXTENT), bytes: Cow::Borrowed(&ZEROES) })
    }

    /// Has memory for extents.
    ///
    /// # Errors
    /// [`Error::is_full`]: there is none.
    pub fn allocate(&self, first: u32, count: u32) -> Result<()> {
        let mut room = self.room.lock();
        if first + count <= room.extents {
            return Ok(());
        }
        let more = u64::from(room.extents)..u64::from(first + count);
        let failed = |file: &dyn File, e| Error::io(format!("allocate {}", file.name()), e);
        let words = WORDS_AT + more.start * WORD as u64..WORDS_AT + more.end * WORD as u64;
        self.owners.allocate(words.start, words.end - words.start).map_err(|e| failed(&*self.owners, e))?;
        let bytes = more.start * EXTENT..more.end * EXTENT;
        self.pages.allocate(bytes.start, bytes.end - bytes.start).map_err(|e| failed(&*self.pages, e))?;
        // Else a power cut could leave a file too short for what was stored behind its end.
        for file in [&self.owners, &self.pages] {
            file.sync().map_err(|e| Error::io(format!("sync {}", file.name()), e))?;
        }
        room.unused.extend(more.map(|extent| extent as u32));
        room.extents = first + count;
        Ok(())
    }

    /// Bytes of the medium that it takes, without undo logs.
    pub fn bytes(&self) -> u64 {
        u64::from(self.room.lock().extents) * (EXTENT + WORD as u64) + WORDS_AT
    }

    fn store(&self, store: &Store) -> Result<()> {
        self.stores.fetch_add(1, Relaxed);
        let (file, offset) = self.at(store.place);
        file.store(&store.bytes, offset).map_err(|e| Error::io(format!("store to {}", file.name()), e))
    }

    fn load(&self, place: Place, bytes: &mut [u8]) -> Result<()> {
        let (file, offset) = self.at(place);
        file.load(bytes, offset).map_err(|e| Error::io(format!("load from {}", file.name()), e))
    }

    fn at(&self, place: Place) -> (&dyn File, u64) {
        match place {
            Place::Page(offset) => (&*self.pages, offset),
            Place::Owner(extent) => (&*self.owners, WORDS_AT + u64::from(extent) * WORD as u64),
        }
    }

    /// Makes durable what this thread has stored.
    pub fn fence(&self) -> Result<()> {
        self.io.fence().map_err(|e| Error::io(format!("fence {FOLDER}"), e))
    }

    /// Takes back what transactions did that were not over.
    fn roll_back(&mut self) -> Result<()> {
        let mut logs = Vec::new();
        let names = self.io.list(FOLDER).map_err(|e| Error::io(format!("list {FOLDER}"), e))?;
        for name in names.iter().filter(|name| undo::is_one(name)) {
            let Some((log, records)) = UndoLog::open(&*self.io, self.store_id, name)? else { continue };
            for undo in &records {
                let (file, offset) = self.at(undo.place);
                let len = file.len().map_err(|e| Error::io(format!("length of {}", file.name()), e))?;
                if offset + undo.bytes.len() as u64 > len {
                    return Err(Error::corrupt(
                        log.file().name(),
                        0,
                        "it is of a place that the home does not have",
                    ));
                }
            }
            // The last first, for some may be of the same place.
            logs.push((log, records.into_iter().rev().collect::<Vec<_>>()));
        }
        if self.io.is_read_only() {
            self.pending = logs.into_iter().flat_map(|(_, records)| records).collect();
            return Ok(());
        }
        for (_, records) in &mut logs {
            for undo in records.drain(..) {
                self.store(&Store { place: undo.place, bytes: Cow::Owned(undo.bytes) })?;
            }
        }
        // Each log only after all that it undoes: nothing else tells what was there.
        self.fence()?;
        if !logs.is_empty() {
            // One may be there because a start before this one has failed to make it.
            self.io.sync_dir(FOLDER).map_err(|e| Error::io(format!("sync {FOLDER}"), e))?;
        }
        for (mut log, _) in logs {
            log.clear(&*self.io)?;
            keep_len(log.file())?;
            *self.undo.get_mut() = Some(log);
        }
        Ok(())
    }

    /// The extents that have owners: the number of each, its owner, and the granules that were taken when it got it.
    pub(crate) fn owned(&self) -> Result<Vec<(u32, u16, u16)>> {
        let extents = self.room.lock().extents;
        let mut bytes = vec![0; extents as usize * WORD];
        read(&*self.owners, &mut bytes, WORDS_AT)?;
        for undo in &self.pending {
            let Place::Owner(extent) = undo.place else { continue };
            let at = extent as usize * WORD;
            if let Some(word) = bytes.get_mut(at..at + undo.bytes.len()) {
                word.copy_from_slice(&undo.bytes);
            }
        }
        let words =
            bytes.chunks_exact(WORD).map(|word| u64::from_le_bytes(*word.first_chunk().expect("a word")));
        let owned = (0..).zip(words).filter(|(_, word)| *word != 0);
        Ok(owned.map(|(extent, word)| (extent, (word as u16).wrapping_sub(1), (word >> 16) as u16)).collect())
    }

    /// The file in which each page lies at its offset.
    pub(crate) fn pages(&self) -> Arc<dyn File> {
        self.pages.clone()
    }

    /// Reads an extent as it is without what was not over.
    pub(crate) fn read_extent(&self, extent: u32, bytes: &mut [u8]) -> Result<()> {
        let start = u64::from(extent) * EXTENT;
        read(&*self.pages, bytes, start)?;
        for undo in &self.pending {
            let Place::Page(offset) = undo.place else { continue };
            // It may begin before the extent, or end behind it.
            for (at, &byte) in (offset..).zip(&undo.bytes) {
                if let Some(to) = at.checked_sub(start).and_then(|at| bytes.get_mut(at as usize)) {
                    *to = byte;
                }
            }
        }
        Ok(())
    }

    /// Gives an extent an owner and its bytes, while the home is being made.
    pub(crate) fn put_extent(&self, extent: u32, owner: u16, used: u16, bytes: &[u8]) -> Result<()> {
        self.allocate(extent, 1)?;
        self.room.lock().unused.remove(&extent);
        self.store(&Store { place: Place::Page(u64::from(extent) * EXTENT), bytes: Cow::Borrowed(bytes) })?;
        let word = owner_word(owner, used).to_le_bytes();
        self.store(&Store { place: Place::Owner(extent), bytes: Cow::Borrowed(&word) })
    }
}

impl Queue {
    /// Takes the transactions out that have LSNs below `end`.
    fn take(&mut self, end: u64) -> Queue {
        let count = self.transactions.partition_point(|&(lsn, _)| lsn < end);
        let mut later = self.transactions.split_off(count);
        let at = self.transactions.last().map_or(0, |&(_, at)| at);
        later.iter_mut().for_each(|(_, end)| *end -= at);
        let later = Queue { redo: self.redo.split_off(at), transactions: later };
        mem::replace(self, later)
    }

    /// Their redo records, in pieces that are committed one after another. An extent that gets an owner is made zero before, and that is not
    /// undone: it must be durable by then that nobody has it.
    fn pieces(&self) -> Vec<&[u8]> {
        let (mut pieces, mut freed) = (Vec::new(), HashSet::new());
        let (mut start, mut begin) = (0, 0);
        for &(_, end) in &self.transactions {
            let owners = || {
                records(&self.redo[begin..end]).filter_map(|record| match record {
                    Ok(Record::Owner { extent, owner, .. }) => Some((extent, owner)),
                    _ => None,
                })
            };
            if !freed.is_empty() && owners().any(|(extent, _)| freed.contains(&extent)) {
                pieces.push(&self.redo[start..begin]);
                start = begin;
                freed.clear();
            }
            freed.extend(owners().filter(|&(_, owner)| owner == NOBODY).map(|(extent, _)| extent));
            begin = end;
        }
        if start < begin {
            pieces.push(&self.redo[start..begin]);
        }
        pieces
    }
}

/// Redo records, one behind another.
fn records(redo: &[u8]) -> impl Iterator<Item = Result<Record<'_>>> {
    let unknown = || Error::corrupt(PAGES, 0, "a redo record of no known kind");
    Record::all(redo).map(move |record| record.ok_or_else(unknown))
}

/// What the word of an extent says; zero: nobody has it.
fn owner_word(owner: u16, used: u16) -> u64 {
    if owner == NOBODY { 0 } else { (u64::from(owner) + 1) | u64::from(used) << 16 }
}

fn header(store_id: [u8; 16], arenas: u16) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block[..8].copy_from_slice(MAGIC);
    block[8..24].copy_from_slice(&store_id);
    block[24..26].copy_from_slice(&arenas.to_le_bytes());
    let crc = holdfast_io::crc32c(&block[..BLOCK - 4]);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Makes the length durable that a file was found with. A sync may have failed before, after which another one would not write it; and what is
/// stored behind the length that the medium knows is lost with the power.
fn keep_len(file: &dyn File) -> Result<()> {
    let kept = file.len().and_then(|len| file.set_len(len)).and_then(|()| file.sync());
    kept.map_err(|e| Error::io(format!("sync {}", file.name()), e))
}

fn read(file: &dyn File, bytes: &mut [u8], offset: u64) -> Result<()> {
    file.read_at(bytes, offset).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::corrupt(file.name(), offset, "the file ends too early"),
        _ => Error::io(format!("read {}", file.name()), e),
    })
}
