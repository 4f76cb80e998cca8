//! Slots move at random while nodes are killed and stopped, and clients write: nothing acknowledged is lost, what is read is not out of date, and
//! in the end each key is on one node.
//!
//! Each key is one writer's, which appends numbers to it, each greater than those before. What it has is then known, but for numbers whose replies
//! were lost; and a read tells once and for all which of those are there.
//!
//! `HOLDFAST_CLUSTER_SECONDS=600` runs the long form, `HOLDFAST_SEED=n` with the choices of another run (but not its moments).

use super::{Nodes, SHORT_TIMEOUT};
use crate::harness::{
    Client, EndOnDrop, PATIENCE, Rng, items, long_form, number, ok, seed, text, wait_until,
};
use holdfast_resp::{Reply, write_command};
use holdfast_store::hash_slot;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const SECONDS: u64 = 6;
const NODES: usize = 3;
const WRITERS: u64 = 3;
/// Slots that move, the first ones.
const SLOTS: u64 = 24;
/// Keys of each kind that a writer has.
const KEYS: usize = 3;
/// How keys are written. A pair is a list and a set that a script writes together.
const KINDS: [&str; 6] = ["list", "large", "set", "stream", "text", "pair"];
const WRITE_PAIR: &str = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('SADD', KEYS[2], ARGV[1])";
const READ_PAIR: &str = "return {redis.call('LRANGE', KEYS[1], 0, -1), redis.call('SMEMBERS', KEYS[2])}";
/// How long a client waits until it asks again.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a node is stopped at most.
const STOP_MS: u64 = 4000;

/// A key, and what was written to it.
struct Written {
    kind: &'static str,
    key: String,
    /// What it has.
    numbers: BTreeSet<u64>,
    /// What was sent and not answered: it may be there.
    unknown: BTreeSet<u64>,
}

impl Written {
    /// The other key of a pair.
    fn second(&self) -> String {
        format!("{}:set", self.key)
    }

    /// The command that appends a number.
    fn append(&self, number: u64) -> Vec<String> {
        let (key, n) = (&self.key, number.to_string());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self.kind {
            "list" => words(&["RPUSH", key, &n]),
            "large" => words(&["RPUSH", key, &format!("{n}:{}", "x".repeat(number as usize % 7000))]),
            "set" => words(&["SADD", key, &n]),
            "stream" => words(&["XADD", key, &format!("{n}-1"), "n", &n]),
            "text" => words(&["APPEND", key, &format!("{n},")]),
            _ => words(&["EVAL", WRITE_PAIR, "2", key, &self.second(), &n]),
        }
    }

    /// The command that reads it.
    fn read(&self) -> Vec<String> {
        let key = &self.key;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self.kind {
            "list" | "large" => words(&["LRANGE", key, "0", "-1"]),
            "set" => words(&["SMEMBERS", key]),
            "stream" => words(&["XRANGE", key, "-", "+"]),
            "text" => words(&["GET", key]),
            _ => words(&["EVAL", READ_PAIR, "2", key, &self.second()]),
        }
    }

    /// The numbers that a reply to [`Written::read`] tells of, in their order.
    fn numbers_in(&self, reply: &Reply) -> Vec<u64> {
        let sorted = |reply: &Reply| {
            let mut numbers: Vec<u64> =
                items(reply).iter().map(|item| number(item).expect("a number")).collect();
            numbers.sort_unstable();
            numbers
        };
        match (self.kind, reply) {
            ("text", Reply::Null) => Vec::new(),
            ("text", reply) => {
                text(reply).split_terminator(',').map(|n| n.parse().expect("a number")).collect()
            }
            ("stream", reply) => {
                items(reply).iter().map(|entry| number(&items(entry)[0]).expect("an ID")).collect()
            }
            ("set", reply) => sorted(reply),
            ("pair", reply) => {
                let [list, set] = items(reply) else { panic!("{reply:?}") };
                let list: Vec<u64> = items(list).iter().map(|item| number(item).expect("a number")).collect();
                assert_eq!(list, sorted(set), "{}: half of a script", self.key);
                list
            }
            (_, reply) => items(reply).iter().map(|item| number(item).expect("a number")).collect(),
        }
    }

