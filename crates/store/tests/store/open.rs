//! Transactions as the server makes them: whatever they write is written at once. And commits, where no thread makes them.

use holdfast_store::{Error, Lsn, Store, Txn};

/// Runs something in a transaction over some keys, and again with what it found cold.
pub fn run<T>(
    store: &Store,
    keys: &[&[u8]],
    mut what: impl FnMut(&mut Txn) -> Result<T, Error>,
) -> Result<(T, Lsn), Error> {
    let mut fetched = Vec::new();
    loop {
        let mut txn = store.begin_keys(keys.iter().copied());
        txn.supply(std::mem::take(&mut fetched));
        match what(&mut txn) {
            Ok(done) => return Ok((done, txn.commit())),
            Err(Error::Cold(cold)) => {
                fetched = txn.take_fetched();
                drop(txn);
                fetched.push(store.fetch(cold));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes everything durable.
pub fn commit_all(store: &Store) {
    while store.log().durable() < store.log().tail() {
        store.log().commit_once().expect("a sound medium");
    }
}
