//! How servers become a replica set. Each tells all others what its folder is; when all have said so, one of them is the origin: the
//! one that has data, or else the first. Its store rests while the others copy it. When all have a copy, the set is founded, and
//! never again: a server whose folder is blank then has lost its data, or was added, and gets a copy of the leader's, as one does that is
//! too far behind.
//!
//! Where servers are is said by the option first, then by the set, then by themselves.

use super::{
    copying::{self, Copying, Offered},
    frame::{Frame, Hello, Kind},
    giving::Giving,
    standing::{JOURNAL, Standing, State, is_file, kind},
};
use crate::{
    admin::log::log,
    config::address::Address,
    server::replica_set::{Listed, ReplicaSet},
};
use holdfast_consensus::{Extract, MemberId, Members, Peer, Replica};
use holdfast_io::{Error, Io, crc32c};
use holdfast_store::{Options, Store};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Files of a folder at most.
const FILES_MAX: usize = 1 << 21;
/// Numbers of servers that are remembered at most, whatever is said.
const HEARD_MAX: usize = 64;
/// How long what another server has said of itself counts.
const FRESH: Duration = Duration::from_secs(2);
/// How often one of the set's tells the others of itself, who may not be.
const GREET: Duration = Duration::from_secs(1);

/// How far this server is.
pub struct Founding {
    set: Arc<ReplicaSet>,
    dir: PathBuf,
    io: Arc<dyn Io>,
    options: Options,
    standing: Option<Standing>,
    kind: Kind,
    nonce: u64,
    own: Option<MemberId>,
    /// Where servers are.
    servers: BTreeMap<MemberId, Address>,
    /// As the one that leads, who is one of the set.
    members: Option<Members>,
    heard: BTreeMap<MemberId, (Instant, Hello)>,
    /// The number of the last entry of the replica.
    last: u64,
    copying: Option<Copying>,
    /// The folder that others copy.
    giving: Option<Giving>,
    greeted: Option<Instant>,
    /// What was logged last.
    told: String,
    outbox: Vec<(Address, Frame)>,
}

/// A number that nobody else has drawn.
pub fn drawn(io: &dyn Io) -> u64 {
    let mut number = [0; 8];
    io.random(&mut number);
    u64::from_le_bytes(number)
}

