//! Sorted sets, and their unions, intersections and differences, against a simple model, over restarts.

use crate::{
    seeds::Rng,
    world::{State, World, key, play, with_seeds},
};
use holdfast_store::{
    Error, Txn,
    zset::{AddOptions, Added, Incremented},
    zset_algebra::{Aggregate, Input, Members},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

type Zset = BTreeMap<Vec<u8>, f64>;

fn ordered(zset: &Zset) -> Members {
    let mut members: Members = zset.iter().map(|(member, score)| (member.clone(), *score)).collect();
    members.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    members
}

fn read(txn: &mut Txn, key: &[u8]) -> Members {
    let Some(zset) = txn.zset_at(0, key).unwrap() else { return Members::new() };
    let members: Members = zset.iter(0..u64::MAX, false).map(|(member, s)| (member.to_vec(), s)).collect();
    assert_eq!(zset.len(), members.len() as u64);
    members
}

fn score(rng: &mut Rng) -> f64 {
    match rng.below(50) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2..25 => rng.below(5) as f64,
        _ => rng.below(2000) as f64 / 8.0 - 100.0,
    }
}

fn options(rng: &mut Rng) -> AddOptions {
    let mut options = AddOptions::default();
    match rng.below(12) {
        0 => options.only_new = true,
        1 => options.only_existing = true,
        2 => options.only_greater = true,
        3 => options.only_less = true,
        4 => (options.only_existing, options.only_greater) = (true, true),
        _ => {}
    }
    options
}

fn allowed(options: AddOptions, old: Option<f64>, new: f64) -> bool {
    match old {
        None => !options.only_existing,
        Some(_) if options.only_new => false,
        Some(old) if options.only_greater => new > old,
        Some(old) if options.only_less => new < old,
        Some(_) => true,
    }
}

fn change(rng: &mut Rng, txn: &mut Txn, state: &mut State<Zset>, numbers: u64) {
    let at = key(rng);
    let zset = state.entry(at.clone()).or_default();
    let members: Vec<(Vec<u8>, f64)> =
        (0..1 + rng.below(20)).map(|_| (rng.text(numbers), score(rng))).collect();
    let (member, by) = &members[0];
    match rng.below(12) {
        0..5 => {
            let options = options(rng);
            let mut expected = Added::default();
            for (member, score) in &members {
                let old = zset.get(member).copied();
                if allowed(options, old, *score) {
                    zset.insert(member.clone(), *score);
                    expected.added += u64::from(old.is_none());
                    expected.updated += u64::from(old.is_some_and(|old| old != *score));
                }
            }
            let members = members.iter().map(|(member, score)| (&member[..], *score));
            assert_eq!(txn.zset_add(0, &at, options, members), Ok(expected));
        }
        5 => {
            let options = options(rng);
            let old = zset.get(member).copied();
            let sum = old.unwrap_or(0.0) + by;
            let expected = if old.is_some() && options.only_new {
                Incremented::Not
            } else if sum.is_nan() {
                Incremented::NotANumber
            } else if !allowed(options, old, sum) {
                Incremented::Not
            } else {
                zset.insert(member.clone(), sum);
                Incremented::To(sum)
            };
            assert_eq!(txn.zset_increment(0, &at, options, member, *by), Ok(expected));
        }
        6 | 7 => {
            let removed = members.iter().filter(|(member, _)| zset.remove(member).is_some()).count();
            let members = members.iter().map(|(member, _)| &member[..]);
            assert_eq!(txn.zset_remove(0, &at, members), Ok(removed as u64));
        }
        8 => {
            let all = ordered(zset);
            let start = rng.below(all.len() as u64 + 1) as usize;
            let end = (start + rng.below(10) as usize).min(all.len());
            all[start..end].iter().for_each(|(member, _)| _ = zset.remove(member));
            txn.zset_remove_ranks(0, &at, start as u64..end as u64).unwrap();
        }
        9 => {
            let (highest, count) = (rng.chance(2), if rng.chance(10) { u64::MAX } else { rng.below(9) });
            let mut all = ordered(zset).into_iter();
            let mut next = || if highest { all.next_back() } else { all.next() };
            let expected = count.min(zset.len() as u64);
            let popped = txn.zset_pop(0, &at, highest, count, |member, score| {
                assert_eq!(next(), Some((member.to_vec(), score)));
                zset.remove(member);
            });
            assert_eq!(popped, Ok(expected));
        }
        _ => {
            let result = combine(rng, txn, state);
            txn.zset_replace(0, &at, result.iter().cloned()).unwrap();
            state.insert(at, result.into_iter().collect());
        }
    }
    state.retain(|_, zset| !zset.is_empty());
}

