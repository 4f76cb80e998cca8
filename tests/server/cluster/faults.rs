//! Slots move at random while nodes are killed and stopped, and clients write: nothing acknowledged is lost, what is read is not out of date, and
//! in the end each key is on one node.
//!
//! `HOLDFAST_CLUSTER_SECONDS=600` runs the long form, `HOLDFAST_SEED=n` with the choices of another run (but not its moments).

use super::{Nodes, SHORT_TIMEOUT};
use crate::harness::{
    EndOnDrop, Rng, Server, items, long_form, number, ok, seed, wait_until,
    written::{KINDS, Writer},
};
use holdfast_resp::Reply;
use holdfast_store::hash_slot;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

const SECONDS: u64 = 6;
const NODES: usize = 3;
const WRITERS: u64 = 3;
/// Slots that move, the first ones.
pub const SLOTS: u64 = 24;
/// Keys of each kind that a writer has.
const KEYS: usize = 3;
/// How long a node is stopped at most.
const STOP_MS: u64 = 4000;

/// A random slot and some behind it, as `CLUSTER MIGRATESLOTS` takes them, which are all of one node by a reply to `CLUSTER SLOTS`, and that one's port.
pub fn slots_to_move(map: &Reply, rng: &mut Rng) -> Option<(u16, String)> {
    let (first, count) = (rng.below(SLOTS), 1 + rng.below(SLOTS));
    let bounds = |range: &[Reply]| [0, 1].map(|at| number(&range[at]).expect("a slot"));
    let range = items(map).iter().map(items).find(|range| {
        let [from, to] = bounds(range);
        (from..=to).contains(&first)
    })?;
    let owner = number(&items(&range[2])[1]).expect("a port") as u16;
    let last = bounds(range)[1].min(first + count - 1).min(SLOTS - 1);
    Some((owner, format!("SLOTSRANGE {first} {last}")))
}

/// Asks the owner of some slots to give them to another node; whether it has begun to.
pub fn move_slots(nodes: &Nodes, stopped: &BTreeMap<u16, Instant>, rng: &mut Rng) -> bool {
    let running: Vec<u16> = nodes.ports().into_iter().filter(|port| !stopped.contains_key(port)).collect();
    let map = running.first().and_then(|port| nodes.client(*port).try_call("CLUSTER SLOTS"));
    let Some((owner, slots)) = map.and_then(|map| slots_to_move(&map, rng)) else { return false };
    let others: Vec<u16> = running.iter().copied().filter(|port| *port != owner).collect();
    if others.is_empty() || !running.contains(&owner) {
        return false;
    }
    let to = nodes.id(others[rng.below(others.len() as u64) as usize]);
    nodes.client(owner).try_call(&format!("CLUSTER MIGRATESLOTS {slots} NODE {to}")) == Some(ok())
}

#[test]
fn slots_move_while_nodes_are_killed_and_stopped() {
    let mut rng = Rng(seed());
    let length = Duration::from_secs(long_form("HOLDFAST_CLUSTER_SECONDS", SECONDS));
    let mut nodes = Nodes::create_with(NODES, SHORT_TIMEOUT);
    let socket = |(port, server): (&u16, &Server)| (*port, server.folder().join("socket"));
    let sockets = Mutex::new(nodes.0.iter().map(socket).collect());
    let mut tags =
        (0..).map(|n| format!("{{{n}}}")).filter(|tag| u64::from(hash_slot(tag.as_bytes())) < SLOTS);
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|_| Writer::new(&sockets, Rng(rng.draw()), tags.by_ref().take(KEYS * KINDS.len())))
        .collect();
    let (is_over, ports, begun) = (AtomicBool::new(false), nodes.ports(), Instant::now());
    let (mut moves, mut kills, mut stops) = (0, 0, 0);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for writer in &mut writers {
            let is_over = &is_over;
            scope.spawn(move || writer.write(is_over));
        }
        let mut stopped: BTreeMap<u16, Instant> = BTreeMap::new();
        while begun.elapsed() < length && !is_over.load(Relaxed) {
            thread::sleep(Duration::from_millis(20 + rng.below(200)));
            let port = ports[rng.below(NODES as u64) as usize];
            match rng.below(12) {
                0 => {
                    stopped.remove(&port);
                    nodes.kill_and_restart(port);
                    kills += 1;
                }
                1 if !stopped.contains_key(&port) => {
                    nodes.0[&port].suspend();
                    stopped.insert(port, Instant::now() + Duration::from_millis(rng.below(STOP_MS)));
                    stops += 1;
                }
                _ => moves += u32::from(move_slots(&nodes, &stopped, &mut rng)),
            }
            let is_due = |(port, until): (&u16, &Instant)| (*until <= Instant::now()).then_some(*port);
            for port in stopped.iter().filter_map(is_due).collect::<Vec<_>>() {
                stopped.remove(&port);
                nodes.0[&port].resume();
            }
        }
        stopped.keys().for_each(|port| nodes.0[port].resume());
        nodes.wait_until_agreed(NODES);
    });
    let (mut keys, mut numbers) = (0, 0);
    for writer in &mut writers {
        let (more_keys, more_numbers) = writer.check();
        (keys, numbers) = (keys + more_keys, numbers + more_numbers);
    }
    println!("{moves} transfers, {kills} kills, {stops} stops, {numbers} numbers in {keys} keys");
    assert!(moves > 0 && numbers > 0);
    let sum = || {
        ports.iter().map(|port| number(&nodes.client(*port).call("DBSIZE")).expect("a number")).sum::<u64>()
    };
    wait_until(|| format!("each of {keys} keys is on one node, not {}", sum()), || sum() == keys);
}
