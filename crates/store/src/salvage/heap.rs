//! A damaged heap: the entries of its indexes, and its objects.

use super::{Doubt, Finding, LostKey, SalvagedKey, SalvagedValue, Sink, items::KeyFound};
use crate::{
    collections::{Context, Hasher, Limits, absent::Finder, object, serial, string},
    format::{
        HEAP,
        digest::{Digest, SLOTS, Secret, hash_slot},
        entry_word::{EntryWord, Type, class_bytes},
        payload::Changes,
        superblock::Superblock,
    },
    partition::{
        DATABASE_MAP, DATABASE_ROOT_BYTES,
        databases::{DATABASES, PHYSICAL_DATABASES},
        index::{Index, Lookup, ROOT_BYTES},
        shared::hasher,
    },
};
use holdfast_heap::{Arena, Heap, HeapOptions, Home, HomeMethod, Recovery};
use holdfast_io::{Error, Io, Result};
use holdfast_log::Lsn;
use std::{collections::HashMap, sync::Arc};

/// A heap to which the log is being replayed.
pub struct Replaying {
    heap: Arc<Heap>,
    recovery: Recovery,
    /// Whether the log has all that was changed since the last checkpoint.
    has_redo: bool,
    changes: Changes,
    secret: Secret,
}

/// A heap, as far as it can be read.
pub struct DamagedHeap {
    arenas: Vec<Arena>,
    /// By partition, the indexes of its databases: those of keys and expiries.
    indexes: Vec<Vec<Indexes>>,
    databases: Option<[u8; DATABASES]>,
    hasher: Hasher,
    limits: Limits,
}

struct Indexes {
    /// `None`: its root or directory is damaged.
    keys: Option<Index>,
    expires: Option<Index>,
    /// Whether entries of the keys cannot be read.
    lacks_keys: bool,
}

/// An entry, and what is known of its expiry.
pub struct Place {
    pub word: EntryWord,
    pub digest: Digest,
    pub physical: u8,
    expires_ms: Option<u64>,
    /// Whether it expires and it is not known when.
    lacks_expiry: bool,
}

impl DamagedHeap {
    pub fn open(
        io: &Arc<dyn Io>,
        superblock: &Superblock,
        bytes_max: u64,
        sink: &mut Sink,
    ) -> Result<Replaying> {
        let options = HeapOptions { max_bytes: bytes_max, arenas: superblock.partitions };
        let (heap, recovery) = match superblock.home {
            None => {
                let file = io.open(HEAP, false).map_err(|e| Error::io("open heap", e))?;
                let (heap, recovery, faults) = Heap::open_damaged(file, options, &superblock.heap)?;
                faults.into_iter().try_for_each(|fault| sink(Finding::Damage(fault)))?;
                (heap, recovery)
            }
            Some(method) => {
                let home = Home::open(io.clone(), superblock.store_id, superblock.partitions, method)?;
                Heap::take_over(&home, None, options)?
            }
        };
        let has_redo = matches!(superblock.home, None | Some(HomeMethod::Lat));
        let changes = Changes::default();
        Ok(Replaying { heap, recovery, has_redo, changes, secret: superblock.secret() })
    }

    /// The physical database of each logical one, if that is known.
    pub fn databases(&self) -> Option<&[u8; DATABASES]> {
        self.databases.as_ref()
    }

    /// All partitions with all physical databases.
    pub fn all_databases(&self) -> impl Iterator<Item = (usize, u8)> + use<> {
        let partitions = 0..self.arenas.len();
        partitions.flat_map(|partition| (0..PHYSICAL_DATABASES as u8).map(move |db| (partition, db)))
    }

    /// Calls `f` with all entries of a database that can be read; how many are known to be there besides.
    pub fn for_each_entry(
        &self,
        partition: usize,
        physical: u8,
        f: &mut dyn FnMut(Place) -> Result<()>,
    ) -> Result<u64> {
        let (arena, indexes) = (&self.arenas[partition], &self.indexes[partition][usize::from(physical)]);
        let Some(keys) = &indexes.keys else { return Ok(0) };
        let mut expiries = HashMap::new();
        if let Some(expires) = &indexes.expires {
            expires.for_each_readable(arena, |digest, word| {
                expiries.insert((digest.h0, digest.h1), word.0);
            });
        }
        let mut told = Ok(());
        let lost = keys.for_each_readable(arena, |digest, word| {
            let expires_ms = expiries.get(&(digest.h0, digest.h1)).copied().filter(|_| word.has_expiry());
            let lacks_expiry = word.has_expiry() && expires_ms.is_none();
            if told.is_ok() {
                told = f(Place { word, digest, physical, expires_ms, lacks_expiry });
            }
        });
        told.map(|()| lost)
    }

