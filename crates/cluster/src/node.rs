//! A server's part in its cluster.
//!
//! The file `cluster/node` says who the server is: its name, its cluster, and its number in that. The journal of its part in the group
//! is in a folder of the cluster's, `cluster/<cluster>`. A server that is new founds a cluster of its own, and leaves it when it joins
//! another one: then the file says so before there is a journal, and says once more that there is one.

use crate::{
    change::Change,
    frame::Frame,
    map::{Map, Outcome},
    place::{Address, Name, Seat},
};
use holdfast_consensus::{
    Member, MemberId, Options, Role,
    code::{Decoder, Encoder, Malformed},
};
use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, Io, Result, crc32c};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const FILE: &str = "cluster/node";
const MAGIC: &[u8; 8] = b"HFnode01";
/// Servers whose majority decides; the others only follow.
const VOTERS_MAX: usize = 5;
const GROUP: Options = Options { voters_max: VOTERS_MAX };
/// Ticks between two requests to join.
const ASK_TICKS: u64 = 5;
/// Ticks of silence after which one that had failed is said to be back, once it is heard again.
const BACK_TICKS: u64 = 10;

/// How a server takes part.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where it is, as far as it knows.
    pub address: Address,
    /// Ticks of silence after which a server is said to have failed, and one that hears of no majority says that the cluster is down.
    pub timeout: u64,
    /// Which server of which replica set it is, if so.
    pub seat: Option<Seat>,
}

/// A change that was proposed here is decided.
#[derive(Debug)]
pub struct Done {
    /// What [`Node::propose`] returned for it.
    pub number: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    name: Name,
    cluster: u64,
    id: MemberId,
    /// Whether there is a journal.
    is_made: bool,
    /// A cluster that was left, whose journal may be there still; 0: none.
    former: u64,
}

impl Identity {
    fn encode(&self) -> AlignedBuf {
        let mut out = Encoder::default();
        out.raw(MAGIC)
            .bytes(&self.name.0)
            .u64(self.cluster)
            .u64(self.id)
            .u8(self.is_made.into())
            .u64(self.former);
        let mut bytes = out.into_bytes();
        bytes.extend(crc32c(&bytes).to_le_bytes());
        let mut block = AlignedBuf::zeroed(BLOCK);
        block[..bytes.len()].copy_from_slice(&bytes);
        block
    }

    fn decode(block: &[u8]) -> std::result::Result<Identity, Malformed> {
        let rest = block.strip_prefix(MAGIC).ok_or(Malformed)?;
        let mut bytes = Decoder(rest);
        let name = crate::place::name(&mut bytes)?;
        let (cluster, id, is_made) = (bytes.u64()?, bytes.u64()?, bytes.u8()? == 1);
        let former = bytes.u64()?;
        let len = block.len() - bytes.0.len();
        if crc32c(&block[..len]) != bytes.u32()? {
            return Err(Malformed);
        }
        Ok(Identity { name, cluster, id, is_made, former })
    }

    fn read(io: &dyn Io) -> Result<Option<Identity>> {
        let failed = |e| Error::io(format!("read {FILE}"), e);
        let file = match io.open(FILE, false) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        // Its making was cut short: nobody has heard of the server.
        if file.len().map_err(failed)? < BLOCK as u64 {
            return Ok(None);
        }
        let mut block = AlignedBuf::zeroed(BLOCK);
        file.read_at(&mut block, 0).map_err(failed)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        Identity::decode(&block).map(Some).map_err(|Malformed| Error::corrupt(FILE, 0, "who the node is"))
    }

    /// Writes it, durably. What matters is within a sector, and so is written as a whole.
    fn write(&self, io: &dyn Io) -> Result<()> {
        let failed = |e| Error::io(format!("write {FILE}"), e);
        let file = io.open(FILE, true).map_err(failed)?;
        file.write_at(&[&self.encode()], 0, Durability::Durable).map_err(failed)?;
        file.sync().map_err(failed)?;
        io.sync_dir("cluster").map_err(failed)?;
        io.sync_dir("").map_err(failed)
    }
}

fn folder(cluster: u64) -> String {
    format!("cluster/{cluster:016x}")
}

/// A server that is asked to let this one in.
struct Joining {
    host: String,
    bus_port: u16,
    /// Which cluster it is to be of; 0: whichever that is.
    cluster: u64,
    /// The tick until which it is asked, and at which it is asked next.
    until: u64,
    next: u64,
}

/// A server that waits to be let in.
struct Guest {
    name: Name,
    version: u64,
    host: String,
    bus_port: u16,
}

