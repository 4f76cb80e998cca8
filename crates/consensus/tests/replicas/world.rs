//! The servers, what befalls them, and what must hold in each step.

use crate::seeds::Rng;
use bytes::Bytes;
use holdfast_consensus::{
    Change, EachBatch, Envelope, Extract, MEMBERS_MAX, MemberId, Members, Peer, Replica, Role,
};
use holdfast_io::{Durability, Error, Io, SimIo};
use holdfast_log::{Groups, Log, SEAL, batch_len};
use holdfast_store::{Begin, Follower, Lsn, Options, Replication, Store, replay_log};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const FOLDER: &str = "set";
/// Steps of quiet after which all is well, as a rule.
const QUIET: u64 = 500;
/// Steps until what happens in the end must have happened: an election takes a hundred, and a seed in a thousand needs five of them and more.
const PATIENCE: u64 = 20 * QUIET;
const TICK_MS: u64 = 100;
const KEYS: u64 = 5;

pub fn options(replication: Option<Replication>) -> Options {
    let options = Options {
        partitions: 2,
        segment_size: Some(64 << 10),
        heap_bytes_max: 64 << 20,
        ..Options::default()
    };
    Options { background: false, replication, ..options }
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// A value that says which of all writes it is of.
pub fn value(write: u64, len: usize) -> Vec<u8> {
    let mut value = write.to_le_bytes().to_vec();
    value.resize(8 + len, write as u8);
    value
}

pub fn write_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

pub struct Server {
    pub io: SimIo,
    /// It has lost its data.
    pub is_blank: bool,
    /// As it knew them last.
    pub members: Members,
    /// How often it was started.
    pub life: u64,
    pub up: Option<Up>,
    pub down_for: u64,
    pub stalled_for: u64,
    /// How many milliseconds its clock goes on in a step, of which the others have about 20.
    pub pace: u64,
    pub ticked_ms: u64,
}

impl Server {
    pub fn new(rng: &mut Rng, io: SimIo, members: Members) -> Server {
        let (is_blank, life, up, pace) = (false, 0, None, 19 + rng.below(3));
        Server { io, is_blank, members, life, up, down_for: 0, stalled_for: 0, pace, ticked_ms: 0 }
    }
}

/// Where a server is.
pub fn address(id: MemberId) -> String {
    format!("server-{id}")
}

pub struct Up {
    /// As the one that leads. Dropped before the replica.
    pub store: Option<Arc<Store>>,
    /// What applies, until it leads, what it stores, and the log of that.
    pub follower: Option<(Arc<Log>, Follower)>,
    pub replica: Arc<Replica>,
    /// It leads as soon as all of its log is applied.
    pub is_elected: bool,
    /// As a leader, who has said that it has lost its data: in which of its lives, and when.
    pub blank: BTreeMap<MemberId, (u64, u64)>,
    /// Who is too far behind.
    pub behind: BTreeSet<MemberId>,
    /// Writes and reads whose replies wait: up to where the log must be durable.
    pub writes: Vec<(Lsn, u64, u64)>,
    pub reads: Vec<(Lsn, u64, u64)>,
}

/// The data of one server, on their way to another one.
pub struct Copy {
    pub arrives: u64,
    pub from: (MemberId, u64),
    pub to: (MemberId, u64),
    pub io: SimIo,
    pub extract: Extract,
}

pub struct World {
    pub rng: Rng,
    pub servers: BTreeMap<MemberId, Server>,
    /// Messages under way, with the step in which they arrive.
    pub network: Vec<(u64, MemberId, MemberId, Bytes)>,
    pub copies: Vec<Copy>,
    pub parted: BTreeSet<(MemberId, MemberId)>,
    /// Whose messages to whom take a second longer, or more.
    pub slow: BTreeSet<(MemberId, MemberId)>,
    pub now: u64,
    pub has_trouble: bool,
    /// To whom nothing is written.
    pub only_reads: BTreeSet<MemberId>,
    pub next_write: u64,
    /// By key: the last write that was acknowledged, and the last that a reply has shown.
    pub acknowledged: BTreeMap<u64, u64>,
    pub shown: BTreeMap<u64, u64>,
    pub leaders: BTreeMap<u64, MemberId>,
    /// Whether those that were added vote as soon as they can.
    pub promotes: bool,
    /// Who was to be removed last. It may be agreed on late.
    pub removed: Option<MemberId>,
    pub counts: Counts,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub acknowledged: u64,
    pub reads: u64,
    pub terms: u64,
    pub power_cuts: u64,
    pub kills: u64,
    pub deposed: u64,
    pub rests: u64,
    pub followed: u64,
    pub hand_overs: u64,
    pub cuts: u64,
    pub lost: u64,
    pub freed: u64,
    pub copies: u64,
    pub copies_of_behind: u64,
    pub adds: u64,
    pub promotions: u64,
    pub removals: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        let first = SimIo::new(seed);
        let store = Store::open_on(Arc::new(first.clone()), options(None)).unwrap();
        let set = store.run(&[&key(0)], |_, writes| {
            writes.set(0, &key(0), value(0, 100));
            Ok(())
        });
        set.unwrap();
        store.log().wait_durable(store.log().tail()).unwrap();
        World::begin(Rng(seed), &first, store)
    }

    /// A set that begins with a store.
    pub fn begin(mut rng: Rng, first: &SimIo, store: Store) -> World {
        store.close().unwrap();
        let (end, epoch) = (store.log().tail(), store.log().epoch());
        drop(store);
        let count = if rng.chance(4) { 5 } else { 3 };
        let members = Members::first((1..=count).map(address));
        let base = Replica::first_base(&members, end);
        let mut servers = BTreeMap::new();
        for id in 1..=count {
            let io = first.fork();
            // Each has its own luck.
            io.random(&mut vec![0; id as usize]);
            Replica::adopt(Arc::new(io.clone()), FOLDER, id, &base, (epoch.into(), 0)).unwrap();
            servers.insert(id, Server::new(&mut rng, io, members.clone()));
        }
        World {
            rng,
            servers,
            network: Vec::new(),
            copies: Vec::new(),
            parted: BTreeSet::new(),
            slow: BTreeSet::new(),
            now: 0,
            has_trouble: true,
            only_reads: BTreeSet::new(),
            next_write: 1,
            acknowledged: BTreeMap::from([(0, 0)]),
            shown: BTreeMap::new(),
            leaders: BTreeMap::new(),
            promotes: true,
            removed: None,
            counts: Counts::default(),
        }
    }

    /// The members as the last leader knows them that is one still.
    pub fn members(&self) -> Option<Members> {
        let ups = self.servers.values().filter_map(|server| server.up.as_ref());
        let leaders = ups.filter(|up| up.store.is_some() && !up.replica.is_deposed());
        leaders.max_by_key(|up| up.replica.term()).map(|up| up.replica.members())
    }

    /// Whether one that votes, or did once, has lost its data.
    pub fn blank_voter(&self, members: &Members) -> Option<MemberId> {
        members.voters().find(|id| self.servers[id].is_blank)
    }

    /// A leader has the members changed, so that three have data after that, if they had before.
    pub fn change_members(&mut self, id: MemberId) {
        let Some(up) = self.servers[&id].up.as_ref().filter(|up| up.store.is_some()) else { return };
        let replica = up.replica.clone();
        if let Some(learner) = replica.has_caught_up().filter(|_| self.promotes && self.rng.chance(10)) {
            let promoted = replica.propose(&Change::Promote(learner));
            self.counts.promotions += u64::from(promoted.is_ok());
        }
        if !self.has_trouble || !self.rng.chance(300) {
            return;
        }
        let members = replica.members();
        if self.rng.chance(2) {
            if self.servers.len() < 12 && members.peers.len() < MEMBERS_MAX {
                self.add(&replica);
            }
            return;
        }
        let blank = self.blank_voter(&members);
        let (voters, peers) = (members.voters().count(), members.peers.len() as u64);
        let any = members.peers.keys().nth(self.rng.below(peers) as usize).copied();
        let target = blank.or(any).expect("a member");
        let leaves_enough = !members.votes(target) || voters > 3 || (blank.is_some() && voters == 3);
        if leaves_enough && replica.propose(&Change::Remove(target)).is_ok() {
            self.counts.removals += 1;
            self.removed = Some(target);
        }
    }

    /// One more server, if the leader agrees now.
    pub fn add(&mut self, leader: &Replica) -> Option<MemberId> {
        let members = leader.propose(&Change::Add(address(leader.members().next))).ok()?;
        self.counts.adds += 1;
        let (id, io) = (members.next - 1, SimIo::new(self.rng.below(1 << 32)));
        let server = Server { is_blank: true, ..Server::new(&mut self.rng, io, members) };
        self.servers.entry(id).or_insert(server);
        Some(id)
    }

    /// Who leads and serves, of the last term.
    pub fn leader(&self) -> Option<MemberId> {
        let leads = |(_, server): &(&MemberId, &Server)| {
            let up = server.up.as_ref();
            let leads = |up: &Up| up.store.is_some() && !up.replica.is_deposed();
            up.is_some_and(leads) && server.stalled_for == 0
        };
        let term = |server: &Server| server.up.as_ref().map(|up| up.replica.term());
        self.servers.iter().filter(leads).max_by_key(|(_, server)| term(server)).map(|(id, _)| *id)
    }

    /// Goes on until something is so; whether it is, in time.
    pub fn until(&mut self, is_so: impl Fn(&World) -> bool) -> bool {
        for _ in 0..PATIENCE {
            if is_so(self) {
                return true;
            }
            self.step();
        }
        false
    }

    pub fn ids(&self) -> Vec<MemberId> {
        self.servers.keys().copied().collect()
    }

    pub fn any(&mut self) -> MemberId {
        let at = self.rng.below(self.servers.len() as u64) as usize;
        *self.servers.keys().nth(at).expect("one of them")
    }

    pub fn step(&mut self) {
        self.now += 1;
        if self.has_trouble {
            self.make_trouble();
        }
        self.deliver();
        for id in self.ids() {
            let server = self.servers.get_mut(&id).unwrap();
            server.io.advance_ms(server.pace);
            if server.stalled_for > 0 {
                server.stalled_for -= 1;
                continue;
            }
            self.start(id);
            self.tick(id);
            self.lead(id);
            self.change_members(id);
            self.serve(id);
            self.greet(id);
            self.lend(id);
            self.send(id);
        }
        self.take_copies();
        for server in self.servers.values_mut() {
            server.members = server.up.as_ref().map_or(server.members.clone(), |up| up.replica.members());
        }
    }

    pub fn make_trouble(&mut self) {
        if self.rng.chance(400) {
            let id = self.any();
            self.cut_power(id);
        }
        if self.rng.chance(400) {
            // What the process has written stays.
            let id = self.any();
            let down_for = if self.rng.chance(2) { 0 } else { self.rng.below(100) };
            let server = self.servers.get_mut(&id).unwrap();
            (server.up, server.down_for) = (None, down_for);
            self.counts.kills += 1;
        }
        // One at a time, and a minority of the media is lost.
        let is_removed = |id| self.members().is_some_and(|members| !members.peers.contains_key(&id));
        if self.removed.is_none_or(is_removed) && self.rng.chance(1500) {
            let id = self.any();
            let has_all = |server: &Server| {
                let mut voters = server.members.voters();
                server.members.voters().count() >= 3 && voters.all(|id| !self.servers[&id].is_blank)
            };
            let mut servers = self.servers.values().filter(|server| !server.is_blank);
            if !self.servers[&id].is_blank && servers.all(has_all) {
                self.lose_data(id);
            }
        }
        if self.rng.chance(400) {
            let id = self.any();
            let stalled_for = self.rng.below(150);
            self.servers.get_mut(&id).unwrap().stalled_for = stalled_for;
        }
        if self.rng.chance(250) {
            self.parted.clear();
            let ids = self.ids();
            match self.rng.below(3) {
                0 => {}
                // One hears nobody, or is not heard, or both.
                1 => {
                    let (id, way) = (self.any(), self.rng.below(3));
                    self.parted.extend(ids.iter().filter(|_| way != 0).map(|&other| (id, other)));
                    self.parted.extend(ids.iter().filter(|_| way != 1).map(|&other| (other, id)));
                }
                _ => {
                    for &from in &ids {
                        for &to in &ids {
                            if self.rng.chance(3) {
                                self.parted.insert((from, to));
                            }
                        }
                    }
                }
            }
        }
    }

    pub fn cut_power(&mut self, id: MemberId) {
        let down_for = if self.rng.chance(2) { 0 } else { self.rng.below(100) };
        let server = self.servers.get_mut(&id).unwrap();
        server.up = None;
        server.io = server.io.crash();
        server.down_for = down_for;
        self.counts.power_cuts += 1;
    }

    /// Parts one from all others, both ways.
    pub fn part(&mut self, id: MemberId, from: &[MemberId]) {
        self.parted.extend(from.iter().flat_map(|&other| [(id, other), (other, id)]));
    }

    pub fn lose_data(&mut self, id: MemberId) {
        let io = SimIo::new(self.rng.below(1 << 32));
        let server = self.servers.get_mut(&id).unwrap();
        (server.up, server.io, server.is_blank) = (None, io, true);
        server.life += 1;
        self.counts.lost += 1;
    }

    /// Tells the others what it has, now and then.
    pub fn greet(&mut self, id: MemberId) {
        if !self.rng.chance(if self.has_trouble { 10 } else { 2 }) {
            return;
        }
        let server = &self.servers[&id];
        let (is_blank, life) = (server.is_blank, server.life);
        let last = server.up.as_ref().map(|up| up.replica.last());
        for to in self.ids().into_iter().filter(|to| *to != id && !self.parted.contains(&(id, *to))) {
            let server = self.servers.get_mut(&to).unwrap();
            let (Some(up), 0) = (&mut server.up, server.stalled_for) else { continue };
            if let Some(last) = last
                && up.replica.has_last(id, last)
            {
                up.behind.remove(&id);
            }
            if !is_blank {
                up.blank.remove(&id);
            } else if up.blank.get(&id).is_none_or(|(of, _)| *of != life) {
                up.blank.insert(id, (life, server.io.monotonic_us()));
            }
        }
    }

    /// A leader gives a copy to one that has lost its data or is too far behind.
    pub fn lend(&mut self, id: MemberId) {
        let Some(up) = &mut self.servers.get_mut(&id).unwrap().up else { return };
        up.behind.extend(up.replica.take_behind());
        let members = up.replica.members();
        up.behind.retain(|id| members.peers.contains_key(id));
        // One that is elected may need it to lead.
        let followed = up.follower.as_ref().map(|(_, follower)| follower.store());
        let Some(store) = up.store.as_ref().or(followed).filter(|_| up.replica.lease_us() > 0) else {
            return;
        };
        let is_under_way = |to: MemberId| self.copies.iter().any(|copy| copy.from.0 == id && copy.to.0 == to);
        let blank = up.blank.iter().find(|(to, (_, since))| up.replica.may_renew(**to, *since));
        let behind = up.behind.first().copied();
        let to = behind.or_else(|| blank.map(|(to, _)| *to));
        let Some(to) = to.filter(|to| !is_under_way(*to)) else { return };
        store.tend_backup();
        let Begin::Leased(lease) = store.begin_backup() else { return };
        let end = store.log().durable();
        let plan = if behind.is_some() { lease.plan_of_less(end) } else { lease.plan_up_to(end) };
        let Some(plan) = plan.unwrap() else { return };
        let Some(extract) = up.replica.extract(plan.replays_from(), end) else { return };
        let from = Arc::new(self.servers[&id].io.clone());
        let io = SimIo::new(self.rng.below(1 << 32));
        copy_folder(&*plan.view(from), &io);
        lease.end().unwrap();
        Replica::adopt(Arc::new(io.clone()), FOLDER, to, &extract.base, extract.voted).unwrap();
        let arrives = self.now + self.rng.below(if self.has_trouble { 200 } else { 3 });
        let (from, to) = ((id, self.servers[&id].life), (to, self.servers[&to].life));
        self.copies.push(Copy { arrives, from, to, io, extract });
    }

    /// What has arrived takes the place of what there is, if it was kept until then, and takes nothing back.
    pub fn take_copies(&mut self) {
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.copies).into_iter().partition(|copy| copy.arrives <= now);
        self.copies = later;
        for Copy { from, to, io, extract, .. } in due {
            let is_there = |(id, life): (MemberId, u64)| {
                let server = &self.servers[&id];
                server.life == life && server.stalled_for == 0
            };
            if !is_there(from) || !is_there(to) || self.servers[&from.0].up.is_none() {
                continue;
            }
            let server = self.servers.get_mut(&to.0).unwrap();
            let is_of_use = |up: &Up| up.replica.is_of_use(&extract);
            if !server.is_blank && !server.up.as_ref().is_some_and(is_of_use) {
                continue;
            }
            self.counts.copies += 1;
            self.counts.copies_of_behind += u64::from(!server.is_blank);
            (server.up, server.io, server.is_blank) = (None, io.crash(), false);
            server.life += 1;
        }
    }

    /// Does something with a server that may lose its power meanwhile. `None`: it did.
    pub fn at_risk<T>(&mut self, id: MemberId, f: impl FnOnce(&mut Server) -> Result<T, Error>) -> Option<T> {
        let after = (self.has_trouble && self.rng.chance(1000)).then(|| 1 + self.rng.below(6));
        let server = self.servers.get_mut(&id).unwrap();
        if let Some(after) = after {
            server.io.crash_after(after);
        }
        let done = f(server);
        match done {
            Ok(done) if after.is_none() => return Some(done),
            Err(error) if after.is_none() => panic!("{id}: {error}"),
            _ => self.cut_power(id),
        }
        None
    }

    /// Opens a server whose time has come.
    pub fn start(&mut self, id: MemberId) {
        let has_trouble = self.has_trouble;
        let server = self.servers.get_mut(&id).unwrap();
        if server.up.is_some() || server.is_blank || (server.down_for > 0 && has_trouble) {
            server.down_for = server.down_for.saturating_sub(1);
            return;
        }
        let opened = self.at_risk(id, |server| {
            let io: Arc<dyn Io> = Arc::new(server.io.clone());
            let log_io = io.clone();
            let read_log = move |term, agreed, f: EachBatch| {
                replay_log(log_io.clone(), &options(Some(Replication { term, agreed })), f)
            };
            Replica::open(io, FOLDER, TICK_MS * 1000, Box::new(read_log), Box::new(|| ()))
        });
        if let Some(replica) = opened {
            let (writes, reads) = (Vec::new(), Vec::new());
            let server = self.servers.get_mut(&id).unwrap();
            let (blank, behind) = (BTreeMap::new(), BTreeSet::new());
            let (store, follower, is_elected) = (None, None, false);
            server.up = Some(Up { store, follower, replica, is_elected, blank, behind, writes, reads });
            server.life += 1;
            server.ticked_ms = server.io.monotonic_us() / 1000;
        }
    }

    pub fn tick(&mut self, id: MemberId) {
        let server = self.servers.get_mut(&id).unwrap();
        let now_ms = server.io.monotonic_us() / 1000;
        if server.up.is_none() || now_ms < server.ticked_ms + TICK_MS {
            return;
        }
        server.ticked_ms = now_ms;
        self.at_risk(id, |server| server.up.as_ref().unwrap().replica.tick());
    }

    /// Has one lead that is elected, and drops what one that leads no more has done.
    pub fn lead(&mut self, id: MemberId) {
        let Some(up) = &mut self.servers.get_mut(&id).unwrap().up else { return };
        if up.replica.is_deposed() {
            self.counts.deposed += 1;
            // What it has said last may leave before it begins again, or not.
            if self.now.is_multiple_of(2) {
                self.send(id);
            }
            self.servers.get_mut(&id).unwrap().up = None;
            return;
        }
        if let Some(term) = up.replica.lead() {
            let term_leader = *self.leaders.entry(term).or_insert(id);
            assert_eq!(term_leader, id, "two lead in term {term}");
            self.counts.terms += 1;
            up.is_elected = true;
        }
        if up.store.is_none() && (up.is_elected || self.rng.chance(3)) {
            let rests = self.rng.chance(30);
            self.follow(id, rests);
        }
    }

    /// A server that follows applies what is agreed on, is read, and may take a checkpoint. Once it is elected, and has applied all, it leads.
    pub fn follow(&mut self, id: MemberId, rests: bool) {
        let target = self.rng.below(KEYS);
        let (mut found, mut freed) = (None, 0);
        let followed = self.at_risk(id, |server| {
            let up = server.up.as_mut().unwrap();
            let Some(log) = up.replica.log() else { return Ok(()) };
            // What is void was cut off.
            up.follower.take_if(|(of, _)| !Arc::ptr_eq(of, &log));
            if up.follower.is_none() {
                let follower = Follower::open(Arc::new(server.io.clone()), log.clone(), options(None))?;
                up.follower = Some((log.clone(), follower));
            }
            let (_, follower) = up.follower.as_mut().expect("it was opened");
            follower.store().tend_backup();
            while follower.advance()? {}
            let read = follower.store().get(0, &key(target), |value| value.map(write_of));
            found = read.unwrap().0;
            if rests {
                let rested = follower.checkpoint(&|lsn| up.replica.keep_from(lsn), &|| false);
                let is_early = |error: &Error| error.to_string().contains("known to be decided");
                freed = if rested.as_ref().is_err_and(is_early) { 0 } else { rested? };
            }
            if up.is_elected && follower.applied() == log.tail() {
                let (_, follower) = up.follower.take().unwrap();
                up.store = Some(follower.lead()?);
            }
            Ok(())
        });
        self.counts.rests += u64::from(rests && followed.is_some());
        self.counts.freed += freed as u64;
        if let Some(write) = found {
            // It is agreed on, so no later read of a leader's may lack it.
            let shown = self.shown.entry(target).or_default();
            *shown = write.max(*shown);
            self.counts.followed += 1;
        }
    }

    /// Clients write to it and read from it, and get the replies that are due.
    pub fn serve(&mut self, id: MemberId) {
        let chance = [self.rng.chance(2), self.rng.chance(2), self.rng.chance(3), self.rng.chance(150)];
        let (target, len) =
            (self.rng.below(KEYS), if self.rng.chance(20) { 30_000 } else { self.rng.below(300) });
        let successor = (self.has_trouble && self.rng.chance(600)).then(|| self.any());
        let server = self.servers.get_mut(&id).unwrap();
        let Some(up) = &mut server.up else { return };
        let Some(store) = &up.store else { return };
        if store.log().failed().is_some() {
            return;
        }
        if chance[0] && !self.only_reads.contains(&id) {
            let write = self.next_write;
            self.next_write += 1;
            let set = store.run(&[&key(target)], |_, writes| {
                writes.set(0, &key(target), value(write, len as usize));
                Ok(())
            });
            let ((), end) = set.unwrap();
            up.writes.push((end, target, write));
        }
        if chance[1] && up.replica.lease_us() > server.io.monotonic_us() {
            let (found, end) = store.get(0, &key(target), |value| value.map(write_of)).unwrap();
            // A write that was acknowledged, or shown to anybody, is seen by all later reads.
            let known = self.acknowledged.get(&target).max(self.shown.get(&target));
            assert!(found.as_ref() >= known, "{id} reads {found:?} of key {target}, which is {known:?}");
            up.reads.extend(found.map(|write| (end, target, write)));
        }
        if up.replica.hands_over() {
            // A thread would wait.
            return;
        }
        if let Some(to) = successor {
            up.replica.hand_over(to);
            self.counts.hand_overs += u64::from(up.replica.hands_over());
            return;
        }
        if chance[2] {
            let committed = self.at_risk(id, |server| {
                let store = server.up.as_ref().unwrap().store.as_ref().unwrap();
                match store.log().commit_once() {
                    // Another one leads.
                    Err(_) if store.log().failed().is_some_and(|why| why.contains("leads no more")) => {
                        Ok(false)
                    }
                    result => result,
                }
            });
            if committed.is_none() {
                return;
            }
        }
        let up = self.servers.get_mut(&id).unwrap().up.as_mut().unwrap();
        let log = up.store.as_ref().unwrap().log();
        let durable = log.durable();
        up.writes.retain(|&(end, target, write)| {
            if end <= durable {
                let known = self.acknowledged.entry(target).or_default();
                *known = write.max(*known);
                self.counts.acknowledged += 1;
            }
            end > durable
        });
        up.reads.retain(|&(end, target, write)| {
            if end <= durable {
                let known = self.shown.entry(target).or_default();
                *known = write.max(*known);
                self.counts.reads += 1;
            }
            end > durable
        });
        if chance[3] && durable == log.tail() && log.failed().is_none() {
            self.at_risk(id, |server| server.up.as_ref().unwrap().store.as_ref().unwrap().checkpoint());
        }
    }

    pub fn send(&mut self, id: MemberId) {
        let Some(up) = &self.servers[&id].up else { return };
        for envelope in up.replica.take_messages() {
            let to = envelope.message.to();
            let is_lost = self.parted.contains(&(id, to)) || (self.has_trouble && self.rng.chance(30));
            if is_lost || !self.servers.contains_key(&to) {
                up.replica.unreachable(to);
                continue;
            }
            let copies = if self.has_trouble && self.rng.chance(30) { 2 } else { 1 };
            for _ in 0..copies {
                let late = if self.has_trouble && self.rng.chance(10) { 80 } else { 4 };
                let least = if self.slow.contains(&(id, to)) { 50 } else { 0 };
                let arrives = self.now + least + self.rng.below(late);
                self.network.push((arrives, id, to, envelope.encode().into()));
            }
        }
    }

    pub fn deliver(&mut self) {
        let now = self.now;
        let due = |at: u64, to: &Server| at <= now && to.stalled_for == 0;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.network)
            .into_iter()
            .partition(|(at, _, to, _)| due(*at, &self.servers[to]));
        self.network = later;
        for (_, _, to, bytes) in due {
            let envelope = Envelope::decode(&bytes, &bytes).expect("it was encoded");
            // What was under way when they were parted arrives.
            if self.servers[&to].up.is_some() {
                let before = self.servers[&to].up.as_ref().unwrap().replica.extent().0;
                self.at_risk(to, |server| server.up.as_ref().unwrap().replica.step(envelope));
                let after = self.servers[&to].up.as_ref().map(|up| up.replica.extent().0);
                self.counts.cuts += u64::from(after.is_some_and(|after| after < before));
            }
        }
    }

    /// What each of them is.
    pub fn describe(&self) -> String {
        let describe = |(id, server): (&MemberId, &Server)| match &server.up {
            None => format!("{id}: down, blank {}\n", server.is_blank),
            Some(Up { replica, store, is_elected, blank, behind, .. }) => format!(
                "{id}: {:?} in term {}, {:?}, {:?}, last {}, elected {is_elected}, store {}, blank {blank:?}, behind {behind:?}\n",
                replica.role(),
                replica.term(),
                replica.members(),
                replica.extent(),
                replica.last(),
                store.is_some()
            ),
        };
        self.servers.iter().map(describe).collect()
    }

    /// When all is quiet, one of them leads, takes writes, and has all that was acknowledged; and the others have the same.
    pub fn settle(&mut self) {
        (self.has_trouble, self.parted) = (false, BTreeSet::new());
        self.servers.values_mut().for_each(|server| server.stalled_for = 0);
        let before = self.counts.acknowledged;
        (0..QUIET).for_each(|_| self.step());
        let is_well = |world: &World| {
            let runs_and_votes =
                |(id, peer): (&MemberId, &Peer)| peer.votes && world.servers[id].up.is_some();
            let all_do = |members: Members| members.peers.iter().all(runs_and_votes);
            world.counts.acknowledged > before && world.members().is_some_and(all_do)
        };
        assert!(
            self.until(is_well),
            "nothing is acknowledged since {before}, or somebody does not run, or not vote yet: {:?}\n{}",
            self.counts,
            self.describe()
        );
        let members = self.members().expect("a leader");
        // Those that were removed may never hear of it, and do no harm.
        self.servers.retain(|id, _| members.votes(*id));
        self.network.retain(|(_, _, to, _)| members.votes(*to));
        let leader = self.ids().into_iter().find(|id| self.servers[id].up.as_ref().unwrap().store.is_some());
        let leader = leader.expect("a leader");
        // Nothing more is written, and all hear of all.
        for _ in 0..100 {
            self.now += 1;
            self.deliver();
            for id in self.ids() {
                let server = self.servers.get_mut(&id).unwrap();
                server.io.advance_ms(20);
                if let Some(store) = &server.up.as_ref().unwrap().store {
                    store.log().commit_once().unwrap();
                }
                self.tick(id);
                self.send(id);
            }
        }
        let up = self.servers[&leader].up.as_ref().unwrap();
        let (store, extent) = (up.store.as_ref().unwrap(), up.replica.extent());
        assert_eq!(extent.0, extent.1, "{leader} waits for others");
        let truth = all(store);
        for (key, write) in &self.acknowledged {
            let found = truth[*key as usize].as_deref().map(write_of);
            assert!(found >= Some(*write), "key {key} is {found:?}, and {write} was acknowledged");
        }
        store.check().expect("a sound store");
        let mut compared = 0;
        let is_led_by = Role::Follower { leader };
        for id in self.ids().into_iter().filter(|id| *id != leader) {
            let server = &self.servers[&id];
            let replica = &server.up.as_ref().unwrap().replica;
            assert_eq!((replica.role(), replica.extent()), (is_led_by, extent), "{id}\n{}", self.describe());
            let log = replica.log().expect("it follows");
            let replication = Replication { term: replica.term() as u32, agreed: extent.1 };
            let options = options(Some(replication));
            let known = self.servers.get_mut(&id).unwrap().up.as_mut().unwrap().follower.take();
            let known = known.filter(|(of, _)| Arc::ptr_eq(of, &log)).map(|(_, follower)| follower);
            let open = || Follower::open(Arc::new(self.servers[&id].io.clone()), log.clone(), options);
            let mut follower = known.unwrap_or_else(|| open().unwrap());
            while follower.advance().unwrap() {}
            follower.count().unwrap();
            let store = follower.store();
            assert!(all(store) == truth, "{id} has other data");
            store.check().expect("a sound store");
            let leaders = self.servers[&leader].up.as_ref().unwrap().store.as_ref().unwrap().log();
            compared += compare_logs(leaders, store.log(), extent.0);
        }
        assert!(compared > 0);
    }
}

