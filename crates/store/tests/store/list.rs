//! Lists against a simple model, over restarts.

use crate::{
    seeds::Rng,
    world::{State, World, key, play, with_seeds},
};
use holdfast_store::{
    Error, Txn,
    list::End::{self, Back, Front},
    positions_between,
};
use std::collections::VecDeque;

type List = VecDeque<Vec<u8>>;

fn read(txn: &mut Txn, key: &[u8]) -> List {
    let Some(list) = txn.list_at(0, key).unwrap() else { return List::new() };
    let elements: List = list.range(0, -1).map(<[u8]>::to_vec).collect();
    assert_eq!(list.len(), elements.len() as u64);
    elements
}

fn end(rng: &mut Rng) -> End {
    if rng.chance(2) { Front } else { Back }
}

fn index(rng: &mut Rng, list: &List) -> i64 {
    let reach = list.len() as u64 + 3;
    rng.below(2 * reach) as i64 - reach as i64
}

/// The position that an index means.
fn position(index: i64, list: &List) -> Option<usize> {
    let at = if index < 0 { index + list.len() as i64 } else { index };
    usize::try_from(at).ok().filter(|&at| at < list.len())
}

fn push(list: &mut List, end: End, element: Vec<u8>) {
    match end {
        Front => list.push_front(element),
        Back => list.push_back(element),
    }
}

fn pop(list: &mut List, end: End) -> Option<Vec<u8>> {
    match end {
        Front => list.pop_front(),
        Back => list.pop_back(),
    }
}

fn element(rng: &mut Rng) -> Vec<u8> {
    match rng.below(100) {
        0 => vec![rng.next() as u8; rng.below(20_000) as usize],
        _ => rng.text(30),
    }
}

fn change(rng: &mut Rng, txn: &mut Txn, state: &mut State<List>) {
    let (at, to) = (key(rng), key(rng));
    let existed = state.contains_key(&at);
    let list = state.entry(at.clone()).or_default();
    match rng.below(18) {
        0..6 => {
            let (end, create) = (end(rng), !rng.chance(4));
            let elements: Vec<_> = (0..1 + rng.below(40)).map(|_| element(rng)).collect();
            if existed || create {
                elements.iter().for_each(|element| push(list, end, element.clone()));
            }
            let pushed = txn.list_push(0, &at, end, elements.iter().map(|element| &element[..]), create);
            assert_eq!(pushed, Ok(list.len() as u64));
        }
        6..9 => {
            let (end, count) = (end(rng), if rng.chance(10) { u64::MAX } else { rng.below(20) });
            let expected = count.min(list.len() as u64);
            let popped = txn.list_pop(0, &at, end, count, |element| {
                assert_eq!(pop(list, end).as_deref(), Some(element));
            });
            assert_eq!(popped, Ok(expected));
        }
        9 => {
            let (index, element) = (index(rng, list), element(rng));
            let expected = existed.then(|| position(index, list).is_some());
            if let Some(at) = position(index, list) {
                list[at] = element.clone();
            }
            assert_eq!(txn.list_set(0, &at, index, &element), Ok(expected));
        }
        17 => {
            let elements: Vec<_> =
                (0..rng.below(6)).map(|_| (rng.below(list.len() as u64 + 1), element(rng))).collect();
            let fit = elements.iter().all(|(index, _)| *index < list.len() as u64);
            if fit {
                elements.iter().for_each(|(index, element)| list[*index as usize] = element.clone());
            }
            let elements: Vec<_> = elements.iter().map(|(index, element)| (*index, &element[..])).collect();
            assert_eq!(txn.list_set_each(0, &at, &elements), Ok(existed.then_some(fit)));
        }
        10 | 11 => {
            let (index, element) = (rng.below(list.len() as u64 + 1), element(rng));
            if existed {
                list.insert(index as usize, element.clone());
            }
            assert_eq!(txn.list_insert(0, &at, index, &element), Ok(list.len() as u64));
        }
        12 => {
            let (first, last) = (index(rng, list).min(5), index(rng, list).max(-5));
            let keep = positions_between(first, last, list.len() as u64);
            list.truncate(keep.end as usize);
            list.drain(..keep.start as usize);
            txn.list_trim(0, &at, first, last).unwrap();
        }
        13 => {
            let (element, reverse) = (element(rng), rng.chance(2));
            let count = if rng.chance(5) { u64::MAX } else { rng.below(4) };
            let mut removed = 0;
            while removed < count {
                let found = match reverse {
                    true => list.iter().rposition(|other| *other == element),
                    false => list.iter().position(|other| *other == element),
                };
                let Some(found) = found else { break };
                list.remove(found);
                removed += 1;
            }
            assert_eq!(txn.list_remove(0, &at, &element, count, reverse), Ok(removed));
        }
        14 => {
            *list = (0..rng.below(20)).map(|_| element(rng)).collect();
            txn.list_replace(0, &at, list.iter().map(|element| &element[..])).unwrap();
        }
        _ => {
            let (from_end, to_end) = (end(rng), end(rng));
            let moved = pop(list, from_end);
            if let Some(element) = moved.clone() {
                push(state.entry(to.clone()).or_default(), to_end, element);
            }
            assert_eq!(txn.list_move(0, (&at, from_end), (&to, to_end)), Ok(moved));
        }
    }
    state.retain(|_, list| !list.is_empty());
}