/// Combines some sorted sets, and the plain set at "set", in one way or the other.
fn combine(rng: &mut Rng, txn: &mut Txn, state: &State<Zset>) -> Members {
    let set: Zset = (0..6).map(|number| (number.to_string().into_bytes(), 1.0)).collect();
    txn.set_add(0, b"set", set.keys().map(|member| &member[..])).unwrap();
    let keys: Vec<_> =
        (0..1 + rng.below(4)).map(|_| if rng.chance(6) { b"set".to_vec() } else { key(rng) }).collect();
    // With such weights no sum depends on the order of its parts.
    let weighed = |rng: &mut Rng| if rng.chance(3) { rng.below(4) as f64 - 1.0 } else { 1.0 };
    let inputs: Vec<Input> = keys.iter().map(|key| Input { key, weight: weighed(rng) }).collect();
    let zero = |score: f64| if score.is_nan() { 0.0 } else { score + 0.0 };
    let sets: Vec<Zset> = inputs
        .iter()
        .map(|input| {
            let zset = if input.key == b"set" { Some(&set) } else { state.get(input.key) };
            let zset = zset.into_iter().flatten();
            zset.map(|(member, score)| (member.clone(), zero(score * input.weight))).collect()
        })
        .collect();
    let aggregate = [Aggregate::Min, Aggregate::Max, Aggregate::Sum][rng.below(3) as usize];
    let of = |a: f64, b: f64| match aggregate {
        Aggregate::Sum => zero(a + b),
        Aggregate::Min => a.min(b),
        Aggregate::Max => a.max(b),
    };
    let infinite = sets.iter().flat_map(BTreeMap::values).any(|score| score.is_infinite());
    let (first, others) = sets.split_first().expect("at least one");
    let common = || first.keys().filter(|member| others.iter().all(|set| set.contains_key(*member)));
    let summed = |member: &Vec<u8>| sets.iter().filter_map(|set| set.get(member)).copied().reduce(of);
    match rng.below(4) {
        // The order matters once a sum of infinities is no number.
        0 if !infinite || aggregate != Aggregate::Sum => {
            let all: BTreeSet<&Vec<u8>> = sets.iter().flat_map(BTreeMap::keys).collect();
            let union: Zset = all.into_iter().map(|m| (m.clone(), summed(m).expect("a score"))).collect();
            let members = txn.zset_union(0, &inputs, aggregate).unwrap();
            assert_eq!(members, ordered(&union));
            members
        }
        1 if !infinite || aggregate != Aggregate::Sum => {
            let expected: Zset = common().map(|m| (m.clone(), summed(m).expect("a score"))).collect();
            let members = txn.zset_intersection(0, &inputs, aggregate).unwrap();
            assert_eq!(members, ordered(&expected));
            members
        }
        2 => {
            let limit = rng.below(10);
            let expected = common().count() as u64;
            let expected = if limit == 0 { expected } else { expected.min(limit) };
            assert_eq!(txn.zset_intersection_len(0, &inputs, limit), Ok(expected));
            Members::new()
        }
        _ => {
            let inputs: Vec<Input> = inputs.iter().map(|input| Input { weight: 1.0, ..*input }).collect();
            let of_key = |input: &Input| match input.key {
                b"set" => set.clone(),
                key => state.get(key).cloned().unwrap_or_default(),
            };
            let mut expected = of_key(&inputs[0]);
            expected.retain(|member, _| !others.iter().any(|set| set.contains_key(member)));
            let members = txn.zset_difference(0, &inputs).unwrap();
            assert_eq!(members, ordered(&expected));
            members
        }
    }
}

fn look(rng: &mut Rng, txn: &mut Txn, state: &State<Zset>, numbers: u64) {
    let at = key(rng);
    let zset = txn.zset_at(0, &at).unwrap();
    let model = state.get(&at).cloned().unwrap_or_default();
    assert_eq!(zset.is_some(), !model.is_empty());
    let Some(zset) = zset else { return };
    let all = ordered(&model);
    assert_eq!(zset.len(), all.len() as u64);
    let member = rng.text(numbers);
    assert_eq!(zset.score(&member), model.get(&member).copied());
    assert_eq!(zset.rank(&member), all.iter().position(|(m, _)| *m == member).map(|rank| rank as u64));

    let (min, max) = (score(rng), score(rng));
    let bound = |kind: u64, score: f64| match kind {
        0 => Bound::Unbounded,
        1 => Bound::Included(score),
        _ => Bound::Excluded(score),
    };
    let (min, max) = (bound(rng.below(3), min), bound(rng.below(3), max));
    let within = |score: f64| {
        (match min {
            Bound::Included(min) => score >= min,
            Bound::Excluded(min) => score > min,
            Bound::Unbounded => true,
        }) && match max {
            Bound::Included(max) => score <= max,
            Bound::Excluded(max) => score < max,
            Bound::Unbounded => true,
        }
    };
    let reverse = rng.chance(2);
    let mut expected: Members = all.iter().filter(|(_, score)| within(*score)).cloned().collect();
    if reverse {
        expected.reverse();
    }
    let found = zset.iter(zset.ranks_by_score(min, max), reverse);
    assert!(found.map(|(m, s)| (m.to_vec(), s)).eq(expected), "{min:?} {max:?}");

    let drawn = zset.random(|| rng.next());
    assert_eq!(model.get(drawn.0), Some(&drawn.1));
    let count = rng.below(20) as usize;
    let sample: Zset = zset.sample(count, || rng.next()).into_iter().map(|(m, s)| (m.to_vec(), s)).collect();
    assert_eq!(sample.len(), count.min(model.len()));
    assert!(sample.iter().all(|(member, score)| model.get(member) == Some(score)));
    let (mut scanned, mut cursor) = (Zset::new(), 0);
    loop {
        cursor = zset.scan(cursor, 10, |member, score| _ = scanned.insert(member.to_vec(), score));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned, model);
}