/// Copies all files, durably.
fn copy_folder(from: &dyn Io, to: &SimIo) {
    let in_log = from.list("log").unwrap().into_iter().map(|name| format!("log/{name}"));
    for name in from.list("").unwrap().into_iter().chain(in_log) {
        let source = from.open(&name, false).unwrap();
        let mut bytes = vec![0; source.len().unwrap() as usize];
        source.read_at(&mut bytes, 0).unwrap();
        let file = to.open(&name, true).unwrap();
        file.write_at(&[&bytes], 0, Durability::Durable).unwrap();
        file.sync().unwrap();
    }
    ["log", ""].iter().for_each(|folder| to.sync_dir(folder).unwrap());
}

/// All that it has.
pub fn all(store: &Store) -> Vec<Option<Vec<u8>>> {
    let get = |number| store.get(0, &key(number), |value| value.map(<[u8]>::to_vec)).unwrap().0;
    (0..KEYS).map(get).collect()
}

/// Compares what two logs have of the same entries, from the last one, which ends at `end`, backwards. How many both have.
fn compare_logs(log: &Log, other: &Log, mut end: Lsn) -> u64 {
    let read = |log: &Log, from: Lsn, to: Lsn| {
        let mut bytes = vec![0; (to - from) as usize];
        // A part may have been freed.
        log.read(from, &mut bytes).is_ok_and(|len| len == bytes.len()).then_some(bytes)
    };
    // What it takes in the log, and its payload.
    let seal_at = |lsn: Lsn| {
        let payload = log.payload_at(lsn).or_else(|| other.payload_at(lsn)).filter(|it| it[0] == SEAL)?;
        Some((batch_len(payload.len()), payload))
    };
    let ends_at = |lsn: &Lsn| seal_at(*lsn).is_some_and(|(len, _)| lsn + len == end);
    let mut at = (3..40).map(|n| end - 16 * n).find(ends_at).expect("the last seal");
    let mut compared = 0;
    while let Some((_, seal)) = seal_at(at) {
        let number = |at: usize| u64::from_le_bytes(seal[at..][..8].try_into().unwrap());
        let (index, before) = (number(1), number(17));
        let start = match index {
            2 => before,
            _ => match seal_at(before) {
                Some((len, _)) => before + len,
                None => break,
            },
        };
        if let (Some(bytes), Some(others)) = (read(log, start, end), read(other, start, end)) {
            assert!(without_marks(bytes) == without_marks(others), "entry {index} is another one");
            compared += 1;
        }
        if index == 2 {
            break;
        }
        (at, end) = (before, start);
    }
    compared
}

/// The bytes of a log without the durable marks of batches, which are each server's own.
fn without_marks(mut log: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while at < log.len() {
        let len = u32::from_le_bytes(log[at..at + 4].try_into().unwrap()) as usize;
        log[at + 20..at + 24].fill(0);
        at += (24 + len).next_multiple_of(16);
    }
    log
}