impl Founding {
    /// Of the folder `dir`, which `io` is.
    ///
    /// # Errors
    /// The folder is of another set, or does not say of which.
    pub fn new(
        set: Arc<ReplicaSet>,
        dir: PathBuf,
        io: Arc<dyn Io>,
        options: Options,
    ) -> Result<Founding, String> {
        let mut standing = Standing::read(&dir)?;
        if let Some(standing) = &mut standing {
            let installed = copying::install(&dir, standing);
            installed.map_err(|e| format!("cannot put a copy in place in {}: {e}", dir.display()))?;
        }
        let kind = kind(standing.as_ref(), &*io).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Founding {
            own: standing.as_ref().map(|standing| standing.own),
            servers: set.listed.clone(),
            members: None,
            heard: BTreeMap::new(),
            last: 0,
            nonce: drawn(&*io),
            set,
            dir,
            io,
            options,
            standing,
            kind,
            copying: None,
            giving: None,
            greeted: None,
            told: String::new(),
            outbox: Vec::new(),
        })
    }

    /// The set, once this server is one of it.
    pub fn member_of(&self) -> Option<u64> {
        self.standing.as_ref().filter(|standing| standing.state == State::Member).map(|standing| standing.set)
    }

    /// Which of the servers this one is, once that is known.
    pub fn own(&self) -> Option<MemberId> {
        self.own
    }

    /// Where a server is.
    pub fn address(&self, id: MemberId) -> Option<&Address> {
        self.servers.get(&id)
    }

    /// The servers of the set, or, until there is one, those of the option.
    pub fn servers(&self, members: Option<&Members>) -> BTreeMap<MemberId, Listed> {
        let Some(members) = members else { return self.set.as_listed() };
        let listed = |(id, peer): (&MemberId, &Peer)| {
            let address = self.servers.get(id)?.clone();
            Some((*id, Listed { address, votes: peer.votes }))
        };
        members.peers.iter().filter_map(listed).collect()
    }

    /// Where servers are, as the set knows it; and, if this one leads, who is one of the set.
    pub fn learn(&mut self, addresses: BTreeMap<MemberId, String>, members: Option<Members>) {
        for (id, address) in addresses {
            if let Some(address) = address.parse().ok().filter(|_| !self.set.listed.contains_key(&id)) {
                self.servers.insert(id, address);
            }
        }
        self.members = members;
    }

    /// Whether a server is who it says: one that has nothing of the set's knows its number only by its own list.
    pub fn is_known(&self, hello: &Hello) -> bool {
        let address = hello.from.and_then(|from| self.servers.get(&from));
        !hello.kind.needs_all() || address.is_some_and(|address| address.to_string() == hello.address)
    }

    /// What is to be sent, and where to.
    pub fn take_frames(&mut self) -> Vec<(Address, Frame)> {
        std::mem::take(&mut self.outbox)
    }

    fn send(&mut self, to: MemberId, frame: Frame) {
        self.outbox.extend(self.servers.get(&to).map(|address| (address.clone(), frame)));
    }

    /// Tells all servers of this one, of whose replica `last` is the number of the last entry; 0: there is none.
    pub fn greet_all(&mut self, last: u64) {
        self.last = last;
        self.greeted = Some(Instant::now());
        for (to, address) in self.servers.clone() {
            self.greet(to, address);
        }
    }

    /// Time goes on. `last`: as above.
    ///
    /// # Errors
    /// The medium's.
    pub fn tick(&mut self, last: u64) -> Result<(), String> {
        let now = Instant::now();
        if self.kind != Kind::Member || self.greeted.is_none_or(|greeted| now >= greeted + GREET) {
            self.greet_all(last);
        }
        match self.copying.as_mut().map(Copying::is_due) {
            Some(None) => {
                log!(Warning, "The copy does not come, and is given up");
                self.copying = None;
            }
            Some(Some(true)) => self.ask(),
            _ => {}
        }
        match self.kind {
            Kind::Member => Ok(()),
            Kind::Origin => self.offer(),
            Kind::Blank | Kind::Data => self.decide(now),
            Kind::Damaged => {
                self.tell("the data of this server are damaged: a copy of the leader's is asked for".into());
                Ok(())
            }
        }
    }

    fn greet(&mut self, to: MemberId, address: Address) {
        let hello = Hello {
            to,
            nonce: self.nonce,
            from: self.own,
            address: self.own_address(),
            servers: self.checksum(),
            set: self.standing.as_ref().map_or(0, |standing| standing.set),
            kind: self.kind,
            last: self.last,
            is_stranger: self.members.as_ref().is_some_and(|members| !members.peers.contains_key(&to)),
            cluster: self.set.cluster_for(to),
        };
        self.outbox.push((address, Frame::Hello(hello)));
    }

    /// Where this server is; empty: it does not know yet.
    fn own_address(&self) -> String {
        self.own.and_then(|own| self.servers.get(&own)).map_or_else(String::new, Address::to_string)
    }

    /// Of the list of servers that the option has.
    fn checksum(&self) -> u32 {
        crc32c(self.set.list().as_bytes())
    }

    /// Another server has sent something.
    ///
    /// # Errors
    /// The medium's; or the option `replica-set` is another one than when the set was founded. Or a copy is to take the place of what there is, and
    /// the server must begin again.
    pub fn receive(&mut self, frame: Frame, replica: Option<&Replica>) -> Result<(), String> {
        match frame {
            Frame::Hello(hello) => self.meet(hello),
            Frame::Offer { set, from, to, nonce, copy, extract, files } => {
                self.take_offer(to, nonce, Offered { set, from, copy, extract, files }, replica)
            }
            Frame::Fetch { from, copy, name, offset, .. } => self.give(from, copy, &name, offset),
            Frame::Part { set, copy, name, offset, bytes } => {
                self.take_part((set, copy), &name, offset, &bytes, replica)
            }
            Frame::Envelope { .. }
            | Frame::HandOver { .. }
            | Frame::Publish { .. }
            | Frame::Track { .. }
            | Frame::Changed { .. } => Ok(()),
        }
    }

    fn meet(&mut self, hello: Hello) -> Result<(), String> {
        if hello.nonce == self.nonce {
            return match self.own {
                Some(own) if own != hello.to => Err(format!(
                    "replica-set: this was server {own} of the set, and is number {} in the list now: numbers must stay",
                    hello.to
                )),
                _ => {
                    self.own = Some(hello.to);
                    Ok(())
                }
            };
        }
        let is_begun = self.kind.is_of_set() || hello.kind.is_of_set();
        if !is_begun && hello.servers != self.checksum() {
            self.tell(format!(
                "another server has another list of servers in its option replica-set than this one ({})",
                self.set.list()
            ));
            return Ok(());
        }
        let Some(from) = hello.from else { return Ok(()) };
        let is_one_more = !self.heard.contains_key(&from) && !self.servers.contains_key(&from);
        if is_one_more && self.heard.len().max(self.servers.len()) >= HEARD_MAX {
            return Ok(());
        }
        let address = hello.address.parse::<Address>();
        if !self.is_known(&hello) && self.kind.is_of_set() {
            let known = self.servers.get(&from).map(|known| format!(", which is at {known}"));
            self.tell(format!(
                "a server at {} that has no data of the set says that it is number {from} of it{}",
                hello.address,
                known.unwrap_or_default()
            ));
        }
        if let Ok(address) = address {
            if self.kind == Kind::Member && hello.kind != Kind::Member {
                self.greet(from, address);
            } else if hello.kind == Kind::Member {
                self.servers.entry(from).or_insert(address);
            }
        }
        if hello.set > 0 && self.member_of() == Some(hello.set) {
            let host = self.servers.get(&from).map(|address| address.host.clone());
            self.set.show_way_to_cluster(from, host.zip(hello.cluster));
        }
        if hello.is_stranger && hello.last >= self.last {
            let own = self.own_address();
            self.tell(match self.kind {
                Kind::Member | Kind::Damaged => "this server was removed from the replica set: it takes no part any more".into(),
                _ => format!("this server is not one of the replica set that the others are: to make it one, have their leader execute REPLICASET ADD {own}"),
            });
        }
        if let Some(standing) =
            self.standing.as_mut().filter(|it| it.set == hello.set && hello.kind == Kind::Member)
            && let State::Origin { have, .. } = &mut standing.state
            && !have.contains(&from)
        {
            have.push(from);
            self.write()?;
        }
        self.heard.insert(from, (Instant::now(), hello));
        Ok(())
    }

    fn write(&self) -> Result<(), String> {
        let standing = self.standing.as_ref().expect("it is written");
        standing.write(&self.dir).map_err(|e| self.failed(&e))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> String {
        format!("cannot use {} for a replica set: {error}", self.dir.display())
    }

    fn tell(&mut self, text: String) {
        if self.told != text {
            log!(Warning, "{text}");
            self.told = text;
        }
    }

    /// Finds who is the origin, and becomes it.
    fn decide(&mut self, now: Instant) -> Result<(), String> {
        let Some(own) = self.own else { return Ok(()) };
        let fresh: BTreeMap<MemberId, Kind> = self
            .heard
            .iter()
            .filter(|(_, (at, _))| now < *at + FRESH)
            .map(|(id, (_, hello))| (*id, hello.kind))
            .collect();
        let has = |kind| fresh.values().any(|known| *known == kind);
        if has(Kind::Origin) {
            if self.kind == Kind::Data {
                self.tell(format!(
                    "{} has data of its own, so it cannot become one of a replica set that has others",
                    self.dir.display()
                ));
            }
            return Ok(());
        }
        if has(Kind::Member) || has(Kind::Damaged) {
            let is_stranger = self.heard.values().any(|(_, hello)| hello.is_stranger);
            if self.kind == Kind::Data {
                self.tell(format!(
                    "{} has data that are not the replica set's: it takes no part",
                    self.dir.display()
                ));
            } else if !is_stranger {
                self.tell(
                    "the others are a replica set, and the data of this server are not here: a copy is asked for"
                        .into(),
                );
            }
            return Ok(());
        }
        let count = self.set.listed.len();
        if ![3, 5, 7].contains(&count) || !(1..=count as MemberId).eq(self.set.listed.keys().copied()) {
            self.tell(format!(
                "no set is here that this server could be one of, and none begins with these servers ({}): it takes 3, 5 or 7, \
                 numbered from 1 on",
                self.set.list()
            ));
            return Ok(());
        }
        let kind = |id: &MemberId| if *id == own { Some(self.kind) } else { fresh.get(id).copied() };
        let kinds: Option<Vec<(MemberId, Kind)>> =
            self.set.listed.keys().map(|id| kind(id).map(|kind| (*id, kind))).collect();
        let Some(kinds) = kinds else { return Ok(()) };
        let with_data: Vec<MemberId> =
            kinds.iter().filter(|(_, kind)| *kind == Kind::Data).map(|(id, _)| *id).collect();
        if with_data.len() > 1 {
            let names: Vec<String> = with_data.iter().map(|id| self.set.listed[id].to_string()).collect();
            self.tell(format!(
                "more than one server has data, and a replica set begins with those of one: {}",
                names.join(", ")
            ));
            return Ok(());
        }
        if with_data.first().copied().unwrap_or(1) == own { self.begin(own) } else { Ok(()) }
    }

    /// Becomes the origin.
    fn begin(&mut self, own: MemberId) -> Result<(), String> {
        let end = || {
            let store = Store::open_on(self.io.clone(), self.options.clone())?;
            store.close()?;
            Ok((store.log().tail(), store.log().epoch()))
        };
        let (end, epoch) = end().map_err(|e: Error| self.failed(&e))?;
        let mut set = [0; 8];
        self.io.random(&mut set);
        let set = u64::from_le_bytes(set).max(1);
        let state = State::Origin { end, epoch, have: Vec::new() };
        self.standing = Some(Standing { set, own, state });
        self.write()?;
        self.kind = Kind::Origin;
        log!(Notice, "The replica set {set:016x} begins with the data of this server");
        self.offer()
    }

    /// As the origin, has the others copy the folder, or takes it that all have.
    fn offer(&mut self) -> Result<(), String> {
        let Some(Standing { set, own, state: State::Origin { end, epoch, have }, .. }) =
            self.standing.clone()
        else {
            return Ok(());
        };
        let members = Members::first(self.set.listed.values().map(Address::to_string));
        let base = Replica::first_base(&members, end);
        // Nobody has voted in it.
        let voted = (epoch.into(), 0);
        let others = self.set.listed.keys().copied().filter(|id| *id != own);
        let missing: Vec<MemberId> = others.filter(|id| !have.contains(id)).collect();
        if missing.is_empty() {
            return self.join(set, own, &base, voted);
        }
        if self.giving.is_none() {
            // Who copies it has nothing yet. It stays as it is, over a restart, too.
            let giving = Giving::new(set, own, set, self.io.clone(), Extract { base, last: (0, 0), voted });
            self.giving = Some(giving.map_err(|e| self.failed(&e))?);
        }
        let giving = self.giving.as_ref().expect("it is there");
        let blank = |id: &MemberId| self.heard.get(id).filter(|(_, hello)| hello.kind == Kind::Blank);
        let offer = |id: MemberId| blank(&id).map(|(_, hello)| (id, giving.offer(id, hello.nonce)));
        let offers: Vec<(MemberId, Frame)> = missing.into_iter().filter_map(offer).collect();
        offers.into_iter().for_each(|(to, offer)| self.send(to, offer));
        Ok(())
    }

    /// Becomes one of the set's, with a folder that has all that the set begins with.
    fn join(&mut self, set: u64, own: MemberId, base: &[u8], voted: (u64, MemberId)) -> Result<(), String> {
        Replica::adopt(self.io.clone(), JOURNAL, own, base, voted).map_err(|e| self.failed(&e))?;
        self.giving = None;
        self.become_member(Standing { set, own, state: State::Member })
    }

    fn become_member(&mut self, standing: Standing) -> Result<(), String> {
        let Standing { set, own, .. } = standing;
        self.standing = Some(standing);
        self.write()?;
        self.kind = Kind::Member;
        log!(Notice, "This is server {own} of the replica set {set:016x}");
        Ok(())
    }

    fn take_offer(
        &mut self,
        to: MemberId,
        nonce: u64,
        offered: Offered,
        replica: Option<&Replica>,
    ) -> Result<(), String> {
        let Some(from) = self.servers.get(&offered.from).cloned() else { return Ok(()) };
        let is_ours = self.own == Some(to) && offered.set > 0;
        let is_possible =
            offered.files.len() < FILES_MAX && offered.files.iter().all(|(name, _)| is_file(name));
        let is_wanted = match self.kind {
            // What another process was to get, which had this folder before, may lack what that has acknowledged since.
            Kind::Blank => nonce == self.nonce,
            Kind::Damaged => {
                let is_its = |standing: &Standing| standing.set == offered.set;
                nonce == self.nonce && self.standing.as_ref().is_some_and(is_its)
            }
            Kind::Member => {
                self.member_of() == Some(offered.set)
                    && nonce == 0
                    && replica.is_some_and(|replica| replica.is_of_use(&offered.extract))
            }
            Kind::Data | Kind::Origin => false,
        };
        // Who offers another one has given the one before up, and so has a leader of an earlier term.
        let term = |extract: &Extract| extract.voted.0;
        let is_under_way = self.copying.as_ref().is_some_and(|copying| {
            copying.copy == offered.copy || term(&offered.extract) < term(&copying.extract)
        });
        if !is_wanted || !is_ours || !is_possible || is_under_way {
            return Ok(());
        }
        log!(Notice, "Copying the data of {from}");
        let begun = Copying::begin(self.io.clone(), &self.dir, to, offered);
        self.copying = Some(begun.map_err(|e| self.failed(&e))?);
        self.ask();
        Ok(())
    }

    fn ask(&mut self) {
        if let Some((from, fetch)) = self.copying.as_ref().map(|copying| (copying.from, copying.fetch())) {
            self.send(from, fetch);
        }
    }

    /// As the origin.
    fn give(&mut self, from: MemberId, copy: u64, name: &str, offset: u64) -> Result<(), String> {
        let Some(giving) = &self.giving else { return Ok(()) };
        if let Some(part) = giving.part(copy, name, offset).map_err(|e| self.failed(&e))? {
            self.send(from, part);
        }
        Ok(())
    }

    fn take_part(
        &mut self,
        (set, copy): (u64, u64),
        name: &str,
        offset: u64,
        bytes: &[u8],
        replica: Option<&Replica>,
    ) -> Result<(), String> {
        let is_its = |copying: &&mut Copying| (copying.set, copying.copy) == (set, copy);
        let Some(copying) = self.copying.as_mut().filter(is_its) else { return Ok(()) };
        if name.is_empty() && copying.is_whole() {
            let copying = self.copying.take().expect("it is whole");
            return self.finish(copying, replica);
        }
        let taken = copying.take(name, offset, bytes);
        if taken.map_err(|e| self.failed(&e))? {
            self.ask();
        }
        Ok(())
    }

    /// All that was copied was kept until the end.
    fn finish(&mut self, copying: Copying, replica: Option<&Replica>) -> Result<(), String> {
        let is_of_use =
            self.kind.needs_all() || replica.is_some_and(|replica| replica.is_of_use(&copying.extract));
        let Some(own) = self.own.filter(|_| is_of_use) else { return Ok(()) };
        let set = copying.set;
        copying.finish().map_err(|e| self.failed(&e))?;
        let mut standing = Standing { set, own, state: State::Whole };
        standing.write(&self.dir).map_err(|e| self.failed(&e))?;
        if self.kind == Kind::Member {
            return Err("a copy of the leader's data takes the place of what there is".into());
        }
        copying::install(&self.dir, &mut standing).map_err(|e| self.failed(&e))?;
        self.become_member(standing)
    }
}
