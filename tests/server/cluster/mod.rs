//! Servers as the nodes of a cluster: made and changed by `redis-cli --cluster`, with redirections in Redis's words; slots that move
//! under load, and nodes that are killed, stopped and started again.

pub mod faults;

use crate::harness::{
    self, Client, EndOnDrop, Rng, Server, Way, array, bulk, bulks, error, free_port, holdfast_cluster,
    is_error, items, number, ok, redis_cli, seed, show, text, wait_until,
};
use holdfast_resp::{Reply, write_command};
use holdfast_store::hash_slot;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Milliseconds of silence after which a node has failed, and after which a change is refused that was not decided. A busy machine is not to fail.
const TIMEOUT: &str = "15000";
/// The same where that is waited for.
pub const SHORT_TIMEOUT: &str = "2000";

/// The nodes of a cluster, by the ports at which clients connect.
pub struct Nodes(pub BTreeMap<u16, Server>, &'static str);

impl Nodes {
    /// Starts nodes that do not know each other.
    fn start(count: usize, timeout: &'static str) -> Nodes {
        Nodes::start_by(count, timeout, Vec::new)
    }

    /// The same with more options.
    fn start_by<'o>(count: usize, timeout: &'static str, mut options: impl FnMut() -> Vec<&'o str>) -> Nodes {
        let mut nodes = Nodes(BTreeMap::new(), timeout);
        (0..count).for_each(|_| nodes.add_at(free_port(), free_port(), &options()));
        nodes
    }

    /// Starts one more node; its port.
    fn add(&mut self) -> u16 {
        let (port, bus_port) = (free_port(), free_port());
        self.add_at(port, bus_port, &[]);
        port
    }

    fn add_at(&mut self, port: u16, bus_port: u16, more: &[&str]) {
        let [own, bus_port] = [port, bus_port].map(|port| port.to_string());
        let options = ["--port", &own, "--bind", "127.0.0.1", "--cluster-enabled", "yes"];
        let options = [&options[..], &["--cluster-port", &bus_port, "--cluster-node-timeout", self.1], more];
        self.0.insert(port, Server::start(&options.concat()));
    }

    /// Starts nodes and has `redis-cli` make them a cluster.
    fn create(count: usize) -> Nodes {
        Nodes::create_with(count, TIMEOUT)
    }

    fn create_with(count: usize, timeout: &'static str) -> Nodes {
        Nodes::create_by(count, timeout, Vec::new)
    }

    /// The same with more options.
    pub fn create_by<'o>(
        count: usize,
        timeout: &'static str,
        options: impl FnMut() -> Vec<&'o str>,
    ) -> Nodes {
        let nodes = Nodes::start_by(count, timeout, options);
        let addresses: Vec<String> = nodes.ports().into_iter().map(address).collect();
        let mut args = vec!["create"];
        args.extend(addresses.iter().map(String::as_str));
        redis_cli(&args);
        nodes.wait_until_agreed(count);
        nodes
    }

    pub fn ports(&self) -> Vec<u16> {
        self.0.keys().copied().collect()
    }

    pub fn client(&self, port: u16) -> Client {
        self.0[&port].client()
    }

    /// Waits until each node knows so many, and that all slots are served.
    pub fn wait_until_agreed(&self, count: usize) {
        for &port in self.0.keys() {
            let mut client = self.client(port);
            wait_until(
                || format!("node {port} agrees\n{}\n{}", info(&mut client), self.0[&port].log()),
                || {
                    let info = info(&mut self.client(port));
                    info.contains("cluster_state:ok")
                        && info.contains(&format!("cluster_known_nodes:{count}"))
                },
            );
        }
    }

    pub fn id(&self, port: u16) -> String {
        text(&self.client(port).call("CLUSTER MYID"))
    }

    /// The node that owns a slot.
    pub fn owner(&self, slot: u16) -> u16 {
        self.owner_by(self.ports()[0], slot)
    }

    /// The same as another node knows it.
    fn owner_by(&self, node: u16, slot: u16) -> u16 {
        let map = self.client(node).call("CLUSTER SLOTS");
        let range = items(&map).iter().map(items).find(|range| {
            let bounds = (number(&range[0]).expect("a slot"), number(&range[1]).expect("a slot"));
            (bounds.0..=bounds.1).contains(&slot.into())
        });
        number(&items(&range.expect("each slot has an owner")[2])[1]).expect("a port") as u16
    }

    /// Kills a node and starts it again.
    pub fn kill_and_restart(&mut self, port: u16) {
        let server = self.0.remove(&port).expect("it is one of them");
        self.0.insert(port, server.restart(Server::kill));
    }
}

fn info(client: &mut Client) -> String {
    text(&client.call("CLUSTER INFO"))
}

/// The client library is told of one node, which it asks who has which slots, so that it is never redirected. Over RESP2 a node does
/// not say that it is one; then the first redirection has it ask.
#[test]
fn the_client_library_is_redirected_once_at_most() {
    let nodes = Nodes::create(3);
    let redirections = || -> u64 {
        let count = |port| {
            let stats = text(&nodes.client(port).call("INFO errorstats"));
            let moved = stats.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
            moved.map_or(0, |count| count.trim().parse().expect("a number"))
        };
        nodes.ports().into_iter().map(count).sum()
    };
    let mut config = holdfast_client::Config::new([address(nodes.ports()[0])]).expect("an address");
    let client = holdfast_client::Client::new(config).expect("a client");
    let set =
        |n: usize| client.submit(holdfast_client::Command::new("SET").arg(&format!("key:{n}")).arg("v"));
    let ids: Vec<_> = (0..1000).map(|n| set(n).expect("there is room")).collect();
    assert!(client.wait_all(&ids, None).expect("requests") && redirections() == 0);
    assert!(ids.into_iter().all(|id| client.take(id) == Ok(ok())));

    config = holdfast_client::Config::new([address(nodes.ports()[0])]).expect("an address");
    config.protocol = holdfast_client::Protocol::Resp2;
    let client = holdfast_client::Client::new(config).expect("a client");
    let set = |n: usize| client.call(holdfast_client::Command::new("SET").arg(&format!("key:{n}")).arg("v"));
    let mut n = 0;
    while redirections() == 0 {
        assert_eq!(set(n), Ok(ok()));
        n += 1;
    }
    // This one's reply comes after that about the slots, if it is from the same server.
    (n..n + 20).for_each(|n| assert_eq!(set(n), Ok(ok())));
    let before = redirections();
    (1000..1500).for_each(|n| assert_eq!(set(n), Ok(ok())));
    assert_eq!(redirections(), before, "{before} before");
    assert!(before <= 3, "{before} redirections");
}

/// How many nodes have failed, as one tells.
fn failed_nodes(client: &mut Client) -> usize {
    text(&client.call("CLUSTER NODES")).lines().filter(|line| line.contains("master,fail")).count()
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// A client that goes where it is sent.
struct Follower<'a> {
    nodes: &'a Nodes,
    clients: BTreeMap<u16, Client>,
    /// Where the keys of a slot were last.
    known: BTreeMap<u16, u16>,
    redirections: u64,
    /// It is never asked to come again, or elsewhere for once.
    is_never_asked: bool,
}

