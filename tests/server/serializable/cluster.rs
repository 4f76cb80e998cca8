//! The same of clusters, whose slots move as a whole and key by key, while nodes are killed and stopped.

use super::{
    CACHE, CACHES, CLIENTS, LIFE_MS, ROLES, Scene, WRITER, any_maxdisk, check, gets_full, options, run,
};
use crate::{
    cluster::{
        Nodes, SHORT_TIMEOUT,
        faults::{SLOTS, move_slots, slots_to_move},
    },
    cluster_sets::Cluster,
    harness::{Client, Rng, Set, Way, assert_sound, is_error, items, ok, part, text},
};
use holdfast_resp::Reply;
use std::{collections::BTreeMap, sync::Mutex, thread, time::Duration};

const NODES: usize = 3;
/// How long a server of a set does not run, at most.
const AWAY_MS: u64 = 1000;
/// Milliseconds until another leader is elected.
const TIMEOUT: &str = "500";
/// Keys of a slot that are moved at a time, at most.
const KEYS: u64 = 4;

/// A slot that moves key by key, from one of some nodes to another.
struct Move<N> {
    slot: u64,
    from: N,
    to: N,
    step: Step,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// Both are told that it moves.
    Begin,
    /// Keys are moved.
    Keys,
    /// All are there: it is the other one's.
    End,
    /// It does not move after all.
    Refused,
}

impl<N: Copy> Move<N> {
    fn new(slot: u64, from: N, to: N) -> Move<N> {
        Move { slot, from, to, step: Step::Begin }
    }

    /// Has a node decide on something; `None`: whether it has is not known.
    fn tell(&self, mut client: Client, what: &str) -> Option<Reply> {
        let reply = client.try_call(&format!("CLUSTER SETSLOT {} {what}", self.slot))?;
        (!is_error(&reply, "CLUSTERDOWN")).then_some(reply)
    }

    /// Takes the next step, of which none is taken before it is known what became of the one before; whether it is at its end. `client` connects to a node.
    fn go_on(&mut self, client: impl Fn(N) -> Option<Client>, rng: &mut Rng) -> Option<bool> {
        let (mut source, mut target) = (client(self.from)?, client(self.to)?);
        let [from, to] = [&mut source, &mut target].map(|client| client.try_call("CLUSTER MYID"));
        let (from, to) = (text(&from?), text(&to?));
        match self.step {
            Step::Begin => {
                let is_refused = self.tell(target, &format!("IMPORTING {from}"))? != ok()
                    || self.tell(source, &format!("MIGRATING {to}"))? != ok();
                self.step = if is_refused { Step::Refused } else { Step::Keys };
            }
            Step::Keys => {
                let count = 1 + rng.below(KEYS);
                let keys = source.try_call(&format!("CLUSTER GETKEYSINSLOT {} {count}", self.slot))?;
                if is_error(&keys, "") {
                    return None;
                }
                let keys: Vec<String> = items(&keys).iter().map(text).collect();
                if keys.is_empty() {
                    self.step = Step::End;
                    return Some(false);
                }
                let port = text(&items(&target.try_call("CONFIG GET port")?)[1]);
                // A failure of the other node is one that comes again.
                let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "1000", "KEYS"];
                let keys = keys.iter().map(String::as_str);
                source.try_call_args(&migrate.into_iter().chain(keys).collect::<Vec<_>>())?;
            }
            Step::End => return Some(self.tell(target, &format!("NODE {to}"))? == ok()),
            Step::Refused => return Some(self.tell(target, "STABLE")? == ok()),
        }
        Some(false)
    }
}

#[test]
fn transactions_of_a_cluster_have_an_order() {
    check(|length, rng| {
        let maxdisk = any_maxdisk(rng);
        let options = || [&options(rng, ["64mb", "0"])[..], &maxdisk].concat();
        let (mut nodes, ways, ports) = Nodes::create_with_ways(NODES, SHORT_TIMEOUT, options);
        let sockets = nodes.0.iter().map(|(port, server)| (*port, server.folder().join("socket"))).collect();
        let sockets = Mutex::new(sockets);
        let (mut moved, mut by_keys, mut half) = (0, 0, None);
        let scene = Scene {
            has_tags: true,
            gets_full: gets_full(maxdisk),
            ..Scene::new(&sockets, &[(WRITER, CLIENTS), (CACHE, CACHES)])
        };
        let history = run(scene, length, rng, &mut |rng: &mut Rng| {
            thread::sleep(Duration::from_millis(rng.below(LIFE_MS / 25)));
            let at = rng.below(NODES as u64) as usize;
            let port = ports[at];
            match rng.below(16) {
                0 => nodes.kill_and_restart(port),
                1 => {
                    nodes.0[&port].suspend();
                    thread::sleep(Duration::from_millis(rng.below(3 * AWAY_MS)));
                    nodes.0[&port].resume();
                }
                2 => {
                    part(&ways, 0, at, true);
                    thread::sleep(Duration::from_millis(rng.below(3 * AWAY_MS)));
                    part(&ways, 0, at, false);
                }
                // Whoever moves it by keys goes by what it has been told.
                3..8 if half.is_none() => moved += u32::from(move_slots(&nodes, &BTreeMap::new(), rng)),
                _ => {
                    let to = ports[rng.below(NODES as u64) as usize];
                    let by_key = half.get_or_insert_with(|| Move::new(rng.below(SLOTS), port, to));
                    if by_key.go_on(|port| Some(nodes.client(port)), rng) == Some(true) {
                        by_keys += u32::from(by_key.step == Step::End);
                        half = None;
                    }
                }
            }
        });
        println!("{moved} transfers, {by_keys} slots key by key");
        for server in nodes.0.into_values() {
            assert_sound(&server.kill());
        }
        history
    });
}

