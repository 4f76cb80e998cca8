//! Graphs against a simple model, over restarts; and what changes of many vertices write, which must be reserved.

use crate::{
    seeds::Rng,
    world::{State, World, key, keys, play, with_seeds},
};
use holdfast_store::{
    Error, Limits, Options, Purpose, SimIo, Store, Txn,
    graph::{self, Direction, Half},
};
use std::{collections::BTreeMap, sync::Arc};

/// Of a vertex: to whom it has edges, and from whom.
type Vertex = BTreeMap<Vec<u8>, (bool, bool)>;

fn set(vertex: &mut Vertex, other: &[u8], direction: Direction, there: bool) -> u64 {
    let halves = vertex.entry(other.to_vec()).or_default();
    let half = if direction == Direction::Out { &mut halves.0 } else { &mut halves.1 };
    let changes = *half != there;
    *half = there;
    vertex.retain(|_, halves| *halves != (false, false));
    changes.into()
}

/// In the order of a sorted set.
fn ordered(vertex: &Vertex) -> Vec<Vec<u8>> {
    let rank = |halves: (bool, bool)| match halves {
        (true, false) => 1,
        (true, true) => 2,
        _ => 3,
    };
    let mut all: Vec<_> = vertex.iter().map(|(other, halves)| (rank(*halves), other.clone())).collect();
    all.sort();
    all.into_iter().map(|(_, other)| other).collect()
}

fn change(rng: &mut Rng, txn: &mut Txn, state: &mut State<Vertex>) {
    match rng.below(8) {
        0..5 => {
            let edges: Vec<_> = (0..1 + rng.below(6)).map(|_| (key(rng), key(rng))).collect();
            let there = rng.chance(2);
            let halves = edges.iter().flat_map(|(from, to)| Half::both(from, to));
            let changed = txn.graph_set(0, halves, there).unwrap();
            let (mut out_halves, mut in_halves) = (0, 0);
            for (from, to) in &edges {
                in_halves += set(state.entry(to.clone()).or_default(), from, Direction::In, there);
                out_halves += set(state.entry(from.clone()).or_default(), to, Direction::Out, there);
            }
            assert_eq!((changed.out_halves, changed.in_halves), (out_halves, in_halves));
        }
        5 | 6 => {
            let (vertex, there) = (key(rng), !rng.chance(4));
            let direction = if rng.chance(2) { Direction::Out } else { Direction::In };
            let others: Vec<_> = (0..1 + rng.below(60)).map(|_| rng.text(400)).collect();
            let halves = others.iter().map(|other| Half { vertex: &vertex, direction, other });
            let changed = txn.graph_set(0, halves, there).unwrap();
            let model = state.entry(vertex.clone()).or_default();
            let expected: u64 = others.iter().map(|other| set(model, other, direction, there)).sum();
            assert_eq!(changed.out_halves + changed.in_halves, expected);
        }
        _ => {
            let (vertex, count) = (key(rng), if rng.chance(2) { u64::MAX } else { rng.below(30) });
            let neighbours = txn.graph_neighbours(0, &vertex, count).unwrap();
            let names: Vec<_> = neighbours.into_iter().map(|(name, _)| name).collect();
            let mut expected = ordered(state.entry(vertex.clone()).or_default());
            expected.truncate(usize::try_from(count).unwrap_or(usize::MAX));
            assert_eq!(names, expected);
            txn.graph_detach(0, &vertex, names.iter().map(|name| &name[..])).unwrap();
            for name in &names {
                state.entry(vertex.clone()).or_default().remove(name);
                state.entry(name.clone()).or_default().remove(&vertex);
            }
        }
    }
    state.retain(|_, vertex| !vertex.is_empty());
}

fn compare(txn: &mut Txn, key: &[u8], model: Option<&Vertex>) {
    let nothing = Vertex::new();
    let model = model.unwrap_or(&nothing);
    for (other, &(has_out, has_in)) in model {
        let halves = txn.graph_halves(0, key, other).unwrap();
        assert_eq!((halves.has(Direction::Out), halves.has(Direction::In)), (has_out, has_in));
    }
    for other in keys().filter(|other| !model.contains_key(other)) {
        assert_eq!(txn.graph_halves(0, key, &other).unwrap().count(), 0);
    }
    let neighbours = txn.graph_neighbours(0, key, u64::MAX).unwrap();
    assert!(neighbours.into_iter().map(|(name, _)| name).eq(ordered(model)));
    let vertex = txn.zset_at(0, key).unwrap();
    assert_eq!(vertex.is_some(), !model.is_empty());
    for direction in [Direction::Out, Direction::In] {
        let mut found: Vec<_> =
            vertex.into_iter().flat_map(|v| v.iter(graph::ranks(v, direction), false)).collect();
        found.sort_by_key(|(name, _)| *name);
        let has = |halves: &(bool, bool)| if direction == Direction::Out { halves.0 } else { halves.1 };
        let expected = model.iter().filter(|(_, halves)| has(halves)).map(|(name, _)| &name[..]);
        assert!(found.into_iter().map(|(name, _)| name).eq(expected));
    }
}