/// A server's part in its cluster.
pub struct Node {
    io: Arc<dyn Io>,
    options: NodeOptions,
    identity: Identity,
    member: Member<Map>,
    /// The map as it was told last: while a server joins, that of before.
    map: Map,
    /// Whether that is still the map of the cluster that it has left.
    is_former: bool,
    /// Counts the maps that it has had. Their own versions tell those of one cluster apart.
    maps: u64,
    joining: Option<Joining>,
    /// Proposals for servers that want to join.
    guests: BTreeMap<u64, Guest>,
    /// Proposals about servers that have failed, or are back, or where and what this one is.
    reports: BTreeSet<u64>,
    /// The proposal that it has begun, until that is decided.
    beginning: Option<u64>,
    /// In which term it leads its replica set.
    leads: Option<u64>,
    /// The proposal that says so, and the term.
    sitting: Option<(u64, u64)>,
    /// From where the others were heard.
    senders: BTreeMap<MemberId, (String, u16)>,
    /// Since when the members are known: who has just joined is given the time to speak.
    known_since: BTreeMap<MemberId, u64>,
    now: u64,
    /// When a leader was known last, and since when this server is it.
    led: u64,
    leads_since: Option<u64>,
    frames: Vec<((String, u16), Frame)>,
    done: Vec<Done>,
}

impl Node {
    /// Opens what a data folder says, or founds a cluster of one.
    ///
    /// # Errors
    /// The medium's, or what is there is damaged.
    pub fn open(io: Arc<dyn Io>, options: NodeOptions) -> Result<Node> {
        let identity = match Identity::read(&*io)? {
            Some(identity) => identity,
            None => {
                let name = random_name(&*io);
                let identity = Identity { name, cluster: random(&*io), id: 1, is_made: false, former: 0 };
                identity.write(&*io)?;
                identity
            }
        };
        let mut node = Node::begin(io, options, identity)?;
        node.beginning = Some(node.propose(&Change::Begin { id: node.identity.id }));
        Ok(node)
    }

    fn begin(io: Arc<dyn Io>, options: NodeOptions, mut identity: Identity) -> Result<Node> {
        let folder = folder(identity.cluster);
        let member = match Member::open(io.clone(), &folder, Map::default(), GROUP)? {
            Some(member) if identity.is_made => member,
            None if identity.is_made => {
                return Err(Error::Unusable(format!(
                    "{folder} is missing, in which the node had what it promised to its cluster"
                )));
            }
            _ => {
                // It has said nothing to anybody yet.
                Member::<Map>::remove(&*io, &folder)?;
                let member = match identity.id {
                    1 => {
                        let map = Map::of_one(identity.name, options.address.clone());
                        Member::found(io.clone(), &folder, 1, map, GROUP)?
                    }
                    id => Member::join(io.clone(), &folder, id, Map::default(), GROUP)?,
                };
                identity.is_made = true;
                identity.write(&*io)?;
                member
            }
        };
        if identity.former != 0 {
            Member::<Map>::remove(&*io, &self::folder(identity.former))?;
            identity.former = 0;
            identity.write(&*io)?;
        }
        let map = member.machine().clone();
        Ok(Node {
            io,
            options,
            identity,
            member,
            joining: None,
            guests: BTreeMap::new(),
            reports: BTreeSet::new(),
            beginning: None,
            leads: None,
            sitting: None,
            senders: BTreeMap::new(),
            known_since: map.members().keys().map(|&id| (id, 0)).collect(),
            map,
            is_former: false,
            maps: 0,
            now: 0,
            led: 0,
            leads_since: None,
            frames: Vec::new(),
            done: Vec::new(),
        })
    }

    /// Its name.
    pub fn name(&self) -> Name {
        self.identity.name
    }

    /// Its number.
    pub fn id(&self) -> MemberId {
        self.identity.id
    }

    /// Which cluster it is a part of.
    pub fn cluster(&self) -> u64 {
        self.identity.cluster
    }

    /// The map, as far as it has heard.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Counts the maps that it has had: another number, another map.
    pub fn maps(&self) -> u64 {
        self.maps
    }

    /// Whether nobody decides who was forgotten, as far as it has heard. Until then one that has left is still needed for a majority.
    pub fn is_settled(&self) -> bool {
        let (voters, learners) = self.member.members();
        let members = self.member.machine().members();
        voters.iter().chain(learners).all(|id| members.contains_key(id))
    }

