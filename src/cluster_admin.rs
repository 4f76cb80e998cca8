//! `holdfast cluster`: makes a cluster of servers that run, tells how it is, and changes it. What it says to the nodes are commands that
//! operators could say themselves.

use crate::import::{Address, Connection, Login, Secure};
use crate::util::console::outln;
use holdfast_cluster::{SLOTS, Slots};
use holdfast_resp::Reply;
use std::{
    collections::BTreeSet,
    fmt::Write,
    io, thread,
    time::{Duration, Instant},
};

/// How long a node may be silent.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long nodes may take to agree.
const AGREEMENT: Duration = Duration::from_secs(60);
/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(100);
/// Digits of a node's name that are shown.
const SHOWN: usize = 8;

/// What is to be done.
pub enum Task {
    /// Make a cluster of these servers.
    Create(Vec<Address>),
    /// Tell how the cluster is.
    Status,
    /// Take in a server.
    Add(Address),
    /// Give a node's slots to the others, and leave it out.
    Remove(String),
    /// Give slots of a node to another one.
    Move {
        /// From whom.
        from: String,
        /// To whom.
        to: String,
        /// How many; `None`: all.
        count: Option<usize>,
    },
    /// Give each node as many slots as any other.
    Balance,
}

/// A call of `holdfast cluster`.
pub struct Request {
    /// What is to be done.
    pub task: Task,
    /// A node of the cluster; of no meaning where one is made.
    pub address: Address,
    /// Who asks.
    pub login: Login,
    /// How to connect by TLS, if so.
    pub secure: Option<Secure>,
}

/// A node, as another one tells of it.
#[derive(Clone)]
struct Node {
    name: String,
    host: String,
    port: u16,
    bus_port: u16,
    has_failed: bool,
    /// The name of the one that leads its replica set, if that is another one.
    master: Option<String>,
    slots: Slots,
}

/// A cluster, as a node tells of it.
struct View {
    nodes: Vec<Node>,
    /// The fields of CLUSTER INFO.
    info: Vec<(String, String)>,
}

/// Does it, and prints what was done; the error says what could not be.
pub fn run(request: &Request) -> Result<(), String> {
    let admin = Admin { login: &request.login, secure: request.secure.as_ref() };
    match &request.task {
        Task::Create(addresses) => admin.create(addresses),
        Task::Status => admin.status(&request.address),
        Task::Add(new) => admin.add(&request.address, new),
        Task::Remove(name) => admin.remove(&request.address, name),
        Task::Move { from, to, count } => {
            let view = admin.view(&request.address)?;
            let (from, to) = (view.find(from)?, view.find(to)?);
            let count = count.unwrap_or(from.slots.len());
            if count == 0 || count > from.slots.len() {
                return Err(format!("node {} has {} slots", from.shown(), from.slots.len()));
            }
            admin.give(from, to, &first_of(&from.slots, count))
        }
        Task::Balance => admin.balance(&request.address),
    }
}

struct Admin<'r> {
    login: &'r Login,
    secure: Option<&'r Secure>,
}