impl<'a> Follower<'a> {
    fn new(nodes: &'a Nodes) -> Follower<'a> {
        Follower {
            nodes,
            clients: BTreeMap::new(),
            known: BTreeMap::new(),
            redirections: 0,
            is_never_asked: false,
        }
    }

    fn client(&mut self, port: u16) -> &mut Client {
        self.clients.entry(port).or_insert_with(|| self.nodes.client(port))
    }

    /// Has a command about a key executed, wherever that is.
    fn call(&mut self, args: &[&str]) -> Reply {
        let key = if args[0] == "EVAL" { args[2] } else { args[1] };
        let (slot, deadline) = (hash_slot(key.as_bytes()), Instant::now() + harness::PATIENCE);
        let eval: Vec<&str>;
        let args = if args[0] == "EVAL" {
            eval = ["EVAL", args[1], "1"].iter().chain(&args[2..]).copied().collect();
            &eval
        } else {
            args
        };
        let mut asks = false;
        let mut port = *self.known.entry(slot).or_insert(self.nodes.ports()[0]);
        loop {
            assert!(Instant::now() < deadline, "{args:?} is executed nowhere");
            if std::mem::take(&mut asks) {
                assert_eq!(self.client(port).call("ASKING"), ok());
            }
            let reply = self.client(port).call_args(args);
            let Reply::Error(why) = &reply else { return reply };
            let why = String::from_utf8_lossy(why).into_owned();
            let words: Vec<&str> = why.split(' ').collect();
            assert!(!self.is_never_asked || words[0] == "MOVED" || words[0] == "CLUSTERDOWN", "{why}");
            match words[0] {
                "MOVED" | "ASK" => {
                    assert_eq!(words[1], slot.to_string(), "{why}");
                    port = words[2].strip_prefix("127.0.0.1:").expect("the host").parse().expect("a port");
                    asks = words[0] == "ASK";
                    if !asks {
                        self.known.insert(slot, port);
                    }
                    self.redirections += 1;
                }
                "TRYAGAIN" | "CLUSTERDOWN" => {
                    thread::sleep(Duration::from_millis(5));
                    port = self.known[&slot];
                }
                _ => return reply,
            }
        }
    }
}

/// Keys in the first slots, so many in each.
fn keys_in_first_slots(slots: u16, each: usize) -> Vec<String> {
    let mut keys: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    let mut missing = usize::from(slots) * each;
    for number in 0.. {
        let key = format!("key:{number}");
        let slot = hash_slot(key.as_bytes());
        if slot < slots && keys.get(&slot).is_none_or(|keys| keys.len() < each) {
            keys.entry(slot).or_default().push(key);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    keys.into_values().flatten().collect()
}

/// A key in a slot.
fn key_in(slot: u16) -> String {
    let mut keys = (0..).map(|number| format!("{{{number}}}"));
    keys.find(|key| hash_slot(key.as_bytes()) == slot).expect("there are enough")
}

#[test]
fn redis_cli_makes_a_cluster_and_changes_it() {
    let mut nodes = Nodes::create(3);
    let ports = nodes.ports();
    {
        let mut client = Follower::new(&nodes);
        for number in 0..300 {
            assert_eq!(client.call(&["SET", &format!("key:{number}"), &number.to_string()]), ok());
        }
        assert!(client.redirections > 100, "keys are on all nodes");
    }
    let keys_of = |nodes: &Nodes, port: u16| number(&nodes.client(port).call("DBSIZE")).expect("a number");
    assert_eq!(ports.iter().map(|port| keys_of(&nodes, *port)).sum::<u64>(), 300);

    // A further node gets slots with what is in them, and gives them back.
    let added = nodes.add();
    redis_cli(&["add-node", &address(added), &address(ports[0])]);
    nodes.wait_until_agreed(4);
    let (from, to) = (nodes.id(ports[0]), nodes.id(added));
    let reshard = |from: &str, to: &str| {
        let flags = ["--cluster-from", from, "--cluster-to", to, "--cluster-slots", "40"];
        redis_cli(&[&["reshard", &address(ports[0])][..], &flags].concat());
    };
    reshard(&from, &to);
    assert_eq!((nodes.owner(0), nodes.owner(39), nodes.owner(40)), (added, added, ports[0]));
    let checked = redis_cli(&["check", &address(added)]);
    assert!(checked.contains("All 16384 slots covered"), "{checked}");
    {
        let mut client = Follower::new(&nodes);
        for number in 0..300 {
            assert_eq!(client.call(&["GET", &format!("key:{number}")]), bulk(number.to_string()));
        }
        // Nothing stays where it was, or is counted twice.
        let all: u64 = nodes.ports().iter().map(|port| keys_of(&nodes, *port)).sum();
        assert_eq!(all, 300);
    }
    reshard(&to, &from);
    assert_eq!(keys_of(&nodes, added), 0);
    redis_cli(&["del-node", &address(ports[0]), &to]);
    let alone = nodes.client(added).call("CLUSTER NODES");
    assert_eq!(text(&alone).lines().count(), 1, "it was told to forget the others");
    drop(nodes.0.remove(&added).expect("it is there").kill());
    nodes.wait_until_agreed(3);
    let mut client = nodes.client(ports[0]);
    let unknown = client.call(&format!("CLUSTER FORGET {}", "0".repeat(40)));
    assert_eq!(unknown, error(&format!("ERR Unknown node {}", "0".repeat(40))));
}

/// A move that was cut off has left keys on both nodes, and one of them does not know of it any more: `fix` brings all to the owner.
#[test]
fn redis_cli_ends_a_move_that_was_cut_off() {
    let nodes = Nodes::create(3);
    let ports = nodes.ports();
    let keys = keys_in_first_slots(1, 20);
    let owner = nodes.owner(0);
    let other = *ports.iter().find(|port| **port != owner).expect("another one");
    let [mut from, mut to] = [owner, other].map(|port| nodes.client(port));
    keys.iter().for_each(|key| assert_eq!(from.call(&format!("SET {key} {key}")), ok()));
    let begin = format!("CLUSTER SETSLOT 0 IMPORTING {}", nodes.id(owner));
    assert_eq!(to.call(&begin), ok());
    assert_eq!(from.call(&format!("CLUSTER SETSLOT 0 MIGRATING {}", nodes.id(other))), ok());
    let mut migrate = vec!["MIGRATE", "127.0.0.1"];
    let port = other.to_string();
    migrate.extend([&port[..], "", "0", "5000", "KEYS"]);
    migrate.extend(keys[..5].iter().map(String::as_str));
    assert_eq!(from.call_args(&migrate), ok());
    assert_eq!(from.call("CLUSTER SETSLOT 0 STABLE"), ok());
    assert_eq!(to.call(&begin), ok());
    redis_cli(&["fix", &address(owner)]);
    for key in &keys {
        assert_eq!(from.call(&format!("GET {key}")), bulk(key), "{}", show(&from.call("CLUSTER NODES")));
    }
    assert_eq!(to.call("DBSIZE"), Reply::Int(0));
}

#[test]
fn clients_are_told_where_keys_are() {
    let nodes = Nodes::create(3);
    let (slot, key) = (1000, key_in(1000));
    let here = nodes.owner(slot);
    let there = *nodes.ports().iter().find(|port| **port != here).expect("another one");
    let (mut owner, mut other) = (nodes.client(here), nodes.client(there));
    let moved = error(&format!("MOVED {slot} {}", address(here)));
    assert_eq!(owner.call(&format!("SET {key} 1")), ok());
    for call in
        ["GET %", "SET % 2", "TYPE %", "BLPOP % 0", "EVAL return(1) 1 %", "SPUBLISH % m", "OBJECT ENCODING %"]
    {
        assert_eq!(other.call(&call.replace('%', &key)), moved, "{call}");
    }
    // What has no key is executed anywhere.
    assert_eq!(other.call("PING"), Reply::Simple(b"PONG".to_vec()));
    assert_eq!(other.call("EVAL return(1) 0"), Reply::Int(1));
    let crossed = error("CROSSSLOT Keys in request don't hash to the same slot");
    for call in ["MGET % b", "MSET % 1 b 2", "EVAL return(1) 2 % b", "SUNIONSTORE % b"] {
        assert_eq!(owner.call(&call.replace('%', &key)), crossed, "{call}");
    }
    assert_eq!(owner.call(&format!("MSET {key} 1 {key}a 2")), ok(), "one tag, one slot");
    // A script may not reach for keys elsewhere, nor a transaction.
    let far = key_in((0..).find(|slot| nodes.owner(*slot) == there).expect("it has some"));
    let near = key_in((0..).find(|slot| nodes.owner(*slot) == here && *slot != 1000).expect("it has some"));
    let mut get = |first_line: &str, name: &str| {
        let source = format!("{first_line}return redis.call('get', '{name}') or 'nothing'");
        owner.call_args(&["EVAL", &source, "1", &key])
    };
    let foreign = get("", &far);
    assert!(
        is_error(&foreign, "ERR Script attempted to access a non local key in a cluster node"),
        "{foreign:?}"
    );
    assert_eq!(get("", &near), bulk("nothing"), "a script of old may use all slots of the node");
    let other_slot = get("#!lua\n", &near);
    let one_slot = "ERR Script attempted to access keys that do not hash to the same slot";
    assert!(is_error(&other_slot, one_slot), "{other_slot:?}");
    assert_eq!(get("#!lua flags=allow-cross-slot-keys\n", &near), bulk("nothing"));
    assert_eq!(get("#!lua\n", &format!("{key}x")), bulk("nothing"));
    let flag = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
    assert_eq!(get("#!lua flags=no-cluster\n", &key), error(flag));
    assert_eq!(other.call("MULTI"), ok());
    assert_eq!(other.call(&format!("GET {key}")), moved);
    assert!(is_error(&other.call("EXEC"), "EXECABORT"));
    let sorted = owner.call(&format!("SORT {key} BY w_*"));
    assert_eq!(sorted, error("ERR BY option of SORT denied in cluster mode."));
    let got = owner.call(&format!("SORT {key} GET #"));
    assert_eq!(got, error("ERR GET option of SORT denied in cluster mode."));
    assert_eq!(owner.call("SELECT 1"), error("ERR SELECT is not allowed in cluster mode"));
    assert_eq!(owner.call(&format!("MOVE {key} 1")), error("ERR MOVE is not allowed in cluster mode"));
    assert_eq!(owner.call("SWAPDB 0 1"), error("ERR SWAPDB is not allowed in cluster mode"));
    let copied = owner.call(&format!("COPY {key} {key} DB 1"));
    assert_eq!(copied, error("ERR Copying to another database is not allowed in cluster mode"));

    // A slot that is on its way.
    let (from, to) = (nodes.id(here), nodes.id(there));
    assert_eq!(other.call(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), ok());
    assert_eq!(owner.call(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")), ok());
    let ask = error(&format!("ASK {slot} {}", address(there)));
    let again = error("TRYAGAIN Multiple keys request during rehashing of slot");
    assert_eq!(owner.call(&format!("GET {key}")), bulk("1"));
    assert_eq!(owner.call(&format!("GET {key}x")), ask, "it is not here any more, or never was");
    assert_eq!(owner.call(&format!("MGET {key} {key}x")), again);
    assert_eq!(other.call(&format!("GET {key}")), moved, "without ASKING");
    assert_eq!(other.call("ASKING"), ok());
    assert_eq!(other.call(&format!("GET {key}")), Reply::Null);
    assert_eq!(other.call(&format!("GET {key}")), moved, "ASKING is for one command");
    let migrate = format!("MIGRATE 127.0.0.1 {there} {key} 0 5000");
    assert_eq!(owner.call(&migrate), ok());
    assert_eq!(owner.call(&format!("GET {key}")), ask);
    assert_eq!(owner.call(&format!("MGET {key} {key}a")), again);
    assert_eq!(other.call("ASKING"), ok());
    assert_eq!(other.call(&format!("GET {key}")), bulk("1"));
    assert_eq!(owner.call(&format!("CLUSTER COUNTKEYSINSLOT {slot}")), Reply::Int(1));
    assert_eq!(owner.call(&format!("CLUSTER GETKEYSINSLOT {slot} 10")), array([bulk(format!("{key}a"))]));
    let held = format!(
        "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
    );
    assert_eq!(owner.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), error(&held));
    assert_eq!(owner.call(&format!("MIGRATE 127.0.0.1 {there} {key}a 0 5000")), ok());
    for client in [&mut other, &mut owner] {
        assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), ok());
    }
    assert_eq!(nodes.owner(slot), there);
    assert_eq!(owner.call(&format!("GET {key}")), error(&format!("MOVED {slot} {}", address(there))));
    assert_eq!(other.call(&format!("MGET {key} {key}a")), array([bulk("1"), bulk("2")]));

    // A slot of nobody.
    assert_eq!(other.call(&format!("CLUSTER DELSLOTS {slot}")), ok());
    let down = error("CLUSTERDOWN The cluster is down");
    wait_until(|| "the cluster is down".into(), || owner.call(&format!("GET {far}")) == down);
    assert_eq!(owner.call(&format!("GET {key}")), error("CLUSTERDOWN Hash slot not served"));
    assert_eq!(owner.call("CONFIG SET cluster-require-full-coverage no"), ok());
    let own = key_in((0..).find(|slot| nodes.owner(*slot) == here).expect("it has some"));
    wait_until(
        || "keys of other slots are served".into(),
        || owner.call(&format!("GET {own}")) == Reply::Null,
    );
}

#[test]
fn slots_move_while_keys_are_written() {
    let nodes = Nodes::create(3);
    let ports = nodes.ports();
    let keys = keys_in_first_slots(8, 4);
    let is_over = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let end = EndOnDrop(&is_over);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (nodes, keys, is_over) = (&nodes, &keys, &is_over);
                scope.spawn(move || {
                    let mut client = Follower::new(nodes);
                    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
                    for step in writer.. {
                        if is_over.load(Relaxed) {
                            break;
                        }
                        let key = &keys[(step * 7) % keys.len()];
                        *counts.entry(key).or_default() += 1;
                        let reply = client.call(&["INCR", key]);
                        let Reply::Int(now) = reply else { panic!("INCR {key}: {reply:?}") };
                        assert!(
                            now >= counts[&key[..]],
                            "{key} is {now}, and had {} of this client alone",
                            counts[&key[..]]
                        );
                    }
                    (counts, client.redirections)
                })
            })
            .collect();
        let ids: Vec<String> = ports.iter().map(|port| nodes.id(*port)).collect();
        // Whoever has the first slots gives them to the next node, and so on around.
        let mut from = ports.iter().position(|port| *port == nodes.owner(0)).expect("it has an owner");
        for _ in 0..4 {
            let to = (from + 1) % 3;
            let flags = ["--cluster-from", &ids[from], "--cluster-to", &ids[to], "--cluster-slots", "8"];
            redis_cli(&[&["reshard", &address(ports[0])][..], &flags].concat());
            assert_eq!(nodes.owner(7), ports[to]);
            from = to;
        }
        drop(end);
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        let mut redirections = 0;
        for writer in writers {
            let (counts, redirected) = writer.join().expect("no writer fails");
            counts.into_iter().for_each(|(key, count)| *sums.entry(key.to_owned()).or_default() += count);
            redirections += redirected;
        }
        assert!(redirections > 0, "nobody was sent elsewhere");
        sums
    });
    let mut client = Follower::new(&nodes);
    for (key, count) in &counts {
        assert_eq!(client.call(&["GET", key]), bulk(count.to_string()), "{key}");
    }
    let held: u64 =
        ports.iter().map(|port| number(&nodes.client(*port).call("DBSIZE")).expect("a number")).sum();
    assert_eq!(held, counts.len() as u64, "a key is on one node");
}