    /// Whether it has heard of all that was decided on what it proposed before it ended last: until then slots may be others' that it had.
    /// And, if it is of a replica set, whether all know that it leads that.
    pub fn is_current(&self) -> bool {
        let is_known_to_lead = || {
            let me = self.map.members().get(&self.identity.id);
            me.is_some_and(|me| me.seat == self.options.seat && Some(me.term) == self.leads)
        };
        self.beginning.is_none() && (self.options.seat.is_none() || is_known_to_lead())
    }

    /// It leads its replica set from now on, in this term.
    pub fn lead(&mut self, term: u64) {
        self.leads = Some(term);
    }

    /// Whether a majority decides, as far as it has heard.
    pub fn is_connected(&self) -> bool {
        self.now - self.led <= self.options.timeout
    }

    /// Who leads the group; `None`: it does not know.
    pub fn leader(&self) -> Option<MemberId> {
        match self.member.role() {
            Role::Leader => Some(self.identity.id),
            Role::Follower { leader } => Some(leader),
            Role::Leaderless => None,
        }
    }

    /// The term of the leader.
    pub fn term(&self) -> u64 {
        self.member.term()
    }

    /// Whether it knows no other server, and none is about to join it.
    fn is_alone(&self) -> bool {
        let members = self.map.members();
        members.len() == 1 && members.contains_key(&self.identity.id) && self.guests.is_empty()
    }

    /// It is at another place, or waits for another time, than before. An empty host is the one that it has.
    pub fn set_options(&mut self, options: &NodeOptions) {
        let learned = std::mem::replace(&mut self.options, options.clone()).address.host;
        if self.options.address.host.is_empty() {
            self.options.address.host = learned;
        }
    }

    /// Time goes on by a tick.
    pub fn tick(&mut self) {
        self.now += 1;
        self.member.tick();
        self.ask();
        match self.member.role() {
            Role::Leaderless => {}
            _ => self.led = self.now,
        }
        let leads = self.member.role() == Role::Leader;
        self.leads_since = if leads { self.leads_since.or(Some(self.now)) } else { None };
        self.report();
    }

    /// Proposes what others are to know of who has failed, who is back, and where and what this server is.
    fn report(&mut self) {
        if !self.reports.is_empty() || !self.is_connected() {
            return;
        }
        let me = self.map.members().get(&self.identity.id);
        let mut change = None;
        if let Some(me) = me {
            let host = Some(&self.options.address.host).filter(|host| !host.is_empty());
            let host = host.unwrap_or(&me.address.host).clone();
            let address = Address { host, ..self.options.address.clone() };
            if address != me.address {
                change = Some(Change::Move { id: self.identity.id, address });
            } else if let Some(seat) = self.options.seat {
                let term = self.leads.unwrap_or(me.term);
                if me.seat != Some(seat) || me.term != term {
                    change = Some(Change::Sit { id: self.identity.id, seat, term: self.leads.unwrap_or(0) });
                }
            }
        }
        change = change.or_else(|| self.place_of_one_not_found());
        if let Some(since) = self.leads_since.filter(|_| change.is_none()) {
            change = self.map.members().iter().find_map(|(&id, member)| {
                // One that leads may have failed before.
                let heard = if id == self.identity.id { Some(0) } else { self.member.silence(id) };
                let since = since.max(self.known_since.get(&id).copied().unwrap_or(self.now));
                let silence = heard.unwrap_or(u64::MAX).min(self.now - since);
                let has_failed = match member.has_failed {
                    false => silence > self.options.timeout,
                    true => heard.is_none_or(|silence| silence > BACK_TICKS),
                };
                (has_failed != member.has_failed).then_some(Change::Failed { id, has_failed })
            });
        }
        if let Some(change) = change {
            let number = self.member.propose(change.encode());
            if let Change::Sit { term, .. } = change {
                self.sitting = Some((number, term));
            }
            self.reports.insert(number);
        }
    }

    /// Where a server is that has failed since the leader does not know that, and the server neither. It is heard here.
    fn place_of_one_not_found(&self) -> Option<Change> {
        let is_lost = |member: &crate::map::Member| member.has_failed && member.address.host.is_empty();
        let mut lost = self.map.members().iter().filter(|(_, member)| is_lost(member));
        lost.find_map(|(&id, member)| {
            let (host, _) = self.senders.get(&id)?;
            Some(Change::Move { id, address: Address { host: host.clone(), ..member.address.clone() } })
        })
    }