/// Kills a server of a set, stops it, parts it from the others of the set or of the cluster, or has another one lead. The first of the set has
/// this number.
fn ail_set(set: &mut Set, first: usize, ways: &[Way], cluster_ways: &[Way], rng: &mut Rng) {
    let (at, away) = (rng.below(3) as usize, Duration::from_millis(rng.below(AWAY_MS)));
    match rng.below(5) {
        0 => {
            let folder = set.kill(at);
            thread::sleep(away);
            set.start_in(at, folder);
        }
        1 => {
            let server = set.servers[at].as_ref().expect("it runs");
            server.suspend();
            thread::sleep(away);
            server.resume();
        }
        2 => {
            part(ways, first, at, true);
            thread::sleep(away);
            part(ways, first, at, false);
        }
        3 => {
            part(cluster_ways, 0, first + at, true);
            thread::sleep(3 * away);
            part(cluster_ways, 0, first + at, false);
        }
        _ => {
            if let Some((_, mut leader)) = set.leading(0..3) {
                // It may lead no more.
                let _ = leader.try_call("FAILOVER");
            }
        }
    }
}

/// Asks who leads the set that owns some slots to give them to the other one; `None`: it has not begun to.
fn move_slots_of_sets(cluster: &Cluster, rng: &mut Rng) -> Option<()> {
    let (_, mut any) = cluster.sets[0].leading(0..3)?;
    let (owner, slots) = slots_to_move(&any.try_call("CLUSTER SLOTS")?, rng)?;
    let from = usize::from((0..3).all(|at| cluster.port(0, at) != owner));
    let [source, target] = [from, 1 - from].map(|set| cluster.sets[set].leading(0..3));
    let to = text(&target?.1.try_call("CLUSTER MYID")?);
    let begun = source?.1.try_call(&format!("CLUSTER MIGRATESLOTS {slots} NODE {to}"))?;
    (begun == ok()).then_some(())
}

#[test]
fn transactions_of_a_cluster_of_sets_have_an_order() {
    check(|length, rng| {
        let maxdisk = any_maxdisk(rng);
        let mut cluster_ways = Vec::new();
        let more = |bus_port| {
            let way = Way::new(bus_port);
            let announced = way.port.to_string();
            cluster_ways.push(way);
            let mut words = vec!["--replica-set-timeout", TIMEOUT, "--cluster-node-timeout", SHORT_TIMEOUT];
            words.extend(["--cluster-announce-bus-port", &announced]);
            words.extend(maxdisk);
            words.extend(options(rng, ["128mb", "0"]));
            words.into_iter().map(str::to_owned).collect()
        };
        let mut sets = [0, 1].map(|_| Set::new(3));
        let ways = [0, 1].map(|set| sets[set].put_ways(3 * set));
        let mut cluster = Cluster::start_of(sets, more);
        let sockets = cluster.clients().into_iter().map(|(set, at, _)| {
            let server = cluster.sets[set].servers[at].as_ref().expect("it runs");
            (cluster.port(set, at), server.folder().join("socket"))
        });
        let sockets = Mutex::new(sockets.collect());
        let (mut moved, mut by_keys, mut half) = (0, 0, None);
        let scene = Scene { has_tags: true, gets_full: gets_full(maxdisk), ..Scene::new(&sockets, &ROLES) };
        let history = run(scene, length, rng, &mut |rng: &mut Rng| {
            thread::sleep(Duration::from_millis(rng.below(LIFE_MS / 10)));
            match rng.below(8) {
                0 => {
                    let set = rng.below(2) as usize;
                    ail_set(&mut cluster.sets[set], 3 * set, &ways[set], &cluster_ways, rng);
                }
                1..4 if half.is_none() => moved += u32::from(move_slots_of_sets(&cluster, rng).is_some()),
                _ => {
                    let client = |set: usize| cluster.sets[set].leading(0..3).map(|(_, client)| client);
                    let (slot, from) = (rng.below(SLOTS), rng.below(2) as usize);
                    let by_key = half.get_or_insert_with(|| Move::new(slot, from, 1 - from));
                    if by_key.go_on(client, rng) == Some(true) {
                        by_keys += u32::from(by_key.step == Step::End);
                        half = None;
                    }
                }
            }
        });
        println!("{moved} transfers, {by_keys} slots key by key");
        for set in &mut cluster.sets {
            for at in 0..3 {
                assert_sound(&set.kill(at));
            }
        }
        history
    });
}
