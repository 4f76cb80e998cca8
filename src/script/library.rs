//! Libraries of functions, which all workers share. Each worker runs a library's source for itself when it calls one of
//! its functions for the first time. The sources are kept in the store's system database, under the libraries' names.

use super::{flags::ScriptFlags, names_keys::NamesKeys};
use holdfast_store::{LockBusy, Lsn, SYSTEM_DATABASE, Store};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering::*},
    },
};

/// A function of a library.
#[derive(Clone, Debug)]
pub struct Function {
    /// What it does.
    pub description: Option<Vec<u8>>,
    /// What it promises.
    pub flags: ScriptFlags,
    /// Whether it names its keys, as far as that is known.
    pub names_keys: NamesKeys,
}

/// A library.
pub struct Library {
    /// Its name.
    pub name: String,
    /// Its source.
    pub source: Box<[u8]>,
    /// Its functions.
    pub functions: BTreeMap<String, Function>,
    /// What a reply about it depends on; 0: not known yet.
    wait_lsn: AtomicU64,
}

impl Library {
    /// A library that has just been loaded.
    pub fn new(name: String, source: &[u8], functions: BTreeMap<String, Function>) -> Library {
        Library { name, source: source.into(), functions, wait_lsn: AtomicU64::new(0) }
    }

    /// What a reply about it depends on: the log as it was when the library had come into it. Call this without a
    /// transaction open.
    pub fn wait_lsn(&self, store: &Store) -> Result<Lsn, LockBusy> {
        match self.wait_lsn.load(Relaxed) {
            0 => {
                // Who loads a library has all partitions locked until that is in the log.
                drop(store.try_begin(&[0])?);
                let wait_lsn = store.log().tail();
                self.wait_lsn.store(wait_lsn, Relaxed);
                Ok(wait_lsn)
            }
            wait_lsn => Ok(wait_lsn),
        }
    }
}

/// Libraries that are known together.
#[derive(Clone, Default)]
pub struct Set {
    /// By name.
    pub libraries: BTreeMap<String, Arc<Library>>,
    /// By their names in lower case: the libraries, and the names as they were given.
    functions: HashMap<String, (Arc<Library>, String)>,
}

impl Set {
    /// A function by its name in any case: its library, and its name there.
    pub fn function(&self, name: &[u8]) -> Option<&(Arc<Library>, String)> {
        self.functions.get(&std::str::from_utf8(name).ok()?.to_ascii_lowercase())
    }

    /// How many functions there are.
    pub fn functions_len(&self) -> usize {
        self.functions.len()
    }

    /// Takes a library out.
    pub fn remove(&mut self, name: &str) -> bool {
        let removed = self.libraries.remove(name);
        removed.inspect(|library| self.functions.retain(|_, (of, _)| !Arc::ptr_eq(of, library))).is_some()
    }

    /// Adds a library, in place of one of the same name. After an error the set is of no use.
    pub fn add(&mut self, library: Arc<Library>) -> Result<(), String> {
        self.remove(&library.name);
        for name in library.functions.keys() {
            if self.functions.insert(name.to_ascii_lowercase(), (library.clone(), name.clone())).is_some() {
                return Err(format!("Function {name} already exists"));
            }
        }
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }
}

/// The libraries of the server.
#[derive(Default)]
pub struct Libraries {
    set: RwLock<Arc<Set>>,
    /// How often they were replaced.
    changes: AtomicU64,
}

impl Libraries {
    /// Those that there are now.
    pub fn get(&self) -> Arc<Set> {
        self.set.read().expect("no holder panics").clone()
    }

    /// Replaces them; all partitions must be locked.
    pub fn set(&self, set: Set) {
        *self.set.write().expect("no holder panics") = Arc::new(set);
        self.changes.fetch_add(1, Release);
    }

    /// How often they were replaced so far: if it has not changed, they are as they were.
    pub fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }
}

/// Whether a key of the system's database is the name of a library, and not what else the server keeps there.
fn is_library(key: &[u8]) -> bool {
    key.first() != Some(&0)
}

/// The sources of the libraries that the store keeps; `wrong` is told of those that cannot be read.
pub fn sources(store: &Store, wrong: &mut Vec<String>) -> Vec<Vec<u8>> {
    let (mut names, mut cursor) = (Vec::new(), 0);
    loop {
        let step = store.scan(SYSTEM_DATABASE, cursor, 100);
        names.extend(step.keys.into_iter().map(|(name, _)| name).filter(|name| is_library(name)));
        for cold in step.cold {
            match store.fetch(cold).key() {
                Ok(name) if is_library(name) => names.push(name.to_vec()),
                Ok(_) => {}
                Err(what) => wrong.push(what.to_owned()),
            }
        }
        cursor = step.next;
        if cursor == 0 {
            break;
        }
    }
    let mut sources = Vec::new();
    for name in names {
        match store.get(SYSTEM_DATABASE, &name, |source| source.map(<[u8]>::to_vec)) {
            Ok((source, _)) => sources.extend(source),
            Err(what) => wrong.push(what.to_string()),
        }
    }
    sources
}
