//! A partition whose bytes are changed by redo of another server's, record by record, while it is read: what is known of them in memory
//! goes before they change, or follows when they have.

use super::{
    DATABASE_MAP, DATABASE_ROOT_BYTES, Database, Partition,
    databases::{DATABASES, PHYSICAL_DATABASES},
    index::{Index, ROOT_BYTES, Rooted},
    shared::Shared,
};
use crate::format::HEAP;
use holdfast_heap::{EXTENT, PAGE};
use holdfast_io::{Error, Result};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

/// An index of a partition: of a database's keys, or of those that expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Which {
    db: u8,
    expires: bool,
}

/// Where the indexes of a partition lie, and which of them are other ones than are known in memory.
#[derive(Default)]
pub(crate) struct IndexPlaces {
    /// By page of the heap: which database's keys, and where in the index that is.
    pages: HashMap<u64, (u8, (u32, u8))>,
    /// By where a directory begins: where it ends, and whose it is.
    directories: BTreeMap<u64, (u64, Which)>,
    grown: Vec<Which>,
    moved: Vec<Which>,
    /// Extents whose headers have changed.
    headers: Vec<u32>,
    /// Databases of whose keys entries were written.
    written: Vec<u8>,
}

impl IndexPlaces {
    /// Those of a partition as it is.
    pub fn of(part: &Partition) -> IndexPlaces {
        let mut places = IndexPlaces::default();
        for which in all() {
            places.add(part, which);
        }
        places
    }

    /// Whether redo that is not [followed](Partition::follow) yet has written entries of a database.
    pub fn have_written(&self, db: u8) -> bool {
        self.written.contains(&db) || self.moved.iter().any(|which| which.db == db)
    }

    fn add(&mut self, part: &Partition, which: Which) {
        let index = part.index(which);
        let directory = index.directory_range(&part.arena);
        if !directory.is_empty() {
            self.directories.insert(directory.start, (directory.end, which));
        }
        if !which.expires {
            self.pages.extend(index.segment_pages().map(|(page, place)| (page, (which.db, place))));
        }
    }

    fn remove(&mut self, which: Which) {
        self.directories.retain(|_, (_, whose)| *whose != which);
        if !which.expires {
            self.pages.retain(|_, (db, _)| *db != which.db);
        }
    }

    /// A directory that a write touches, of those that are still as they are known.
    fn known_directory_in(&self, written: &Range<u64>) -> Option<Which> {
        let before = self.directories.range(..written.end).rev();
        let touched = before.map(|(_, directory)| directory).take_while(|(end, _)| *end > written.start);
        let mut which = touched.map(|(_, which)| *which);
        which.find(|which| !self.moved.contains(which))
    }
}

/// Whether a write changes which physical databases the logical ones are.
pub(crate) fn changes_database_map(offset: u64, len: usize) -> bool {
    /// In the heap: the first partition's page of roots is behind the header of its first extent.
    const AT: u64 = PAGE as u64 + DATABASE_MAP;
    offset < AT + DATABASES as u64 && AT < offset + len as u64
}

fn all() -> impl Iterator<Item = Which> {
    (0..PHYSICAL_DATABASES as u8).flat_map(|db| [false, true].map(|expires| Which { db, expires }))
}

impl Which {
    /// Where its root lies in the page of the roots.
    fn root(self) -> u64 {
        u64::from(self.db) * DATABASE_ROOT_BYTES + if self.expires { ROOT_BYTES } else { 0 }
    }
}

impl Partition {
    fn index(&self, which: Which) -> &Index {
        let database = &self.databases[usize::from(which.db)];
        if which.expires { &database.expires } else { &database.keys }
    }

    /// Has nothing be counted into the log's live bytes as it is used.
    pub fn call_attached(&mut self) {
        self.databases.iter_mut().for_each(|database| database.keys.call_attached(true));
    }

    /// Has nothing count as counted into the log's live bytes.
    pub fn call_unattached(&mut self) {
        self.frozen = Default::default();
        self.databases.iter_mut().for_each(|database| database.keys.call_attached(false));
    }

