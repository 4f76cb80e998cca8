//! Hashes with expiring fields against a simple model, over restarts.

use crate::{
    seeds::Rng,
    world::{State, World, key, play, with_seeds},
};
use holdfast_store::{
    Error, Txn,
    hash::{ExpireIf, Expired, Expiry},
};
use std::collections::BTreeMap;

/// Values with their expiries, 0 for none.
type Hash = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn forget_expired(hash: &mut Hash, now: u64) {
    hash.retain(|_, (_, expires)| *expires == 0 || *expires > now);
}

fn read(txn: &mut Txn, key: &[u8]) -> Hash {
    let Some(hash) = txn.hash_at(0, key).unwrap() else { return Hash::new() };
    let fields: Hash =
        hash.fields().map(|field| (field.name.to_vec(), (field.value.to_vec(), field.expires))).collect();
    assert_eq!(hash.len(), fields.len() as u64);
    fields
}

fn expire(old: Option<u64>, at: u64, condition: ExpireIf, now: u64) -> Expired {
    let allowed = match (condition, old) {
        (_, None) => return Expired::Missing,
        (ExpireIf::Always, _) | (ExpireIf::None, Some(0)) | (ExpireIf::Earlier, Some(0)) => true,
        (ExpireIf::None, _) | (ExpireIf::Some | ExpireIf::Later, Some(0)) => false,
        (ExpireIf::Some, _) => true,
        (ExpireIf::Later, Some(old)) => at > old,
        (ExpireIf::Earlier, Some(old)) => at < old,
    };
    match allowed {
        false => Expired::Refused,
        true if at <= now => Expired::Removed,
        true => Expired::Set,
    }
}

fn change(rng: &mut Rng, txn: &mut Txn, key: &[u8], state: &mut State<Hash>, names: u64) {
    let hash = state.entry(key.to_vec()).or_default();
    let now = txn.now_ms();
    let some: Vec<Vec<u8>> = (0..1 + rng.below(8)).map(|_| rng.text(names)).collect();
    match rng.below(9) {
        0..4 => {
            let fields: Vec<_> = some.into_iter().map(|name| (name, rng.text(1000))).collect();
            let expiry = match rng.below(3) {
                0 => Expiry::Clear,
                1 => Expiry::Keep,
                _ => Expiry::At(now + 1 + rng.below(2000)),
            };
            let mut new = 0;
            for (name, value) in &fields {
                let old = hash.get(name).map(|(_, expires)| *expires);
                new += u64::from(old.is_none());
                let expires = match expiry {
                    Expiry::Clear => 0,
                    Expiry::Keep => old.unwrap_or(0),
                    Expiry::At(at) => at,
                };
                hash.insert(name.clone(), (value.clone(), expires));
            }
            let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
            assert_eq!(txn.hash_set(0, key, fields, expiry), Ok(new));
        }
        4 | 5 => {
            let removed = some.iter().filter(|name| hash.remove(*name).is_some()).count();
            assert_eq!(txn.hash_remove(0, key, some.iter().map(|n| &n[..])), Ok(removed as u64));
        }
        6 => {
            let at = (now + rng.below(2000)).saturating_sub(100);
            let conditions =
                [ExpireIf::Always, ExpireIf::None, ExpireIf::Some, ExpireIf::Later, ExpireIf::Earlier];
            let condition = conditions[rng.below(5) as usize];
            let existed = !hash.is_empty();
            let mut expected = Vec::new();
            for name in &some {
                let done = expire(hash.get(name).map(|(_, expires)| *expires), at, condition, now);
                match done {
                    Expired::Set => hash.get_mut(name).expect("a field").1 = at,
                    Expired::Removed => drop(hash.remove(name)),
                    Expired::Missing | Expired::Refused => (),
                }
                expected.push(done);
            }
            let mut done = Vec::new();
            let names = some.iter().map(|name| &name[..]);
            let found = txn.hash_expire(0, key, names, at, condition, |one| done.push(one));
            assert_eq!(found, Ok(existed));
            assert_eq!(done, if existed { expected } else { Vec::new() });
        }
        7 => {
            let count = if rng.chance(8) { 0 } else { rng.below(60) };
            let field = |rng: &mut Rng| {
                let expires = if rng.chance(3) { now + 1 + rng.below(2000) } else { 0 };
                (rng.text(names), (rng.text(1000), expires))
            };
            *hash = (0..count).map(|_| field(rng)).collect();
            let fields = hash.iter().map(|(name, (value, expires))| (&name[..], &value[..], *expires));
            txn.hash_replace(0, key, fields).unwrap();
        }
        _ => {
            for name in &some {
                let Some((_, expires)) = hash.get_mut(name) else { continue };
                let expected = if *expires == 0 { Expired::Refused } else { Expired::Set };
                let check = |done| assert_eq!(done, expected);
                txn.hash_expire(0, key, [&name[..]], 0, ExpireIf::Some, check).unwrap();
                *expires = 0;
            }
        }
    }
    state.retain(|_, hash| !hash.is_empty());
}