#[test]
fn nodes_come_back_as_who_they_were() {
    let mut nodes = Nodes::create(3);
    let ports = nodes.ports();
    let ids: Vec<String> = ports.iter().map(|port| nodes.id(*port)).collect();
    {
        let mut client = Follower::new(&nodes);
        (0..100).for_each(|number| assert_eq!(client.call(&["SET", &format!("key:{number}"), "1"]), ok()));
    }
    // One after the other, then all at once.
    for &port in &ports {
        nodes.kill_and_restart(port);
    }
    nodes.wait_until_agreed(3);
    let folders: Vec<_> =
        ports.iter().map(|port| (*port, nodes.0.remove(port).expect("it is there"))).collect();
    let folders: Vec<_> =
        folders.into_iter().map(|(port, server)| (port, server.restart(Server::kill))).collect();
    nodes.0.extend(folders);
    nodes.wait_until_agreed(3);
    assert_eq!(ports.iter().map(|port| nodes.id(*port)).collect::<Vec<_>>(), ids);
    let mut client = Follower::new(&nodes);
    (0..100).for_each(|number| assert_eq!(client.call(&["GET", &format!("key:{number}")]), bulk("1")));
}

#[test]
fn a_node_without_a_majority_serves_nothing() {
    let nodes = Nodes::create_with(3, SHORT_TIMEOUT);
    let ports = nodes.ports();
    let key = key_in((0..).find(|slot| nodes.owner(*slot) == ports[0]).expect("it has some"));
    let mut client = nodes.client(ports[0]);
    assert_eq!(client.call(&format!("SET {key} 1")), ok());
    // One of three: the cluster lacks its slots, and says so.
    nodes.0[&ports[2]].signal("STOP");
    let down = error("CLUSTERDOWN The cluster is down");
    wait_until(|| "the node has failed".into(), || failed_nodes(&mut client) == 1);
    assert_eq!(client.call(&format!("GET {key}")), down);
    let own = nodes.id(ports[0]);
    let lines = text(&client.call("CLUSTER NODES"));
    assert!(lines.lines().any(|line| line.starts_with(&own) && line.contains("myself,master")), "{lines}");
    // Two of three: nobody decides.
    nodes.0[&ports[1]].signal("STOP");
    wait_until(
        || "there is no majority".into(),
        || info(&mut client).contains("cluster_majority:unreachable"),
    );
    let refused = client.call("CLUSTER ADDSLOTS 1");
    assert!(is_error(&refused, "CLUSTERDOWN"), "{refused:?}");
    assert_eq!(client.call(&format!("SET {key} 2")), down);
    assert_eq!(client.call("CONFIG SET cluster-allow-reads-when-down yes"), ok());
    assert_eq!(client.call(&format!("GET {key}")), bulk("1"));
    let reads = error("CLUSTERDOWN The cluster is down and only accepts read commands");
    assert_eq!(client.call(&format!("SET {key} 2")), reads);
    for port in &ports[1..] {
        nodes.0[port].signal("CONT");
    }
    nodes.wait_until_agreed(3);
    assert_eq!(client.call(&format!("SET {key} 2")), ok());
}