    /// The key and the value of an object; or why it is lost, and the key if that can be told.
    pub fn value(&self, secret: &Secret, partition: usize, obj: u64, ty: Type, digest: Digest) -> KeyFound {
        let arena = &self.arenas[partition];
        let context = Context { hasher: &self.hasher, limits: &self.limits, now_ms: 0, expired_ms: 0 };
        let key = Finder::new(arena, false, 1).has_name(obj).then(|| object::key(arena, obj).to_vec());
        if !Finder::new(arena, false, 1).has_whole(context, obj) {
            return Err((key, "a page of it is damaged"));
        }
        let key = key.filter(|key| secret.digest(key).h0 == digest.h0);
        let Some(key) = key.filter(|_| object::ty(arena, obj) == ty) else {
            return Err((None, "the object is another key's"));
        };
        let mut bytes = Vec::new();
        if ty == Type::String {
            let slices = string::slices(arena, obj, 0, string::len(arena, obj));
            slices.for_each(|slice| bytes.extend_from_slice(slice));
            return Ok((key, SalvagedValue::String(bytes)));
        }
        serial::export(arena, context, obj, &mut bytes);
        Ok((key, SalvagedValue::Collection(ty, bytes)))
    }

    /// Whether any entry of a key cannot be read.
    pub fn lacks_entries(&self) -> bool {
        self.indexes.iter().flatten().any(|indexes| indexes.lacks_keys)
    }

    /// Whether a key may have an entry that cannot be read.
    pub fn may_have(&self, physical: u8, key: &[u8], digest: Digest) -> bool {
        let partition = usize::from(hash_slot(key)) * self.arenas.len() / SLOTS;
        let Some(indexes) = self.indexes[partition].get(usize::from(physical)) else { return false };
        let look_up = |keys: &Index| keys.look_up(&self.arenas[partition], digest) == Lookup::Unknown;
        indexes.lacks_keys && indexes.keys.as_ref().is_none_or(look_up)
    }
}

impl Replaying {
    /// Takes in what a batch of the log has changed.
    pub fn replay(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<()> {
        if !self.has_redo {
            return Ok(());
        }
        self.changes.each(lsn, bytes, |change| self.recovery.apply(change))
    }

    /// The heap with all that was replayed. Tells the pages that are damaged.
    pub fn finish(self, sink: &mut Sink) -> Result<DamagedHeap> {
        let Replaying { heap, recovery, secret, .. } = self;
        let mut arenas = recovery.finish_damaged();
        for page in heap.load_damaged(&mut arenas)? {
            sink(Finding::Damage(page.error))?;
        }
        let indexes = arenas.iter_mut().map(open_indexes).collect();
        let (first, map) = (&arenas[0], arenas[0].root() + DATABASE_MAP);
        let is_known = first.absent(map, DATABASES).next().is_none();
        let databases = is_known.then(|| {
            let map: [u8; DATABASES] = first.array(map);
            std::array::from_fn(|logical| map[logical] ^ logical as u8)
        });
        let (hasher, limits) = (hasher(&secret), Limits::default());
        Ok(DamagedHeap { arenas, indexes, databases, hasher, limits })
    }
}

fn open_indexes(arena: &mut Arena) -> Vec<Indexes> {
    let open = |db: u64| {
        let root = arena.root() + db * DATABASE_ROOT_BYTES;
        let keys = Index::open_damaged(arena, root, Arc::default());
        let expires = Index::open_damaged(arena, root + ROOT_BYTES, Arc::default());
        let lacks_keys = keys.as_ref().is_none_or(|keys| keys.for_each_readable(arena, |_, _| ()) > 0);
        Indexes { keys, expires, lacks_keys }
    };
    (0..PHYSICAL_DATABASES as u64).map(open).collect()
}

impl Place {
    /// The heap offset of the object that it names.
    pub fn object(&self) -> Option<u64> {
        self.word.in_heap().then(|| self.word.offset())
    }

    /// Bytes of the record of the item that it names, at most.
    pub fn len_max(&self) -> u64 {
        class_bytes(self.word.class())
    }

    /// Whether a key is its key.
    pub fn has(&self, secret: &Secret, key: &[u8]) -> bool {
        secret.digest(key).h0 == self.digest.h0
    }

    /// What is found at it. `is_certain`: whether its database is known for sure.
    pub fn finding(
        &self,
        db: u8,
        key: Vec<u8>,
        value: SalvagedValue,
        is_certain: bool,
        at: (String, u64),
    ) -> Finding {
        let key = SalvagedKey { db, key, value, expires_ms: self.expires_ms };
        match (self.lacks_expiry, is_certain) {
            (true, _) => Finding::Uncertain { key, doubt: Doubt::Expiry, at },
            (false, false) => Finding::Uncertain { key, doubt: Doubt::Database, at },
            (false, true) => Finding::Intact(key),
        }
    }

    pub fn lost(&self, db: u8, key: Option<Vec<u8>>, error: Error) -> Finding {
        Finding::Lost(LostKey { db: Some(db), key, ty: self.word.ty(), error })
    }
}
