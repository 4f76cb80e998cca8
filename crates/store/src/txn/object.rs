//! Collections as objects of the heap: how a transaction finds, makes, changes and replaces the one at a key.

use super::{
    Txn,
    error::{Error, Result},
    frozen::Located,
    room::growth_of,
    target::Target,
};
use crate::{
    collections::{
        Context, Limits, any,
        object::{self, Encoding},
        redo_max,
    },
    format::entry_word::Type,
    partition::{Found, changes::ChangeKind, observers::Notify},
};
use holdfast_heap::{Arena, Full, Tx};

/// Bytes of log that so many elements, of so many bytes, take when they are laid out anew.
fn redo_of((elements, bytes): (u64, u64)) -> usize {
    redo_max(elements as usize, bytes as usize)
}

impl Txn<'_> {
    /// A key's object of a type, to look at.
    pub(crate) fn object(&mut self, db: u8, key: &[u8], ty: Type) -> Result<Option<Located>> {
        let target = self.target(db, key);
        match self.find(target) {
            None => Ok(None),
            Some(found) if found.word.ty() != ty => Err(Error::WrongType),
            Some(found) => self.locate(target, found).map(Some),
        }
    }

    /// Makes an empty object the value of a key that is not there, and returns its heap offset.
    pub(crate) fn create(&mut self, db: u8, key: &[u8], ty: Type, encoding: Encoding) -> Result<u64> {
        let target = self.target(db, key);
        self.make_way(target, None);
        let part = self.locks.get(target.partition);
        let offset = object::create(&mut part.arena, &mut self.batch.tx, key, ty, encoding)?;
        if let Err(full) = part.put_object(&mut self.batch, db, target.digest, ty, offset) {
            any::destroy(&mut part.arena, &mut self.batch.tx, offset);
            return Err(full.into());
        }
        self.put(target, true);
        Ok(offset)
    }

    /// Makes an object that `fill` fills the value of a key, whatever it held, and takes away its expiry. Without room
    /// for it the key is as it was.
    pub(crate) fn replace(
        &mut self,
        db: u8,
        key: &[u8],
        ty: Type,
        encoding: Encoding,
        fill: impl FnOnce(&mut Arena, &mut Tx, Context, u64) -> std::result::Result<(), Full>,
    ) -> Result<()> {
        let target = self.target(db, key);
        let found = self.find(target);
        self.make_way(target, found);
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let known = part.known_of_new(db, found, self.notes_uses);
        let context = Context {
            hasher: &shared.hasher,
            limits: &part.limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        let offset = object::create(&mut part.arena, &mut self.batch.tx, key, ty, encoding)?;
        let mut done = fill(&mut part.arena, &mut self.batch.tx, context, offset);
        if done.is_ok() {
            // With the old entry gone, the new one has a place.
            if let Some(found) = found {
                part.remove(shared, &mut self.batch, db, target.digest, found);
            }
            done = part.put_object(&mut self.batch, db, target.digest, ty, offset);
        }
        if let Err(full) = done {
            any::destroy(&mut part.arena, &mut self.batch.tx, offset);
            return Err(full.into());
        }
        self.set_known(target, known);
        self.put(target, found.is_none());
        Ok(())
    }

    /// Has room for a collection in one block that gets another encoding, as it may with each change. By the usual limits of
    /// the encodings that is little.
    #[inline(always)]
    fn reserve_conversion(&mut self, target: Target<'_>, found: Found) -> Result<()> {
        if self.is_packed(target, found) { self.reserve_packed(target, found) } else { Ok(()) }
    }

    #[inline]
    fn is_packed(&self, target: Target<'_>, found: Found) -> bool {
        found.word.in_heap()
            && object::is_packed(&self.locks.read(target.partition).arena, found.word.offset())
    }

    /// Bytes of log that a collection in the heap takes at most when it gets another encoding; 0 where that needs no room of its own.
    pub(super) fn redo_of_conversion(&self, target: Target<'_>, found: Found) -> usize {
        if self.is_packed(target, found) { self.conversion_of(target, found) } else { 0 }
    }

    fn reserve_packed(&mut self, target: Target<'_>, found: Found) -> Result<()> {
        match self.conversion_of(target, found) {
            0 => Ok(()),
            redo => self.reserve_besides(redo),
        }
    }

    /// The same for what is at a key.
    pub(crate) fn conversion_max(&mut self, db: u8, key: &[u8]) -> usize {
        let target = self.target(db, key);
        self.find(target).map_or(0, |found| self.redo_of_conversion(target, found))
    }

    /// The same where many may get another encoding, so that small ones count as well.
    pub(crate) fn conversion_among_many(&mut self, db: u8, key: &[u8]) -> usize {
        let target = self.target(db, key);
        match self.find(target) {
            Some(found) if self.is_packed(target, found) => redo_of(self.packed_size(target, found)),
            _ => 0,
        }
    }

    /// The same for a collection in one block.
    #[inline]
    fn conversion_of(&self, target: Target<'_>, found: Found) -> usize {
        const FEW: u64 = 512;
        const SMALL: u64 = 24 << 10;
        let (mut elements, bytes) = self.packed_size(target, found);
        if found.word.ty() == Type::List {
            // They stay in a block or two, and leave no redo of their own.
            elements = elements.min(FEW);
        }
        if elements <= FEW && bytes <= SMALL { 0 } else { redo_of((elements, bytes)) }
    }

    /// The elements of a collection in one block, and its bytes.
    fn packed_size(&self, target: Target<'_>, found: Found) -> (u64, u64) {
        let arena = &self.locks.read(target.partition).arena;
        any::packed_size(arena, found.word.offset(), found.word.ty())
    }

    /// The arena that holds a key's object, and the context of its type's operations.
    pub(crate) fn parts(&self, key: &[u8], located: Located) -> (&Arena, Context<'_>) {
        let part = self.locks.read(self.partition_of(key));
        let context = Context {
            hasher: &self.engine.shared.hasher,
            limits: &part.limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        (self.arena(part, located), context)
    }

    /// Thresholds of the collections' encodings.
    pub(crate) fn limits(&self, key: &[u8]) -> &Limits {
        &self.locks.read(self.partition_of(key)).limits
    }

    /// Changes the object of a key of a type: makes one first, in the encoding that `make` says, if there is none, and
    /// removes it if it is empty in the end. `None`: there is none, and it was not to be made. A change that leaves no
    /// redo was none, and those who observe the key are not told.
    pub(crate) fn change<R>(
        &mut self,
        db: u8,
        key: &[u8],
        ty: Type,
        make: Option<Encoding>,
        change: impl FnOnce(&mut Arena, &mut Tx, Context, u64) -> std::result::Result<R, Full>,
    ) -> Result<Option<R>> {
        self.change_and_notify(Notify::All, db, key, ty, make, change)
    }

    /// As [`Txn::change`], which notifies all observers of the key: this notifies those that `notify` names.
    pub(crate) fn change_and_notify<R>(
        &mut self,
        notify: Notify,
        db: u8,
        key: &[u8],
        ty: Type,
        make: Option<Encoding>,
        change: impl FnOnce(&mut Arena, &mut Tx, Context, u64) -> std::result::Result<R, Full>,
    ) -> Result<Option<R>> {
        let growth = growth_of(self.allowance.expected);
        if growth > 0 {
            self.reserve_besides(growth)?;
        }
        let target = self.target(db, key);
        let mut made = false;
        let obj = match (self.find(target), make) {
            (Some(found), _) if found.word.ty() != ty => return Err(Error::WrongType),
            (Some(found), _) => {
                self.reserve_conversion(target, found)?;
                self.in_heap(target, found)?
            }
            (None, None) => return Ok(None),
            (None, Some(encoding)) => {
                made = true;
                self.create(db, key, ty, encoding)?
            }
        };
        let before = self.batch.tx.writes();
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let context = Context {
            hasher: &shared.hasher,
            limits: &part.limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        self.batch.tx.begin_change();
        let result = change(&mut part.arena, &mut self.batch.tx, context, obj);
        self.batch.tx.end_change();
        // A stream stays when it is empty, but not one that could not be begun.
        let never_began = ty == Type::Stream && made && result.is_err();
        if never_began || any::is_void(&part.arena, obj) {
            let found = part.find(shared, db, target.digest).expect("the key of the object");
            part.remove(shared, &mut self.batch, db, target.digest, found);
        }
        if self.batch.tx.writes() != before {
            match notify {
                Notify::All => self.written(target),
                Notify::Queued | Notify::None => {
                    self.note(target, notify);
                    self.changes.add(ChangeKind::Regrouped, target.db, target.key);
                }
            }
        }
        Ok(Some(result?))
    }
}
