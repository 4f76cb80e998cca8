//! The heap's file: what the last complete checkpoint says, and how it is read. See docs/format.md, "Heap".

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use holdfast_io::{AlignedBuf, Durability, Error, File, ReadQueue, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    EXTENT, Home, PAGE, PAGES, PagesWritten,
    owner::{self, NOBODY, RAW},
    slots::Slots,
};

/// No slot or table: all zero.
pub(crate) const NOWHERE: u32 = u32::MAX;
/// Bytes of a table.
pub(crate) const TABLE: usize = 8 * PAGES;
/// Tables in a slot.
pub(crate) const TABLES: u32 = (PAGE / TABLE) as u32;
/// Bytes of an entry of the root table.
pub(crate) const ENTRY: usize = 12;
/// Slots to be read at once, at most; and unused ones between them, at most.
const WINDOW: u32 = 256;
const GAP: u32 = 8;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRef {
    pub(crate) slot: u32,
    pub(crate) crc: u32,
}

impl PageRef {
    /// A page of zeroes.
    pub(crate) const ZERO: PageRef = PageRef { slot: NOWHERE, crc: 0 };
    /// A page of which it is not known where it is: a slot that no file has.
    pub(crate) const UNREADABLE: PageRef = PageRef { slot: NOWHERE - 1, crc: 0 };
}

/// Where the pages of an extent are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table(pub(crate) [PageRef; PAGES]);

impl Table {
    /// An extent of zeroes.
    pub(crate) const ZERO: Table = Table([PageRef::ZERO; PAGES]);

    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        for (page, bytes) in self.0.iter().zip(bytes.chunks_exact_mut(8)) {
            bytes[..4].copy_from_slice(&page.slot.to_le_bytes());
            bytes[4..].copy_from_slice(&page.crc.to_le_bytes());
        }
    }

    /// The slots of the pages.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|page| page.slot).filter(|&slot| slot != NOWHERE)
    }

    fn decode(bytes: &[u8]) -> Table {
        let mut table = Table::ZERO;
        for (page, bytes) in table.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *page = PageRef { slot: u32_at(bytes, 0), crc: u32_at(bytes, 4) };
        }
        table
    }
}

/// What a checkpoint says of an extent.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Of the table, in units of [`TABLE`]; [`NOWHERE`]: all pages are zero.
    pub(crate) position: u32,
    /// Of the table.
    pub(crate) crc: u32,
    /// An arena, with [`RAW`] or without, or [`NOBODY`].
    pub(crate) owner: u16,
    /// Allocated granules.
    pub(crate) used: u16,
    /// `None`: all pages are zero.
    pub(crate) table: Option<Box<Table>>,
}

impl Entry {
    /// A free extent.
    pub(crate) const FREE: Entry = Entry { position: NOWHERE, crc: 0, owner: NOBODY, used: 0, table: None };

    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.position.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.owner.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.used.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Entry {
        let (position, crc) = (u32_at(bytes, 0), u32_at(bytes, 4));
        Entry { position, crc, owner: u16_at(bytes, 8), used: u16_at(bytes, 10), table: None }
    }

    pub(crate) fn page(&self, page: usize) -> PageRef {
        self.table.as_ref().map_or(PageRef::ZERO, |table| table.0[page])
    }

    /// The slots of the pages.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.table.iter().flat_map(|table| table.slots())
    }
}

/// What the superblock keeps of a heap: all that is needed to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapRoot {
    /// First slot of the root table.
    pub(crate) slot: u32,
    /// Number of its entries.
    pub(crate) extents: u32,
    /// Its CRC-32C.
    pub(crate) crc: u32,
    pub(crate) arenas: u16,
}

impl HeapRoot {
    /// Bytes of an encoded root.
    pub const LEN: usize = 64;

    /// The bytes for the superblock.
    pub fn encode(&self) -> [u8; HeapRoot::LEN] {
        let mut bytes = [0; HeapRoot::LEN];
        bytes[..4].copy_from_slice(&self.slot.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.extents.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.crc.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.arenas.to_le_bytes());
        bytes
    }