fn look(rng: &mut Rng, txn: &mut Txn, key: &[u8], model: Option<&Hash>, names: u64) {
    let name = rng.text(names);
    let expected = model.and_then(|hash| hash.get(&name)).map(|(value, _)| value.clone());
    assert_eq!(txn.hash_get(0, key, &name).unwrap().map(|value| value.to_vec()), expected);
    let hash = txn.hash_at(0, key).unwrap();
    assert_eq!(hash.is_some(), model.is_some());
    let (Some(hash), Some(model)) = (hash, model) else { return };
    let one = hash.random(|| rng.next()).expect("a field");
    assert!(model.contains_key(&*one.name));
    let count = rng.below(20) as usize;
    let mut sample: Vec<_> =
        hash.sample(count, || rng.next()).iter().map(|field| field.name.to_vec()).collect();
    sample.sort();
    sample.dedup();
    assert_eq!(sample.len(), count.min(model.len()));
    assert!(sample.iter().all(|name| model.contains_key(name)));
    let mut scanned = Hash::new();
    let mut cursor = 0;
    loop {
        cursor = hash.scan(cursor, 10, |field| {
            scanned.insert(field.name.to_vec(), (field.value.to_vec(), field.expires));
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned, *model);
}

fn history(seed: u64) {
    let names = [8, 150, 2000][seed as usize % 3];
    play(
        seed,
        4000,
        |rng, world, txn, state| {
            let (key, now) = (key(rng), txn.now_ms());
            state.values_mut().for_each(|hash| forget_expired(hash, now));
            state.retain(|_, hash| !hash.is_empty());
            match rng.chance(4) {
                true => look(rng, txn, &key, state.get(&key), names),
                false => change(rng, txn, &key, state, names),
            }
            if rng.chance(10) {
                world.sim.advance_ms(rng.below(300));
            }
        },
        |txn, key, model| {
            let mut model = model.cloned().unwrap_or_default();
            forget_expired(&mut model, txn.now_ms());
            assert_eq!(read(txn, key), model);
        },
        |txn, key| {
            let names: Vec<_> = read(txn, key).into_keys().collect();
            txn.hash_remove(0, key, names.iter().map(|name| &name[..])).unwrap();
            assert!(!txn.exists(0, key));
        },
    );
}

#[test]
fn hashes_are_as_a_map_of_maps() {
    with_seeds(10, 20, history);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let world = World::new(&mut Rng(1));
    let store = world.store();
    let with = |operation: &dyn Fn(&mut Txn)| {
        let mut txn = store.begin_keys([&b"h"[..]]);
        operation(&mut txn);
        drop(txn);
        store.log().tail()
    };
    let name = || [&b"f"[..]];
    let tail = with(&|txn| drop(txn.hash_set(0, b"h", [(&b"a"[..], &b"1"[..])], Expiry::At(1 << 42))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.hash_remove(0, b"h", name()), Ok(0))));
    assert_eq!(
        tail,
        with(&|txn| assert_eq!(txn.hash_expire(0, b"h", name(), 1, ExpireIf::Always, |_| ()), Ok(true)))
    );
    let same = |txn: &mut Txn| {
        let check = |done| assert_eq!(done, Expired::Set);
        drop(txn.hash_expire(0, b"h", [&b"a"[..]], 1 << 42, ExpireIf::Always, check));
    };
    assert_eq!(tail, with(&same));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.hash_get(0, b"h", b"x"), Ok(None))));
}

#[test]
fn a_hash_goes_with_its_last_field() {
    let world = World::new(&mut Rng(2));
    let begin = || world.store().begin_keys([&b"h"[..]]);
    let at = begin().now_ms() + 1000;
    let names: Vec<_> = (0..1500).map(|number| format!("field {number}").into_bytes()).collect();
    let fields = names.iter().map(|name| (&name[..], &b"value"[..]));
    begin().hash_set(0, b"h", fields, Expiry::At(at)).unwrap();
    assert_eq!(begin().hash_at(0, b"h").unwrap().expect("a hash").len(), 1500);
    world.sim.advance_ms(2000);
    // Too many to be purged one by one at once.
    assert!(begin().hash_at(0, b"h").unwrap().is_none());
    assert!(!begin().exists(0, b"h"));
    begin().hash_set(0, b"h", [(&b"f"[..], &b"1"[..])], Expiry::At(at + 2000)).unwrap();
    world.sim.advance_ms(2000);
    assert_eq!(begin().set_add(0, b"h", [&b"now a set"[..]]), Ok(1));
    assert_eq!(begin().hash_get(0, b"h", b"f"), Err(Error::WrongType));
    world.store().check().expect("a sound store");
}