    /// Brings this server and another one together, which is then to be of this cluster (0: of whichever). That goes on for the time of
    /// `timeout`; what comes of it is seen in the map.
    pub fn meet(&mut self, host: &str, bus_port: u16, cluster: u64) {
        if self.is_alone() {
            let (until, next) = (self.now + self.options.timeout, self.now);
            self.joining = Some(Joining { host: host.to_owned(), bus_port, cluster, until, next });
            self.ask();
        } else {
            let me = self.map.members().get(&self.identity.id);
            let address = me.map_or(&self.options.address, |me| &me.address).clone();
            let invite = Frame::Invite { address, cluster: self.identity.cluster, found_by: host.to_owned() };
            self.frames.push(((host.to_owned(), bus_port), invite));
        }
    }

    /// Whether it is about to leave what it knows for another cluster.
    pub fn is_joining(&self) -> bool {
        self.joining.is_some() || !self.map.members().contains_key(&self.identity.id)
    }

    /// Whether it still takes itself for a member of its cluster although, by what is told of the map of this version or a later one, the
    /// others have forgotten it.
    pub fn is_forgotten(&self, cluster: u64, version: u64, is_member: bool) -> bool {
        let is_of_it = cluster == self.identity.cluster && !self.is_former;
        is_of_it && !is_member && version >= self.map.version()
    }

    fn ask(&mut self) {
        let Some(joining) = &mut self.joining else { return };
        if joining.until < self.now || self.map.members().len() > 1 {
            self.joining = None;
            return;
        }
        if joining.next > self.now {
            return;
        }
        joining.next = self.now + ASK_TICKS;
        let Some(me) = self.map.members().get(&self.identity.id) else { return };
        let ask = Frame::Join {
            name: self.identity.name,
            home: self.identity.cluster,
            cluster: joining.cluster,
            version: self.map.version(),
            address: me.address.clone(),
            slots: self.map.slots_of(self.identity.id),
            epoch: me.epoch,
            seat: self.options.seat,
            found_by: joining.host.clone(),
        };
        self.frames.push(((joining.host.clone(), joining.bus_port), ask));
    }

    /// A frame has come from a host.
    ///
    /// # Errors
    /// The medium's: where it joins, it makes that durable.
    pub fn receive(&mut self, host: &str, frame: Frame) -> Result<()> {
        match frame {
            Frame::Group { cluster, bus_port, message } => {
                if cluster == self.identity.cluster && message.to() == self.identity.id {
                    self.senders.insert(message.from(), (host.to_owned(), bus_port));
                    self.member.step(message);
                }
            }
            Frame::Join { name, home, cluster, version, mut address, slots, epoch, seat, found_by } => {
                if cluster != 0 && cluster != self.identity.cluster {
                    return Ok(());
                }
                if address.host.is_empty() {
                    address.host = host.to_owned();
                }
                // Of two that ask each other, one lets the other in.
                if name == self.identity.name || (self.joining.is_some() && self.identity.name > name) {
                    return Ok(());
                }
                self.joining = None;
                self.learn_host(&found_by);
                if self.guests.values().any(|guest| guest.name == name) {
                    return Ok(());
                }
                let guest = Guest { name, version, host: address.host.clone(), bus_port: address.bus_port };
                let join = Change::Join { name, home, version, address, slots, epoch, seat };
                self.guests.insert(self.member.propose(join.encode()), guest);
            }
            Frame::Welcome { name, version, cluster, id } => {
                // What was changed since it asked would be lost.
                let is_whole = version == self.map.version() && self.member.undecided() == 0;
                let is_asked = self.joining.is_some() && self.is_alone() && is_whole;
                if name == self.identity.name && is_asked && cluster != self.identity.cluster && id > 1 {
                    self.switch(cluster, id)?;
                }
            }
            Frame::Refused { name, .. } => {
                if name == self.identity.name {
                    self.joining = None;
                }
            }
            Frame::Invite { mut address, cluster, found_by } => {
                if address.host.is_empty() {
                    address.host = host.to_owned();
                }
                self.learn_host(&found_by);
                if self.is_alone() && cluster != self.identity.cluster {
                    self.meet(&address.host, address.bus_port, cluster);
                }
            }
            // Who has subscribers sends it to them.
            Frame::Publish { .. } => {}
        }
        Ok(())
    }

    /// By which host this server was found, if it does not know itself.
    fn learn_host(&mut self, host: &str) {
        let me = self.map.members().get(&self.identity.id);
        if self.options.address.host.is_empty() && me.is_some_and(|me| me.address.host.is_empty()) {
            self.options.address.host = host.to_owned();
        }
    }

    /// Leaves the cluster for another one, as its member `id`.
    fn switch(&mut self, cluster: u64, id: MemberId) -> Result<()> {
        let former = self.identity.cluster;
        let identity = Identity { cluster, id, is_made: false, former, name: self.identity.name };
        self.begin_anew(identity)
    }

