//! What must agree in a partition, for checks.

use super::{Database, Partition, shared::Shared};
use crate::{
    collections::{Context, any, object},
    format::{digest::Digest, entry_word::EntryWord},
};
use std::collections::HashSet;

impl Partition {
    /// Checks a database's indexes, and against each other unless they are garbage, calls `f` with each entry, and returns
    /// the number of keys.
    pub fn check_database(
        &self,
        shared: &Shared,
        db: u8,
        mut f: impl FnMut(Digest, EntryWord),
    ) -> Result<u64, String> {
        let Database { keys, expires, .. } = &self.databases[db as usize];
        if shared.databases.is_garbage(db) {
            for segment in 0..keys.segment_count() {
                keys.for_each_in(&self.arena, segment, |_, digest, word| f(digest, word));
            }
            expires.check(&self.arena)?;
            return keys.check(&self.arena).map(|_| 0);
        }
        let mut with_expiry = 0;
        let context = Context { hasher: &shared.hasher, limits: &self.limits, now_ms: 0, expired_ms: 0 };
        for segment in 0..keys.segment_count() {
            let mut wrong = None;
            keys.for_each_in(&self.arena, segment, |_, digest, word| {
                with_expiry += u64::from(word.has_expiry());
                if word.has_expiry() != expires.find(&self.arena, digest).is_some() {
                    wrong = Some("a key's expiry and its flag disagree".to_owned());
                }
                if word.in_heap() && object::ty(&self.arena, word.offset()) != word.ty() {
                    wrong = Some("an entry and its object are of different types".to_owned());
                } else if word.in_heap() {
                    wrong = any::check(&self.arena, context, word.offset()).err().or(wrong.take());
                }
                f(digest, word);
            });
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
        }
        if expires.check(&self.arena)? != with_expiry {
            return Err(format!("{} expiries for {with_expiry} keys", expires.len()));
        }
        keys.check(&self.arena)
    }

    /// Checks that each cached copy is that of one entry of its key, and each handle that of a copy.
    pub fn check_copies(&self, shared: &Shared) -> Result<(), String> {
        let mut handles = HashSet::new();
        for Database { keys, .. } in &self.databases {
            let before = handles.len();
            handles.extend(keys.handles());
            if handles.len() - before != keys.handles().count() {
                return Err("two entries have the same cached copy".into());
            }
        }
        self.cache.check(&handles)?;
        for (db, Database { keys, .. }) in self.databases.iter().enumerate() {
            let (mut copies, mut wrong) = (0, None);
            for segment in 0..keys.segment_count() {
                keys.for_each_in(&self.arena, segment, |slot, digest, word| {
                    let handle = keys.handle(slot);
                    if handle == 0 {
                        return;
                    }
                    copies += 1;
                    let copy = self.cache.get(handle);
                    let slot_of_key = keys.find(&self.arena, shared.secret.digest(copy.key));
                    if word.in_heap() || usize::from(copy.db) != db || slot_of_key != Some(slot) {
                        wrong = Some(format!("the entry of {:016x} has another's copy", digest.h0));
                    }
                });
            }
            if copies != keys.handles().count() {
                return Err("a copy is named where no entry is".into());
            }
            wrong.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Checks the arena, and that what is allocated in it is what the databases use, unless objects are being freed in it.
    pub fn check_memory(&self, shared: &Shared) -> Result<(), String> {
        self.arena.check().map_err(|e| e.to_string())?;
        let (mut used, mut freeing) = (0, false);
        for (db, Database { keys, expires, .. }) in self.databases.iter().enumerate() {
            used += keys.heap_bytes() + expires.heap_bytes();
            let is_garbage = shared.databases.is_garbage(db as u8);
            for segment in 0..keys.segment_count() {
                keys.for_each_in(&self.arena, segment, |_, _, word| {
                    if word.in_heap() && is_garbage {
                        freeing = true;
                    } else if word.in_heap() {
                        used += any::heap_bytes(&self.arena, word.offset());
                    }
                });
            }
        }
        let allocated = self.arena.allocated_bytes();
        if used == allocated || freeing {
            Ok(())
        } else {
            Err(format!("{allocated} heap bytes allocated, {used} in use"))
        }
    }
}
