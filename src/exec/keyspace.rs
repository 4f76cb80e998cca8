//! All keys, as commands see them that look at more than the keys they name.

use crate::command::error::Stop;
use holdfast_store::{Cold, Fetched, LockBusy, ScanStep, Stats, Store, Txn, Type};

/// The keyspace as a command may use it. A command of its own locks a partition at a time; within EXEC, the transaction
/// has them all locked, and the store must not be asked for a lock again. Whoever asks it fails where a script holds a
/// partition for long, and runs again when that may be over.
pub enum Keyspace<'k, 't> {
    /// Others may change it meanwhile.
    Open {
        /// The store.
        store: &'k Store,
        /// What was fetched for this run of the command.
        fetched: Vec<Fetched>,
    },
    /// Nobody else can look at it.
    Locked(&'k mut Txn<'t>),
}

/// A key and the type of its value.
pub type Name = (Vec<u8>, Type);

impl Keyspace<'_, '_> {
    /// Whether nobody else can look at it.
    pub fn is_locked(&self) -> bool {
        matches!(self, Keyspace::Locked(_))
    }

    /// Number of keys in a database.
    pub fn len(&self, db: u8) -> Result<u64, LockBusy> {
        match self {
            Keyspace::Open { store, .. } => store.try_len(db),
            Keyspace::Locked(txn) => Ok(txn.len(db)),
        }
    }

    /// Number of keys with an expiry in a database.
    pub fn expires_len(&self, db: u8) -> Result<u64, LockBusy> {
        match self {
            Keyspace::Open { store, .. } => store.try_expires_len(db),
            Keyspace::Locked(txn) => Ok(txn.expires_len(db)),
        }
    }

    /// One step of a scan; see [`Store::scan`].
    pub fn scan(&self, db: u8, cursor: u64, count: usize) -> Result<ScanStep, LockBusy> {
        match self {
            Keyspace::Open { store, .. } => store.try_scan(db, cursor, count),
            Keyspace::Locked(txn) => Ok(txn.scan(db, cursor, count)),
        }
    }

    /// A random key; see [`Store::try_random_key`].
    pub fn random_key(&self, db: u8, random: impl FnMut() -> u64) -> Result<ScanStep, LockBusy> {
        match self {
            Keyspace::Open { store, .. } => store.try_random_key(db, random),
            Keyspace::Locked(txn) => Ok(txn.random_key(db, random)),
        }
    }

    /// The store's figures.
    pub fn stats(&self, store: &Store) -> Result<Stats, LockBusy> {
        match self {
            Keyspace::Open { .. } => store.try_stats(),
            Keyspace::Locked(txn) => Ok(store.stats_in(txn)),
        }
    }

    /// The names that a step of a scan found, or what must be fetched to know them all.
    pub fn names(&self, step: ScanStep) -> Result<Names, Stop> {
        let mut names = step.keys;
        for cold in &step.cold {
            match self.fetched(&Cold::from(*cold)) {
                Some(fetched) => {
                    let key = fetched.key().map_err(|why| Stop::from(format!("ERR {why}")))?;
                    names.push((key.to_vec(), cold.ty()));
                }
                // Not only this one: what was fetched before is given up.
                None => return Ok(Names::Cold(step.cold.into_iter().map(Cold::from).collect())),
            }
        }
        Ok(Names::Known(names))
    }

    fn fetched(&self, cold: &Cold) -> Option<&Fetched> {
        match self {
            Keyspace::Open { fetched, .. } => fetched.iter().find(|fetched| fetched.is(cold)),
            Keyspace::Locked(txn) => txn.fetched(cold),
        }
    }
}

/// What a step of a scan comes to.
pub enum Names {
    /// These.
    Known(Vec<Name>),
    /// Run again with these.
    Cold(Vec<Cold>),
}
