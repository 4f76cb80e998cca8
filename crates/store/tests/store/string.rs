//! Strings that are changed in part against a simple model, over restarts.

use crate::{
    seeds::Rng,
    world::{State, World, key, keys, play, with_seeds},
};
use holdfast_store::{
    Admission, Error, Options, Purpose, SimIo, Store, Txn, Type,
    bitmap::{self, Draft, Field, Overflow},
    string::{Change, LARGE, StringValue},
};
use std::sync::Arc;

fn bytes(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(4) {
        return rng.text(30);
    }
    let len = [5, 200, 5_000, 2 * LARGE as u64][rng.below(4) as usize];
    let byte = if rng.chance(3) { 0 } else { rng.next() as u8 };
    (0..rng.below(len)).map(|i| if i % 7 == 0 { byte } else { byte.wrapping_mul(i as u8) }).collect()
}

/// A place in a string or behind it.
fn place(rng: &mut Rng, string: &[u8]) -> usize {
    match rng.below(4) {
        0 => string.len(),
        1 => rng.below(4 * LARGE as u64) as usize,
        _ => rng.below(string.len() as u64 + 1) as usize,
    }
}

fn write(string: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    string.resize(string.len().max(at + bytes.len()), 0);
    string[at..at + bytes.len()].copy_from_slice(bytes);
}

fn change(rng: &mut Rng, txn: &mut Txn, state: &mut State<Vec<u8>>) {
    let (at, to) = (key(rng), key(rng));
    let mut string = state.get(&at).cloned().unwrap_or_default();
    match rng.below(21) {
        0 => {
            string = bytes(rng);
            txn.set(0, &at, &string, false).unwrap();
        }
        20 => {
            let parts: Vec<_> = (0..rng.below(3)).map(|_| (place(rng, &string), bytes(rng))).collect();
            let end = parts.iter().map(|(at, bytes)| at + bytes.len()).max().unwrap_or(0);
            string = vec![0; end + rng.below(2 * LARGE as u64) as usize];
            parts.iter().for_each(|(at, bytes)| write(&mut string, *at, bytes));
            let changes: Vec<_> = parts.iter().map(|(at, bytes)| Change { at: *at, bytes }).collect();
            txn.string_create(0, &at, string.len(), &changes).unwrap();
        }
        1..8 => {
            let (start, bytes) = (place(rng, &string), bytes(rng));
            write(&mut string, start, &bytes);
            assert_eq!(txn.string_write(0, &at, start, &bytes), Ok(string.len()));
        }
        8..11 => {
            let len = place(rng, &string);
            let parts: Vec<_> = (0..rng.below(4)).map(|_| (place(rng, &string), bytes(rng))).collect();
            let end = parts.iter().map(|(at, bytes)| at + bytes.len()).max().unwrap_or(0).max(len);
            string.resize(string.len().max(end), 0);
            parts.iter().for_each(|(at, bytes)| write(&mut string, *at, bytes));
            let changes: Vec<_> = parts.iter().map(|(at, bytes)| Change { at: *at, bytes }).collect();
            assert_eq!(txn.string_change(0, &at, end, &changes), Ok(string.len()));
        }
        11..15 => {
            let (offset, value) = (place(rng, &string) as u64 * 8 + rng.below(8), rng.chance(2));
            let (old, len) = (bitmap::bit(&string, offset), (offset / 8) as usize + 1);
            let changed = old != value || string.len() < len;
            let byte = string.get(len - 1).copied().unwrap_or(0);
            let mask = 0x80 >> (offset % 8);
            write(&mut string, len - 1, &[if value { byte | mask } else { byte & !mask }]);
            assert_eq!(txn.bit_set(0, &at, offset, value), Ok((old, changed)));
        }
        15..17 => {
            let (mut draft, mut end) = (Draft::new(txn.string_at(0, &at).unwrap()), 0);
            let near = place(rng, &string) as u64 * 8;
            for _ in 0..rng.below(5) {
                let field = Field::new(rng.chance(2), 1 + rng.below(63) as u32).unwrap();
                let (offset, number) = (near + rng.below(100), i128::from(rng.next()));
                let value = field.fit(number, Overflow::Wrap).unwrap();
                end = end.max((offset + u64::from(field.bits())).div_ceil(8) as usize);
                string.resize(string.len().max(end), 0);
                assert_eq!(draft.get(field, offset), field.get(&string, offset));
                field.set(&mut string, offset, value);
                draft.set(field, offset, value);
            }
            let changed = draft.into_changed();
            assert_eq!(txn.bit_fields_write(0, &at, end, &changed), Ok(string.len()));
        }
        17 => {
            if state.contains_key(&at) {
                assert_eq!(txn.copy(0, &at, 0, &to), Ok(true));
                state.insert(to, string);
            }
            return;
        }
        18 => {
            if state.remove(&at).is_some() {
                assert_eq!(txn.rename(0, &at, 0, &to), Ok(true));
                state.insert(to, string);
            }
            return;
        }
        _ => {
            assert_eq!(txn.remove(0, &at), state.remove(&at).is_some());
            return;
        }
    }
    state.insert(at, string);
}

