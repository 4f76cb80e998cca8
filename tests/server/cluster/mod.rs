//! Servers as the nodes of a cluster: made and changed by `redis-cli --cluster`, with redirections in Redis's words; slots that move
//! under load, and nodes that are killed, stopped and started again.

mod clients;
pub mod faults;
mod members;
mod moves;

use crate::harness::{
    self, Client, Server, Way, bulk, by_ways, free_port, is_error, items, number, ok, redis_cli, show, text,
    wait_until,
};
use holdfast_resp::Reply;
use holdfast_store::hash_slot;
use std::{
    collections::BTreeMap,
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
        let mut nodes = Nodes(BTreeMap::new(), timeout);
        (0..count).for_each(|_| nodes.add_at(free_port(), free_port(), &[]));
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
        let nodes = Nodes::start(count, timeout);
        nodes.join();
        nodes
    }

    /// The same with more options, of which each is reached by others on a way: the ways, and the nodes' ports in the same order.
    pub fn create_with_ways<'o>(
        count: usize,
        timeout: &'static str,
        mut options: impl FnMut() -> Vec<&'o str>,
    ) -> (Nodes, Vec<Way>, Vec<u16>) {
        let mut nodes = Nodes(BTreeMap::new(), timeout);
        let (mut ways, mut ports) = (Vec::new(), Vec::new());
        for at in 0..count {
            let (port, bus_port) = (free_port(), free_port());
            let way = Way::new(bus_port);
            let announced = way.port.to_string();
            let by_ways = by_ways(at);
            let mut more = options();
            more.extend(["--cluster-announce-bus-port", &announced]);
            more.extend(by_ways.iter().map(String::as_str));
            nodes.add_at(port, bus_port, &more);
            ways.push(way);
            ports.push(port);
        }
        nodes.join();
        (nodes, ways, ports)
    }

    /// Has `redis-cli` make them a cluster.
    fn join(&self) {
        let addresses: Vec<String> = self.ports().into_iter().map(address).collect();
        let mut args = vec!["create"];
        args.extend(addresses.iter().map(String::as_str));
        redis_cli(&args);
        self.wait_until_agreed(addresses.len());
    }

    pub fn ports(&self) -> Vec<u16> {
        self.0.keys().copied().collect()
    }

    pub fn client(&self, port: u16) -> Client {
        self.0[&port].client()
    }

    /// Waits until each node knows so many, and that all slots are served.
    fn wait_until_agreed(&self, count: usize) {
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

    fn id(&self, port: u16) -> String {
        text(&self.client(port).call("CLUSTER MYID"))
    }

    /// The node that owns a slot.
    fn owner(&self, slot: u16) -> u16 {
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