#[test]
fn messages_reach_subscribers_on_all_nodes() {
    let nodes = Nodes::create(3);
    let ports = nodes.ports();
    let mut subscribers: Vec<Client> = ports.iter().map(|port| nodes.client(*port)).collect();
    for subscriber in &mut subscribers {
        subscriber.call("SUBSCRIBE news");
    }
    for (number, port) in ports.iter().enumerate() {
        let mut publisher = nodes.client(*port);
        assert_eq!(
            publisher.call(&format!("PUBLISH news {number}")),
            Reply::Int(1),
            "those of the node are counted"
        );
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.reply(), array([bulk("message"), bulk("news"), bulk(number.to_string())]));
        }
    }
    // A message to a shard stays with the owner of its slot.
    let owner = nodes.owner(hash_slot(b"shard"));
    for port in ports {
        let mut client = nodes.client(port);
        let subscribed = client.call("SSUBSCRIBE shard");
        if port == owner {
            assert_eq!(subscribed, array([bulk("ssubscribe"), bulk("shard"), Reply::Int(1)]));
            assert_eq!(nodes.client(port).call("SPUBLISH shard m"), Reply::Int(1));
            assert_eq!(client.reply(), array([bulk("smessage"), bulk("shard"), bulk("m")]));
        } else {
            assert!(is_error(&subscribed, "MOVED"), "{subscribed:?}");
        }
    }
}

/// Has slots go to another node as a whole, and waits until that has ended; its state, and what is said of it.
fn migrate_slots(nodes: &Nodes, from: u16, to: u16, slots: &str) -> (String, String) {
    let begin = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slots} NODE {}", nodes.id(to));
    let has_begun = || {
        let begun = nodes.client(from).call(&begin);
        // They may have gone from there a moment ago.
        let is_early = is_error(&begun, "ERR the node still removes old keys of slot ");
        assert!(is_early || begun == ok(), "{slots} from {from} to {to}: {}", show(&begun));
        !is_early
    };
    wait_until(|| format!("{to} removes old keys of {slots}\n{}", nodes.0[&to].log()), has_begun);
    let mut last = Default::default();
    wait_until(
        || format!("slots {slots} have moved\n{}", nodes.0[&from].log()),
        || {
            last = last_migration(&mut nodes.client(from));
            ["success", "failed", "cancelled"].contains(&&last.0[..])
        },
    );
    last
}

/// State and message of the last migration that a node has begun.
fn last_migration(client: &mut Client) -> (String, String) {
    let all = client.call("CLUSTER GETSLOTMIGRATIONS");
    let exports = items(&all).iter().filter(|it| items(it)[3] == bulk("EXPORT"));
    let Some(last) = exports.map(items).next_back() else { return Default::default() };
    let field = |name: &str| text(&last[last.iter().position(|it| *it == bulk(name)).expect("a field") + 1]);
    (field("state"), field("message"))
}

/// All keys of a node in their order.
fn all_keys(nodes: &Nodes, port: u16) -> Vec<String> {
    let keys = nodes.client(port).call("KEYS *");
    let mut keys: Vec<String> = items(&keys).iter().map(text).collect();
    keys.sort();
    keys
}