fn look(rng: &mut Rng, world: &World, txn: &mut Txn, state: &State<Vec<u8>>) {
    let at = key(rng);
    let value = txn.string_at(0, &at).unwrap();
    let Some(model) = state.get(&at) else {
        return assert!(value.is_none());
    };
    let value = value.expect("a string");
    assert_eq!((value.len(), value.is_empty()), (model.len(), model.is_empty()));
    let start = rng.below(model.len() as u64 + 1) as usize;
    let end = start + rng.below((model.len() - start) as u64 + 1) as usize;
    assert!(value.slices(start..end).collect::<Vec<_>>().concat() == model[start..end], "{start}..{end}");
    let mut window = [1; 100];
    value.copy_to(start, &mut window);
    let expected = model[start..].iter().copied().chain(std::iter::repeat(0));
    assert!(expected.zip(window).all(|(a, b)| a == b));
    let bits = start as u64 * 8..end as u64 * 8;
    let bits = if bits.is_empty() { bits } else { bits.start + rng.below(8)..bits.end - rng.below(8) };
    let bits = bits.start..bits.end.max(bits.start);
    assert_eq!(value.count_bits(bits.clone()), bitmap::count(model, bits.clone()));
    for wanted in [false, true] {
        assert_eq!(value.find_bit(wanted, bits.clone()), bitmap::position(model, wanted, bits.clone()));
    }
    let offset = rng.below(model.len() as u64 * 10 + 100);
    assert_eq!(value.bit(offset), bitmap::bit(model, offset));
    // The other one's copy must not be taken for this one's.
    for key in keys().filter(|_| rng.chance(2)) {
        // What was in the small cache may be gone when something else came in.
        if let Err(Error::Cold(cold)) = txn.get(0, &key) {
            txn.supply(vec![world.store().fetch(cold)]);
        }
        assert_eq!(txn.get(0, &key).unwrap(), state.get(&key).map(|model| &model[..]));
    }
}

fn history(seed: u64) {
    let mut chunks = 0;
    play(
        seed,
        1500,
        |rng, world, txn, state| match rng.chance(4) {
            true => look(rng, world, txn, state),
            false => change(rng, txn, state),
        },
        |txn, key, model| {
            assert_eq!(txn.get(0, key).unwrap(), model.map(|model| &model[..]));
            let value = txn.string_at(0, key).unwrap();
            chunks += usize::from(matches!(value, Some(StringValue::Chunks { .. })));
        },
        |txn, key| _ = txn.remove(0, key),
    );
    assert!(chunks > 0 || seed > 0, "no string was in the heap");
}

#[test]
fn strings_are_as_vectors() {
    with_seeds(20, 0, history);
}

#[test]
fn types_are_told_apart() {
    let rng = &mut Rng(1);
    let world = World::new(rng);
    let mut txn = world.begin_all();
    txn.string_write(0, b"string", 2 * LARGE, b"x").unwrap();
    assert_eq!(txn.type_of(0, b"string"), Some(Type::String));
    assert_eq!(txn.list_at(0, b"string").err(), Some(Error::WrongType));
    txn.set_add(0, b"set", [&b"member"[..]]).unwrap();
    assert_eq!(txn.string_write(0, b"set", 0, b"x"), Err(Error::WrongType));
    assert_eq!(txn.string_at(0, b"set").err(), Some(Error::WrongType));
}

