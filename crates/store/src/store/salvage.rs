//! Keys that were salvaged elsewhere come into a store.

use super::{Store, run::RETRY};
use crate::{
    collections::{redo_max, serial},
    salvage::{SalvagedKey, SalvagedValue},
    txn::{
        Txn,
        error::{Error, Result},
    },
};
use holdfast_log::{Admission, Purpose};
use std::thread;

impl Store {
    /// Makes a key what it was where it was salvaged, whatever it holds here. Blocks while the log is busy. False if its value
    /// contradicts itself; then nothing is written.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::NotAdmitted`] if there is no room for it.
    pub fn put_salvaged(&self, salvaged: &SalvagedKey) -> Result<bool> {
        let bytes = salvaged.key.len()
            + match &salvaged.value {
                SalvagedValue::String(value) => redo_max(4, value.len()),
                SalvagedValue::Collection(_, bytes) => redo_max(4, serial::redo_max(bytes)),
            };
        loop {
            let mut txn = self.begin_keys([&salvaged.key[..]]);
            txn.expect(0, Purpose::Write, true)?;
            let put = self.admit_bytes(&mut txn, bytes, true).and_then(|()| put(&mut txn, salvaged));
            match put {
                Err(Error::NotAdmitted(Admission::Busy)) => {
                    drop(txn);
                    self.log().kick();
                    thread::sleep(RETRY);
                }
                Err(error) => return Err(error),
                Ok(is_sound) => {
                    txn.commit();
                    return Ok(is_sound);
                }
            }
        }
    }
}

fn put(txn: &mut Txn, SalvagedKey { db, key, value, expires_ms }: &SalvagedKey) -> Result<bool> {
    match value {
        SalvagedValue::String(value) => {
            txn.set(*db, key, value, false)?;
            txn.set_expiry(*db, key, *expires_ms)?;
            Ok(true)
        }
        SalvagedValue::Collection(ty, bytes) => txn.import(*db, key, *ty, bytes, *expires_ms),
    }
}
