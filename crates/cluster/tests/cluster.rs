//! Whole clusters in one thread, on a network that loses, delays and parts, with power cuts, as a seed decides.
//! `HOLDFAST_SEEDS=5000` runs the long form, `HOLDFAST_SEED=n` one seed.

#[path = "../../store/tests/store/seeds.rs"]
mod seeds;

use holdfast_cluster::{Address, Change, Frame, Name, Node, NodeOptions, Seat, Slots};
use holdfast_io::{Error, SimIo};
use seeds::{Rng, with_seeds};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const SERVERS: usize = 4;
const TROUBLE: u64 = 400;
const QUIET: u64 = 600;
const BUS_PORT: u16 = 17000;

struct Server {
    io: SimIo,
    node: Option<Node>,
    down_for: u64,
    /// Slots that are given to it next.
    next_slot: u16,
    /// Proposals that are not decided.
    open: BTreeMap<u64, u16>,
    /// Slots that it has put on their way, until that is decided.
    leaving: BTreeMap<u64, u16>,
    /// Slots that it does not serve, until it is decided that they are another one's.
    frozen: BTreeMap<u64, u16>,
    /// Whether it leads its replica set, or is on its own. One that leads no more may not know it yet, and serves nothing.
    leads: bool,
}

/// What has the same data: a replica set, or a server on its own.
#[derive(Default)]
struct Shard {
    /// Counts the elections of a set.
    term: u64,
    /// What was written to each slot, as far as it is here.
    written: BTreeMap<u16, u64>,
}

impl Server {
    fn new(io: SimIo, node: Option<Node>, next_slot: u16, leads: bool) -> Server {
        let (open, leaving, frozen) = Default::default();
        Server { io, node, down_for: 0, next_slot, open, leaving, frozen, leads }
    }

    /// The slots whose keys it has clients use.
    fn served(&self) -> impl Iterator<Item = u16> {
        let node = self.node.as_ref().filter(|node| self.leads && node.is_current());
        let slots = node.map(|node| node.map().slots_of(node.id())).unwrap_or_default();
        let frozen = self.frozen.values().copied().collect::<BTreeSet<_>>();
        slots.0.into_iter().flatten().filter(move |slot| !frozen.contains(slot))
    }
}

struct World {
    rng: Rng,
    servers: Vec<Server>,
    /// Whether two servers each are a replica set.
    has_sets: bool,
    shards: [Shard; SERVERS],
    /// What was written to each slot, and acknowledged.
    written: BTreeMap<u16, u64>,
    network: Vec<(u64, usize, String, Vec<u8>)>,
    parted: Vec<(usize, usize)>,
    now: u64,
    has_trouble: bool,
    /// Slots that servers were told are theirs.
    acknowledged: BTreeMap<u16, Name>,
    /// Slots that servers have tried to give to others.
    given: BTreeSet<u16>,
    names: Vec<Name>,
}

fn host(server: usize) -> String {
    format!("host-{server}")
}

fn options(server: usize, has_sets: bool) -> NodeOptions {
    // The first one does not know its own host: it is told by who finds it.
    let host = if server == 0 { String::new() } else { host(server) };
    let hostname = if server.is_multiple_of(2) { String::new() } else { format!("name-{server}") };
    let address = Address { host, hostname, port: 7000, tls_port: 0, bus_port: BUS_PORT };
    let seat = Seat { set: server as u64 / 2 + 1, server: server as u64 % 2 + 1 };
    NodeOptions { address, timeout: 50, seat: has_sets.then_some(seat) }
}

impl World {
    fn new(seed: u64, has_sets: bool) -> World {
        let mut rng = Rng(seed);
        let mut names = Vec::new();
        let servers = (0..SERVERS).map(|index| {
            let io = SimIo::new(rng.next());
            let node = Node::open(Arc::new(io.clone()), options(index, has_sets)).unwrap();
            names.push(node.name());
            Server::new(io, Some(node), 1000 * index as u16, !has_sets)
        });
        let servers = servers.collect();
        World {
            rng,
            servers,
            has_sets,
            shards: Default::default(),
            written: BTreeMap::new(),
            network: Vec::new(),
            parted: Vec::new(),
            now: 0,
            has_trouble: true,
            acknowledged: BTreeMap::new(),
            given: BTreeSet::new(),
            names,
        }
    }