#[test]
fn a_whole_new_value_is_an_item_again_and_an_expiry_stays() {
    let rng = &mut Rng(2);
    let world = World::new(rng);
    let is_in_chunks =
        |txn: &mut Txn| matches!(txn.string_at(0, b"key"), Ok(Some(StringValue::Chunks { .. })));
    let mut txn = world.begin_all();
    txn.string_write(0, b"key", 0, &[1; 2 * LARGE]).unwrap();
    assert!(!is_in_chunks(&mut txn), "it was written as a whole");
    txn.set_expiry(0, b"key", Some(1 << 42)).unwrap();
    txn.string_write(0, b"key", 5, &[2]).unwrap();
    assert!(is_in_chunks(&mut txn));
    assert_eq!(txn.expiry(0, b"key"), Some(Some(1 << 42)));
    txn.set(0, b"key", &[3; 2 * LARGE], true).unwrap();
    assert!(!is_in_chunks(&mut txn));
    assert_eq!(txn.expiry(0, b"key"), Some(Some(1 << 42)));
    drop(txn);
    world.store().check().expect("a sound store");
}

#[test]
fn a_string_that_is_created_takes_the_place_of_any_value() {
    let world = World::new(&mut Rng(4));
    let mut txn = world.begin_all();
    txn.set_add(0, b"key", [&b"member"[..]]).unwrap();
    txn.set_expiry(0, b"key", Some(1 << 42)).unwrap();
    // So many zeroes would be no batch.
    txn.string_create(0, b"key", 500 << 20, &[Change { at: 0, bytes: b"head" }]).unwrap();
    assert!(txn.batch_bytes() < 4 << 20, "{} bytes", txn.batch_bytes());
    assert_eq!((txn.type_of(0, b"key"), txn.expiry(0, b"key")), (Some(Type::String), Some(None)));
    let value = txn.string_at(0, b"key").unwrap().expect("it was made");
    assert!(matches!(value, StringValue::Chunks { .. }) && value.len() == 500 << 20);
    assert!(value.memory_bytes() < 1 << 20, "{} bytes", value.memory_bytes());
    assert_eq!((value.byte(3), value.byte((500 << 20) - 1)), (Some(b'd'), Some(0)));
    txn.string_create(0, b"key", 3, &[]).unwrap();
    assert_eq!(txn.get(0, b"key"), Ok(Some(&[0; 3][..])));
    drop(txn);
    world.store().check().expect("a sound store");
}

#[test]
fn many_changes_reserve_what_their_chunks_take() {
    let world = World::new(&mut Rng(5));
    let mut txn = world.begin_all();
    txn.string_create(0, b"key", 1 << 20, &[]).unwrap();
    let places: Vec<usize> = (0..50_000).map(|number| number * 7919 % (1 << 20)).collect();
    let changes: Vec<_> = places.iter().map(|&at| Change { at, bytes: b"x" }).collect();
    assert_eq!(txn.string_change(0, b"key", 0, &changes), Ok(1 << 20));
    assert_eq!(txn.string_at(0, b"key").unwrap().and_then(|value| value.byte(7919)), Some(b'x'));
}

#[test]
fn what_a_transaction_sets_again_and_again_it_writes_once() {
    let options =
        || Options { partitions: 1, heap_bytes_max: 64 << 20, background: false, ..Options::default() };
    let sim = SimIo::new(3);
    let store = Store::open_on(Arc::new(sim.clone()), options()).expect("a new store");
    let mut txn = store.begin_all();
    txn.set(0, b"key", b"before", false).unwrap();
    txn.set_expiry(0, b"key", Some(1 << 42)).unwrap();
    for number in 0..10_000 {
        txn.set(0, b"key", format!("{number:06}").as_bytes(), number != 5000).unwrap();
        txn.set(0, format!("other {}", number % 40).as_bytes(), b"1", false).unwrap();
    }
    assert!(txn.batch_bytes() < 8000, "{} bytes", txn.batch_bytes());
    txn.commit();
    store.log().commit_once().expect("a sound medium");
    drop(store);
    let store = Store::open_on(Arc::new(sim.crash()), options()).expect("a store after a power cut");
    let mut txn = store.begin_all();
    // The value is in the log only.
    let cold = txn.cold(0, [&b"key"[..]]);
    txn.supply(store.fetch_all(&cold));
    assert_eq!(txn.get(0, b"key"), Ok(Some(&b"009999"[..])));
    assert_eq!((txn.expiry(0, b"key"), txn.len(0)), (Some(None), 41));
    drop(txn);
    store.check().expect("a sound store");
}