#[test]
fn slots_change_hands_as_a_whole() {
    let nodes = Nodes::create(3);
    let ports = nodes.ports();
    let keys = keys_in_first_slots(8, 4);
    let is_over = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let end = EndOnDrop(&is_over);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (nodes, keys, is_over) = (&nodes, &keys, &is_over);
                scope.spawn(move || {
                    let mut client = Follower::new(nodes);
                    client.is_never_asked = true;
                    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
                    for step in writer.. {
                        if is_over.load(Relaxed) {
                            break;
                        }
                        let key = &keys[(step * 7) % keys.len()];
                        let count = counts.entry(key).or_default();
                        // A third of the keys is removed again and again, a third has a time.
                        match step * 7 % keys.len() % 3 {
                            0 => {
                                let Reply::Int(now) = client.call(&["INCR", key]) else { panic!("INCR {key}") };
                                *count += 1;
                                assert!(now >= *count, "{key} is {now}, and {count} of them are from here");
                            }
                            1 => {
                                let script = "for _ = 1, 50 do redis.call('incr', KEYS[1]) end redis.call('pexpire', KEYS[1], 600000) return 1";
                                assert_eq!(client.call(&["EVAL", script, key]), Reply::Int(1));
                                *count += 50;
                            }
                            _ => {
                                client.call(&["DEL", key]);
                                client.call(&["RPUSH", key, "a", "b"]);
                            }
                        }
                    }
                    counts
                })
            })
            .collect();
        let mut from = ports.iter().position(|port| *port == nodes.owner(0)).expect("it has an owner");
        for _ in 0..12 {
            let to = (from + 1) % 3;
            let (state, why) = migrate_slots(&nodes, ports[from], ports[to], "0 3 4 7");
            assert_eq!((&state[..], &why[..]), ("success", ""));
            assert_eq!((nodes.owner(0), nodes.owner(7)), (ports[to], ports[to]));
            from = to;
        }
        drop(end);
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for writer in writers {
            let counts = writer.join().expect("no writer fails");
            counts.into_iter().for_each(|(key, count)| *sums.entry(key.to_owned()).or_default() += count);
        }
        sums
    });
    let mut client = Follower::new(&nodes);
    for (number, key) in keys.iter().enumerate() {
        match number % 3 {
            2 => assert_eq!(client.call(&["TYPE", key]), Reply::Simple(b"list".to_vec())),
            kind => {
                assert_eq!(client.call(&["GET", key]), bulk(counts[key].to_string()), "{key}");
                let Reply::Int(left) = client.call(&["PTTL", key]) else { panic!("PTTL {key}") };
                assert_eq!(left > 0, kind == 1, "{key} has {left} ms");
            }
        }
    }
    // What was given away is removed.
    wait_until(
        || "each key is on one node".into(),
        || ports.iter().map(|port| all_keys(&nodes, *port).len()).sum::<usize>() == keys.len(),
    );
}

#[test]
fn a_migration_that_is_cut_off_leaves_the_slots_where_they_were() {
    let mut nodes = Nodes::create(3);
    let ports = nodes.ports();
    let keys = keys_in_first_slots(4, 50);
    let owner = nodes.owner(0);
    let target = *ports.iter().find(|port| **port != owner).expect("another one");
    let value = "v".repeat(100_000);
    {
        let mut client = Follower::new(&nodes);
        keys.iter().for_each(|key| assert_eq!(client.call(&["SET", key, &value]), ok()));
    }
    for victim in [owner, target] {
        let to = nodes.id(target);
        let begun = nodes.client(owner).call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3 NODE {to}"));
        assert_eq!(begun, ok());
        let (mut source, mut other) = (nodes.client(owner), nodes.client(target));
        wait_until(
            || "some keys have arrived".into(),
            || other.call("DBSIZE") != Reply::Int(0) || last_migration(&mut source).0 == "success",
        );
        nodes.kill_and_restart(victim);
        nodes.wait_until_agreed(3);
        // Once: on the side that has the slots, whichever that is.
        let has = nodes.owner(0);
        let there = |port: u16| all_keys(&nodes, port).len();
        wait_until(
            || format!("{} and {} keys, the slots are with {has}", there(owner), there(target)),
            || there(has) == keys.len() && ports.iter().all(|port| *port == has || there(*port) == 0),
        );
        let mut client = Follower::new(&nodes);
        keys.iter().for_each(|key| assert_eq!(client.call(&["STRLEN", key]), Reply::Int(100_000)));
        if has == target {
            assert_eq!(migrate_slots(&nodes, target, owner, "0 3").0, "success");
        }
    }
    // One that is told to end, and one that cannot begin.
    let mut client = nodes.client(owner);
    let to = nodes.id(target);
    assert_eq!(client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3 NODE {to}")), ok());
    assert_eq!(client.call("CLUSTER CANCELSLOTMIGRATIONS"), ok());
    wait_until(
        || "it has ended".into(),
        || ["cancelled", "success"].contains(&&last_migration(&mut client).0[..]),
    );
    let own = nodes.id(owner);
    let refused = client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3 NODE {own}"));
    assert_eq!(refused, error("ERR the target of a migration is another node"));
    let unknown = client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3 NODE {}", "0".repeat(40)));
    assert_eq!(unknown, error(&format!("ERR Unknown node {}", "0".repeat(40))));
    let malformed = client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3 0 NODE {to}"));
    assert_eq!(malformed, error("ERR start slot number 3 is greater than end slot number 0"));
}

/// A node waits until another one has heard that it has slots now, and sends others to a third one: what is written meanwhile arrives, too.
#[test]
fn slots_are_sent_while_another_node_has_not_heard_of_what_it_got() {
    let mut nodes = Nodes::start(0, TIMEOUT);
    let mut ways = BTreeMap::new();
    for _ in 0..3 {
        let (port, bus_port) = (free_port(), free_port());
        let [way, bus_way] = [port, bus_port].map(Way::new);
        let [announced, bus_announced] = [&way, &bus_way].map(|way| way.port.to_string());
        let announced =
            ["--cluster-announce-port", &announced, "--cluster-announce-bus-port", &bus_announced];
        nodes.add_at(port, bus_port, &announced);
        ways.insert(port, (way, bus_way));
    }
    let ports = nodes.ports();
    let addresses: Vec<String> = ports.iter().map(|port| address(*port)).collect();
    redis_cli(&[&["create"], &addresses.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    nodes.wait_until_agreed(3);

    let from = *ports.iter().find(|port| ways[port].0.port == nodes.owner(0)).expect("it has an owner");
    let [first, second] = ports.into_iter().filter(|port| *port != from).collect::<Vec<_>>()[..] else {
        panic!("there are two others");
    };
    let keys = keys_in_first_slots(8, 5);
    let mut source = nodes.client(from);
    // What cannot be compressed.
    let mut rng = Rng(seed());
    let mut value = || (0..6000).map(|_| format!("{:016x}", rng.draw())).collect::<String>();
    keys.iter().for_each(|key| assert_eq!(source.call_args(&["SET", key, &value()]), ok()));
    // In the midst of its keys it stops.
    let send = |source: &mut Client, slots: &str, to: u16| {
        ways[&to].0.pass(500_000);
        let begin = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slots} NODE {}", nodes.id(to));
        assert_eq!(source.call(&begin), ok());
    };
    let log = || nodes.0[&from].log();
    send(&mut source, "0 3", first);
    wait_until(log, || ways[&first].0.is_held());
    ways[&first].1.pass(0);
    ways[&first].0.pass(u64::MAX);
    wait_until(log, || nodes.owner_by(from, 0) == ways[&first].0.port);

    send(&mut source, "4 7", second);
    let is_over = |number: u64| log().contains(&format!("transfer {number} of slots"));
    wait_until(log, || is_over(1) && ways[&second].0.is_held());
    assert!(!is_over(2), "{}", log());
    let mut new = value();
    new.insert_str(0, "new");
    for key in &keys[20..] {
        assert_eq!(source.call_args(&["SET", key, &new]), ok());
    }
    ways[&second].0.pass(u64::MAX);
    wait_until(log, || is_over(2));
    ways[&first].1.pass(u64::MAX);
    let mut target = nodes.client(second);
    for key in &keys[20..] {
        wait_until(log, || !is_error(&target.call(&format!("STRLEN {key}")), "MOVED "));
        assert!(target.call(&format!("GET {key}")) == bulk(&new), "{key} is old\n{}", log());
    }
}

#[test]
fn who_waits_for_a_key_is_sent_where_it_goes() {
    let nodes = Nodes::create(3);
    let (slot, key) = (5, key_in(5));
    let owner = nodes.owner(slot);
    let target = *nodes.ports().iter().find(|port| **port != owner).expect("another one");
    let mut waiter = nodes.client(owner);
    waiter.send(format!("BLPOP {key} 0\r\n").as_bytes());
    let mut client = nodes.client(owner);
    wait_until(|| "it waits".into(), || client.info("blocked_clients") == "1");
    assert_eq!(migrate_slots(&nodes, owner, target, "5 5").0, "success");
    assert_eq!(waiter.reply(), error(&format!("MOVED {slot} {}", address(target))));

    // And back key by key: who waits does so until the slot is the other node's.
    let mut waiter = nodes.client(target);
    waiter.send(format!("BLPOP {key} 0\r\n").as_bytes());
    let mut other = nodes.client(target);
    wait_until(|| "it waits".into(), || other.info("blocked_clients") == "1");
    let (from, to) = (nodes.id(target), nodes.id(owner));
    assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), ok());
    assert_eq!(other.call(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")), ok());
    assert!(is_error(&other.call(&format!("TYPE {key}")), &format!("ASK {slot} ")));
    assert_eq!(other.info("blocked_clients"), "1");
    assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), ok());
    assert_eq!(waiter.reply(), error(&format!("MOVED {slot} {}", address(owner))));
}