    fn step(&mut self) {
        self.now += 1;
        if self.has_trouble {
            self.make_trouble();
        }
        for index in 0..SERVERS {
            self.restart(index);
        }
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.network).into_iter().partition(|(at, ..)| *at <= now);
        self.network = later;
        for (_, to, from, bytes) in due {
            let frame = Frame::decode(&bytes).expect("it was encoded");
            let Some(node) = &mut self.servers[to].node else { continue };
            let received = node.receive(&from, frame);
            self.work(to, received);
        }
        for index in 0..SERVERS {
            if let Some(node) = &mut self.servers[index].node {
                node.tick();
                self.work(index, Ok(()));
            }
        }
        self.write();
    }

    /// What has the same data as a server, for each one.
    fn shards(&self) -> impl Fn(usize) -> usize + use<> {
        let has_sets = self.has_sets;
        move |index| if has_sets { index / 2 } else { index }
    }

    /// Has clients write to each slot that is served: once, and where all is that was written before.
    fn write(&mut self) {
        let (mut served, shard_of) = (BTreeMap::new(), self.shards());
        for index in 0..SERVERS {
            let shard = shard_of(index);
            for slot in self.servers[index].served().collect::<Vec<_>>() {
                let other = served.insert(slot, index);
                assert_eq!(other, None, "{index} serves slot {slot}, too\n{}", self.describe());
                let (here, all) = (
                    self.shards[shard].written.entry(slot).or_default(),
                    self.written.entry(slot).or_default(),
                );
                assert_eq!(here, all, "{index} lacks what was written to slot {slot}");
                (*here, *all) = (*here + 1, *all + 1);
            }
        }
    }

    /// Has a server lead its replica set.
    fn elect(&mut self, index: usize) {
        let shard = index / 2;
        if !self.has_sets || self.servers[index].node.is_none() {
            return;
        }
        self.shards[shard].term += 1;
        for server in [2 * shard, 2 * shard + 1] {
            self.servers[server].leads = server == index;
        }
        self.servers[index].node.as_mut().expect("it is up").lead(self.shards[shard].term);
    }

    fn make_trouble(&mut self) {
        let index = self.rng.below(SERVERS as u64) as usize;
        let other = self.rng.below(SERVERS as u64) as usize;
        if self.rng.chance(30) {
            let after = 1 + self.rng.below(10);
            self.servers[index].io.crash_after(after);
        }
        if self.rng.chance(60) {
            (self.servers[index].node, self.servers[index].down_for) = (None, self.rng.below(20));
        }
        if self.rng.chance(30) {
            self.parted = (0..self.rng.below(4))
                .map(|_| (self.rng.below(4) as usize, self.rng.below(4) as usize))
                .collect();
        }
        if self.rng.chance(20)
            && index != other
            && let Some(node) = &mut self.servers[index].node
        {
            node.meet(&host(other), BUS_PORT, 0);
        }
        if self.rng.chance(15) {
            self.add_slot(index);
        }
        if self.rng.chance(5) {
            self.give_slot(index);
        }
        if self.rng.chance(20) {
            self.elect(index);
        }
    }

    /// Has a server begin to give a slot to another one, or end what it has left undone.
    fn give_slot(&mut self, index: usize) {
        let server = &mut self.servers[index];
        let Some(node) = server.node.as_mut().filter(|node| !node.is_joining()) else { return };
        let (id, map) = (node.id(), node.map().clone());
        let left = map.leftovers(id);
        if !left.is_empty() {
            node.propose(&Change::Cleared { id, slots: left });
        }
        if !server.leaving.is_empty() || !server.frozen.is_empty() {
            return;
        }
        if let Some((&number, _)) = map.transfers().iter().find(|(_, transfer)| transfer.from == id) {
            node.propose(&Change::EndTransfer { number, has_arrived: false });
            return;
        }
        let (cluster, slot) = (node.cluster(), server.served().next());
        // It is asked whether it knows before it is sent anything.
        let knows = |node: &&Node| node.cluster() == cluster && node.id() != id && !node.is_joining();
        let nodes = self.servers.iter().filter_map(|server| server.node.as_ref());
        let others: Vec<Name> = nodes.filter(knows).map(Node::name).collect();
        let (Some(slot), false) = (slot, others.is_empty()) else { return };
        let to = others[self.rng.below(others.len() as u64) as usize];
        self.given.insert(slot);
        let server = &mut self.servers[index];
        let node = server.node.as_mut().expect("it is there");
        let number = node.propose(&Change::BeginTransfer { id, slots: Slots(vec![slot..=slot]), to });
        server.leaving.insert(number, slot);
    }

    fn add_slot(&mut self, index: usize) {
        let server = &mut self.servers[index];
        let Some(node) = server.node.as_mut().filter(|node| !node.is_joining()) else { return };
        let slot = server.next_slot;
        server.next_slot += 1;
        let number = node.propose(&Change::AddSlots { id: node.id(), slots: Slots(vec![slot..=slot]) });
        server.open.insert(number, slot);
    }

    fn restart(&mut self, index: usize) {
        let has_trouble = self.has_trouble;
        let server = &mut self.servers[index];
        if server.node.is_some() {
            return;
        }
        if server.down_for > 0 && has_trouble {
            server.down_for -= 1;
            return;
        }
        (server.open, server.leaving, server.frozen) = Default::default();
        server.leads = !self.has_sets;
        match Node::open(Arc::new(server.io.clone()), options(index, self.has_sets)) {
            Ok(node) => {
                assert_eq!(node.name(), self.names[index], "{index} is another one");
                server.node = Some(node);
            }
            Err(error) => {
                assert!(server.io.is_power_cut(&error), "{index}: {error}");
                server.io = server.io.crash();
            }
        }
    }

    fn work(&mut self, index: usize, before: Result<(), Error>) {
        let shard_of = self.shards();
        let server = &mut self.servers[index];
        let Some(node) = &mut server.node else { return };
        if let Err(error) = before.and_then(|()| node.work()) {
            assert!(server.io.is_power_cut(&error), "{index}: {error}");
            (server.io, server.node, server.down_for) = (server.io.crash(), None, self.rng.below(20));
            return;
        }
        for done in node.take_done() {
            if let Some(slot) = server.open.remove(&done.number) {
                if done.outcome.is_ok() {
                    self.acknowledged.insert(slot, node.name());
                }
            } else if let Some(slot) = server.leaving.remove(&done.number) {
                // All that was written is sent, and nothing more is then.
                let to = done
                    .outcome
                    .ok()
                    .and_then(|number| Some((number, node.map().transfers().get(&number)?.to)));
                let to = to.and_then(|(number, to)| Some((number, node.map().members().get(&to)?.name)));
                if let Some((number, to)) = to.filter(|_| server.leads) {
                    let end = node.propose(&Change::EndTransfer { number, has_arrived: true });
                    server.frozen.insert(end, slot);
                    let to = self.names.iter().position(|name| *name == to).expect("it is one of them");
                    let (from, to) = (shard_of(index), shard_of(to));
                    let sent = self.shards[from].written.get(&slot).copied().unwrap_or_default();
                    self.shards[to].written.insert(slot, sent);
                }
            } else {
                server.frozen.remove(&done.number);
            }
        }
        for ((to, port), frame) in node.take_frames() {
            assert_eq!(port, BUS_PORT);
            let to = to.strip_prefix("host-").expect("a host").parse().expect("its number");
            let is_lost = (self.has_trouble && self.rng.chance(8)) || self.parted.contains(&(index, to));
            let delay = if self.has_trouble && self.rng.chance(4) { self.rng.below(10) } else { 1 };
            if !is_lost {
                self.network.push((self.now + delay, to, host(index), frame.encode()));
            }
        }
    }

    /// The cluster of most servers, and one of them.
    fn largest(&self) -> (u64, usize) {
        let clusters = || self.servers.iter().map(|server| server.node.as_ref().unwrap().cluster());
        let largest =
            clusters().max_by_key(|cluster| clusters().filter(|other| other == cluster).count()).unwrap();
        (largest, clusters().position(|cluster| cluster == largest).unwrap())
    }

    fn describe(&self) -> String {
        let about = |server: &Server| match &server.node {
            Some(node) => format!(
                "{} of cluster {:x}: leader {:?}, {:?}",
                node.id(),
                node.cluster(),
                node.leader(),
                node.map().members().keys().collect::<Vec<_>>()
            ),
            None => "down".into(),
        };
        self.servers.iter().map(about).collect::<Vec<_>>().join("\n")
    }
}