fn history(seed: u64) {
    let numbers = [10, 200, 3000][seed as usize % 3];
    play(
        seed,
        3000,
        |rng, _, txn, state| match rng.chance(4) {
            true => look(rng, txn, state, numbers),
            false => change(rng, txn, state, numbers),
        },
        |txn, key, model| assert_eq!(read(txn, key), ordered(&model.cloned().unwrap_or_default())),
        |txn, key| {
            txn.zset_pop(0, key, true, u64::MAX, |_, _| ()).unwrap();
            txn.remove(0, b"set");
        },
    );
}

#[test]
fn sorted_sets_are_as_maps_in_order() {
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
    let add = |txn: &mut Txn, key: &[u8], options: AddOptions, score: f64| {
        txn.zset_add(0, key, options, [(&b"a"[..], score)]).unwrap()
    };
    let any = AddOptions::default();
    let tail = with(&|txn| assert_eq!(add(txn, b"z", any, 1.0), Added { added: 1, updated: 0 }));
    assert_eq!(tail, with(&|txn| assert_eq!(add(txn, b"z", any, 1.0), Added::default())));
    let greater = AddOptions { only_greater: true, ..any };
    assert_eq!(tail, with(&|txn| assert_eq!(add(txn, b"z", greater, 0.5), Added::default())));
    let existing = AddOptions { only_existing: true, ..any };
    assert_eq!(tail, with(&|txn| assert_eq!(add(txn, b"none", existing, 0.5), Added::default())));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.zset_remove(0, b"z", [&b"b"[..]]), Ok(0))));
    assert_eq!(tail, with(&|txn| txn.zset_remove_ranks(0, b"z", 1..1).unwrap()));
    assert_eq!(tail, with(&|txn| assert_eq!(txn.zset_pop(0, b"none", true, 1, |_, _| ()), Ok(0))));
    assert_eq!(tail, with(&|txn| txn.zset_replace(0, b"none", None::<(&[u8], f64)>).unwrap()));
}

#[test]
fn members_in_one_score_go_by_name() {
    let world = World::new(&mut Rng(3));
    let mut txn = world.store().begin_all();
    let names: Vec<String> = (0..500).map(|number| format!("{number:03}")).collect();
    for count in [20, 500] {
        let members = names[..count].iter().map(|name| (name.as_bytes(), 0.0));
        txn.zset_add(0, b"z", AddOptions::default(), members).unwrap();
        let zset = txn.zset_at(0, b"z").unwrap().unwrap();
        let ranks = |min, max| zset.ranks_by_name(min, max);
        assert_eq!(ranks(Bound::Unbounded, Bound::Unbounded), 0..count as u64);
        assert_eq!(ranks(Bound::Included(b"005"), Bound::Included(b"010")), 5..11);
        assert_eq!(ranks(Bound::Excluded(b"005"), Bound::Excluded(b"010")), 6..10);
        assert_eq!(ranks(Bound::Included(b"0050"), Bound::Unbounded), 6..count as u64);
        assert!(ranks(Bound::Included(b"010"), Bound::Included(b"005")).is_empty());
    }
}

#[test]
fn a_stored_sorted_set_replaces_any_value() {
    let world = World::new(&mut Rng(2));
    let mut txn = world.store().begin_all();
    txn.set(0, b"string", b"value", false).unwrap();
    txn.set_expiry(0, b"string", Some(1 << 42)).unwrap();
    let one = [(b"a".to_vec(), 1.0)];
    let add = txn.zset_add(0, b"string", AddOptions::default(), [(&b"a"[..], 1.0)]);
    assert_eq!(add, Err(Error::WrongType));
    let input = [Input { key: b"string", weight: 1.0 }];
    assert_eq!(txn.zset_union(0, &input, Aggregate::Sum), Err(Error::WrongType));
    txn.zset_replace(0, b"string", one.iter().cloned()).unwrap();
    assert_eq!(txn.expiry(0, b"string"), Some(None));
    assert_eq!(read(&mut txn, b"string"), one);
    txn.zset_replace(0, b"string", None::<(&[u8], f64)>).unwrap();
    assert!(!txn.exists(0, b"string"));
}