    /// Compares it with a reply to [`Written::read`], which tells what is there of what was not answered.
    fn check(&mut self, reply: &Reply) {
        let found = self.numbers_in(reply);
        assert!(found.is_sorted(), "{}: {found:?}", self.key);
        let found: BTreeSet<u64> = found.into_iter().collect();
        let lost: Vec<u64> = self.numbers.difference(&found).copied().collect();
        let more = found.difference(&self.numbers).filter(|number| !self.unknown.contains(number));
        let more: Vec<u64> = more.copied().collect();
        assert!(
            lost.is_empty() && more.is_empty(),
            "{}: of {} numbers {lost:?} are lost, and {more:?} should not be there",
            self.key,
            self.numbers.len()
        );
        self.numbers = found;
        self.unknown.clear();
    }
}

/// A client that goes where it is sent, and knows the nodes' sockets by their ports.
struct Traveller {
    sockets: BTreeMap<u16, String>,
    clients: BTreeMap<u16, Client>,
    /// Where the keys of a slot were last.
    known: BTreeMap<u16, u16>,
    rng: Rng,
}

impl Traveller {
    fn any_port(&mut self) -> u16 {
        let nth = self.rng.below(self.sockets.len() as u64) as usize;
        *self.sockets.keys().nth(nth).expect("there are nodes")
    }

    fn client(&mut self, port: u16) -> Option<&mut Client> {
        if !self.clients.contains_key(&port) {
            self.clients.insert(port, Client::connect(&self.sockets[&port]).ok()?);
        }
        self.clients.get_mut(&port)
    }

    /// Has a command about a key executed, wherever that is; `None`: the reply is lost.
    fn call(&mut self, key: &str, words: &[String]) -> Option<Reply> {
        let (slot, deadline) = (hash_slot(key.as_bytes()), Instant::now() + 2 * PATIENCE);
        let mut port = self.known.get(&slot).copied().unwrap_or_else(|| self.any_port());
        let mut request = Vec::new();
        write_command(&mut request, words);
        loop {
            assert!(Instant::now() < deadline, "{words:?} is executed nowhere");
            let Some(client) = self.client(port) else {
                thread::sleep(PAUSE);
                port = self.any_port();
                continue;
            };
            let reply = client.try_send(&request).ok().and_then(|()| client.try_reply());
            let Some(Reply::Error(why)) = &reply else {
                if reply.is_none() {
                    self.clients.remove(&port);
                    self.known.remove(&slot);
                }
                return reply;
            };
            let why = String::from_utf8_lossy(why).into_owned();
            let words: Vec<&str> = why.split(' ').collect();
            match words[0] {
                "MOVED" => {
                    port = words[2].rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
                    self.known.insert(slot, port);
                }
                // A script may have been stopped with its node.
                "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "BUSY" => {
                    thread::sleep(PAUSE);
                    port = self.any_port();
                }
                _ => panic!("{why}"),
            }
        }
    }
}

/// Writes keys, and reads them, until that is over; or fails, and it is for all.
fn write(traveller: &mut Traveller, keys: &mut [Written], is_over: &AtomicBool) {
    let _end = EndOnDrop(is_over);
    let mut last = 0;
    while !is_over.load(Relaxed) {
        let written = &mut keys[traveller.rng.below(KINDS.len() as u64 * KEYS as u64) as usize];
        if traveller.rng.one_in(3) {
            if let Some(reply) = traveller.call(&written.key, &written.read()) {
                written.check(&reply);
            }
            continue;
        }
        last += 1;
        match traveller.call(&written.key, &written.append(last)) {
            Some(_) => written.numbers.insert(last),
            None => written.unknown.insert(last),
        };
    }
}

