//! `Store::run`: what it does happens as a whole or not at all.

use holdfast_store::{
    Admission, DATABASES, Error, Options, Reader, Result, SimIo, Store, Type, Writes, list::End,
};
use std::sync::Arc;

fn options() -> Options {
    let options = Options { heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    Options { segment_size: Some(64 << 10), ..options }
}

fn open(sim: &SimIo, options: &Options) -> Store {
    Store::open_on(Arc::new(sim.clone()), options.clone()).expect("a store")
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).expect("digits").parse().expect("a number")
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(0, key, |value| value.map(<[u8]>::to_vec)).expect("a sound value").0
}

#[test]
fn cold_values_are_fetched_and_nothing_is_done_twice() {
    let (sim, options) = (SimIo::new(1), options());
    let store = open(&sim, &options);
    for key in [&b"a"[..], b"b"] {
        store
            .run(&[key], |_, writes| {
                writes.set(0, key, "5");
                Ok(())
            })
            .expect("room");
    }
    store.close().expect("an orderly end");
    drop(store);

    // After a start nothing is cached: both reads find their value cold.
    let store = open(&sim, &options);
    let mut runs = 0;
    let (sum, wait_lsn) = store
        .run(&[b"a", b"b"], |reader, writes| {
            runs += 1;
            // Said before the other one is read, and not done when that is cold.
            let first = number(reader.get(0, b"a")?.expect("there"));
            writes.set(0, b"a", (first + 5).to_string());
            let sum = first + number(reader.get(0, b"b")?.expect("there"));
            Ok(sum)
        })
        .expect("sound values");
    assert_eq!((sum, runs), (10, 3));
    store.log().wait_durable(wait_lsn).expect("a sound medium");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"10"[..]));
}

type Transaction = fn(&mut Reader, &mut Writes) -> Result<()>;

#[test]
fn what_fails_leaves_nothing() {
    let (sim, options) = (SimIo::new(2), options());
    let store = open(&sim, &options);
    let both: &[&[u8]] = &[b"string", b"list"];
    store
        .run(both, |_, writes| {
            writes.set(0, b"string", "before");
            writes.list_push(0, b"list", End::Back, ["one"]);
            Ok(())
        })
        .expect("room");
    let failing: [(Transaction, Error); 6] = [
        (
            |_, writes| {
                writes.set(0, b"string", "after");
                Err(Error::WrongType)
            },
            Error::WrongType,
        ),
        (
            |reader, writes| {
                writes.set(0, b"string", "after");
                reader.hash_at(0, b"list").map(drop)
            },
            Error::WrongType,
        ),
        (
            |_, writes| {
                writes.set(0, b"string", "after");
                writes.set_add(0, b"list", ["two"]);
                Ok(())
            },
            Error::WrongType,
        ),
        // What it is by then counts, not what it is before.
        (
            |_, writes| {
                writes.remove(0, b"list");
                writes.hash_set(0, b"list", [("field", "value")]);
                writes.list_push(0, b"list", End::Front, ["two"]);
                Ok(())
            },
            Error::WrongType,
        ),
        (
            |_, writes| {
                writes.set(0, b"string", "after");
                writes.set(0, b"another key", "");
                Ok(())
            },
            Error::NotNamed,
        ),
        (
            |_, writes| {
                writes.set(0, b"string", "after");
                writes.set(DATABASES as u8, b"string", "");
                Ok(())
            },
            Error::NoDatabase(DATABASES as u8),
        ),
    ];
    let tail = store.log().tail();
    for (transaction, error) in failing {
        assert_eq!(store.run(both, transaction).expect_err("it fails"), error);
        assert_eq!(get(&store, b"string").as_deref(), Some(&b"before"[..]));
        let list = |reader: &mut Reader| Ok(reader.list_at(0, b"list")?.map(|list| list.len()));
        assert_eq!(store.run(both, |reader, _| list(reader)).expect("sound").0, Some(1));
        assert_eq!(store.log().tail(), tail);
    }
    // So do reads that ask for what is not there.
    let transaction: Transaction = |reader, _| reader.get(0, b"another key").map(drop);
    assert_eq!(store.run(both, transaction), Err(Error::NotNamed));
    let transaction: Transaction = |reader, _| reader.type_of(255, b"list").map(drop);
    assert_eq!(store.run(both, transaction), Err(Error::NoDatabase(255)));
    assert_eq!(store.get(200, b"list", |_| ()).map(drop), Err(Error::NoDatabase(200)));
    assert_eq!(store.get_many(200, &[b"list"], |_, _| ()).map(drop), Err(Error::NoDatabase(200)));
    store.check().expect("a sound store");
}

