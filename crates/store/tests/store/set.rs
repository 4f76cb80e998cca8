//! Sets against a simple model, over restarts.

use crate::{
    seeds::Rng,
    world::{State, World, key, play, with_seeds},
};
use holdfast_store::{Error, Txn, set::Combine};
use std::collections::BTreeSet;

type Set = BTreeSet<Vec<u8>>;

fn read(txn: &mut Txn, key: &[u8]) -> Set {
    let Some(set) = txn.set_at(0, key).unwrap() else { return Set::new() };
    let members: Set = set.members().map(|member| member.to_vec()).collect();
    assert_eq!(set.len(), members.len() as u64);
    members
}

fn combined(how: Combine, sets: &[Set]) -> Set {
    let mut sets = sets.iter();
    let first = sets.next().cloned().unwrap_or_default();
    sets.fold(first, |all, set| match how {
        Combine::Intersection => &all & set,
        Combine::Union => &all | set,
        Combine::Difference => &all - set,
    })
}

fn change(rng: &mut Rng, txn: &mut Txn, state: &mut State<Set>, numbers: u64) {
    let (to, from) = (key(rng), key(rng));
    let some: Vec<Vec<u8>> = (0..1 + rng.below(12)).map(|_| rng.text(numbers)).collect();
    let members = some.iter().map(|member| &member[..]);
    let set = state.entry(to.clone()).or_default();
    match rng.below(11) {
        0..5 => {
            let added = some.iter().filter(|member| set.insert((*member).clone())).count();
            assert_eq!(txn.set_add(0, &to, members), Ok(added as u64));
        }
        5 | 6 => {
            let removed = some.iter().filter(|member| set.remove(*member)).count();
            assert_eq!(txn.set_remove(0, &to, members), Ok(removed as u64));
        }
        7 => {
            // Mostly a few, sometimes all.
            let count = if rng.chance(5) { rng.below(1000) } else { rng.below(5) };
            let expected = count.min(set.len() as u64);
            let popped = |member: &[u8]| assert!(set.remove(member), "it was not there");
            assert_eq!(txn.set_pop(0, &to, count, || rng.next(), popped), Ok(expected));
        }
        8 => {
            let member = &some[0];
            let moved = state.get_mut(&from).is_some_and(|set| set.remove(member));
            if moved {
                state.entry(to.clone()).or_default().insert(member.clone());
            }
            assert_eq!(txn.set_move(0, &from, &to, member), Ok(moved));
        }
        9 => {
            *set = (0..rng.below(60)).map(|_| rng.text(numbers)).collect();
            txn.set_replace(0, &to, set.iter().map(|member| &member[..])).unwrap();
        }
        _ => {
            let how = how(rng);
            let keys: Vec<_> = (0..1 + rng.below(4)).map(|_| key(rng)).collect();
            let sets: Vec<Set> = keys.iter().map(|key| state.get(key).cloned().unwrap_or_default()).collect();
            let result = combined(how, &sets);
            let stored = txn.set_store(0, &to, how, keys.iter().map(|key| &key[..]));
            assert_eq!(stored, Ok(result.len() as u64));
            state.insert(to, result);
        }
    }
    state.retain(|_, set| !set.is_empty());
}

fn how(rng: &mut Rng) -> Combine {
    [Combine::Intersection, Combine::Union, Combine::Difference][rng.below(3) as usize]
}

fn look(rng: &mut Rng, txn: &mut Txn, state: &State<Set>, numbers: u64) {
    let keys: Vec<_> = (0..1 + rng.below(4)).map(|_| key(rng)).collect();
    let models: Vec<Set> = keys.iter().map(|key| state.get(key).cloned().unwrap_or_default()).collect();
    let how = how(rng);
    let sets = txn.sets_at(0, keys.iter().map(|key| &key[..])).unwrap();
    let members: Vec<_> = how.members(&sets).map(|member| member.to_vec()).collect();
    let expected = combined(how, &models);
    assert_eq!(members.len(), expected.len(), "{how:?}");
    assert_eq!(members.into_iter().collect::<Set>(), expected, "{how:?}");

    let model = &models[0];
    assert_eq!(sets[0].is_some(), !model.is_empty());
    let Some(set) = sets[0] else { return };
    let member = rng.text(numbers);
    assert_eq!(set.contains(&member), model.contains(&member));
    assert!(model.contains(&*set.random(|| rng.next())));
    let count = rng.below(20) as usize;
    let sample: Set = set.sample(count, || rng.next()).iter().map(|member| member.to_vec()).collect();
    assert_eq!(sample.len(), count.min(model.len()));
    assert!(sample.is_subset(model));
    let (mut scanned, mut cursor) = (Set::new(), 0);
    loop {
        cursor = set.scan(cursor, 10, |member| _ = scanned.insert(member.to_vec()));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned, *model);
}

fn history(seed: u64) {
    let numbers = [10, 200, 3000][seed as usize % 3];
    play(
        seed,
        4000,
        |rng, _, txn, state| match rng.chance(4) {
            true => look(rng, txn, state, numbers),
            false => change(rng, txn, state, numbers),
        },
        |txn, key, model| assert_eq!(read(txn, key), model.cloned().unwrap_or_default()),
        |txn, key| _ = txn.set_pop(0, key, u64::MAX, || 0, |_| ()).unwrap(),
    );
}

#[test]
fn sets_are_as_sets() {
    with_seeds(10, 20, history);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let world = World::new(&mut Rng(1));
    let store = world.store();
    let with = |operation: &dyn Fn(&mut Txn)| {
        operation(&mut store.begin_all());
        store.log().tail()
    };
    let tail = with(&|txn| assert_eq!(txn.set_add(0, b"s", [&b"a"[..]]), Ok(1)));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.set_add(0, b"s", [&b"a"[..]]), Ok(0))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.set_remove(0, b"s", [&b"b"[..]]), Ok(0))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.set_remove(0, b"none", [&b"b"[..]]), Ok(0))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.set_pop(0, b"s", 0, || 0, |_| ()), Ok(0))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.set_move(0, b"s", b"s", b"a"), Ok(true))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.set_move(0, b"s", b"t", b"b"), Ok(false))));
    let store_none =
        |txn: &mut Txn| assert_eq!(txn.set_store(0, b"none", Combine::Union, [&b"x"[..]]), Ok(0));
    assert_eq!(tail, with(&store_none));
}

#[test]
fn a_stored_set_replaces_any_value() {
    let world = World::new(&mut Rng(2));
    let mut txn = world.store().begin_all();
    txn.set(0, b"string", b"value", false).unwrap();
    txn.set_expiry(0, b"string", Some(1 << 42)).unwrap();
    txn.set_add(0, b"set", [&b"a"[..], b"b"]).unwrap();
    assert_eq!(txn.set_add(0, b"string", [&b"a"[..]]), Err(Error::WrongType));
    assert_eq!(txn.set_store(0, b"new", Combine::Union, [&b"set"[..], b"string"]), Err(Error::WrongType));
    assert_eq!(txn.set_store(0, b"string", Combine::Union, [&b"set"[..], b"none"]), Ok(2));
    assert_eq!(txn.expiry(0, b"string"), Some(None));
    assert_eq!(read(&mut txn, b"string").len(), 2);
    assert_eq!(txn.set_store(0, b"string", Combine::Intersection, [&b"set"[..], b"none"]), Ok(0));
    assert!(!txn.exists(0, b"string"));
}
