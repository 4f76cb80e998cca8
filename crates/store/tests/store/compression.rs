//! Values that are compressed in the log: they are what they were, wherever they are read; and one that does not expand is told.

use crate::{open, others};
use holdfast_io::crc32c_of_both;
use holdfast_store::{
    Admission, Codec, CompressionSetting, CompressionStats, Durability, Error, Io, Options, Replication,
    SimIo, Store, hash::Expiry,
};
use std::{sync::Arc, thread};

const BLOCK: usize = 4096;
const SEGMENT: u64 = 64 << 10;

fn options() -> Options {
    Options {
        partitions: 2,
        segment_size: Some(SEGMENT as u32),
        log_bytes_max: 64 * SEGMENT,
        heap_bytes_max: 16 << 20,
        background: false,
        ..Options::default()
    }
}

fn start(sim: &SimIo) -> Store {
    let store = Store::open_on(Arc::new(sim.clone()), options()).expect("a store");
    store.attach();
    store
}

fn by(codec: Option<Codec>) -> CompressionSetting {
    CompressionSetting { codec, ..CompressionSetting::default() }
}

fn set(store: &Store, key: &[u8], value: &[u8]) {
    open::run(store, &[key], |txn| txn.set(0, key, value, false)).expect("room");
}

fn get(store: &Store, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    open::run(store, &[key], |txn| Ok(txn.get(0, key)?.map(<[u8]>::to_vec))).map(|(value, _)| value)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// What services write: names that come again, and numbers that do not.
fn value(number: u32) -> Vec<u8> {
    let field = |name: u32| format!("{{\"field\":{name},\"value\":\"{}\"}},", number.wrapping_mul(name + 7));
    (0..20).map(field).collect::<String>().into_bytes()
}

fn settle(store: &Store) {
    store.log().wait_durable(store.log().tail()).expect("a sound medium");
    store.checkpoint().expect("a sound medium");
}

#[test]
fn strings_and_collections_come_back_though_less_lies_in_the_log() {
    const KEYS: u32 = 300;
    for codec in [Codec::Lz4, Codec::Zstd(3)] {
        let sim = SimIo::new(1);
        let store = start(&sim);
        store.set_compression(by(Some(codec)));
        let mut raw = 0;
        for number in 0..KEYS {
            set(&store, &key(number), &value(number));
            raw += value(number).len();
        }
        // Strings that are there change without a transaction.
        for number in 0..KEYS {
            store.set(0, &key(number), &value(number + 1)).expect("room");
        }
        let name = |field: u32| format!("field {field}").into_bytes();
        for field in 0..50 {
            let (name, text) = (name(field), value(field));
            let fields = [(&name[..], &text[..40])];
            open::run(&store, &[b"hash"], |txn| txn.hash_set(0, b"hash", fields, Expiry::Clear))
                .expect("room");
        }
        settle(&store);
        store.freeze(u64::MAX).expect("room");
        settle(&store);
        let stats = store.stats();
        assert_eq!((stats.freezes, stats.compression.kept_values), (1, 0));
        assert!(stats.log_live_bytes < raw as u64 / 2, "{} of {raw}", stats.log_live_bytes);
        let report = store.check().expect("a sound store");
        assert_eq!((report.items, report.compressed, report.frozen), (301, 301, 1));
        drop(store);

        // Without compression all can be read, in each way.
        let store = start(&sim.crash());
        for number in 0..KEYS {
            assert_eq!(get(&store, &key(number)).expect("sound"), Some(value(number + 1)));
        }
        store.forget_copies();
        let mut seen = 0;
        store
            .visit_keys::<Box<dyn std::error::Error>>(0, |txn, key| {
                seen += u32::from(key == b"hash" || txn.get(0, key)?.is_some_and(|value| value.len() > 500));
                Ok(())
            })
            .expect("sound");
        assert_eq!(seen, KEYS + 1);
        let read = |field: u32| {
            let read = open::run(&store, &[b"hash"], |txn| {
                Ok(txn.hash_get(0, b"hash", &name(field))?.map(|value| value.to_vec()))
            });
            read.expect("sound").0
        };
        (0..50).for_each(|field| assert_eq!(read(field), Some(value(field)[..40].to_vec())));
        // What is written now is not compressed; the hash was looked at again and again, and is in the heap.
        set(&store, b"later", &value(0));
        settle(&store);
        assert_eq!(store.check().expect("a sound store").compressed, 300);
    }
}

#[test]
fn a_value_that_waits_in_its_batch_is_read_though_there_is_no_copy_of_it() {
    let store = start(&SimIo::new(1));
    store.set_compression(by(Some(Codec::Zstd(3))));
    store.set_memory_bytes_max(1);
    let mut txn = store.begin_keys([&b"key"[..]]);
    for number in 0..3 {
        txn.set(0, b"key", &value(number), false).expect("room");
        assert_eq!(txn.get(0, b"key").expect("at hand"), Some(&value(number)[..]));
    }
    drop(txn);
    assert!(store.stats().compression.bytes_after > 0);
}

/// What the cleaner moves is compressed if it was not, and stays so if it was, also when nothing is to be compressed any more.
#[test]
fn values_that_are_moved_are_compressed_once() {
    for was_compressed in [false, true] {
        let options = Options { log_bytes_max: 32 * SEGMENT, ..options() };
        let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
        store.attach();
        let mut random = fastrand::Rng::with_seed(7);
        let noise: Vec<u8> = (0..130_000).map(|_| random.u8(..)).collect();
        if was_compressed {
            store.set_compression(by(Some(Codec::Zstd(3))));
        }
        // A part of each segment lives.
        let mut keys = 0;
        while store.admit(4096) == Admission::Ok {
            set(&store, &key(keys), &value(keys));
            (0..2).for_each(|_| set(&store, b"garbage", &noise[..1000]));
            keys += 1;
        }
        settle(&store);
        let before = store.stats();
        assert_eq!(store.check().expect("sound").compressed, if was_compressed { keys.into() } else { 0 });
        match was_compressed {
            true => store.set_compression(by(None)),
            false => store.set_compression(by(Some(Codec::Zstd(3)))),
        }
        let mut rounds = 0;
        while store.stats().moved_bytes < 5000 {
            // It does not pay.
            if store.admit(noise.len() + 256) == Admission::Ok {
                set(&store, b"garbage", &noise);
            }
            settle(&store);
            while store.clean().expect("a sound medium") {}
            rounds += 1;
            assert!(rounds < 100, "nothing is moved");
        }
        settle(&store);
        let (after, compressed) = (store.stats(), store.check().expect("sound").compressed);
        if was_compressed {
            assert_eq!(compressed, keys.into());
            assert_eq!(after.compression, CompressionStats { is_active: false, ..before.compression });
        } else {
            assert!(compressed > 5, "{compressed} of {keys}");
            let saved = after.compression.bytes_before - after.compression.bytes_after;
            let grown = after.log_live_bytes as i64 - before.log_live_bytes as i64;
            let most = noise.len() as i64 - saved as i64 * 3 / 4;
            assert!(grown < most, "{saved} bytes are saved, but {grown} more live");
        }
        store.forget_copies();
        (0..keys)
            .for_each(|number| assert_eq!(get(&store, &key(number)).expect("sound"), Some(value(number))));
    }
}

/// Checksums are right, but what they cover was never written by a store.
#[test]
fn an_item_that_does_not_expand_is_told_as_damage_wherever_it_is_read() {
    for codec in [Codec::Lz4, Codec::Zstd(3)] {
        let sim = SimIo::new(1);
        let store = start(&sim);
        store.set_compression(by(Some(codec)));
        set(&store, b"the key", &value(1));
        set(&store, b"another", &value(2));
        settle(&store);
        store.close().expect("a sound medium");
        drop(store);
        let mut log = sim.snapshot("log/00000000");
        let name_at = log.windows(7).position(|bytes| bytes == b"the key").expect("the item");
        let (at, stored_at) = (name_at - 16, name_at + 7);
        let stored_len = u32::from_le_bytes(log[at + 4..at + 8].try_into().expect("four bytes")) as usize;
        let end = stored_at + stored_len;
        // The lowest bits of the length of the value.
        log[stored_at + 1] ^= 1;
        let crc = crc32c_of_both(log[at..at + 8].try_into().expect("eight bytes"), &log[at + 16..end]);
        log[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
        let file = sim.open("log/00000000", false).expect("the log");
        let (first, last) = (at / BLOCK * BLOCK, end.next_multiple_of(BLOCK));
        file.write_at(&[&log[first..last]], first as u64, Durability::Durable).expect("the power is on");

        let store = start(&sim);
        let told = |what: String| {
            let place = format!("log/00000000 at offset {at}: ");
            assert!(what.contains(&place) && what.contains("does not expand"), "{what}");
        };
        told(get(&store, b"the key").expect_err("damage").to_string());
        told(store.check().expect_err("damage").to_string());
        let visited =
            store.visit_keys::<Box<dyn std::error::Error>>(0, |txn, key| Ok(txn.get(0, key).map(drop)?));
        told(visited.expect_err("damage").to_string());
        assert_eq!(get(&store, b"another").expect("sound"), Some(value(2)));
        // What is overwritten is not missed.
        set(&store, b"the key", b"again");
        store.check().expect("a sound store");
    }
}

/// A small value that has nothing in common with itself, and much with others.
fn small_value(number: u32) -> Vec<u8> {
    let word = |number: u32| {
        let mut random = fastrand::Rng::with_seed(u64::from(number % 100));
        std::iter::repeat_with(move || random.u8(..)).take(60)
    };
    (0..20).flat_map(|place| word(number * 7 + place * 3)).collect()
}

fn with_room() -> Options {
    Options { log_bytes_max: 1024 * SEGMENT, ..options() }
}

fn start_with_room(sim: &SimIo) -> Store {
    let store = Store::open_on(Arc::new(sim.clone()), with_room()).expect("a store");
    store.attach();
    store.set_compression(by(Some(Codec::Zstd(3))));
    store
}

/// Sets keys to small values, of which a dictionary can be made then.
fn set_samples(store: &Store) {
    for number in 0..SAMPLED {
        store.set(0, &key(number), &small_value(number)).expect("room");
        if number % 500 == 0 {
            settle(store);
        }
    }
}

/// So many small values, of which each fourth is a sample, fill 2 MiB of samples.
const SAMPLED: u32 = 7500;

/// The other servers would not have it, so it must not be made.
#[test]
fn no_dictionary_is_made_for_a_log_that_others_have() {
    let replication = Some(Replication { term: 2, agreed: u64::MAX });
    let options = Options { replication, ..with_room() };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    let _others = others::lead(store.log(), 2);
    store.attach();
    store.set_compression(by(Some(Codec::Zstd(3))));
    set_samples(&store);
    assert!(!store.train().expect("a sound medium"));
    assert_eq!(store.stats().compression.dictionaries, 0);
}

#[test]
fn small_values_share_a_dictionary_that_is_there_after_a_restart() {
    let sim = SimIo::new(1);
    let store = start_with_room(&sim);
    assert!(!store.train().expect("a sound medium"), "there are no samples");
    set_samples(&store);
    assert!(store.train().expect("a sound medium"));
    assert!(!store.train().expect("a sound medium"), "the samples are used up");
    assert_eq!(store.stats().compression.dictionaries, 1);
    let set_anew = |store: &Store| {
        // What saved nothing before is tried again after some.
        (0..100).for_each(|number| set(store, &key(number), &small_value(number + 1)));
        let before = store.stats().compression.bytes_after;
        (0..300).for_each(|number| set(store, &key(number), &small_value(number + 1)));
        store.stats().compression.bytes_after - before
    };
    let raw = (1..301).map(|number| small_value(number).len() as u64).sum::<u64>();
    assert!((1..raw / 2).contains(&set_anew(&store)));
    store.set_compression(CompressionSetting { dictionaries: false, ..by(Some(Codec::Zstd(3))) });
    assert_eq!(set_anew(&store), 0, "it saves nothing without");
    store.set_compression(by(Some(Codec::Zstd(3))));
    let with = set_anew(&store);
    settle(&store);
    assert_eq!(store.stats().written.total(), sim.bytes_written(), "every byte has its cause");
    drop(store);
    for sim in [sim.crash(), sim.crash()] {
        let store = start_with_room(&sim);
        assert_eq!((store.stats().compression.dictionaries, &store.recovery().notes[..]), (1, &[][..]));
        for number in 0..300 {
            assert_eq!(get(&store, &key(number)).expect("sound"), Some(small_value(number + 1)));
        }
        assert_eq!(store.check().expect("a sound store").compressed, 300);
        assert_eq!(set_anew(&store), with);
    }
}

/// The power goes at each operation around the making of a dictionary: what names it can be read whenever it is on the medium.
#[test]
fn a_dictionary_is_durable_before_a_value_names_it() {
    let mut found = [0; 2];
    for n in 1.. {
        let sim = SimIo::new(n);
        let store = start_with_room(&sim);
        set_samples(&store);
        sim.crash_after(n);
        let done = || {
            assert!(store.train().ok()?, "there are enough samples");
            for number in 0..3 {
                store.set(0, &key(number), &small_value(number + 1)).ok()?;
                store.log().commit_once().ok()?;
            }
            Some(())
        };
        let is_done = done().is_some();
        let compressed = store.stats().compression.bytes_after > 0;
        drop(store);
        let store = start(&sim.crash());
        store.check().expect("a sound store");
        assert!(!compressed || store.stats().compression.dictionaries == 1);
        found[usize::from(compressed)] += 1;
        if is_done {
            break;
        }
    }
    assert!(found[0] >= 2 && found[1] >= 2, "{found:?}");
}

/// Nor may it be used while it is being written.
#[test]
fn values_that_are_set_while_a_dictionary_is_written_do_not_name_it() {
    let sim = SimIo::new(1);
    let store = start_with_room(&sim);
    set_samples(&store);
    sim.hold_writes("dictionary-");
    thread::scope(|scope| {
        let training = scope.spawn(|| store.train());
        while sim.held_writes() == 0 {
            thread::yield_now();
        }
        (0..100).for_each(|_| set(&store, b"the key", &small_value(1)));
        store.log().commit_once().expect("the power is on");
        let cut = sim.crash();
        assert!(training.join().expect("it returns").is_err(), "the power is off");
        let store = start(&cut);
        assert_eq!(get(&store, b"the key").expect("sound"), Some(small_value(1)));
        store.check().expect("a sound store");
    });
}

#[test]
fn a_damaged_dictionary_is_told_and_so_are_values_that_need_it() {
    let sim = SimIo::new(1);
    let store = start_with_room(&sim);
    set_samples(&store);
    assert!(store.train().expect("a sound medium"));
    // What saved nothing before is tried again after some.
    (0..100).for_each(|_| set(&store, b"the key", &small_value(1)));
    store.close().expect("a sound medium");
    drop(store);
    for (offset, what) in
        [(3, "no dictionary"), (10, "another store's"), (26, "cut short"), (5000, "checksum")]
    {
        let sim = sim.fork();
        sim.flip_bit("dictionary-1", offset, 5);
        let store = start_with_room(&sim);
        let notes = store.recovery().notes.join("; ");
        assert!(notes.contains("dictionary-1 is not used") && notes.contains(what), "{notes}");
        let told = get(&store, b"the key").expect_err("damage").to_string();
        assert!(told.contains("dictionary of a compressed value is missing"), "{told}");
        assert_eq!(get(&store, &key(7)).expect("sound"), Some(small_value(7)));
        // Its number is not given again.
        set_samples(&store);
        assert!(store.train().expect("a sound medium"));
        assert!(!sim.snapshot("dictionary-2").is_empty());
    }
}