    /// Reads what [`HeapRoot::encode`] wrote. The superblock's checksum covers the bytes; whether they make sense is
    /// checked by [`Heap::open`](crate::Heap::open).
    pub fn decode(bytes: &[u8; HeapRoot::LEN]) -> HeapRoot {
        let (slot, extents, crc) = (u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 8));
        HeapRoot { slot, extents, crc, arenas: u16_at(bytes, 12) }
    }

    /// Number of arenas of the heap.
    pub fn arenas(&self) -> u16 {
        self.arenas
    }

    /// Slots of the root table.
    pub(crate) fn slots(&self) -> std::ops::Range<u32> {
        self.slot..self.slot + (self.extents as usize * ENTRY).div_ceil(PAGE) as u32
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// What is known of the file.
pub(crate) struct State {
    /// The last complete checkpoint, by extent. It names every page that is absent from memory: absent pages cannot have
    /// changed, and leave memory only when it does.
    pub(crate) entries: Vec<Entry>,
    /// In use by that checkpoint, or by one that is being written.
    pub(crate) slots: Slots,
    /// `None` before the first.
    pub(crate) root: Option<HeapRoot>,
}

/// The file and its [`State`]; or a [`Home`], where each page lies at its offset, and no checkpoint says anything.
pub(crate) struct PageFile {
    file: Arc<dyn File>,
    pub(crate) home: Option<Arc<Home>>,
    state: Mutex<State>,
    pages_written: AtomicU64,
    tables_written: AtomicU64,
}

impl PageFile {
    /// A file in which nothing is worth reading.
    pub(crate) fn empty(file: Arc<dyn File>) -> PageFile {
        let state = State { entries: Vec::new(), slots: Slots::default(), root: None };
        let (pages_written, tables_written) = Default::default();
        PageFile { file, home: None, state: Mutex::new(state), pages_written, tables_written }
    }

    /// A home, which is changed as the pages are.
    pub(crate) fn home(home: Arc<Home>) -> PageFile {
        PageFile { home: Some(home.clone()), ..PageFile::empty(home.pages()) }
    }

    /// Reads and checks all tables.
    pub(crate) fn open(file: Arc<dyn File>, root: &HeapRoot) -> Result<PageFile> {
        let page_file = PageFile::empty(file);
        let state = page_file.read_state(root)?;
        *page_file.state.lock() = state;
        Ok(page_file)
    }

    /// Reads the tables of a file that may be damaged. The pages of one that fails its check cannot be read; what is wrong
    /// with it is returned. Fails if the root table does.
    pub(crate) fn open_damaged(file: Arc<dyn File>, root: &HeapRoot) -> Result<(PageFile, Vec<Error>)> {
        let page_file = PageFile::empty(file);
        let mut slots = page_file.slots()?;
        let mut entries = page_file.read_root_table(root, &mut slots)?;
        let (mut faults, mut bytes) = (Vec::new(), AlignedBuf::zeroed(PAGE));
        for (extent, entry) in (0..).zip(&mut entries).filter(|(_, entry)| entry.position != NOWHERE) {
            let at = (entry.position % TABLES) as usize * TABLE;
            let read = page_file.read(entry.position / TABLES, &mut bytes);
            let read = read.and_then(|()| page_file.read_table(extent, entry, &bytes[at..at + TABLE]));
            if let Err(fault) = read {
                faults.push(fault);
                entry.table = Some(Box::new(Table([PageRef::UNREADABLE; PAGES])));
            }
        }
        *page_file.state.lock() = State { entries, slots, root: Some(*root) };
        Ok((page_file, faults))
    }

    pub(crate) fn name(&self) -> &str {
        self.file.name()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn pages_written(&self) -> PagesWritten {
        PagesWritten { pages: self.pages_written.load(Relaxed), tables: self.tables_written.load(Relaxed) }
    }

    /// A failed check of the unit at `offset` in the file.
    pub(crate) fn corrupt(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corrupt(self.name(), offset, what)
    }

    /// Writes pages to slots; durable after [`PageFile::sync`].
    pub(crate) fn write_pages(&self, slot: u32, bytes: &[u8]) -> Result<()> {
        self.write(slot, bytes, &self.pages_written)
    }

    /// The same with slots of tables.
    pub(crate) fn write_tables(&self, slot: u32, bytes: &[u8]) -> Result<()> {
        self.write(slot, bytes, &self.tables_written)
    }

    fn write(&self, slot: u32, bytes: &[u8], written: &AtomicU64) -> Result<()> {
        self.file
            .write_at(&[bytes], u64::from(slot) * PAGE as u64, Durability::Volatile)
            .map_err(|e| Error::io(format!("write {}", self.name()), e))?;
        written.fetch_add((bytes.len() / PAGE) as u64, Relaxed);
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| Error::io(format!("sync {}", self.name()), e))
    }

    /// Cuts the free end off, if it is large.
    pub(crate) fn trim(&self, state: &mut State) {
        if state.slots.trim() {
            // A file that is longer than needed does no harm: the next checkpoint tries again.
            let _ = self.file.set_len((state.slots.len() * PAGE) as u64);
        }
    }

    /// Gives the space of free slots back to the medium, if much more slots take some than `keep`. Not while a checkpoint writes.
    pub(crate) fn punch_holes(&self, keep: usize) {
        let mut runs = self.state().slots.punch(keep).into_iter();
        let has_failed = runs.by_ref().find(|run| {
            let (offset, len) = (u64::from(run.start) * PAGE as u64, (run.len() * PAGE) as u64);
            !self.file.punch_hole(offset, len).unwrap_or(false)
        });
        // That does no harm: the next checkpoint tries again.
        has_failed.into_iter().chain(runs).for_each(|run| self.state().slots.fill(run));
    }

    fn read(&self, slot: u32, bytes: &mut [u8]) -> Result<()> {
        let offset = u64::from(slot) * PAGE as u64;
        self.file.read_at(bytes, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.corrupt(offset, "the file ends too early"),
            _ => Error::io(format!("read {}", self.name()), e),
        })
    }

    /// Reads a page that is absent from memory.
    pub(crate) fn read_page(&self, extent: u32, page: usize, bytes: &mut [u8]) -> Result<()> {
        let at = self.page_ref(extent, page);
        self.read(at.slot, bytes)?;
        self.check_page(at, extent, page, bytes)
    }

    /// Where the last complete checkpoint has a page that is absent from memory.
    pub(crate) fn page_ref(&self, extent: u32, page: usize) -> PageRef {
        if self.home.is_some() {
            return PageRef { slot: extent * PAGES as u32 + page as u32, crc: 0 };
        }
        let at = self.state.lock().entries[extent as usize].page(page);
        assert_ne!(at.slot, NOWHERE, "a page of zeroes is never absent");
        at
    }

    /// Copies an absent page that was read, maybe before it came to memory and left it again: then it may lie elsewhere by
    /// now, and is read anew.
    pub(crate) fn copy_page(&self, extent: u32, page: usize, from: &[u8], to: &mut [u8]) -> Result<()> {
        // A home has no checksums that would tell.
        if self.home.is_some() || holdfast_io::crc32c(from) != self.page_ref(extent, page).crc {
            return self.read_page(extent, page, to);
        }
        to.copy_from_slice(from);
        Ok(())
    }

    /// Asks a queue for a page; false if it has no slot.
    pub(crate) fn begin_read_page(&self, extent: u32, page: usize, queue: &mut ReadQueue, tag: u64) -> bool {
        let slot_of =
            |state: &State| state.entries.get(extent as usize).map_or(NOWHERE, |e| e.page(page).slot);
        let slot = match &self.home {
            Some(_) => self.page_ref(extent, page).slot,
            None => slot_of(&self.state.lock()),
        };
        if slot == NOWHERE {
            return false;
        }
        self.file.begin_read(queue, u64::from(slot) * PAGE as u64, PAGE, tag);
        true
    }

    /// The pages of an extent for which the last complete checkpoint has slots, as bits; or the home has all.
    pub(crate) fn pages_in_slots(&self, extent: u32) -> u64 {
        if self.home.is_some() {
            return !0;
        }
        let state = self.state.lock();
        let Some(table) = state.entries.get(extent as usize).and_then(|entry| entry.table.as_ref()) else {
            return 0;
        };
        (0..PAGES).filter(|&page| table.0[page].slot != NOWHERE).fold(0, |pages, page| pages | 1 << page)
    }

    /// Compares a page with its checksum (I-8); in a home, which is changed by bytes, there is none.
    pub(crate) fn check_page(&self, at: PageRef, extent: u32, page: usize, bytes: &[u8]) -> Result<()> {
        if self.home.is_some() || holdfast_io::crc32c(bytes) == at.crc {
            return Ok(());
        }
        let offset = u64::from(extent) * EXTENT + (page * PAGE) as u64;
        Err(self.corrupt(
            u64::from(at.slot) * PAGE as u64,
            format!("the checksum of the page for heap offset {offset} does not match"),
        ))
    }

    /// Reads the slots that the first elements of `wanted` (ascending by slot) name, as many as one read should bring,
    /// at most `max_bytes`. Returns how many elements that were, the first slot, and the bytes from there on.
    pub(crate) fn read_window<T>(
        &self,
        wanted: &[(u32, T)],
        max_bytes: usize,
    ) -> Result<(usize, u32, AlignedBuf)> {
        let slots_max = (max_bytes / PAGE).clamp(1, WINDOW as usize) as u32;
        let first = wanted[0].0;
        let n = 1 + wanted
            .windows(2)
            .take_while(|w| w[1].0 - w[0].0 <= GAP && w[1].0 - first < slots_max)
            .count();
        let mut bytes = AlignedBuf::zeroed((wanted[n - 1].0 - first + 1) as usize * PAGE);
        self.read(first, &mut bytes)?;
        Ok((n, first, bytes))
    }

    /// The slots that the file has, all of them free.
    fn slots(&self) -> Result<Slots> {
        let len = self.file.len().map_err(|e| Error::io(format!("length of {}", self.name()), e))?;
        Ok(Slots::new((len / PAGE as u64).min(u64::from(NOWHERE) - 1) as u32))
    }

    fn read_state(&self, root: &HeapRoot) -> Result<State> {
        let mut slots = self.slots()?;
        let mut entries = self.read_root_table(root, &mut slots)?;
        let mut tables: Vec<(u32, u32)> = (0..)
            .zip(&entries)
            .filter(|(_, entry)| entry.position != NOWHERE)
            .map(|(extent, entry)| (entry.position, extent))
            .collect();
        tables.sort_unstable();
        if let Some(pair) = tables.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let what = format!("extents {} and {} have the same table", pair[0].1, pair[1].1);
            return Err(self.corrupt(u64::from(pair[0].0) * TABLE as u64, what));
        }
        let wanted: Vec<(u32, u32)> =
            tables.iter().map(|&(position, extent)| (position / TABLES, extent)).collect();
        for &(slot, extent) in &wanted {
            let root_table = root.slots();
            if slots.is_free(slot).is_none() || root_table.contains(&slot) {
                let what = format!("the table of extent {extent} cannot be in slot {slot}");
                return Err(self.corrupt(u64::from(root.slot) * PAGE as u64, what));
            }
            slots.hold(slot);
        }
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let (n, first, bytes) = self.read_window(rest, usize::MAX)?;
            for &(_, extent) in &rest[..n] {
                let entry = &mut entries[extent as usize];
                let at = entry.position as usize * TABLE - first as usize * PAGE;
                self.read_table(extent, entry, &bytes[at..at + TABLE])?;
            }
            rest = &rest[n..];
        }
        for (extent, entry) in entries.iter().enumerate() {
            for slot in entry.slots() {
                if slots.is_free(slot) != Some(true) {
                    let what = format!("a page of extent {extent} cannot be in slot {slot}");
                    return Err(self.corrupt(u64::from(entry.position) * TABLE as u64, what));
                }
                slots.hold(slot);
            }
        }
        Ok(State { entries, slots, root: Some(*root) })
    }

    fn read_root_table(&self, root: &HeapRoot, slots: &mut Slots) -> Result<Vec<Entry>> {
        let offset = u64::from(root.slot) * PAGE as u64;
        let len = root.extents as usize * ENTRY;
        let slot_count = len.div_ceil(PAGE);
        if root.slot as usize + slot_count > slots.len() || root.arenas == 0 || root.arenas >= RAW {
            return Err(self.corrupt(offset, "no root table can be there"));
        }
        let mut bytes = AlignedBuf::zeroed(slot_count * PAGE);
        self.read(root.slot, &mut bytes)?;
        if holdfast_io::crc32c(&bytes[..len]) != root.crc {
            return Err(self.corrupt(offset, "the checksum of the root table does not match"));
        }
        root.slots().for_each(|slot| slots.hold(slot));
        let entries: Vec<Entry> = bytes[..len].chunks_exact(ENTRY).map(Entry::decode).collect();
        let homes =
            (0..root.arenas).all(|arena| entries.get(usize::from(arena)).is_some_and(|e| e.owner == arena));
        let owners = entries.iter().all(|e| {
            owner::is_valid(e.owner, e.used, root.arenas) && (e.owner != NOBODY || e.position == NOWHERE)
        });
        if !homes || !owners {
            return Err(self.corrupt(offset, "the root table names impossible owners"));
        }
        Ok(entries)
    }

    fn read_table(&self, extent: u32, entry: &mut Entry, bytes: &[u8]) -> Result<()> {
        if holdfast_io::crc32c(bytes) != entry.crc {
            let what = format!("the checksum of the table of extent {extent} does not match");
            return Err(self.corrupt(u64::from(entry.position) * TABLE as u64, what));
        }
        entry.table = Some(Box::new(Table::decode(bytes)));
        Ok(())
    }
}
