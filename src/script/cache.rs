//! The scripts of EVAL and SCRIPT LOAD, which all workers share. Each worker compiles for itself what it runs.

use super::{
    flags::{self, ScriptFlags},
    names_keys::NamesKeys,
};
use data_encoding::HEXLOWER;
use holdfast_lua::sha1;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// Scripts of EVAL that are kept; those of SCRIPT LOAD are kept all.
const EVALS_MAX: usize = 500;

/// The digest of a script's source.
pub type Sha = [u8; 20];

/// A script.
pub struct Script {
    /// Its digest.
    pub sha: Sha,
    /// The same in hexadecimal digits, its name.
    pub name: String,
    /// Its source.
    pub source: Box<[u8]>,
    /// Where its code begins, behind a first line about itself.
    pub code: usize,
    /// What that line declares.
    pub flags: Option<ScriptFlags>,
    /// Whether it names its keys, as far as that is known.
    pub names_keys: NamesKeys,
    /// Scripts that were new when it was used last.
    used: AtomicU64,
    kept: AtomicBool,
    /// It is in the cache no more.
    removed: AtomicBool,
}

impl Script {
    /// A script, if what it says of itself can be understood.
    pub fn new(source: &[u8]) -> Result<Script, String> {
        let (flags, code) = flags::of_script(source)?;
        let sha = sha1(source);
        Ok(Script {
            sha,
            name: HEXLOWER.encode(&sha),
            source: source.into(),
            code,
            flags,
            names_keys: NamesKeys::default(),
            used: AtomicU64::new(0),
            kept: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        })
    }

    /// Whether it was removed from the cache.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }
}

/// The cache.
#[derive(Default)]
pub struct Scripts {
    scripts: Mutex<HashMap<Sha, Arc<Script>>>,
    /// Scripts that were new so far.
    added: AtomicU64,
    /// Scripts that were removed so far.
    removed: AtomicU64,
    /// Those of them that had to make room.
    evicted: AtomicU64,
    lets_all_in: AtomicBool,
}

impl Scripts {
    /// A script by its digest.
    pub fn get(&self, sha: &Sha) -> Option<Arc<Script>> {
        self.scripts.lock().expect("no holder panics").get(sha).cloned()
    }

    /// The sources of all, and whether they are kept until SCRIPT FLUSH.
    pub fn all(&self) -> Vec<(Vec<u8>, bool)> {
        let scripts = self.scripts.lock().expect("no holder panics");
        scripts.values().map(|script| (script.source.to_vec(), script.kept.load(Relaxed))).collect()
    }

    /// Notes a use, so that others go first.
    pub fn touch(&self, script: &Script) {
        script.used.store(self.added.load(Relaxed), Relaxed);
    }

    /// Adds a script that compiles. `keep`: until SCRIPT FLUSH.
    pub fn add(&self, script: Script, keep: bool) -> Arc<Script> {
        let mut scripts = self.scripts.lock().expect("no holder panics");
        let script = scripts.entry(script.sha).or_insert_with(|| Arc::new(script)).clone();
        self.added.fetch_add(1, Relaxed);
        self.touch(&script);
        script.kept.fetch_or(keep, Relaxed);
        let evals = || scripts.values().filter(|script| !script.kept.load(Relaxed));
        if evals().count() > EVALS_MAX {
            let oldest = evals().min_by_key(|script| script.used.load(Relaxed)).map(|script| script.sha);
            if let Some(oldest) = oldest.and_then(|sha| scripts.remove(&sha)) {
                oldest.removed.store(true, Relaxed);
                self.removed.fetch_add(1, Relaxed);
                self.evicted.fetch_add(1, Relaxed);
            }
        }
        script
    }

    /// Removes all.
    pub fn flush(&self) {
        let mut scripts = self.scripts.lock().expect("no holder panics");
        for (_, script) in scripts.drain() {
            script.removed.store(true, Relaxed);
            self.removed.fetch_add(1, Relaxed);
        }
    }

    /// How many were removed so far: if it has not changed, none was.
    pub fn removed(&self) -> u64 {
        self.removed.load(Relaxed)
    }

    /// Whether scripts may call what is for administrators, for Redis's tests.
    pub fn lets_all_in(&self) -> bool {
        self.lets_all_in.load(Relaxed)
    }

    /// DEBUG SET-DISABLE-DENY-SCRIPTS.
    pub fn let_all_in(&self, on: bool) {
        self.lets_all_in.store(on, Relaxed);
    }

    /// How many had to make room for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// How many there are, and the bytes of their sources.
    pub fn size(&self) -> (usize, usize) {
        let scripts = self.scripts.lock().expect("no holder panics");
        (scripts.len(), scripts.values().map(|script| script.source.len()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_evals_make_room_and_loaded_scripts_stay() {
        let scripts = Scripts::default();
        let script = |number: usize| Script::new(format!("return {number}").as_bytes()).unwrap();
        let loaded = scripts.add(script(0), true);
        let used = scripts.add(script(1), false);
        for number in 2..EVALS_MAX + 100 {
            scripts.add(script(number), false);
            scripts.touch(&used);
        }
        assert!(scripts.get(&loaded.sha).is_some() && scripts.get(&used.sha).is_some());
        assert!(scripts.get(&script(2).sha).is_none());
        assert!(scripts.get(&script(EVALS_MAX + 99).sha).is_some());
        assert_eq!(scripts.size().0, EVALS_MAX + 1);
        assert_eq!(scripts.evicted(), scripts.removed());
        scripts.flush();
        assert!(loaded.is_removed() && scripts.size().0 == 0);
    }
}
