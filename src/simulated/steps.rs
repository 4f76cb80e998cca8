//! Power cuts amid a command that is done in steps: each step is whole, and what was left is done by the next call.

use super::World;
use holdfast_resp::Reply;
use holdfast_store::{Options, SimIo};
use std::collections::BTreeSet;

/// More than three steps of GRAPH.REMOVEVERTEX remove.
const EDGES: usize = 900;

fn options() -> Options {
    Options { partitions: 4, background: false, heap_bytes_max: 32 << 20, ..Options::default() }
}

fn names(world: &mut World, call: &[&str]) -> Vec<String> {
    let Some((Reply::Array(names), _)) = world.call(call) else { panic!("{call:?}") };
    names.iter().map(|name| String::from_utf8_lossy(name.as_bytes().expect("a name")).into_owned()).collect()
}

/// Makes a vertex with edges from and to others and to itself; what it leads to.
fn make(sim: &SimIo) {
    let mut world = World::start(sim, &options(), &[]).expect("a server");
    let mut call = vec!["graph.addedge".to_owned()];
    for number in 0..EDGES {
        let other = format!("v:{number}");
        call.extend(if number % 3 == 0 { [other, "hub".into()] } else { ["hub".into(), other] });
    }
    call.extend(["hub".into(), "hub".into()]);
    assert_eq!(world.call(&call).expect("power").0, Reply::Int(EDGES as i64 + 1));
    world.store().log().commit_once().expect("a sound medium");
}

#[test]
fn a_power_cut_amid_the_removal_of_a_vertex_leaves_a_whole_graph() {
    let mut left = BTreeSet::new();
    for operations in 1.. {
        let sim = SimIo::new(operations);
        make(&sim);
        let sim = sim.crash();
        let mut world = World::start(&sim, &options(), &[]).expect("a server");
        sim.crash_after(operations);
        let reply = world.call(&["graph.removevertex", "hub"]);
        let is_over = reply.is_some() && world.store().log().commit_once().is_ok();
        if let Some((reply, _)) = reply {
            assert_eq!(reply, Reply::Int(EDGES as i64 + 1));
        }
        let mut world = World::start(&sim.crash(), &options(), &[]).expect("a server");
        world.store().check().expect("a sound store");
        let mut others: Vec<String> = names(&mut world, &["graph.neighbors", "hub"]);
        others.extend(names(&mut world, &["graph.predecessors", "hub"]));
        let others: BTreeSet<String> = others.into_iter().collect();
        let keys: BTreeSet<String> = names(&mut world, &["keys", "*"]).into_iter().collect();
        // The hub's own edge makes it one of its neighbours; it goes with the others, and others may outlast it.
        let hub = others.iter().next().map(|_| "hub".to_owned());
        assert_eq!(keys, others.iter().cloned().chain(hub).collect(), "both ends of each edge");
        left.insert(others.len());
        if is_over {
            assert!(keys.is_empty(), "it was acknowledged");
            break;
        }
        world.call(&["graph.removevertex", "hub"]).expect("power");
        assert_eq!(world.call(&["dbsize"]).expect("power").0, Reply::Int(0));
    }
    assert!(left.len() > 3, "cuts between the steps: {left:?}");
}
