//! RENAME, COPY, MOVE: a value goes to another key.

use super::{Txn, error::Result, target::Target};
use crate::{
    collections::{
        Context, object, redo_max,
        serial::{self, ImportError},
        stream::Draft,
    },
    format::entry_word::Type,
    partition::Found,
};

impl Txn<'_> {
    /// Gives the value of a key, with its expiry, to another key, whatever that held; the first key is then gone. False
    /// if there is no such key. A key that is renamed to itself stays as it is.
    pub fn rename(&mut self, from_db: u8, from: &[u8], to_db: u8, to: &[u8]) -> Result<bool> {
        // With the value goes when it was used; this is a use, too.
        self.use_key(from_db, from);
        let known = self.known(self.target(from_db, from));
        let is_done = self.transfer(from_db, from, to_db, to, false)?;
        if let Some(known) = known.filter(|_| is_done) {
            self.set_known(self.target(to_db, to), known);
        }
        Ok(is_done)
    }

    /// Gives a copy of the value of a key, and its expiry, to another key, whatever that held. False if there is no such
    /// key.
    pub fn copy(&mut self, from_db: u8, from: &[u8], to_db: u8, to: &[u8]) -> Result<bool> {
        self.transfer(from_db, from, to_db, to, true)
    }

    fn transfer(&mut self, from_db: u8, from: &[u8], to_db: u8, to: &[u8], keep: bool) -> Result<bool> {
        let (source, target) = (self.target(from_db, from), self.target(to_db, to));
        let Some(found) = self.find(source) else { return Ok(false) };
        if (from_db, from) == (to_db, to) {
            return Ok(true);
        }
        let expiry = self.locks.get(source.partition).expiry(from_db, source.digest, found.word);
        let moves = !keep && source.partition == target.partition && found.word.in_heap();
        if found.word.ty() == Type::String && !moves {
            self.transfer_string(from_db, from, to_db, to, expiry)?;
        } else {
            self.transfer_object(source, found, target, expiry, moves)?;
            if moves {
                // Its entry may have moved to make room for the other.
                let part = self.locks.get(source.partition);
                let shared = &self.engine.shared;
                let found = part.find(shared, from_db, source.digest).expect("found above");
                part.forget(&mut self.batch, from_db, source.digest, found);
                self.written(source);
                return Ok(true);
            }
        }
        if !keep {
            self.remove(from_db, from);
        }
        Ok(true)
    }

    fn transfer_string(
        &mut self,
        from_db: u8,
        from: &[u8],
        to_db: u8,
        to: &[u8],
        expiry: Option<u64>,
    ) -> Result<()> {
        let value = self.get(from_db, from)?.map(<[u8]>::to_vec).unwrap_or_default();
        self.reserve(redo_max(4, value.len()))?;
        if self.exists(to_db, to) {
            // With the expiry in its place, nothing that follows lacks room.
            self.set_expiry(to_db, to, expiry)?;
            return self.set(to_db, to, &value, true);
        }
        self.set(to_db, to, &value, false)?;
        if expiry.is_some()
            && let Err(full) = self.set_expiry(to_db, to, expiry)
        {
            self.remove(to_db, to);
            return Err(full);
        }
        Ok(())
    }

    /// Makes the object of `source`, or one like it if it does not move, the value of `target`.
    fn transfer_object(
        &mut self,
        source: Target<'_>,
        found: Found,
        target: Target<'_>,
        expiry: Option<u64>,
        moves: bool,
    ) -> Result<()> {
        let bytes = match found.word.in_heap() {
            _ if moves => Vec::new(),
            true => self.export(source, found),
            false => self.frozen_bytes(source, found)?,
        };
        let redo = if moves { target.key.len() } else { serial::redo_max(&bytes) };
        self.reserve(redo_max(4, redo))?;
        let old = self.find(target);
        self.make_way(target, old);
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let limits = part.limits.clone();
        let context = Context {
            hasher: &shared.hasher,
            limits: &limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        let ty = found.word.ty();
        part.install(shared, &mut self.batch, target.db, target.digest, old, ty, expiry, |arena, tx| {
            if !moves {
                return serial::import(arena, tx, context, target.key, &bytes);
            }
            if source.key == target.key {
                return Ok(found.word.offset());
            }
            Ok(object::rename(arena, tx, found.word.offset(), target.key)?)
        })?;
        self.put(target, old.is_none());
        Ok(())
    }

    fn export(&self, source: Target<'_>, found: Found) -> Vec<u8> {
        let part = self.locks.read(source.partition);
        let context = Context {
            hasher: &self.shared().hasher,
            limits: &part.limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        let mut bytes = Vec::new();
        serial::export(&part.arena, context, found.word.offset(), &mut bytes);
        bytes
    }

    /// Makes a stream that comes from elsewhere the value of a key, whatever it held. False if it contradicts itself; then,
    /// and without room for it, the key is as it was.
    pub fn stream_replace(&mut self, db: u8, key: &[u8], draft: &Draft) -> Result<bool> {
        self.import(db, key, Type::Stream, &draft.0, None)
    }

    /// Makes a collection of a type that was serialized the value of a key, whatever it held, with an expiry or without. False if it
    /// contradicts itself; then, and without room for it, the key is as it was.
    pub(crate) fn import(
        &mut self,
        db: u8,
        key: &[u8],
        ty: Type,
        bytes: &[u8],
        expiry: Option<u64>,
    ) -> Result<bool> {
        self.reserve(serial::redo_max(bytes))?;
        let target = self.target(db, key);
        let old = self.find(target);
        self.make_way(target, old);
        let shared = self.shared();
        let part = self.locks.get(target.partition);
        let limits = part.limits.clone();
        let context = Context {
            hasher: &shared.hasher,
            limits: &limits,
            now_ms: self.now_ms,
            expired_ms: self.expired_ms,
        };
        let installed =
            part.install(shared, &mut self.batch, db, target.digest, old, ty, expiry, |arena, tx| {
                serial::import(arena, tx, context, key, bytes)
            });
        if let Err(ImportError::Malformed(_)) = installed {
            return Ok(false);
        }
        installed?;
        self.put(target, old.is_none());
        Ok(true)
    }
}
