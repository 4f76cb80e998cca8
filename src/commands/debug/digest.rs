//! Digests of values and of all data, computed as Redis does, so that two servers with the same data have the same digest,
//! whatever the encodings and the order in which the data came.

use crate::commands::prelude::*;
use data_encoding::HEXLOWER;
use holdfast_lua::sha1;
use holdfast_resp::write_double;
use holdfast_store::{Type, stream::Id};

/// A digest under construction: 20 bytes, all zero at first.
#[derive(Clone, Copy, Default)]
pub struct Digest([u8; 20]);

impl Digest {
    /// Takes in something whose place does not count.
    fn add(&mut self, bytes: &[u8]) {
        let hash = sha1(bytes);
        self.0.iter_mut().zip(hash).for_each(|(own, other)| *own ^= other);
    }

    /// Takes in something whose place counts.
    fn append(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = sha1(&self.0);
    }

    /// Takes in parts that belong together, as a whole whose place does not count.
    fn add_all<'p>(&mut self, parts: impl IntoIterator<Item = &'p [u8]>) {
        let mut whole = Digest::default();
        parts.into_iter().for_each(|part| whole.append(part));
        self.add(&whole.0);
    }

    /// As 40 hexadecimal digits.
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

/// The digest of all databases. Nobody else can touch the keys meanwhile, so what is cold is waited for here.
pub fn of_everything(call: &Call, txn: &mut Txn) -> Result<Digest, Stop> {
    /// Keys that are looked at together.
    const STEP: usize = 100;
    let store = &call.server().store;
    let mut all = Digest::default();
    for logical in 0..holdfast_store::DATABASES as u8 {
        let db = txn.database(logical);
        if txn.len(db) == 0 {
            continue;
        }
        all.append(&u32::from(logical).to_be_bytes());
        let mut cursor = 0;
        loop {
            let step = txn.scan(db, cursor, STEP);
            let mut keys: Vec<Vec<u8>> = step.keys.into_iter().map(|(key, _)| key).collect();
            for cold in step.cold {
                let fetched = store.fetch(cold);
                keys.push(fetched.key().map_err(|why| Stop::from(format!("ERR {why}")))?.to_vec());
            }
            for key in &keys {
                let mut digest = Digest::default();
                digest.append(key);
                loop {
                    let mut with_value = digest;
                    match add_value(&mut with_value, txn, db, key) {
                        Err(Stop::Cold(cold)) => txn.supply(vec![store.fetch(cold)]),
                        added => {
                            added?;
                            all.add(&with_value.0);
                            break;
                        }
                    }
                }
                txn.take_fetched();
            }
            cursor = step.next;
            if cursor == 0 {
                break;
            }
        }
    }
    Ok(all)
}

/// The digest of the value of a key, or zeroes if there is none.
pub fn of_value(txn: &mut Txn, db: u8, key: &[u8]) -> Result<Digest, Stop> {
    let mut digest = Digest::default();
    add_value(&mut digest, txn, db, key)?;
    Ok(digest)
}

fn add_value(digest: &mut Digest, txn: &mut Txn, db: u8, key: &[u8]) -> Result<(), Stop> {
    let Some(ty) = txn.type_of(db, key) else { return Ok(()) };
    let has_expiry = txn.expiry(db, key).flatten().is_some();
    // Redis has the number 5 for the values of modules.
    let number = if ty == Type::Stream { 6 } else { ty as u32 };
    digest.append(&number.to_be_bytes());
    match ty {
        Type::String => digest.append(txn.get(db, key)?.unwrap_or_default()),
        Type::List => {
            let list = txn.list_at(db, key)?.expect("a key that is there");
            list.range(0, -1).for_each(|element| digest.append(element));
        }
        Type::Set => {
            let set = txn.set_at(db, key)?.expect("a key that is there");
            set.members().for_each(|member| digest.add(&member));
        }
        Type::Zset => {
            let zset = txn.zset_at(db, key)?.expect("a key that is there");
            for (member, score) in zset.iter(0..zset.len(), false) {
                let mut text = Vec::with_capacity(24);
                write_double(&mut text, score);
                digest.add_all([member, &text]);
            }
        }
        Type::Hash => {
            let hash = txn.hash_at(db, key)?.expect("a key that is there");
            hash.fields().for_each(|field| digest.add_all([&field.name[..], &field.value[..]]));
        }
        Type::Stream => {
            let stream = txn.stream_at(db, key)?.expect("a key that is there");
            for entry in stream.range(Id::MIN, Id::MAX, false) {
                digest.append(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                for (name, value) in entry.fields() {
                    digest.append(name);
                    digest.append(value);
                }
            }
        }
    }
    if has_expiry {
        digest.add(b"!!expire!!");
    }
    Ok(())
}