/// An index that grows for new keys writes more than was expected: where the log has no room for that, no key is set.
#[test]
fn where_the_log_is_nearly_full_all_keys_are_set_or_none() {
    // They come to more than is kept back for what has begun.
    const NEW: u64 = 2000;
    let options = Options {
        partitions: 4,
        segment_size: Some(64 << 10),
        log_bytes_max: 4 << 20,
        heap_bytes_max: 64 << 20,
        background: false,
        ..Options::default()
    };
    let key = |number: u64| format!("key:{number}").into_bytes();
    let (mut taken_back, mut rng) = (0, Rng(7));
    for _ in 0..40 {
        let store = Store::open_on(Arc::new(SimIo::new(1)), options.clone()).expect("a new store");
        let admitted = |bytes| {
            store.log().commit_once().expect("a sound medium");
            store.log().admit(bytes) == Admission::Ok
        };
        let room = 1 + rng.below(60_000) as usize;
        while admitted(room) {
            let mut txn = store.begin_all();
            txn.set(0, b"there", &vec![b'f'; 1 + rng.below(9000) as usize], false).unwrap();
        }
        let mut number = 0;
        while admitted(0) {
            let keys: Vec<Vec<u8>> = (number..number + NEW).map(key).collect();
            // Some are named twice, and one is there.
            let mut pairs: Vec<_> =
                keys.iter().chain(&keys[..3]).map(|key| (&key[..], &b"value"[..])).collect();
            pairs.insert(rng.below(NEW) as usize, (b"there", b"small"));
            let mut txn = store.begin_all();
            let before = (txn.len(0), txn.get(0, b"there").unwrap().map(<[u8]>::to_vec));
            // As if the arguments told of less than they come to.
            let made = txn.expect(0, Purpose::Write, true).and_then(|()| txn.set_all(0, pairs.into_iter()));
            let after = (txn.len(0), txn.get(0, b"there").unwrap().map(<[u8]>::to_vec));
            match made {
                Ok(()) => {
                    assert_eq!(after, (before.0 + NEW, Some(b"small".to_vec())));
                    assert!(keys.iter().all(|key| txn.get(0, key) == Ok(Some(&b"value"[..]))));
                    number += NEW;
                }
                Err(error) => {
                    assert_eq!(error, Error::NotAdmitted(Admission::Full));
                    assert!(keys.iter().all(|key| !txn.exists(0, key)));
                    assert_eq!(after, before);
                    taken_back += u64::from(txn.batch_bytes() > 0);
                    break;
                }
            }
        }
        store.log().commit_once().expect("a sound medium");
        store.checkpoint().expect("a sound medium");
        store.check().expect("a sound store");
    }
    assert!(taken_back > 0, "no key was ever taken back");
}

#[test]
fn what_no_batch_of_the_log_holds_is_refused_before_anything_changes() {
    let store = Store::open_on(Arc::new(SimIo::new(1)), Options { background: false, ..Options::default() });
    let store = store.expect("a store");
    let mut txn = store.begin_all();
    txn.expect(0, Purpose::Write, true).expect("room");
    txn.set(0, b"key", b"value", false).expect("room");
    let before = txn.batch_bytes();
    assert_eq!(txn.reserve(store.batch_bytes_max()), Err(Error::TooLarge));
    assert_eq!(txn.reserve(1 << 40), Err(Error::TooLarge));
    assert_eq!(txn.batch_bytes(), before);
    txn.commit();
}