/// Asks the owner of a random slot to give it, and some behind it, to another node; whether it has begun to.
fn move_slots(nodes: &Nodes, stopped: &BTreeMap<u16, Instant>, rng: &mut Rng) -> bool {
    let running: Vec<u16> = nodes.ports().into_iter().filter(|port| !stopped.contains_key(port)).collect();
    let (first, count) = (rng.below(SLOTS), 1 + rng.below(SLOTS));
    let Some(map) = running.first().and_then(|port| nodes.client(*port).try_call("CLUSTER SLOTS")) else {
        return false;
    };
    let bounds = |range: &[Reply]| [0, 1].map(|at| number(&range[at]).expect("a slot"));
    let range = items(&map).iter().map(items).find(|range| {
        let [from, to] = bounds(range);
        (from..=to).contains(&first)
    });
    let Some(range) = range else { return false };
    let (owner, last) = (
        number(&items(&range[2])[1]).expect("a port") as u16,
        bounds(range)[1].min(first + count - 1).min(SLOTS - 1),
    );
    let others: Vec<u16> = running.iter().copied().filter(|port| *port != owner).collect();
    if others.is_empty() || !running.contains(&owner) {
        return false;
    }
    let to = nodes.id(others[rng.below(others.len() as u64) as usize]);
    let begin = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {to}");
    nodes.client(owner).try_call(&begin) == Some(ok())
}

#[test]
fn slots_move_while_nodes_are_killed_and_stopped() {
    let mut rng = Rng(seed());
    let length = Duration::from_secs(long_form("HOLDFAST_CLUSTER_SECONDS", SECONDS));
    let mut nodes = Nodes::create_with(NODES, SHORT_TIMEOUT);
    let sockets: BTreeMap<u16, String> =
        nodes.0.iter().map(|(port, server)| (*port, server.folder().join("socket"))).collect();
    let mut tags =
        (0..).map(|n| format!("{{{n}}}")).filter(|tag| u64::from(hash_slot(tag.as_bytes())) < SLOTS);
    let mut writers: Vec<(Traveller, Vec<Written>)> = Vec::new();
    for _ in 0..WRITERS {
        let key = |at: usize| Written {
            kind: KINDS[at % KINDS.len()],
            key: format!("{}:{at}", tags.next().expect("there are enough")),
            numbers: BTreeSet::new(),
            unknown: BTreeSet::new(),
        };
        let keys = (0..KINDS.len() * KEYS).map(key).collect();
        let (clients, known) = (BTreeMap::new(), BTreeMap::new());
        writers.push((Traveller { sockets: sockets.clone(), clients, known, rng: Rng(rng.draw()) }, keys));
    }
    let (is_over, ports, begun) = (AtomicBool::new(false), nodes.ports(), Instant::now());
    let (mut moves, mut kills, mut stops) = (0, 0, 0);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for (traveller, keys) in &mut writers {
            let is_over = &is_over;
            scope.spawn(move || write(traveller, keys, is_over));
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
                    nodes.0[&port].signal("STOP");
                    stopped.insert(port, Instant::now() + Duration::from_millis(rng.below(STOP_MS)));
                    stops += 1;
                }
                _ => moves += u32::from(move_slots(&nodes, &stopped, &mut rng)),
            }
            let is_due = |(port, until): (&u16, &Instant)| (*until <= Instant::now()).then_some(*port);
            for port in stopped.iter().filter_map(is_due).collect::<Vec<_>>() {
                stopped.remove(&port);
                nodes.0[&port].signal("CONT");
            }
        }
        stopped.keys().for_each(|port| nodes.0[port].signal("CONT"));
        nodes.wait_until_agreed(NODES);
    });
    let mut keys = 0;
    for (traveller, written) in &mut writers {
        for one in written {
            let reply = traveller.call(&one.key, &one.read()).expect("all nodes serve");
            one.check(&reply);
            keys += match one.numbers.is_empty() {
                true => 0,
                false => 1 + u64::from(one.kind == "pair"),
            };
        }
    }
    let numbers: usize = writers.iter().flat_map(|(_, written)| written).map(|one| one.numbers.len()).sum();
    println!("{moves} transfers, {kills} kills, {stops} stops, {numbers} numbers in {keys} keys");
    assert!(moves > 0 && numbers > 0);
    let sum = || {
        ports.iter().map(|port| number(&nodes.client(*port).call("DBSIZE")).expect("a number")).sum::<u64>()
    };
    wait_until(|| format!("each of {keys} keys is on one node, not {}", sum()), || sum() == keys);
}