#[test]
fn all_is_written_in_order() {
    let (sim, options) = (SimIo::new(3), options());
    let store = open(&sim, &options);
    let (types, _) = store
        .run(&[b"a", b"b", b"c"], |reader, writes| {
            writes.set(0, b"a", "1");
            writes.remove(0, b"a");
            writes.hash_set(0, b"a", [("x", "1"), ("y", "2")]);
            writes.hash_remove(0, b"a", ["x"]);
            writes.set_add(0, b"b", ["m", "n"]);
            writes.set_remove(0, b"b", ["m", "n"]);
            writes.zset_add(0, b"c", [("m", 1.5), ("n", 2.0)]);
            writes.zset_remove(0, b"c", ["n"]);
            writes.set_expiry(0, b"c", Some(u64::MAX >> 16));
            // It reads what was there before.
            reader.type_of(0, b"a")
        })
        .expect("room");
    assert_eq!(types, None);
    let read = |reader: &mut Reader, _: &mut Writes| {
        let a = reader.hash_at(0, b"a")?.map(|hash| hash.len());
        let score = reader.zset_at(0, b"c")?.and_then(|zset| zset.score(b"m"));
        Ok((a, reader.type_of(0, b"b")?, score, reader.type_of(0, b"c")?, reader.expiry(0, b"c")?))
    };
    let (found, _) = store.run(&[b"a", b"b", b"c"], read).expect("sound");
    assert_eq!(found, (Some(1), None, Some(1.5), Some(Type::Zset), Some(Some(u64::MAX >> 16))));
}

/// It asks for room before it writes, and what frees room is let in when others are not.
#[test]
fn without_room_it_is_an_error() {
    let sim = SimIo::new(4);
    let store = open(&sim, &Options { log_bytes_max: 1 << 20, ..options() });
    let key = |number: u32| format!("key:{number}").into_bytes();
    let value = vec![b'x'; 10_000];
    let set = |number: u32| {
        store.run(&[&key(number)], |_, writes| {
            writes.set(0, &key(number), &value[..]);
            Ok(())
        })
    };
    let full = (0..200).find_map(|number| {
        // Nobody else writes what is pending.
        store.log().commit_once().expect("a sound medium");
        set(number).err().map(|error| (number, error))
    });
    let (number, error) = full.expect("a log of a megabyte is full some time");
    assert_eq!(error, Error::NotAdmitted(Admission::Full));
    assert_eq!(get(&store, &key(number)), None);
    store
        .run(&[&key(number)], |_, writes| {
            writes.set_before_removals(0, &key(number), &value[..]);
            Ok(())
        })
        .expect("so has what is said before");
    assert_eq!(get(&store, &key(number)), Some(value.clone()));
    store
        .run(&[&key(0)], |_, writes| {
            writes.remove(0, &key(0));
            Ok(())
        })
        .expect("what frees room has a reserve");
    // Nor is a heap that could not hold it touched.
    let large = vec![b'x'; 40 << 20];
    let refused = store.run(&[b"hash"], |_, writes| {
        writes.hash_set(0, b"hash", [("field", large.clone())]);
        Ok(())
    });
    assert_eq!(refused.map(drop), Err(Error::Full));
    let (ty, _) = store.run(&[b"hash"], |reader, _| reader.type_of(0, b"hash")).expect("sound");
    assert_eq!(ty, None);
}

/// Small collections that all get another encoding in one transaction write more than their new elements do (I-16).
#[test]
fn collections_that_all_get_another_encoding_have_room_for_it() {
    const KEYS: u32 = 200;
    let store = open(&SimIo::new(5), &Options { heap_bytes_max: 1 << 30, ..options() });
    let keys: Vec<Vec<u8>> = (0..KEYS).map(|number| format!("key:{number}").into_bytes()).collect();
    let named: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    // One element more is too many for one block.
    let last = |number: u32| if number.is_multiple_of(2) { 128 } else { 512 };
    for (number, key) in (0..).zip(&keys) {
        let fill = |_: &mut Reader, writes: &mut Writes| {
            let elements = 0..last(number);
            match number % 2 {
                0 => writes.hash_set(0, key, elements.map(|n| (format!("{n:060}"), format!("{n:060}")))),
                _ => writes.set_add(0, key, elements.map(|n| n.to_string())),
            }
            Ok(())
        };
        store.run(&[key], fill).expect("room");
        store.log().commit_once().expect("a sound medium");
    }
    let add = |_: &mut Reader, writes: &mut Writes| {
        for (number, key) in (0..).zip(&keys) {
            match number % 2 {
                0 => writes.hash_set(0, key, [("one", "more")]),
                _ => writes.set_add(0, key, ["1000"]),
            }
        }
        Ok(())
    };
    store.run(&named, add).expect("room");
    store.log().commit_once().expect("a sound medium");
    let mut txn = store.begin_all();
    for (number, key) in (0..).zip(&keys) {
        let (ty, encoding) =
            if number % 2 == 0 { (Type::Hash, "hashtable") } else { (Type::Set, "hashtable") };
        assert_eq!(txn.encoding(0, key, ty), Ok(Some(encoding)));
    }
    drop(txn);
    store.check().expect("a sound store");
}