/// Servers that get slots and meet, in trouble, are one cluster in the end, in which everybody has what it was given.
fn life(seed: u64) {
    let mut world = World::new(seed, seed % 2 == 1);
    for _ in 0..TROUBLE {
        world.step();
    }
    world.has_trouble = false;
    world.parted.clear();
    world.servers.iter().for_each(|server| server.io.crash_after(1 << 40));
    world.step();
    let leaders = world.rng.below(4) as usize;
    [leaders % 2, 2 + leaders / 2].into_iter().for_each(|index| world.elect(index));
    for _ in 0..60 {
        world.step();
    }
    for index in 0..SERVERS {
        let (largest, first) = world.largest();
        let node = world.servers[index].node.as_mut().unwrap();
        if node.cluster() != largest && node.map().members().len() == 1 {
            for _ in 0..3 {
                world.servers[index].node.as_mut().unwrap().meet(&host(first), BUS_PORT, 0);
                (0..60).for_each(|_| world.step());
            }
        }
    }
    for _ in 0..QUIET {
        world.step();
    }
    // Two clusters of several servers each do not become one.
    let (largest, first) = world.largest();
    let node = |index: usize| world.servers[index].node.as_ref().unwrap();
    let together: Vec<_> = (0..SERVERS).filter(|&index| node(index).cluster() == largest).collect();
    for &index in &together {
        assert_eq!(node(index).map(), node(first).map(), "{index} has another map\n{}", world.describe());
        assert!(node(index).is_connected(), "{index}\n{}", world.describe());
        // One that has asked to be let in, and went elsewhere before it was told that it was, is missed.
        for (&id, member) in node(index).map().members() {
            let is_here =
                together.iter().any(|&other| node(other).name() == member.name && node(other).id() == id);
            assert_eq!(member.has_failed, !is_here, "{id}\n{}", world.describe());
        }
    }
    assert!(together.len() >= 2, "{}", world.describe());
    for &index in together.iter().filter(|&&index| world.servers[index].leads) {
        assert!(node(index).is_current(), "{index} serves nothing\n{}", world.describe());
    }
    let map = node(first).map();
    for &id in map.members().keys().filter(|&&id| map.leader_of(id).is_some_and(|leader| leader != id)) {
        assert!(map.slots_of(id).is_empty(), "{id} follows\n{}", world.describe());
    }
    for (slot, name) in &world.acknowledged {
        let index = world.names.iter().position(|known| known == name).unwrap();
        let map = node(index).map();
        let owner = map.owner(*slot).map(|id| map.members()[&id].name);
        let is_passed_on = world.given.contains(slot) || world.has_sets;
        let is_right = if is_passed_on { owner.is_some() } else { owner == Some(*name) };
        assert!(is_right, "slot {slot} is {owner:?}'s\n{}", world.describe());
    }
}