    /// Writes what redo says: bytes of one extent, which is this partition's.
    pub fn redo(&mut self, places: &mut IndexPlaces, offset: u64, bytes: &[u8]) {
        let written = offset..offset + bytes.len() as u64;
        self.forget_copies_in(places, &written);
        self.look_at_roots(places, &written);
        while let Some(which) = places.known_directory_in(&written) {
            self.abandon(places, which);
        }
        let extent = (offset / EXTENT) as u32;
        if offset % EXTENT < PAGE as u64 && places.headers.last() != Some(&extent) {
            places.headers.push(extent);
        }
        self.arena.patch(offset, bytes);
    }

    /// Forgets the copies of values whose entries lie in a part of the heap.
    fn forget_copies_in(&mut self, places: &mut IndexPlaces, written: &Range<u64>) {
        const BYTES: u64 = PAGE as u64;
        for page in written.start / BYTES..written.end.div_ceil(BYTES) {
            let Some(&(db, place)) = places.pages.get(&page) else { continue };
            if places.written.last() != Some(&db) {
                places.written.push(db);
            }
            let start = page * BYTES;
            let part = written.start.saturating_sub(start)..(written.end - start).min(BYTES);
            for slot in Index::places_within(place, part) {
                if let Some(copy) = self.copy_of(db, slot) {
                    self.cache.kill(copy);
                }
                self.databases[usize::from(db)].keys.set_handle(slot, 0);
            }
        }
    }

    /// Notes what a write changes of the roots.
    fn look_at_roots(&mut self, places: &mut IndexPlaces, written: &Range<u64>) {
        let page = self.arena.root();
        if written.end <= page || written.start >= page + PAGE as u64 {
            return;
        }
        let first = written.start.saturating_sub(page) / DATABASE_ROOT_BYTES;
        let last = (written.end - page).div_ceil(DATABASE_ROOT_BYTES).min(PHYSICAL_DATABASES as u64);
        for which in (first..last).flat_map(|db| [false, true].map(|expires| Which { db: db as u8, expires }))
        {
            let Some(part) = Index::within_root(page + which.root(), written) else { continue };
            match Index::rooted(&part) {
                Rooted::Directory => self.abandon(places, which),
                Rooted::Len if places.grown.contains(&which) => {}
                Rooted::Len => places.grown.push(which),
            }
        }
    }

    /// What is known of an index is not true any more.
    fn abandon(&mut self, places: &mut IndexPlaces, which: Which) {
        if places.moved.contains(&which) {
            return;
        }
        places.moved.push(which);
        let Partition { databases, arena, cache, .. } = self;
        let Database { keys, expires, .. } = &mut databases[usize::from(which.db)];
        if which.expires {
            expires.abandon(arena, |_| ());
        } else {
            keys.abandon(arena, |copy| cache.kill(copy));
        }
    }

    /// Takes over what the redo of a batch, all of it, has changed.
    ///
    /// # Errors
    /// An index is not what it should be, or a header of the heap.
    pub fn follow(&mut self, shared: &Shared, places: &mut IndexPlaces) -> Result<()> {
        places.written.clear();
        places.headers.sort_unstable();
        places.headers.dedup();
        places.headers.drain(..).try_for_each(|extent| self.arena.follow_header(extent))?;
        for which in std::mem::take(&mut places.grown) {
            let Database { keys, expires, .. } = &mut self.databases[usize::from(which.db)];
            let index = if which.expires { expires } else { keys };
            index.follow_len(&self.arena);
        }
        for which in std::mem::take(&mut places.moved) {
            places.remove(which);
            let Database { keys, expires, .. } = &mut self.databases[usize::from(which.db)];
            let index = if which.expires { expires } else { keys };
            index.reopen(&mut self.arena).map_err(|what| Error::corrupt(HEAP, 0, what))?;
            places.add(self, which);
        }
        self.version += 1;
        self.observers.notify_each();
        self.trim_cache(shared);
        Ok(())
    }
}