/// A client that was not told would wait for messages that go elsewhere.
#[test]
fn who_listens_to_a_channel_of_a_shard_is_told_that_its_slot_is_elsewhere() {
    let nodes = Nodes::create(3);
    let (slot, channel, other) = (5, key_in(5), key_in(6));
    let owner = nodes.owner(slot);
    let target = *nodes.ports().iter().find(|port| **port != owner).expect("another one");
    let (from, to) = (nodes.id(owner), nodes.id(target));
    let (mut client, mut away) = (nodes.client(owner), nodes.client(target));
    let push = |words: &[&str], count: i64| {
        let words = words.iter().map(|word| bulk(*word));
        Reply::Array(words.chain([Reply::Int(count)]).collect())
    };
    for by_keys in [true, false] {
        let mut listener = nodes.client(owner);
        for (count, channel) in [(1, &channel), (2, &other)] {
            let told = listener.call(&format!("SSUBSCRIBE {channel}"));
            assert_eq!(told, push(&["ssubscribe", channel], count));
        }
        if by_keys {
            assert_eq!(away.call(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), ok());
            assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")), ok());
            // Its channels are here until the slot is not.
            assert_eq!(client.call(&format!("SPUBLISH {channel} before")), Reply::Int(1));
            assert_eq!(listener.reply(), bulks(["smessage", &channel, "before"]));
            assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), ok());
        } else {
            assert_eq!(migrate_slots(&nodes, owner, target, "5 5").0, "success");
        }
        assert_eq!(listener.reply(), push(&["sunsubscribe", &channel], 1));
        assert_eq!(client.call(&format!("SPUBLISH {other} after")), Reply::Int(1));
        assert_eq!(listener.reply(), bulks(["smessage", &other, "after"]));
        let elsewhere = format!("MOVED {slot} {}", address(target));
        assert_eq!(listener.call(&format!("SSUBSCRIBE {channel}")), error(&elsewhere));
        assert_eq!(migrate_slots(&nodes, target, owner, "5 5").0, "success");
    }
}

#[test]
fn holdfast_cluster_makes_one_and_changes_it() {
    let mut nodes = Nodes::start(3, SHORT_TIMEOUT);
    let addresses: Vec<String> = nodes.ports().into_iter().map(address).collect();
    let node = |index: usize| &addresses[index][..];
    let (made, text) = holdfast_cluster(&["create", node(0), node(1), node(2)]);
    assert!(made && text.contains("ok: a cluster of 3 nodes"), "{text}");
    let (again, text) = holdfast_cluster(&["create", node(0), node(1), node(2)]);
    assert!(!again && text.contains("is a node of a cluster already"), "{text}");
    nodes.wait_until_agreed(3);
    {
        let mut client = Follower::new(&nodes);
        (0..300).for_each(|number| assert_eq!(client.call(&["SET", &format!("key:{number}"), "1"]), ok()));
    }
    let (is_well, text) = holdfast_cluster(&["status", node(1)]);
    assert!(is_well && text.contains("ok: all slots are served"), "{text}");
    assert!(addresses.iter().all(|address| text.contains(address)), "{text}");

    let added = nodes.add();
    let (is_added, text) = holdfast_cluster(&["add", node(0), &address(added)]);
    assert!(is_added, "{text}");
    let (is_balanced, text) = holdfast_cluster(&["balance", node(0)]);
    assert!(is_balanced && text.contains("ok: 4096 slots were moved"), "{text}");
    let sizes = |nodes: &Nodes| -> u64 {
        let keys = |port: &u16| number(&nodes.client(*port).call("DBSIZE")).expect("a number");
        nodes.0.keys().map(keys).sum()
    };
    wait_until(|| "each key is on one node".into(), || sizes(&nodes) == 300);
    let name = nodes.id(added);
    let (is_moved, text) =
        holdfast_cluster(&["move", node(0), "--from", node(0), "--to", &name[..12], "--slots", "96"]);
    assert!(is_moved, "{text}");
    let (is_removed, text) = holdfast_cluster(&["remove", node(1), &address(added)]);
    assert!(is_removed && text.contains("is no node of the cluster any more"), "{text}");
    assert_eq!(text.matches("slots ").count(), 3, "each of the others gets a share\n{text}");
    wait_until(
        || "all keys are with the others".into(),
        || nodes.client(added).call("DBSIZE") == Reply::Int(0),
    );
    nodes.0.remove(&added).expect("it is there").kill();
    {
        let mut client = Follower::new(&nodes);
        (0..300).for_each(|number| assert_eq!(client.call(&["GET", &format!("key:{number}")]), bulk("1")));
    }
    // What is wrong is told.
    let (is_known, text) = holdfast_cluster(&["move", node(0), "--from", "nobody", "--to", node(1)]);
    assert!(!is_known && text.contains("there is no node nobody"), "{text}");
    let ports = nodes.ports();
    let stopped = *ports.iter().find(|port| address(**port) != node(0)).expect("another one");
    nodes.0[&stopped].signal("STOP");
    let mut watcher = nodes.client(addresses[0].rsplit(':').next().expect("a port").parse().expect("a port"));
    // If it has led, the others choose another leader first.
    wait_until(|| "the node has failed".into(), || failed_nodes(&mut watcher) == 1);
    // It would wait long for the answer of the one that is stopped.
    nodes.0.remove(&stopped).expect("it is there").kill();
    let (is_well, text) = holdfast_cluster(&["status", node(0)]);
    assert!(
        !is_well && text.contains("is not heard of") && text.contains("which nobody serves until it is back"),
        "{text}"
    );
}