impl Admin<'_> {
    fn connect(&self, address: &Address) -> Result<Connection, String> {
        let connection = address.connect(PATIENCE).and_then(|connection| connection.log_in(self.login));
        connection.map_err(|e| format!("{address}: {e}"))
    }

    fn connect_to(&self, node: &Node) -> Result<Connection, String> {
        let address = Address::Tcp(node.host.clone(), node.port);
        self.connect(&self.secure.map_or(address.clone(), |secure| address.secured(secure.clone())))
    }

    fn view(&self, address: &Address) -> Result<View, String> {
        View::ask(&mut self.connect(address)?).map_err(|e| format!("{address}: {e}"))
    }

    fn create(&self, addresses: &[Address]) -> Result<(), String> {
        let mut nodes = Vec::new();
        let mut are_sets = true;
        for address in addresses {
            let mut connection = self.connect(address)?;
            let view = View::ask(&mut connection).map_err(|e| format!("{address}: {e}"))?;
            let mut ask = |words: &[&[u8]]| connection.call(words).map_err(|e| format!("{address}: {e}"));
            if matches!(ask(&[b"ROLE"])?, Reply::Array(role) if role[0].as_bytes() == Some(b"slave")) {
                return Err(format!("{address} does not lead its replica set: name the server that does"));
            }
            are_sets &= ask(&[b"CLUSTER", b"MYSHARDID"])? != ask(&[b"CLUSTER", b"MYID"])?;
            let keys = ask(&[b"DBSIZE"])?;
            match &view.nodes[..] {
                [own] if own.slots.is_empty() && keys == Reply::Int(0) => {
                    nodes.push((own.clone(), connection))
                }
                [_] => return Err(format!("{address} has slots or keys already")),
                _ => return Err(format!("{address} is a node of a cluster already")),
            }
        }
        if nodes.len() < 3 && !are_sets {
            return Err("a cluster has three nodes at least: with two, none could be missing".into());
        }
        let names: Vec<String> = nodes.iter().map(|(node, _)| node.name.clone()).collect();
        let (count, place) = (nodes.len(), |node: &Node, address: &Address| {
            // A node that is alone may not know by which host it is reached.
            let host = match address {
                Address::Tcp(host, _) | Address::Tls(host, ..) if node.host.is_empty() => host.clone(),
                _ => node.host.clone(),
            };
            [host, node.port.to_string(), node.bus_port.to_string()]
        });
        let first = place(&nodes[0].0, &addresses[0]);
        for (index, (_, connection)) in nodes.iter_mut().enumerate() {
            let range = (index * SLOTS / count, (index + 1) * SLOTS / count - 1);
            let (from, to) = (range.0.to_string(), range.1.to_string());
            let failed = |e: io::Error| format!("{}: {e}", addresses[index]);
            connection
                .call(&[b"CLUSTER", b"ADDSLOTSRANGE", from.as_bytes(), to.as_bytes()])
                .map_err(failed)?;
            if index > 0 {
                let [host, port, bus_port] = first.each_ref().map(|part| part.as_bytes());
                connection.call(&[b"CLUSTER", b"MEET", host, port, bus_port]).map_err(failed)?;
                self.wait_until_known(&addresses[0], &names[..=index], false)?;
            }
            outln!("{}: slots {from}-{to}", addresses[index]);
        }
        for address in addresses {
            self.wait_until_known(address, &names, true)?;
        }
        outln!("ok: a cluster of {count} nodes");
        Ok(())
    }

    /// Waits until a node knows those of these names, answers, and, if that is waited for, takes all slots for served.
    fn wait_until_known(&self, address: &Address, names: &[String], served: bool) -> Result<(), String> {
        let deadline = Instant::now() + AGREEMENT;
        loop {
            let view = self.view(address)?;
            let known = names.iter().filter(|name| view.nodes.iter().any(|node| node.name == **name)).count();
            let is_reached = known == names.len() && view.field("cluster_majority") == "reachable";
            if is_reached && (!served || view.field("cluster_state") == "ok") {
                return Ok(());
            }
            if Instant::now() > deadline {
                if is_reached {
                    return Err(format!("{address} does not take all slots for served"));
                }
                let reached =
                    "the nodes do not hear of each other: can each reach the port for nodes of the others?";
                return Err(format!("{address} knows {known} of {} nodes. {reached}", names.len()));
            }
            thread::sleep(LOOK);
        }
    }

    fn status(&self, address: &Address) -> Result<(), String> {
        let view = self.view(address)?;
        outln!("{:SHOWN$}  {:21}  {:>6}  {:>10}  slots", "node", "address", "slots", "keys");
        for node in &view.nodes {
            let keys = match node.master {
                // Whoever leads it tells.
                Some(_) => "-".to_owned(),
                None => match self
                    .connect_to(node)
                    .and_then(|mut it| it.call(&[b"DBSIZE"]).map_err(|e| e.to_string()))
                {
                    Ok(Reply::Int(keys)) => keys.to_string(),
                    _ => "?".to_owned(),
                },
            };
            let of = |master: &String| format!("replica of {}", &master[..SHOWN.min(master.len())]);
            let role = node.master.as_ref().map(of).unwrap_or_default();
            let state = if node.has_failed { "  (not heard of)" } else { "" };
            let (shown, place) = (node.shown(), format!("{}:{}", node.host, node.port));
            outln!(
                "{shown:SHOWN$}  {place:21}  {:>6}  {keys:>10}  {}{role}{state}",
                node.slots.len(),
                node.slots
            );
        }
        let problems = view.problems();
        problems.iter().for_each(|problem| outln!("{problem}"));
        match view.field("cluster_state") {
            "ok" => {
                outln!("ok: all slots are served");
                Ok(())
            }
            _ => Err("the cluster does not serve all keys".into()),
        }
    }

    fn add(&self, address: &Address, new: &Address) -> Result<(), String> {
        let (view, mut connection) = (self.view(address)?, self.connect(new)?);
        let alone = View::ask(&mut connection).map_err(|e| format!("{new}: {e}"))?;
        if alone.nodes.len() > 1 {
            return Err(format!("{new} is a node of a cluster already"));
        }
        let known =
            view.nodes.iter().find(|node| !node.has_failed).ok_or("no node of the cluster is heard of")?;
        let (port, bus_port) = (known.port.to_string(), known.bus_port.to_string());
        connection
            .call(&[b"CLUSTER", b"MEET", known.host.as_bytes(), port.as_bytes(), bus_port.as_bytes()])
            .map_err(|e| format!("{new}: {e}"))?;
        let own = alone.nodes.iter().map(|node| node.name.clone());
        let names: Vec<String> = view.nodes.iter().map(|node| node.name.clone()).chain(own).collect();
        let is_served = view.field("cluster_state") == "ok";
        self.wait_until_known(address, &names, is_served)?;
        self.wait_until_known(new, &names, is_served)?;
        outln!("ok: {new} is a node; it has no slots yet, see holdfast cluster balance");
        Ok(())
    }

    fn remove(&self, address: &Address, name: &str) -> Result<(), String> {
        let view = self.view(address)?;
        let gone = view.find(name)?;
        if let Some(master) = &gone.master {
            return Err(format!(
                "{} is a replica of {}: REPLICASET REMOVE it there, or remove that with all its replicas",
                gone.shown(),
                &master[..SHOWN.min(master.len())]
            ));
        }
        let can_have_slots =
            |node: &&Node| node.name != gone.name && !node.has_failed && node.master.is_none();
        let rest: Vec<&Node> = view.nodes.iter().filter(can_have_slots).collect();
        if rest.is_empty() {
            return Err("it is the only node that is heard of".into());
        }
        if gone.has_failed && !gone.slots.is_empty() {
            return Err(format!(
                "{} has slots {}, and is not heard of: with it their keys would go. Start it, or say CLUSTER FORGET",
                gone.shown(),
                gone.slots
            ));
        }
        let mut left = gone.slots.clone();
        for (index, to) in rest.iter().enumerate() {
            let share = first_of(&left, left.len() / (rest.len() - index));
            left = without(&left, &share);
            if !share.is_empty() {
                self.give(gone, to, &share)?;
            }
        }
        // It first: its replicas are where it is.
        let is_its = |node: &&Node| node.master.as_ref() == Some(&gone.name);
        for node in [gone].into_iter().chain(view.nodes.iter().filter(is_its)) {
            self.leave_out(node, rest[0])?;
        }
        outln!("ok: {} is no node of the cluster any more", gone.shown());
        Ok(())
    }

    /// Has a node that has no slots be forgotten by all others, which one of them is told, and found a cluster of its own.
    fn leave_out(&self, gone: &Node, told: &Node) -> Result<(), String> {
        let failed = |e: io::Error| format!("{}:{}: {e}", told.host, told.port);
        self.connect_to(told)?.call(&[b"CLUSTER", b"FORGET", gone.name.as_bytes()]).map_err(failed)?;
        if !gone.has_failed {
            // It founds a cluster of its own; where it still removes keys that it has given away, later.
            let deadline = Instant::now() + AGREEMENT;
            let mut connection = match self.connect_to(gone) {
                Ok(connection) => connection,
                Err(error) => {
                    outln!("{} is forgotten, but not reset: {error}", gone.shown());
                    return Ok(());
                }
            };
            while let Err(error) = connection.call(&[b"CLUSTER", b"RESET"]) {
                if Instant::now() > deadline {
                    return Err(format!("{} is forgotten, but not reset: {error}", gone.shown()));
                }
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    fn balance(&self, address: &Address) -> Result<(), String> {
        let view = self.view(address)?;
        if let Some(node) = view.nodes.iter().find(|node| node.has_failed) {
            return Err(format!("node {} is not heard of", node.shown()));
        }
        let mut nodes: Vec<Node> = view.nodes.iter().filter(|node| node.master.is_none()).cloned().collect();
        let (share, more) = (SLOTS / nodes.len(), SLOTS % nodes.len());
        // Who has most keeps one more, where they cannot all have as many.
        nodes.sort_by_key(|node| std::cmp::Reverse(node.slots.len()));
        let wanted: Vec<usize> = (0..nodes.len()).map(|index| share + usize::from(index < more)).collect();
        let mut moved = 0;
        for from in 0..nodes.len() {
            for to in (0..nodes.len()).rev() {
                let surplus = nodes[from].slots.len().saturating_sub(wanted[from]);
                let missing = wanted[to].saturating_sub(nodes[to].slots.len());
                let slots = first_of(&nodes[from].slots, surplus.min(missing));
                if !slots.is_empty() {
                    self.give(&nodes[from], &nodes[to], &slots)?;
                    moved += slots.len();
                    nodes[from].slots = without(&nodes[from].slots, &slots);
                    nodes[to].slots = Slots::collect(merged(&nodes[to].slots, &slots).into_iter());
                }
            }
        }
        outln!("ok: {moved} slots were moved");
        Ok(())
    }

    /// Has slots move as a whole, and waits for it.
    fn give(&self, from: &Node, to: &Node, slots: &Slots) -> Result<(), String> {
        outln!("slots {slots} from {} to {} ...", from.shown(), to.shown());
        let mut connection = self.connect_to(from)?;
        let mut command = vec![b"CLUSTER".to_vec(), b"MIGRATESLOTS".to_vec(), b"SLOTSRANGE".to_vec()];
        for range in &slots.0 {
            command.push(range.start().to_string().into_bytes());
            command.push(range.end().to_string().into_bytes());
        }
        command.extend([b"NODE".to_vec(), to.name.clone().into_bytes()]);
        let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let failed = |e: io::Error| format!("{}:{}: {e}", from.host, from.port);
        // The receiver may still remove what it had of them before.
        let deadline = Instant::now() + AGREEMENT;
        while let Err(error) = connection.call(&command) {
            if !error.to_string().contains("try again") || Instant::now() > deadline {
                return Err(failed(error));
            }
            thread::sleep(LOOK);
        }
        loop {
            let all = connection.call(&[b"CLUSTER", b"GETSLOTMIGRATIONS"]).map_err(failed)?;
            let (state, message) = last_export(&all).ok_or("the node does not know of it any more")?;
            match &state[..] {
                "success" => return Ok(()),
                "failed" | "cancelled" => return Err(format!("the slots stay where they are: {message}")),
                _ => thread::sleep(LOOK),
            }
        }
    }
}

/// State and message of the last migration that a node has begun.
fn last_export(reply: &Reply) -> Option<(String, String)> {
    let Reply::Array(all) = reply else { return None };
    let fields = |one: &Reply| -> Vec<String> {
        let Reply::Array(parts) = one else { return Vec::new() };
        parts
            .iter()
            .map(|part| String::from_utf8_lossy(part.as_bytes().unwrap_or_default()).into_owned())
            .collect()
    };
    let value = |fields: &[String], name: &str| {
        fields.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
    };
    let mut exports = all.iter().map(fields).filter(|it| value(it, "operation").as_deref() == Some("EXPORT"));
    let last = exports.next_back()?;
    Some((value(&last, "state")?, value(&last, "message")?))
}

fn first_of(slots: &Slots, count: usize) -> Slots {
    Slots::collect(slots.iter().take(count))
}

fn without(slots: &Slots, less: &Slots) -> Slots {
    Slots::collect(slots.iter().filter(|slot| !less.contains(*slot)))
}

fn merged(slots: &Slots, more: &Slots) -> BTreeSet<u16> {
    slots.iter().chain(more.iter()).collect()
}

impl Node {
    /// A line of CLUSTER NODES.
    fn parse(line: &str) -> Option<Node> {
        let mut words = line.split_ascii_whitespace();
        let (name, place, flags, master) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let (host_and_port, bus_port) = place.rsplit_once('@')?;
        let (host, port) = host_and_port.rsplit_once(':')?;
        let ranges = words.skip(4).filter(|word| !word.starts_with('['));
        let mut slots = Vec::new();
        for range in ranges {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            slots.push(first.parse().ok()?..=last.parse().ok()?);
        }
        Some(Node {
            name: name.to_owned(),
            host: host.to_owned(),
            port: port.parse().ok()?,
            bus_port: bus_port.split(',').next()?.parse().ok()?,
            has_failed: flags.split(',').any(|flag| flag == "fail"),
            master: (master != "-").then(|| master.to_owned()),
            slots: Slots(slots),
        })
    }

    fn shown(&self) -> &str {
        &self.name[..SHOWN.min(self.name.len())]
    }
}

impl View {
    fn ask(connection: &mut Connection) -> io::Result<View> {
        let text = |reply: Reply| String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
        let nodes = text(connection.call(&[b"CLUSTER", b"NODES"])?);
        let nodes: Option<Vec<Node>> = nodes.lines().map(Node::parse).collect();
        let nodes = nodes.ok_or_else(|| io::Error::other("an unexpected answer to CLUSTER NODES"))?;
        let info = text(connection.call(&[b"CLUSTER", b"INFO"])?);
        let pairs = info.lines().filter_map(|line| line.trim().split_once(':'));
        Ok(View { nodes, info: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect() })
    }

    fn field(&self, name: &str) -> &str {
        self.info.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The node of a name, of which the beginning is enough, or of an address.
    fn find(&self, wanted: &str) -> Result<&Node, String> {
        let is_it = |node: &&Node| {
            node.name.starts_with(&wanted.to_ascii_lowercase())
                || format!("{}:{}", node.host, node.port) == wanted
        };
        let mut found = self.nodes.iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(node), None) => Ok(node),
            (None, _) => Err(format!("there is no node {wanted}; see holdfast cluster status")),
            _ => Err(format!("there are several nodes whose names begin with {wanted}")),
        }
    }

    /// What is wrong, in sentences.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.field("cluster_majority") == "unreachable" {
            problems.push(
                "This node hears of no majority of the nodes that decide: it serves nothing, and nothing can be changed, until enough of them \
                 run and are reached."
                    .to_owned(),
            );
        }
        for node in self.nodes.iter().filter(|node| node.has_failed) {
            let mut text = format!("Node {} is not heard of.", node.shown());
            if !node.slots.is_empty() {
                let has_replicas = self.nodes.iter().any(|other| other.master.as_ref() == Some(&node.name));
                let or = if has_replicas { ", or one of its replicas leads" } else { "" };
                write!(text, " It has slots {}, which nobody serves until it is back{or}.", node.slots)
                    .expect("a string takes all");
            }
            problems.push(text);
        }
        let owned: BTreeSet<u16> = self.nodes.iter().flat_map(|node| node.slots.iter()).collect();
        let free = Slots::collect((0..SLOTS as u16).filter(|slot| !owned.contains(slot)));
        if !free.is_empty() {
            problems.push(format!("Slots {free} are no node's: give them to one by CLUSTER ADDSLOTSRANGE."));
        }
        problems
    }
}