#[test]
fn servers_that_meet_are_one_cluster() {
    with_seeds(200, life);
}

/// One that leads for long has not heard of who joins, and gives it the time to speak.
#[test]
fn who_has_just_joined_has_not_failed() {
    let mut world = World::new(1, false);
    world.has_trouble = false;
    (0..200).for_each(|_| world.step());
    world.servers[1].node.as_mut().unwrap().meet(&host(0), BUS_PORT, 0);
    let mut joined = 0;
    for _ in 0..200 {
        world.step();
        let map = world.servers[0].node.as_ref().unwrap().map();
        joined = joined.max(map.members().len());
        assert!(map.members().values().all(|member| !member.has_failed), "{}", world.describe());
    }
    assert_eq!(joined, 2);
}

/// What a server knows after it has joined is the map of all, also if its own one had as many changes.
#[test]
fn who_joins_has_the_map_of_the_others() {
    for slots in 0..8 {
        let mut world = World::new(1, false);
        world.has_trouble = false;
        (0..slots).for_each(|_| world.add_slot(1));
        (0..100).for_each(|_| world.step());
        world.servers[1].node.as_mut().unwrap().meet(&host(0), BUS_PORT, 0);
        (0..100).for_each(|_| world.step());
        let map = |index: usize| world.servers[index].node.as_ref().unwrap().map();
        assert_eq!(map(1), map(0), "with {slots} slots");
        assert_eq!(map(1).members().len(), 2);
    }
}

/// A server that led its replica set, hears nothing of the cluster while another one leads it and gives a slot away, and then leads it again.
#[test]
fn who_leads_again_serves_nothing_before_it_has_heard() {
    let mut world = World::new(1, true);
    world.has_trouble = false;
    let steps = |world: &mut World, count: u64| (0..count).for_each(|_| world.step());
    for other in 1..SERVERS {
        steps(&mut world, 60);
        world.servers[other].node.as_mut().unwrap().meet(&host(0), BUS_PORT, 0);
    }
    steps(&mut world, 60);
    world.elect(0);
    world.elect(2);
    steps(&mut world, 20);
    world.add_slot(0);
    steps(&mut world, 20);
    let serves = |world: &World, server: usize| world.servers[server].served().any(|slot| slot == 0);
    assert!(serves(&world, 0), "{}", world.describe());
    world.parted = (1..SERVERS).flat_map(|other| [(0, other), (other, 0)]).collect();
    world.elect(1);
    for _ in 0..1000 {
        world.give_slot(1);
        world.step();
    }
    assert!(serves(&world, 2), "{}", world.describe());
    // Two that serve the slot are found out at each step.
    world.elect(0);
    steps(&mut world, 60);
    world.parted.clear();
    steps(&mut world, 200);
    let node = world.servers[0].node.as_ref().unwrap();
    assert!(node.is_current() && serves(&world, 2) && !serves(&world, 0), "{}", world.describe());
}