#[test]
fn clients_are_told_of_nodes_by_address_by_name_or_not_at_all() {
    let nodes = Nodes::create_with(3, TIMEOUT);
    let ports = nodes.ports();
    let (first, named, nameless) = (ports[0], ports[1], ports[2]);
    let mut client = nodes.client(first);
    let set = |port: u16, option: &str| nodes.client(port).call(&format!("CONFIG SET {option}"));
    assert_eq!(set(named, "cluster-announce-hostname node.example"), ok());
    for (name, why) in [("a_b", "may only contain"), (&"a".repeat(256), "must be less than 256")] {
        let refused = set(named, &format!("cluster-announce-hostname {name}"));
        assert!(show(&refused).contains(&format!("Hostnames {why}")), "{}", show(&refused));
    }
    let line = format!("127.0.0.1:{named}@");
    let nodes_text = |client: &mut Client| text(&client.call("CLUSTER NODES"));
    wait_until(
        || format!("a name: {}", nodes_text(&mut nodes.client(first))),
        || {
            let nodes = nodes_text(&mut client);
            let line = nodes.lines().find(|it| it.contains(&line)).expect("it is known");
            line.split(' ').nth(1).is_some_and(|place| place.ends_with(",node.example"))
        },
    );
    let (ip, name) = (bulks(["ip", "127.0.0.1"]), bulks(["hostname", "node.example"]));
    let both = bulks(["ip", "127.0.0.1", "hostname", "node.example"]);
    let none = || Reply::Array(Vec::new());
    let host = || bulk("127.0.0.1");
    for (preferred, of_named, of_nameless) in [
        ("hostname", (bulk("node.example"), "node.example", ip.clone()), (bulk("?"), "?", ip.clone())),
        ("unknown-endpoint", (Reply::Null, "", both), (Reply::Null, "", ip)),
        ("ip", (host(), "127.0.0.1", name), (host(), "127.0.0.1", none())),
    ] {
        assert_eq!(set(first, &format!("cluster-preferred-endpoint-type {preferred}")), ok());
        for (port, (shown, word, besides)) in [(named, of_named), (nameless, of_nameless)] {
            let slots = |client: &mut Client| {
                let slots = client.call("CLUSTER SLOTS");
                let row = items(&slots).iter().map(|row| items(row).to_vec());
                let mut row = row.filter(|row| items(&row[2])[1] == Reply::Int(port.into()));
                row.next().expect("it has slots")
            };
            wait_until(
                || format!("{preferred} of {port}"),
                || {
                    let node = items(&slots(&mut client)[2]).to_vec();
                    node[0] == shown && node[3] == besides
                },
            );
            let [Reply::Int(from), Reply::Int(to), ..] = slots(&mut client)[..] else { panic!("a range") };
            let is_there = |key: &String| (from..=to).contains(&hash_slot(key.as_bytes()).into());
            let key = (0..).map(|n| format!("key:{n}")).find(is_there).expect("there are many");
            let moved = client.call(&format!("GET {key}"));
            let expected = format!("MOVED {} {word}:{port}", hash_slot(key.as_bytes()));
            assert!(is_error(&moved, &expected), "{preferred}: {}", show(&moved));
            let shards = show(&client.call("CLUSTER SHARDS"));
            assert!(preferred != "hostname" || shards.contains("node.example"), "{shards}");
        }
    }
}

#[test]
fn nodes_are_told_another_address_and_another_timeout_while_they_serve() {
    let nodes = Nodes::create_with(3, "600000");
    let [first, second, _] = nodes.ports()[..] else { unreachable!("there are three") };
    let mut client = nodes.client(first);
    let told = |port: u16, what: &str| text(&nodes.client(port).call("CLUSTER NODES")).contains(what);
    for (option, value, shown) in [
        ("cluster-announce-ip", "localhost", format!("localhost:{first}@")),
        ("cluster-announce-port", "7", "localhost:7@".to_owned()),
        ("cluster-announce-ip", "127.0.0.1", "127.0.0.1:7@".to_owned()),
        ("cluster-announce-port", "0", format!("127.0.0.1:{first}@")),
    ] {
        assert_eq!(client.call(&format!("CONFIG SET {option} {value}")), ok());
        wait_until(|| format!("{second} is told {shown}"), || told(second, &shown));
    }
    for port in nodes.ports() {
        assert_eq!(
            nodes.client(port).call(&format!("CONFIG SET cluster-node-timeout {SHORT_TIMEOUT}")),
            ok()
        );
    }
    nodes.0[&first].signal("STOP");
    wait_until(|| format!("{second} says that {first} has failed"), || told(second, "fail"));
}

/// It has another number then than before, and sent clients to itself until it knew which.
#[test]
fn a_node_with_slots_that_joins_another_one_sends_nobody_to_itself() {
    let nodes = Nodes::start(2, TIMEOUT);
    let [first, second] = nodes.ports()[..] else { unreachable!("there are two") };
    let mut client = nodes.client(first);
    assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
    wait_until(|| "it is served".into(), || client.call("SET a 1") == ok());
    let mut listener = nodes.client(first);
    listener.send(b"SSUBSCRIBE a\r\n");
    assert_eq!(items(&listener.reply())[2], Reply::Int(1));
    let line = text(&nodes.client(second).call("CLUSTER NODES"));
    let bus_port = line.split(['@', ' ']).nth(2).expect("where it listens");
    assert_eq!(client.call(&format!("CLUSTER MEET 127.0.0.1 {second} {bus_port}")), ok());
    let is_known = |client: &mut Client| text(&client.call("CLUSTER NODES")).contains("127.0.0.1");
    while !is_known(&mut client) {
        let reply = client.call("SET a 1");
        assert!(reply == ok() || is_error(&reply, "CLUSTERDOWN "), "{}", show(&reply));
    }
    wait_until(|| "it is served again".into(), || client.call("SET a 1") == ok());
    assert_eq!(client.call("SPUBLISH a message"), Reply::Int(1));
    assert_eq!(listener.reply(), bulks(["smessage", "a", "message"]));
}

/// As with Redis, where a node that meets another one takes orders at once: also those to meet more.
#[test]
fn orders_to_a_node_that_joins_are_carried_out_once_it_has() {
    let bus_port = |nodes: &Nodes, port| {
        let line = text(&nodes.client(port).call("CLUSTER NODES"));
        line.split(['@', ' ']).nth(2).expect("where it listens").to_owned()
    };
    let slots = ["0 5460", "5461 10922", "10923 16383"];
    for meets_all in [true, false] {
        let nodes = Nodes::start(3, TIMEOUT);
        let ports = nodes.ports();
        for other in &ports[1..] {
            let (from, to) = if meets_all { (ports[0], *other) } else { (*other, ports[0]) };
            let meet = format!("CLUSTER MEET 127.0.0.1 {to} {}", bus_port(&nodes, to));
            assert_eq!(nodes.client(from).call(&meet), ok());
        }
        for (port, slots) in ports.iter().zip(slots) {
            assert_eq!(nodes.client(*port).call(&format!("CLUSTER ADDSLOTSRANGE {slots}")), ok());
        }
        nodes.wait_until_agreed(3);
    }
}