fn history(seed: u64) {
    play(
        seed,
        2000,
        |rng, _, txn, state| match rng.chance(4) {
            true => {
                let at = key(rng);
                compare(txn, &at, state.get(&at));
            }
            false => change(rng, txn, state),
        },
        compare,
        |txn, key| _ = txn.remove(0, key),
    );
}

#[test]
fn graphs_are_as_a_model_has_them() {
    with_seeds(10, 20, history);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let world = World::new(&mut Rng(1));
    let store = world.store();
    let set = |from: &'static [u8], to: &'static [u8], there| {
        store.begin_all().graph_set(0, Half::both(from, to), there).unwrap();
        store.log().tail()
    };
    let tail = set(b"a", b"b", true);
    assert_eq!(set(b"a", b"b", true), tail);
    assert_eq!(set(b"b", b"a", false), tail);
    assert_eq!(set(b"c", b"d", false), tail);
}

#[test]
fn what_is_no_vertex_is_left_alone() {
    let world = World::new(&mut Rng(1));
    let mut txn = world.store().begin_all();
    txn.zset_add(0, b"scores", Default::default(), [(&b"b"[..], 1.5)]).unwrap();
    txn.set(0, b"string", b"value", false).unwrap();
    for (from, to) in [(&b"scores"[..], &b"b"[..]), (b"b", b"string"), (b"string", b"b")] {
        for there in [true, false] {
            // The other end is not touched either.
            assert_eq!(txn.graph_set(0, Half::both(from, to), there), Err(Error::WrongType));
            assert!(!txn.exists(0, b"b"));
        }
    }
    assert_eq!(txn.graph_neighbours(0, b"scores", 9), Err(Error::WrongType));
    // A neighbour whose key has been overwritten is no obstacle.
    txn.graph_set(0, Half::both(b"a", b"c"), true).unwrap();
    txn.set(0, b"c", b"value", false).unwrap();
    assert_eq!(txn.graph_detach(0, b"a", [&b"c"[..]]), Ok(vec![&b"a"[..]]));
    assert_eq!(txn.get(0, b"c"), Ok(Some(&b"value"[..])));
    assert!(!txn.exists(0, b"a"));
}

/// Vertices that grow in step get another encoding, and split their pages, all in the same transaction. One that writes more
/// than it has reserved fails an assertion.
#[test]
fn changes_of_many_vertices_write_what_they_have_reserved() {
    const VERTICES: usize = 150;
    let options = Options { partitions: 4, background: false, heap_bytes_max: 1 << 30, ..Options::default() };
    for limit in [128, 2000] {
        let store = Store::open_on(Arc::new(SimIo::new(1)), options.clone()).expect("a store");
        store.set_limits(Limits { zset_max_listpack_entries: limit, ..Limits::default() });
        store.attach();
        let vertices: Vec<String> = (0..VERTICES).map(|number| format!("vertex {number}")).collect();
        let names: Vec<String> =
            (0..300).map(|number| format!("{number}{}", "n".repeat(number % 50))).collect();
        let change = |names: &[String], there: bool| {
            let mut txn = store.begin_all();
            txn.expect(0, Purpose::Write, true).expect("room");
            let edges = vertices.iter().flat_map(|vertex| names.iter().map(move |name| (vertex, name)));
            let halves = edges.flat_map(|(from, to)| Half::both(from.as_bytes(), to.as_bytes()));
            let changed = txn.graph_set(0, halves, there).expect("room");
            assert_eq!(changed.out_halves, (vertices.len() * names.len()) as u64);
            txn.commit();
            store.log().commit_once().expect("a sound medium");
        };
        names.iter().for_each(|name| change(std::slice::from_ref(name), true));
        names.iter().rev().skip(100).for_each(|name| change(std::slice::from_ref(name), false));
        change(&names[..200], true);
        store.freeze(u64::MAX).expect("a sound medium");
        for vertex in &vertices {
            let keys = vertices.iter().chain(&names).map(|key| key.as_bytes());
            let cold = store.begin_all().cold(0, keys);
            let fetched = store.fetch_all(&cold);
            let mut txn = store.begin_all();
            txn.supply(fetched);
            txn.expect(0, Purpose::Remove, true).expect("room");
            let names: Vec<_> = txn.graph_neighbours(0, vertex.as_bytes(), u64::MAX).unwrap();
            let names = names.iter().map(|(name, _)| &name[..]);
            assert_eq!(txn.graph_detach(0, vertex.as_bytes(), names).unwrap().len(), 301);
        }
        store.check().expect("a sound store");
        assert_eq!(store.len(0), 0);
    }
}

/// Without room for all edges there is none.
#[test]
fn without_memory_no_half_is_there() {
    let options = Options { partitions: 1, background: false, heap_bytes_max: 4 << 20, ..Options::default() };
    let store = Store::open_on(Arc::new(SimIo::new(1)), options).expect("a store");
    store.attach();
    let names: Vec<String> = (0..20_000).map(|number| format!("{number:0100}")).collect();
    let halves = names.iter().flat_map(|name| Half::both(b"hub", name.as_bytes()));
    let mut txn = store.begin_all();
    assert_eq!(txn.graph_set(0, halves, true), Err(Error::Full));
    assert_eq!(txn.len(0), 0);
}