fn look(rng: &mut Rng, txn: &mut Txn, state: &State<List>) {
    let at = key(rng);
    let list = txn.list_at(0, &at).unwrap();
    let model = state.get(&at).cloned().unwrap_or_default();
    assert_eq!(list.is_some(), !model.is_empty());
    let Some(list) = list else { return };
    assert_eq!(list.len(), model.len() as u64);
    let (first, last) = (index(rng, &model), index(rng, &model));
    assert_eq!(list.get(first), position(first, &model).map(|at| &model[at][..]));
    let range = positions_between(first, last, model.len() as u64);
    let expected = model.range(range.start as usize..range.end as usize);
    assert!(list.range(first, last).eq(expected), "{first} to {last}");
    let (element, reverse) = (element(rng), rng.chance(2));
    let max_len = if rng.chance(2) { u64::MAX } else { rng.below(100) };
    let looked_at = max_len.min(model.len() as u64) as usize;
    let equal = |at: &u64| model[*at as usize] == element;
    let len = model.len() as u64;
    let expected: Vec<u64> = match reverse {
        true => (len - looked_at as u64..len).rev().filter(equal).collect(),
        false => (0..looked_at as u64).filter(equal).collect(),
    };
    assert!(list.positions(&element, max_len, reverse).eq(expected));
}

fn history(seed: u64) {
    play(
        seed,
        3000,
        |rng, _, txn, state| if rng.chance(4) { look(rng, txn, state) } else { change(rng, txn, state) },
        |txn, key, model| assert_eq!(read(txn, key), model.cloned().unwrap_or_default()),
        |txn, key| txn.list_trim(0, key, 1, 0).unwrap(),
    );
}

#[test]
fn lists_are_as_sequences() {
    with_seeds(15, 20, history);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let world = World::new(&mut Rng(1));
    let store = world.store();
    let with = |operation: &dyn Fn(&mut Txn)| {
        operation(&mut store.begin_all());
        store.log().tail()
    };
    let tail = with(&|txn| assert_eq!(txn.list_push(0, b"l", Back, [&b"a"[..], b"b"], true), Ok(2)));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.list_push(0, b"none", Back, [&b"a"[..]], false), Ok(0))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.list_pop(0, b"l", Back, 0, |_| ()), Ok(0))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.list_pop(0, b"none", Back, 1, |_| ()), Ok(0))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.list_set(0, b"l", 2, b"x"), Ok(Some(false)))));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.list_set(0, b"none", 0, b"x"), Ok(None))));
    assert_eq!(tail, with(&|txn| txn.list_trim(0, b"l", 0, -1).unwrap()));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.list_remove(0, b"l", b"x", u64::MAX, false), Ok(0))));
    let nothing = |txn: &mut Txn| assert_eq!(txn.list_move(0, (b"none", Back), (b"l", Back)), Ok(None));
    assert_eq!(tail, with(&nothing));
}

#[test]
fn another_type_is_left_alone() {
    let world = World::new(&mut Rng(2));
    let mut txn = world.store().begin_all();
    txn.set(0, b"string", b"value", false).unwrap();
    txn.list_push(0, b"list", Back, [&b"a"[..]], true).unwrap();
    assert_eq!(txn.list_push(0, b"string", Back, [&b"a"[..]], true), Err(Error::WrongType));
    assert_eq!(txn.list_pop(0, b"string", Back, 1, |_| ()), Err(Error::WrongType));
    assert_eq!(txn.list_move(0, (b"string", Back), (b"list", Back)), Err(Error::WrongType));
    assert_eq!(txn.list_move(0, (b"list", Back), (b"string", Back)), Err(Error::WrongType));
    assert_eq!(read(&mut txn, b"list"), [b"a".to_vec()]);
}

#[test]
fn many_replaced_elements_reserve_the_blocks_that_they_rewrite() {
    let world = World::new(&mut Rng(6));
    let mut txn = world.begin_all();
    txn.list_replace(0, b"key", (0..6000).map(|_| &b""[..])).unwrap();
    txn.commit();
    let places: Vec<u64> = (0..200).map(|number| number * 7919 % 6000).collect();
    let elements: Vec<_> = places.iter().map(|&at| (at, &b"element"[..])).collect();
    // A transaction of its own, which has reserved nothing before.
    let mut txn = world.begin_all();
    assert_eq!(txn.list_set_each(0, b"key", &elements), Ok(Some(true)));
    assert_eq!(txn.list_set_each(0, b"key", &[(0, b"x"), (6000, b"x")]), Ok(Some(false)));
    txn.commit();
    let mut txn = world.begin_all();
    let list = txn.list_at(0, b"key").unwrap().expect("it was made");
    assert_eq!((list.get(7919 % 6000), list.get(0)), (Some(&b"element"[..]), Some(&b"element"[..])));
    assert_eq!(list.len(), 6000);
}