/// As redis-cli does it to mend slots. What waits for the others' decision was a crash within EXEC, and within a script.
#[test]
fn the_cluster_is_changed_within_multi_and_not_by_scripts() {
    let nodes = Nodes::create(3);
    let owner = nodes.owner(5);
    let mut client = nodes.client(owner);
    let bumped = |client: &mut Client| {
        let info = info(client);
        let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_my_epoch:")).expect("the line");
        Reply::Simple(format!("BUMPED {}", epoch.trim()).into_bytes())
    };
    let before = bumped(&mut client);
    let queue = [
        "CLUSTER DELSLOTS 5",
        "CLUSTER ADDSLOTS 5",
        "CLUSTER SETSLOT 5 STABLE",
        "CLUSTER DELSLOTS 5 5",
        "CLUSTER BUMPEPOCH",
    ];
    let run = |client: &mut Client, queue: &[&str]| {
        assert_eq!(client.call("MULTI"), ok());
        for command in queue {
            assert_eq!(client.call(command), Reply::Simple(b"QUEUED".to_vec()), "{command}");
        }
        client.call("EXEC")
    };
    let twice = error("ERR Slot 5 specified multiple times");
    let replies = run(&mut client, &queue);
    assert_eq!(replies, array([ok(), ok(), ok(), twice, bumped(&mut client)]));
    assert!(nodes.owner(5) == owner && bumped(&mut client) != before);
    // What was read before is read again; what was written, or told to the server, is not undone.
    let key = key_in(5);
    let (set, get) = (format!("SET {key} 1"), format!("GET {key}"));
    let replies = run(&mut client, &["CLUSTER BUMPEPOCH", &set]);
    assert_eq!(replies, array([bumped(&mut client), ok()]));
    let Reply::Array(replies) =
        run(&mut client, &[&get, "CLUSTER SETSLOT 5 STABLE", &set, "CLUSTER SETSLOT 5 STABLE"])
    else {
        panic!("an array")
    };
    assert_eq!(replies[..3], [bulk("1"), ok(), ok()]);
    assert!(is_error(&replies[3], "ERR within MULTI what changes the cluster comes before"), "{replies:?}");
    // A later one knows nothing of what came of an earlier one.
    assert_eq!(run(&mut client, &["CLUSTER ADDSLOTS 5"]), array([error("ERR Slot 5 is already busy")]));
    let script = client.call_args(&["EVAL", "return redis.call('cluster', 'bumpepoch')", "0"]);
    assert!(is_error(&script, "ERR scripts do not change the cluster"), "{script:?}");
    assert!(is_error(
        &items(&run(&mut client, &["EVAL return(redis.call('cluster','flushslots')) 0"]))[0],
        "ERR"
    ));
    for (command, name) in [("ADDSLOTSRANGE 1 2 3", "addslotsrange"), ("DELSLOTSRANGE 1", "delslotsrange")] {
        let arity = error(&format!("ERR wrong number of arguments for 'cluster|{name}' command"));
        assert_eq!(client.call(&format!("CLUSTER {command}")), arity);
    }
}

/// FLUSHALL puts another database in the place of the one that it empties later.
#[test]
fn keys_of_slots_are_those_that_came_after_a_flush() {
    let bus_port = free_port().to_string();
    let server = Server::start(&["--cluster-enabled", "yes", "--cluster-port", &bus_port]);
    let mut client = server.client();
    assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
    wait_until(|| "it serves".into(), || client.call("SET before 1") == ok());
    let slot = |key: &str| hash_slot(key.as_bytes());
    for round in 0..4 {
        let key = format!("key:{round}");
        assert_eq!(client.call("FLUSHALL"), ok());
        assert_eq!(client.call("CLUSTER FLUSHSLOTS"), ok());
        assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
        wait_until(|| "it serves".into(), || client.call(&format!("SET {key} 1")) == ok());
        assert_eq!(client.call(&format!("CLUSTER COUNTKEYSINSLOT {}", slot(&key))), Reply::Int(1));
        assert_eq!(client.call(&format!("CLUSTER GETKEYSINSLOT {} 10", slot(&key))), bulks([&key]));
        assert_eq!(client.call(&format!("CLUSTER COUNTKEYSINSLOT {}", slot("before"))), Reply::Int(0));
        assert!(is_error(&client.call("CLUSTER FLUSHSLOTS"), "ERR DB must be empty"));
        assert!(is_error(&client.call("CLUSTER RESET"), "ERR CLUSTER RESET can't be called"));
    }
}

/// Each command with any arguments, where it must not wait: in EXEC, in a script, and in a script in EXEC.
#[test]
fn no_command_ends_a_node_in_exec_or_in_a_script() {
    /// They end the server, the connection or its replies, or make it another one.
    const LEFT_OUT: &str = " shutdown debug debug|sleep debug|restart debug|segfault debug|panic monitor subscribe psubscribe \
        ssubscribe quit reset client|kill client|pause client|reply replicaof slaveof sync psync hello multi exec discard watch ";
    const WORDS: [&str; 17] = [
        "0", "1", "a", "b", "-1", "{a}1", "100", "x", "*", "$", ">", "NODE", "STREAMS", "COUNT", "LIMIT",
        "on", "1000",
    ];
    const SCRIPT: &str = "return redis.pcall(unpack(ARGV))";
    let mut random = Rng(seed());
    let bus_port = free_port().to_string();
    let options = ["--cluster-enabled", "yes", "--cluster-port", &bus_port, "--cluster-node-timeout", "1000"];
    let (node, _) = Server::start_with_port(&options);
    let mut client = node.client();
    let connect = |after: &str| {
        Client::connect(&node.folder().join("socket")).unwrap_or_else(|e| panic!("{after}: {e}"))
    };
    let serve = |client: &mut Client| {
        assert_eq!(client.call("FLUSHALL"), ok());
        // It may have been told to forget some slots, and all are given out together only if none of them is; and it may have been told to
        // join others, which it gives up.
        wait_until(|| "slots are taken away".into(), || client.call("CLUSTER FLUSHSLOTS") == ok());
        assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
        wait_until(|| "it serves".into(), || client.call("SET {a} 1") == ok());
    };
    serve(&mut client);
    let containers = client.call("COMMAND LIST");
    let mut names: Vec<String> = items(&containers).iter().map(text).collect();
    names.sort();
    for container in names.clone() {
        let info = client.call(&format!("COMMAND INFO {container}"));
        let subcommands = items(&items(&info)[0])[9].clone();
        names.extend(items(&subcommands).iter().map(|row| text(&items(row)[0])));
    }
    assert!(names.len() > 300, "{names:?}");
    for name in names.iter().filter(|name| !LEFT_OUT.contains(&format!(" {name} "))) {
        for _ in 0..8 {
            let mut command: Vec<&str> = name.split('|').collect();
            command.extend((0..random.below(8)).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]));
            let script = [&["EVAL", SCRIPT, "0"], &command[..]].concat();
            let calls: Vec<Vec<&str>> = match random.below(3) {
                0 => vec![vec!["MULTI"], command.clone(), vec!["EXEC"]],
                1 => vec![script],
                _ => vec![vec!["MULTI"], script, vec!["EXEC"]],
            };
            // It may close the connection, or leave replies there: the next one takes another.
            let mut caller = connect("");
            let _ = calls.iter().all(|call| {
                let mut out = Vec::new();
                write_command(&mut out, call);
                caller.try_send(&out).is_ok() && caller.try_reply().is_some()
            });
            let mut next = connect(&format!("{calls:?}"));
            assert_eq!(next.call("PING"), Reply::Simple("PONG".into()), "{calls:?}");
        }
    }
    serve(&mut client);
}
