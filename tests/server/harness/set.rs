//! Servers of a replica set.

use super::{Client, Folder, Server, Way, bulk, free_port, number, wait_until};
use holdfast_resp::Reply;
use std::net::{IpAddr, Ipv4Addr};

/// Milliseconds until another leader is elected. A busy machine is not to have one elected without need.
const TIMEOUT: &str = "3000";

fn address((port, bus): (u16, u16)) -> String {
    format!("127.0.0.1:{port}@{bus}")
}

fn options((port, bus): (u16, u16), list: &str) -> Vec<String> {
    let (port, bus) = (port.to_string(), bus.to_string());
    let words = [
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--replica-set-port",
        &bus,
        "--replica-set-timeout",
        TIMEOUT,
        "--replica-set",
        list,
    ];
    words.map(str::to_owned).to_vec()
}

/// The address from which a server of a set comes by ways.
fn source(at: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, 1 + at as u8).into()
}

/// How a server is started that comes by ways.
pub fn by_ways(at: usize) -> Vec<String> {
    let source = source(at).to_string();
    // As a node of a cluster it is answered there.
    let words = ["--bind-source-addr", &source, "--bind", "127.0.0.1", &source];
    words.into_iter().chain(["--cluster-announce-ip", "127.0.0.1"]).map(str::to_owned).collect()
}

/// Parts a server of some from the others, between which there are these ways, or no more. The first of them has this number.
pub fn part(ways: &[Way], first: usize, at: usize, is_parted: bool) {
    for other in (0..ways.len()).filter(|other| *other != at) {
        ways[other].part(source(first + at), is_parted);
        ways[at].part(source(first + other), is_parted);
    }
}

/// Servers of a set, or where one was.
pub struct Set {
    /// `None`: it does not run.
    pub servers: Vec<Option<Server>>,
    /// What each is started with.
    pub options: Vec<Vec<String>>,
    /// Where each is, as the option `replica-set` names it.
    pub addresses: Vec<String>,
}

impl Set {
    /// Starts as many, with new folders.
    pub fn start(count: usize) -> Set {
        let mut set = Set::new(count);
        (0..count).for_each(|at| set.start_in(at, Folder::new()));
        set
    }

    /// None of them is started yet.
    pub fn new(count: usize) -> Set {
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let addresses: Vec<String> = ports.iter().copied().map(address).collect();
        let options = ports.into_iter().map(|ports| options(ports, &addresses.join(" "))).collect();
        Set { servers: (0..count).map(|_| None).collect(), options, addresses }
    }

    /// Has servers reach each other by ways, one to each, before any of them is started. Each comes from an address of its own, the first from that of
    /// this number.
    pub fn put_ways(&mut self, first: usize) -> Vec<Way> {
        for (at, options) in self.options.iter_mut().enumerate() {
            options.extend(by_ways(first + at));
        }
        let mut ways = Vec::new();
        for address in self.addresses.clone() {
            let (own, bus) = address.split_once('@').expect("it has both");
            ways.push(Way::new(bus.parse().expect("a port")));
            let way = format!("{own}@{}", ways.last().expect("pushed above").port);
            for word in self.options.iter_mut().flatten().chain(&mut self.addresses) {
                *word = word.replace(&address, &way);
            }
        }
        ways
    }

    /// Another server, whose list has the others but `left_out`, and itself, with a number. It is not started yet.
    pub fn add(&mut self, number: usize, left_out: &[usize]) -> usize {
        let ports = (free_port(), free_port());
        let known = (0..self.addresses.len()).filter(|at| !left_out.contains(at));
        let mut list: Vec<(usize, &str)> = known.map(|at| (at + 1, &self.addresses[at][..])).collect();
        let own = address(ports);
        list.push((number, &own));
        list.sort_unstable();
        let list: Vec<String> = list.iter().map(|(number, address)| format!("{number}={address}")).collect();
        self.options.push(options(ports, &list.join(" ")));
        self.addresses.push(own);
        self.servers.push(None);
        self.servers.len() - 1
    }

    /// Starts a server with a folder.
    pub fn start_in(&mut self, at: usize, folder: Folder) {
        let options: Vec<&str> = self.options[at].iter().map(String::as_str).collect();
        self.servers[at] = Some(Server::start_in(folder, &options));
    }

    /// Kills a server, and returns its folder.
    pub fn kill(&mut self, at: usize) -> Folder {
        self.servers[at].take().expect("it runs").kill()
    }

    /// A connection to a server, if it runs.
    pub fn client(&self, at: usize) -> Option<Client> {
        let folder = self.servers[at].as_ref()?.folder();
        Client::connect(&folder.join("socket")).ok()
    }

    /// Waits until all have what the leader has; `late` is the one that may take long.
    pub fn wait_for_all(&self, leader: &mut Client, late: usize) {
        let log = || self.servers[late].as_ref().expect("it runs").log();
        assert_eq!(number(&leader.call("WAIT 2 20000")), Some(2), "{}", log());
    }

    /// Which of some servers says that it leads, and a connection to it.
    pub fn leading(&self, mut asked: impl Iterator<Item = usize>) -> Option<(usize, Client)> {
        asked.find_map(|at| {
            let mut client = self.client(at)?;
            let Reply::Array(role) = client.try_call("ROLE")? else { return None };
            (role[0] == bulk("master")).then_some((at, client))
        })
    }

    /// The server that leads and serves, and a connection to it.
    pub fn leader(&self) -> (usize, Client) {
        self.leader_but(usize::MAX)
    }

    /// The same of all but one.
    pub fn leader_but(&self, except: usize) -> (usize, Client) {
        let mut found = None;
        let logs = || {
            let logs = self.servers.iter().flatten().map(Server::log);
            format!("a leader\n{}", logs.collect::<Vec<_>>().join("\n---\n"))
        };
        wait_until(logs, || {
            found = self.leading((0..self.servers.len()).filter(|at| *at != except));
            found.is_some()
        });
        found.expect("it was waited for")
    }
}