    /// Leaves the cluster for one of its own, with another name if it `is_hard`. The others are not told: they forget it.
    ///
    /// # Errors
    /// The medium's.
    pub fn reset(&mut self, is_hard: bool) -> Result<()> {
        let name = if is_hard { random_name(&*self.io) } else { self.identity.name };
        let former = self.identity.cluster;
        self.map = Map::default();
        self.begin_anew(Identity { name, cluster: random(&*self.io), id: 1, is_made: false, former })
    }

    fn begin_anew(&mut self, identity: Identity) -> Result<()> {
        identity.write(&*self.io)?;
        let mut node = Node::begin(self.io.clone(), self.options.clone(), identity)?;
        if node.map.members().is_empty() {
            (node.map, node.is_former) = (std::mem::take(&mut self.map), true);
        }
        node.maps = self.maps + 1;
        node.done = std::mem::take(&mut self.done);
        node.leads = self.leads;
        if self.beginning.is_some() {
            node.beginning = Some(node.propose(&Change::Begin { id: node.identity.id }));
        }
        *self = node;
        Ok(())
    }

    /// Proposes a change; its number.
    pub fn propose(&mut self, change: &Change) -> u64 {
        self.member.propose(change.encode())
    }

    /// Nobody waits for a proposal any more. It may be done all the same.
    pub fn give_up(&mut self, number: u64) {
        self.member.give_up(number);
    }

    /// Does what is to be done after ticks, frames and proposals. After an error the node is to be opened anew.
    ///
    /// # Errors
    /// The medium's.
    pub fn work(&mut self) -> Result<()> {
        self.member.work()?;
        let heard = self.member.machine();
        let is_other = self.is_former || heard.version() != self.map.version();
        if is_other && !heard.members().is_empty() {
            (self.map, self.is_former) = (heard.clone(), false);
            self.maps += 1;
            let known = std::mem::take(&mut self.known_since);
            let since = |&id: &MemberId| (id, known.get(&id).copied().unwrap_or(self.now));
            self.known_since = self.map.members().keys().map(since).collect();
        }
        for finished in self.member.take_finished() {
            if let Some((_, term)) = self.sitting.take_if(|(number, _)| *number == finished.number)
                && let Some(Err(_)) = finished.outcome
            {
                // Another one has been elected since.
                self.leads.take_if(|leads| *leads == term);
            }
            let lost = || Err("ERR it is not known what came of the change: look at CLUSTER NODES".into());
            let outcome = finished.outcome.unwrap_or_else(lost);
            if let Some(guest) = self.guests.remove(&finished.number) {
                self.answer(guest, outcome);
            } else if self.beginning == Some(finished.number) {
                self.beginning = None;
            } else if !self.reports.remove(&finished.number) {
                self.done.push(Done { number: finished.number, outcome });
            }
        }
        for message in self.member.take_messages() {
            match self.place_of(message.to()) {
                Some(place) => {
                    self.member.sent(&message);
                    let (cluster, bus_port) = (self.identity.cluster, self.options.address.bus_port);
                    self.frames.push((place, Frame::Group { cluster, bus_port, message }));
                }
                None => self.member.unreachable(&message),
            }
        }
        Ok(())
    }

    /// Where another server is: as the map says, or, as long as that does not know, from where it was heard.
    fn place_of(&self, id: MemberId) -> Option<(String, u16)> {
        let known = self.member.machine().members().get(&id).map(|member| &member.address);
        let known = known.filter(|address| !address.host.is_empty());
        known
            .map(|address| (address.host.clone(), address.bus_port))
            .or_else(|| self.senders.get(&id).cloned())
    }

    fn answer(&mut self, guest: Guest, outcome: Outcome) {
        let name = guest.name;
        let frame = match outcome {
            Ok(id) => Frame::Welcome { name, version: guest.version, cluster: self.identity.cluster, id },
            Err(why) => Frame::Refused { name, why },
        };
        self.frames.push(((guest.host, guest.bus_port), frame));
    }

    /// What is to be sent, by host and port. Any of it may be lost.
    pub fn take_frames(&mut self) -> Vec<((String, u16), Frame)> {
        std::mem::take(&mut self.frames)
    }

    /// Proposals from here that were decided.
    pub fn take_done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.done)
    }
}

fn random(io: &dyn Io) -> u64 {
    let mut bytes = [0; 8];
    io.random(&mut bytes);
    u64::from_le_bytes(bytes).max(1)
}

fn random_name(io: &dyn Io) -> Name {
    let mut name = Name::default();
    io.random(&mut name.0);
    name
}
