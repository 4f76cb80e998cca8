//! How many keys there are.

use crate::{config::Opt, exec::keyspace::Keyspace, server::Server};
use holdfast_store::LockBusy;

/// A database that has keys.
pub struct DatabaseFigures {
    /// Its number.
    pub number: u8,
    /// Its keys.
    pub keys: u64,
    /// Those with an expiry.
    pub expires: u64,
}

/// All databases that have keys.
pub fn databases(server: &Server, keyspace: &Keyspace) -> Result<Vec<DatabaseFigures>, LockBusy> {
    let mut databases = Vec::new();
    for number in 0..server.config.number(Opt::Databases) as u8 {
        let db = server.store.database(number);
        let keys = keyspace.len(db)?;
        if keys > 0 {
            databases.push(DatabaseFigures { number, keys, expires: keyspace.expires_len(db)? });
        }
    }
    Ok(databases)
}
