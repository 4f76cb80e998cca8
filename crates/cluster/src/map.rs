//! Which servers there are, and which of them has which hash slots.

use crate::{
    change::Change,
    place::{Address, Name, Seat, name},
    slots::{SLOTS, Slots},
};
use holdfast_consensus::{
    Machine, MemberId,
    code::{Decoder, Encoder, Malformed},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Servers that a cluster has at most.
const SERVERS_MAX: usize = 1000;
/// Names of servers that are not to come back, of which so many are remembered.
const FORGOTTEN_MAX: usize = 1000;

/// A server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: Name,
    /// Where it is.
    pub address: Address,
    /// Greater where its slots were given to it later.
    pub epoch: u64,
    /// Whether the others have not heard of it for long.
    pub has_failed: bool,
    /// Which one of which replica set it is, if so.
    pub seat: Option<Seat>,
    /// In which term it has led that last; 0: in none.
    pub term: u64,
    /// The cluster that it was of alone before it joined this one, and the version of its map then.
    pub(crate) home: (u64, u64),
}

impl Member {
    /// One that is of no replica set, and heard of.
    fn new(name: Name, address: Address, epoch: u64, home: (u64, u64)) -> Member {
        Member { name, address, epoch, has_failed: false, seat: None, term: 0, home }
    }
}

/// A slot that is on its way from one server to another, key by key. The two are told one after the other, so there may be only one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Move {
    /// Where its owner sends clients for what is not there any more.
    pub to: Option<MemberId>,
    /// Who takes it, and from whom.
    pub from: Option<(MemberId, MemberId)>,
}

impl Move {
    /// The servers that it names.
    fn servers(&mut self) -> impl Iterator<Item = &mut MemberId> {
        self.to.iter_mut().chain(self.from.iter_mut().flat_map(|(by, from)| [by, from]))
    }
}

/// Slots that are on their way from their owner to another server as a whole: they change hands by one change, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The slots.
    pub slots: Slots,
    /// Who owns them.
    pub from: MemberId,
    /// Who is to own them.
    pub to: MemberId,
}

/// The servers and their slots. Servers are numbered as they join, and no number is used twice.
#[derive(Clone, PartialEq, Eq)]
pub struct Map {
    /// Counts changes.
    version: u64,
    members: BTreeMap<MemberId, Member>,
    next_id: MemberId,
    /// The owner of each slot; 0: nobody.
    owners: Box<[MemberId]>,
    moves: BTreeMap<u16, Move>,
    /// By their numbers, none of which is used twice.
    transfers: BTreeMap<u64, Transfer>,
    next_transfer: u64,
    /// Slots of which a server that does not own them has keys, from a transfer: it does not get them before it has removed these.
    leftovers: BTreeMap<MemberId, Slots>,
    epoch: u64,
    /// The last ones last.
    forgotten: Vec<Name>,
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("version", &self.version)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl Default for Map {
    fn default() -> Map {
        Map {
            version: 0,
            members: BTreeMap::new(),
            next_id: 1,
            owners: vec![0; SLOTS].into(),
            moves: BTreeMap::new(),
            transfers: BTreeMap::new(),
            next_transfer: 1,
            leftovers: BTreeMap::new(),
            epoch: 0,
            forgotten: Vec::new(),
        }
    }
}

/// What comes of a change: a number, of meaning only where one joins (its own) and where a transfer begins (that's); or why it is refused, in
/// Redis's words.
pub type Outcome = Result<MemberId, String>;

impl Map {
    /// That of a server which knows no other one, as number 1.
    pub fn of_one(name: Name, address: Address) -> Map {
        let mut map = Map { next_id: 2, ..Map::default() };
        map.members.insert(1, Member::new(name, address, 0, (0, 0)));
        map
    }

    /// Counts changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The greatest epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The servers, with their numbers.
    pub fn members(&self) -> &BTreeMap<MemberId, Member> {
        &self.members
    }

    /// The number of a server.
    pub fn id_of(&self, name: Name) -> Option<MemberId> {
        self.members.iter().find(|(_, member)| member.name == name).map(|(&id, _)| id)
    }

    /// Who has a slot.
    pub fn owner(&self, slot: u16) -> Option<MemberId> {
        Some(self.owners[usize::from(slot)]).filter(|&owner| owner != 0)
    }

    /// The slots of a server.
    pub fn slots_of(&self, id: MemberId) -> Slots {
        Slots::collect((0..SLOTS as u16).filter(|&slot| self.owners[usize::from(slot)] == id))
    }

    /// How many slots have an owner.
    pub fn assigned(&self) -> usize {
        self.slot_counts().values().sum()
    }

    /// How many slots each server has that has any.
    pub fn slot_counts(&self) -> BTreeMap<MemberId, usize> {
        let mut counts = BTreeMap::new();
        // Most are behind another one of the same server.
        for run in self.owners.chunk_by(|one, next| one == next).filter(|run| run[0] != 0) {
            *counts.entry(run[0]).or_default() += run.len();
        }
        counts
    }

    /// Whether each slot has an owner that has not failed.
    pub fn is_covered(&self) -> bool {
        let has_failed = |id: &MemberId| self.members.get(id).is_none_or(|owner| owner.has_failed);
        let counts = self.slot_counts();
        counts.values().sum::<usize>() == SLOTS && !counts.keys().any(has_failed)
    }

    /// Slots that are on their way.
    pub fn moves(&self) -> &BTreeMap<u16, Move> {
        &self.moves
    }

    /// Slots that are on their way as a whole, by the numbers of their transfers.
    pub fn transfers(&self) -> &BTreeMap<u64, Transfer> {
        &self.transfers
    }

    /// What a server is to remove, of slots that are not its own.
    pub fn leftovers(&self, id: MemberId) -> Slots {
        self.leftovers.get(&id).cloned().unwrap_or_default()
    }

    /// Whether keys of a slot are among that.
    pub fn has_leftovers(&self, id: MemberId, slot: u16) -> bool {
        self.leftovers.get(&id).is_some_and(|left| left.contains(slot))
    }

    /// Who is being sent the keys of a slot that another server owns.
    pub fn receiver(&self, slot: u16) -> Option<MemberId> {
        let by_key = self.moves.get(&slot).and_then(|way| way.from).map(|(by, _)| by);
        let as_whole = self.transfers.values().find(|transfer| transfer.slots.contains(slot));
        by_key.or(as_whole.map(|transfer| transfer.to))
    }

    fn known(&self, id: MemberId) -> Result<(), String> {
        if self.members.contains_key(&id) {
            Ok(())
        } else {
            Err("ERR This node is not a part of the cluster".into())
        }
    }

    /// The servers of a replica set.
    fn servers_of(&self, set: u64) -> impl Iterator<Item = (MemberId, &Member)> {
        let is_of_it = move |member: &Member| member.seat.is_some_and(|seat| seat.set == set);
        self.members.iter().filter(move |(_, member)| is_of_it(member)).map(|(&id, member)| (id, member))
    }

    /// Who has led the replica set of a server last: itself, if it is of none. `None`: nobody has.
    pub fn leader_of(&self, id: MemberId) -> Option<MemberId> {
        let Some(seat) = self.members.get(&id)?.seat else { return Some(id) };
        let leaders = self.servers_of(seat.set).filter(|(_, member)| member.term > 0);
        leaders.max_by_key(|(_, member)| member.term).map(|(id, _)| id)
    }

    /// The greatest epoch of the servers of a server's replica set, or its own if it is of none: greater where slots were given to that later.
    pub fn epoch_of(&self, id: MemberId) -> u64 {
        let Some(member) = self.members.get(&id) else { return 0 };
        let of_set = member.seat.iter().flat_map(|seat| self.servers_of(seat.set));
        of_set.map(|(_, member)| member.epoch).max().unwrap_or(member.epoch)
    }

    /// Whether slots may become a server's, or nobody's (0).
    fn may_give(&self, slots: &Slots, to: MemberId) -> Result<(), String> {
        if to != 0 && self.leader_of(to) != Some(to) {
            return Err(
                "ERR the node does not lead its replica set: slots are given to the one that does".into()
            );
        }
        let left = self.leftovers(to);
        for slot in slots.iter() {
            if self.transfers.values().any(|transfer| transfer.slots.contains(slot)) {
                return Err(format!("ERR Slot {slot} is being migrated: CLUSTER CANCELSLOTMIGRATIONS first"));
            }
            if left.contains(slot) {
                return Err(format!("ERR the node still removes old keys of slot {slot}, try again"));
            }
        }
        Ok(())
    }

    fn change(&mut self, change: Change) -> Outcome {
        match change {
            Change::Join { name, home, version, address, slots, epoch, seat } => {
                let has_slots = !slots.is_empty();
                let id = self.join(name, (home, version), address, slots, epoch)?;
                // Its slots are its own until it says so itself: it may not know yet that it is let in, and serve them.
                if let Some(seat) = seat.filter(|seat| !has_slots && self.members[&id].seat != Some(*seat)) {
                    self.sit(id, seat, 0)?;
                }
                return Ok(id);
            }
            Change::Move { id, address } => {
                self.known(id)?;
                self.members.get_mut(&id).expect("it is known").address = address;
            }
            Change::AddSlots { id, slots } => {
                self.known(id)?;
                if let Some(slot) = slots.iter().find(|&slot| self.owner(slot).is_some()) {
                    return Err(format!("ERR Slot {slot} is already busy"));
                }
                self.may_give(&slots, id)?;
                slots.iter().for_each(|slot| self.give(slot, id));
            }
            Change::RemoveSlots { slots } => {
                if let Some(slot) = slots.iter().find(|&slot| self.owner(slot).is_none()) {
                    return Err(format!("ERR Slot {slot} is already unassigned"));
                }
                self.may_give(&slots, 0)?;
                slots.iter().for_each(|slot| self.give(slot, 0));
            }
            Change::FlushSlots { id } => {
                let slots = self.slots_of(id);
                self.may_give(&slots, 0)?;
                slots.iter().for_each(|slot| self.give(slot, 0));
            }
            Change::Migrating { id, slot, to } => {
                if self.owner(slot) != Some(id) {
                    return Err(format!("ERR I'm not the owner of hash slot {slot}"));
                }
                let to = self.id_of(to).ok_or_else(|| format!("ERR I don't know about node {to}"))?;
                self.may_give(&Slots(vec![slot..=slot]), to)?;
                self.moves.entry(slot).or_default().to = Some(to);
            }
            Change::Importing { id, slot, from } => {
                if self.owner(slot) == Some(id) {
                    return Err(format!("ERR I'm already the owner of hash slot {slot}"));
                }
                let from = self.id_of(from).ok_or_else(|| format!("ERR I don't know about node {from}"))?;
                self.may_give(&Slots(vec![slot..=slot]), id)?;
                self.moves.entry(slot).or_default().from = Some((id, from));
            }
            Change::Stable { slot } => drop(self.moves.remove(&slot)),
            Change::Assign { slot, to } => {
                let to = self.id_of(to).ok_or_else(|| format!("ERR Unknown node {to}"))?;
                if self.owner(slot) == Some(to) {
                    // Each of the two sides says so, and everybody else.
                    self.moves.remove(&slot);
                } else {
                    self.may_give(&Slots(vec![slot..=slot]), to)?;
                    self.give(slot, to);
                    self.epoch += 1;
                    self.members.get_mut(&to).expect("it was found").epoch = self.epoch;
                }
            }
            Change::BeginTransfer { id, slots, to } => {
                let to = self.id_of(to).ok_or_else(|| format!("ERR Unknown node {to}"))?;
                if to == id || slots.is_empty() {
                    return Err("ERR the target of a migration is another node".into());
                }
                if let Some(slot) = slots.iter().find(|&slot| self.owner(slot) != Some(id)) {
                    return Err(format!("ERR I'm not the owner of hash slot {slot}"));
                }
                if let Some(slot) = slots.iter().find(|slot| self.moves.contains_key(slot)) {
                    return Err(format!(
                        "ERR Slot {slot} is on its way already: CLUSTER SETSLOT STABLE first"
                    ));
                }
                if self.transfers.values().any(|transfer| transfer.from == id) {
                    return Err("ERR the node migrates other slots already".into());
                }
                self.may_give(&slots, to)?;
                let number = self.next_transfer;
                self.next_transfer += 1;
                self.transfers.insert(number, Transfer { slots, from: id, to });
                return Ok(number);
            }
            Change::EndTransfer { number, has_arrived } => {
                let Some(Transfer { slots, from, to }) = self.transfers.remove(&number) else {
                    return Err("ERR the migration has ended before".into());
                };
                // Who does not own them has keys of them now.
                self.leave(if has_arrived { from } else { to }, &slots);
                if has_arrived {
                    slots.iter().for_each(|slot| self.give(slot, to));
                    self.epoch += 1;
                    self.members.get_mut(&to).expect("who is forgotten has no transfer").epoch = self.epoch;
                }
            }
            Change::Cleared { id, slots } => {
                let left = self.leftovers(id).without(&slots);
                match left.is_empty() {
                    true => drop(self.leftovers.remove(&id)),
                    false => drop(self.leftovers.insert(id, left)),
                }
            }
            Change::SetEpoch { id, epoch } => {
                self.known(id)?;
                if self.members.len() > 1 {
                    return Err("ERR The user can assign a config epoch only when the node does not know any other node.".into());
                }
                let member = self.members.get_mut(&id).expect("it is known");
                if member.epoch != 0 {
                    return Err("ERR Node config epoch is already non-zero".into());
                }
                member.epoch = epoch;
                self.epoch = self.epoch.max(epoch);
            }
            Change::BumpEpoch { id } => {
                self.known(id)?;
                self.epoch += 1;
                self.members.get_mut(&id).expect("it is known").epoch = self.epoch;
            }
            Change::Forget { name } => match self.id_of(name) {
                Some(id) => self.forget(id),
                None if self.forgotten.contains(&name) => {}
                None => return Err(format!("ERR Unknown node {name}")),
            },
            Change::Failed { id, has_failed } => {
                self.known(id)?;
                self.members.get_mut(&id).expect("it is known").has_failed = has_failed;
            }
            Change::Begin { id } => self.known(id)?,
            Change::Sit { id, seat, term } => self.sit(id, seat, term)?,
        }
        Ok(0)
    }

    /// A slot's owner is another one, and it is on its way no more.
    fn give(&mut self, slot: u16, to: MemberId) {
        self.owners[usize::from(slot)] = to;
        self.moves.remove(&slot);
    }

    /// A server has keys of slots that are not its own.
    fn leave(&mut self, id: MemberId, slots: &Slots) {
        let left = self.leftovers(id).and(slots);
        self.leftovers.insert(id, left);
    }

    fn sit(&mut self, id: MemberId, seat: Seat, term: u64) -> Result<(), String> {
        self.known(id)?;
        let is_late = |(other, member): (MemberId, &Member)| other != id && member.term >= term;
        if term > 0 && self.servers_of(seat.set).any(is_late) {
            return Err("ERR another server of the replica set leads".into());
        }
        let me = self.members.get_mut(&id).expect("it is known");
        me.seat = Some(seat);
        me.term = me.term.max(term);
        let servers: BTreeSet<MemberId> = self.servers_of(seat.set).map(|(id, _)| id).collect();
        if let Some(leader) = self.leader_of(id) {
            if term > 0 {
                self.end_transfers(|of| servers.contains(&of));
            }
            servers.iter().filter(|server| **server != leader).for_each(|server| self.pass(*server, leader));
        }
        // One that has lost its data has come back under another name.
        let is_former = |&(other, member): &(MemberId, &Member)| {
            let has_nothing = self.slots_of(other).is_empty() && self.leftovers(other).is_empty();
            other < id && member.seat == Some(seat) && has_nothing
        };
        let former: Vec<MemberId> = self.servers_of(seat.set).filter(is_former).map(|(id, _)| id).collect();
        former.into_iter().for_each(|former| self.forget(former));
        Ok(())
    }

    /// All that a server has is another one's, which has the same data.
    fn pass(&mut self, from: MemberId, to: MemberId) {
        let slots = self.slots_of(from);
        slots.iter().for_each(|slot| self.owners[usize::from(slot)] = to);
        if !slots.is_empty() {
            self.epoch += 1;
            self.members.get_mut(&to).expect("it is known").epoch = self.epoch;
        }
        for id in self.moves.values_mut().flat_map(Move::servers).filter(|id| **id == from) {
            *id = to;
        }
        if let Some(left) = self.leftovers.remove(&from) {
            self.leave(to, &left);
        }
    }

    /// Transfers from or to servers end without having arrived.
    fn end_transfers(&mut self, of: impl Fn(MemberId) -> bool) {
        let is_involved = |transfer: &Transfer| of(transfer.from) || of(transfer.to);
        for transfer in self.transfers.values().filter(|it| is_involved(it)).cloned().collect::<Vec<_>>() {
            self.leave(transfer.to, &transfer.slots);
        }
        self.transfers.retain(|_, transfer| !is_involved(transfer));
    }

    fn join(&mut self, name: Name, home: (u64, u64), address: Address, slots: Slots, epoch: u64) -> Outcome {
        let known = self.id_of(name);
        if let Some(id) = known {
            let before = self.members[&id].home;
            if before.0 != home.0 {
                return Err(format!(
                    "ERR node {name} was a part of the cluster before: CLUSTER FORGET it first"
                ));
            }
            // It has asked before, and not heard the answer.
            if home.1 <= before.1 {
                return Ok(id);
            }
        }
        if self.members.len() >= SERVERS_MAX {
            return Err(format!("ERR a cluster has no more than {SERVERS_MAX} nodes"));
        }
        let is_others = |slot: &u16| self.owner(*slot).is_some_and(|owner| Some(owner) != known);
        if let Some(slot) = slots.iter().find(is_others) {
            return Err(format!("ERR Slot {slot} is already busy"));
        }
        self.forgotten.retain(|forgotten| *forgotten != name);
        // Each epoch is that of one server.
        let is_taken = self.members.iter().any(|(id, member)| Some(*id) != known && member.epoch == epoch);
        let epoch = if is_taken { self.epoch + 1 } else { epoch };
        self.epoch = self.epoch.max(epoch);
        let id = known.unwrap_or(self.next_id);
        self.next_id = self.next_id.max(id + 1);
        self.members.insert(id, Member::new(name, address, epoch, home));
        // It has changed what it had since it asked.
        self.slots_of(id).iter().for_each(|slot| self.give(slot, 0));
        slots.iter().for_each(|slot| self.give(slot, id));
        Ok(id)
    }

    fn forget(&mut self, id: MemberId) {
        let Some(member) = self.members.remove(&id) else { return };
        self.end_transfers(|of| of == id);
        self.leftovers.remove(&id);
        self.slots_of(id).iter().for_each(|slot| self.give(slot, 0));
        self.moves
            .retain(|_, way| way.to != Some(id) && way.from.is_none_or(|(to, from)| to != id && from != id));
        self.forgotten.push(member.name);
        let too_many = self.forgotten.len().saturating_sub(FORGOTTEN_MAX);
        self.forgotten.drain(..too_many);
    }

    fn decode(bytes: &[u8]) -> Result<Map, Malformed> {
        let mut bytes = Decoder(bytes);
        let mut map =
            Map { version: bytes.u64()?, next_id: bytes.u64()?, epoch: bytes.u64()?, ..Map::default() };
        for _ in 0..bytes.u32()? {
            let (id, name) = (bytes.u64()?, name(&mut bytes)?);
            let (epoch, has_failed, home) = (bytes.u64()?, bytes.u8()? == 1, (bytes.u64()?, bytes.u64()?));
            let (set, server, term) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let seat = Some(Seat { set, server }).filter(|seat| seat.set != 0);
            let address = Address::decode(&mut bytes)?;
            let member = Member { has_failed, seat, term, ..Member::new(name, address, epoch, home) };
            map.members.insert(id, member);
            Slots::decode(&mut bytes)?.iter().for_each(|slot| map.owners[usize::from(slot)] = id);
        }
        for _ in 0..bytes.u32()? {
            let slot = bytes.u32()? as u16;
            let (to, by, from) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let way = Move { to: Some(to).filter(|&to| to != 0), from: Some((by, from)).filter(|_| by != 0) };
            map.moves.insert(slot, way);
        }
        for _ in 0..bytes.u32()? {
            map.forgotten.push(name(&mut bytes)?);
        }
        map.next_transfer = bytes.u64()?;
        for _ in 0..bytes.u32()? {
            let (number, from, to) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            map.transfers.insert(number, Transfer { slots: Slots::decode(&mut bytes)?, from, to });
        }
        for _ in 0..bytes.u32()? {
            let id = bytes.u64()?;
            map.leftovers.insert(id, Slots::decode(&mut bytes)?);
        }
        bytes.end()?;
        Ok(map)
    }
}

impl Machine for Map {
    type Outcome = Outcome;

    fn apply(&mut self, entry: &[u8]) -> Outcome {
        // Made by one of the servers, of a newer version perhaps.
        let change = Change::decode(entry).ok_or("ERR this version does not know the change")?;
        let outcome = self.change(change);
        self.version += u64::from(outcome.is_ok());
        outcome
    }

    fn save(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u64(self.version).u64(self.next_id).u64(self.epoch).u32(self.members.len() as u32);
        for (&id, member) in &self.members {
            out.u64(id).bytes(&member.name.0).u64(member.epoch).u8(member.has_failed.into());
            let (set, server) = member.seat.map_or((0, 0), |seat| (seat.set, seat.server));
            out.u64(member.home.0).u64(member.home.1).u64(set).u64(server).u64(member.term);
            member.address.encode(&mut out);
            self.slots_of(id).encode(&mut out);
        }
        out.u32(self.moves.len() as u32);
        for (&slot, way) in &self.moves {
            let (by, from) = way.from.unwrap_or_default();
            out.u32(slot.into()).u64(way.to.unwrap_or_default()).u64(by).u64(from);
        }
        out.u32(self.forgotten.len() as u32);
        for name in &self.forgotten {
            out.bytes(&name.0);
        }
        out.u64(self.next_transfer).u32(self.transfers.len() as u32);
        for (&number, transfer) in &self.transfers {
            transfer.slots.encode(out.u64(number).u64(transfer.from).u64(transfer.to));
        }
        out.u32(self.leftovers.len() as u32);
        for (&id, slots) in &self.leftovers {
            slots.encode(out.u64(id));
        }
        out.into_bytes()
    }

    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        *self = Map::decode(state).map_err(|Malformed| "not a map of slots")?;
        Ok(())
    }

    fn members(&self) -> Vec<MemberId> {
        self.members.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::RangeInclusive;

    fn name(number: u8) -> Name {
        Name([number; 20])
    }

    fn address(port: u16) -> Address {
        Address {
            host: "10.0.0.1".into(),
            hostname: if port.is_multiple_of(2) { String::new() } else { "node.example".into() },
            port,
            tls_port: 0,
            bus_port: port + 10000,
        }
    }

    fn slots(range: RangeInclusive<u16>) -> Slots {
        Slots(vec![range])
    }

    fn apply(map: &mut Map, change: Change) -> Outcome {
        let version = map.version;
        let outcome = map.apply(&change.encode());
        assert_eq!(map.version, version + u64::from(outcome.is_ok()));
        // What is saved is all.
        let mut loaded = Map::default();
        loaded.load(&map.save()).unwrap();
        assert_eq!(&loaded, map);
        outcome
    }

    fn join(map: &mut Map, number: u8, slots: Slots) -> Outcome {
        join_again(map, number, 0, slots)
    }

    fn join_again(map: &mut Map, number: u8, version: u64, slots: Slots) -> Outcome {
        let (name, address) = (name(number), address(7000 + u16::from(number)));
        apply(map, Change::Join { name, home: 7, version, address, slots, epoch: 0, seat: None })
    }

    /// Of three servers, the first two with slots.
    fn map() -> Map {
        let mut map = Map::of_one(name(1), address(7001));
        apply(&mut map, Change::AddSlots { id: 1, slots: slots(0..=99) }).unwrap();
        assert_eq!(join(&mut map, 2, slots(100..=199)), Ok(2));
        assert_eq!(join(&mut map, 3, Slots::default()), Ok(3));
        map
    }

    #[test]
    fn servers_join_with_their_slots_and_are_forgotten_for_ever() {
        let mut map = map();
        assert_eq!(map.slots_of(2), slots(100..=199));
        assert_eq!(join(&mut map, 3, slots(300..=310)), Ok(3), "it may ask again");
        assert_eq!(map.owner(300), None, "what it had then is known");
        assert_eq!(join_again(&mut map, 3, 1, slots(300..=310)), Ok(3));
        assert_eq!(join_again(&mut map, 3, 2, slots(305..=310)), Ok(3));
        assert_eq!(map.slots_of(3), slots(305..=310), "and it may have changed meanwhile");
        let again = Change::Join {
            name: name(3),
            home: 8,
            version: 9,
            address: address(1),
            slots: slots(0..=0),
            epoch: 0,
            seat: None,
        };
        assert!(
            apply(&mut map, again).unwrap_err().contains("CLUSTER FORGET"),
            "it has lost what it promised"
        );
        assert_eq!(join(&mut map, 4, slots(199..=200)), Err("ERR Slot 199 is already busy".into()));
        let epochs: BTreeSet<_> = map.members().values().map(|member| member.epoch).collect();
        assert_eq!(epochs.len(), 3, "each has an epoch of its own");
        apply(&mut map, Change::Forget { name: name(2) }).unwrap();
        assert_eq!((map.owner(150), map.id_of(name(2))), (None, None));
        apply(&mut map, Change::Forget { name: name(2) }).unwrap();
        assert_eq!(
            apply(&mut map, Change::Forget { name: name(9) }),
            Err(format!("ERR Unknown node {}", name(9)))
        );
        assert_eq!(join(&mut map, 2, Slots::default()), Ok(4), "and is another one if it comes back");
    }

    #[test]
    fn slots_have_one_owner() {
        let mut map = map();
        let busy = apply(&mut map, Change::AddSlots { id: 3, slots: slots(199..=300) });
        assert_eq!(busy, Err("ERR Slot 199 is already busy".into()));
        assert_eq!(map.owner(200), None, "all or none");
        apply(&mut map, Change::AddSlots { id: 3, slots: slots(200..=16383) }).unwrap();
        assert_eq!(map.assigned(), SLOTS);
        apply(&mut map, Change::RemoveSlots { slots: slots(0..=0) }).unwrap();
        let none = apply(&mut map, Change::RemoveSlots { slots: slots(0..=1) });
        assert_eq!(none, Err("ERR Slot 0 is already unassigned".into()));
        apply(&mut map, Change::FlushSlots { id: 2 }).unwrap();
        assert_eq!(map.slots_of(2), Slots::default());
        assert_eq!(apply(&mut map, Change::FlushSlots { id: 9 }), Ok(0));
        assert!(apply(&mut map, Change::AddSlots { id: 9, slots: slots(0..=0) }).is_err());
    }

    #[test]
    fn a_slot_moves_from_one_to_another() {
        let mut map = map();
        let importing = Change::Importing { id: 3, slot: 7, from: name(1) };
        apply(&mut map, importing.clone()).unwrap();
        apply(&mut map, Change::Migrating { id: 1, slot: 7, to: name(3) }).unwrap();
        assert_eq!(map.moves()[&7], Move { to: Some(3), from: Some((3, 1)) });
        let not_mine = apply(&mut map, Change::Migrating { id: 2, slot: 7, to: name(3) });
        assert_eq!(not_mine, Err("ERR I'm not the owner of hash slot 7".into()));
        let epoch = map.epoch();
        for _ in 0..3 {
            apply(&mut map, Change::Assign { slot: 7, to: name(3) }).unwrap();
        }
        assert_eq!((map.owner(7), map.moves().len(), map.epoch()), (Some(3), 0, epoch + 1));
        assert_eq!(map.members()[&3].epoch, epoch + 1);
        assert_eq!(apply(&mut map, importing), Err("ERR I'm already the owner of hash slot 7".into()));
        apply(&mut map, Change::Migrating { id: 1, slot: 8, to: name(3) }).unwrap();
        apply(&mut map, Change::Stable { slot: 8 }).unwrap();
        apply(&mut map, Change::Importing { id: 2, slot: 9, from: name(1) }).unwrap();
        apply(&mut map, Change::Forget { name: name(2) }).unwrap();
        assert_eq!(map.moves().len(), 0);
    }

    #[test]
    fn slots_change_hands_as_a_whole_or_not_at_all() {
        let mut map = map();
        let begin = |to, range| Change::BeginTransfer { id: 1, slots: slots(range), to: name(to) };
        let end = |number, has_arrived| Change::EndTransfer { number, has_arrived };
        let assign = |slot, to| Change::Assign { slot, to: name(to) };
        assert_eq!(apply(&mut map, begin(2, 90..=100)), Err("ERR I'm not the owner of hash slot 100".into()));
        assert!(apply(&mut map, begin(1, 0..=9)).is_err(), "it has them");
        assert_eq!(apply(&mut map, begin(2, 0..=9)), Ok(1));
        assert!(apply(&mut map, begin(3, 9..=20)).is_err(), "on its way already");
        assert_eq!((map.owner(5), map.receiver(5), map.receiver(10)), (Some(1), Some(2), None));
        // Nothing else happens to them meanwhile.
        for change in [
            assign(5, 3),
            Change::RemoveSlots { slots: slots(9..=9) },
            Change::FlushSlots { id: 1 },
            Change::Migrating { id: 1, slot: 3, to: name(3) },
            Change::Importing { id: 3, slot: 3, from: name(1) },
        ] {
            let refused = apply(&mut map, change).unwrap_err();
            assert!(refused.contains("is being migrated"), "{refused}");
        }
        // It fails: the receiver has keys of them, and gets them only when it has removed these.
        apply(&mut map, end(1, false)).unwrap();
        assert_eq!((map.owner(5), map.receiver(5), map.leftovers(2)), (Some(1), None, slots(0..=9)));
        assert!(apply(&mut map, begin(2, 9..=9)).unwrap_err().contains("still removes"));
        assert!(apply(&mut map, assign(9, 2)).unwrap_err().contains("still removes"));
        apply(&mut map, Change::Cleared { id: 2, slots: slots(9..=300) }).unwrap();
        assert_eq!(map.leftovers(2), slots(0..=8));
        assert_eq!(apply(&mut map, begin(2, 9..=9)), Ok(2), "no number is used twice");
        assert!(apply(&mut map, end(1, true)).is_err(), "it is over");
        // It arrives: they are the receiver's by one change, and the former owner is to remove what it has.
        let epoch = map.epoch();
        apply(&mut map, end(2, true)).unwrap();
        assert_eq!((map.owner(9), map.owner(8), map.leftovers(1)), (Some(2), Some(1), slots(9..=9)));
        assert_eq!((map.epoch(), map.members()[&2].epoch), (epoch + 1, epoch + 1));
        apply(&mut map, Change::Cleared { id: 1, slots: slots(9..=9) }).unwrap();
        assert!(map.leftovers(1).is_empty());
        // Who is forgotten takes part in none.
        assert_eq!(apply(&mut map, begin(3, 20..=29)), Ok(3));
        apply(&mut map, Change::Forget { name: name(1) }).unwrap();
        assert_eq!((map.transfers().len(), map.leftovers(3)), (0, slots(20..=29)));
        assert!(apply(&mut map, Change::AddSlots { id: 3, slots: slots(29..=30) }).is_err());
    }

    fn sit(map: &mut Map, id: u64, server: u64, term: u64) -> Outcome {
        apply(map, Change::Sit { id, seat: Seat { set: 5, server }, term })
    }

    #[test]
    fn who_leads_a_replica_set_has_all_that_its_servers_had() {
        let mut map = map();
        let end = |number| Change::EndTransfer { number, has_arrived: true };
        let begin = |id, range, to| Change::BeginTransfer { id, slots: slots(range), to: name(to) };
        assert_eq!(map.leader_of(1), Some(1), "it is on its own");
        assert_eq!((sit(&mut map, 1, 1, 4), sit(&mut map, 3, 2, 0)), (Ok(0), Ok(0)));
        assert_eq!((map.leader_of(3), map.leader_of(2), map.owner(5)), (Some(1), Some(2), Some(1)));
        for given in [
            Change::AddSlots { id: 3, slots: slots(300..=300) },
            Change::Assign { slot: 5, to: name(3) },
            Change::Importing { id: 3, slot: 100, from: name(2) },
            begin(2, 100..=109, 3),
        ] {
            assert!(apply(&mut map, given).unwrap_err().contains("does not lead"));
        }
        // Key by key they go on, as a whole they do not: who ends that has led before.
        apply(&mut map, Change::Migrating { id: 1, slot: 7, to: name(2) }).unwrap();
        apply(&mut map, Change::Importing { id: 1, slot: 150, from: name(2) }).unwrap();
        let (away, here) =
            (apply(&mut map, begin(1, 0..=4, 2)).unwrap(), apply(&mut map, begin(2, 100..=109, 1)).unwrap());
        sit(&mut map, 3, 2, 6).unwrap();
        assert_eq!((map.slots_of(1), map.slots_of(3)), (Slots::default(), slots(0..=99)));
        assert_eq!((map.moves[&7].to, map.moves[&150].from), (Some(2), Some((3, 2))));
        assert_eq!((map.leftovers(2), map.leftovers(3)), (slots(0..=4), slots(100..=109)));
        for number in [away, here] {
            assert!(apply(&mut map, end(number)).unwrap_err().contains("ended before"));
        }
        assert_eq!(map.members()[&3].epoch, map.epoch());
        for term in [5, 6] {
            assert!(sit(&mut map, 1, 1, term).unwrap_err().contains("another server"), "it heard of it late");
        }
        assert_eq!((sit(&mut map, 3, 2, 6), map.owner(5)), (Ok(0), Some(3)), "it asks once more");
        // What it has left is that of who leads next; so are slots that one brings with it.
        apply(&mut map, Change::Forget { name: name(1) }).unwrap();
        assert_eq!(join_again(&mut map, 8, 0, slots(500..=509)), Ok(4));
        assert_eq!((sit(&mut map, 4, 1, 0), map.owner(505)), (Ok(0), Some(3)));
        sit(&mut map, 4, 1, 7).unwrap();
        assert_eq!((map.owner(5), map.owner(505), map.leftovers(4)), (Some(4), Some(4), slots(100..=109)));
        // One that has lost its data has a new name, and the old one goes.
        assert_eq!(join_again(&mut map, 9, 0, Slots::default()), Ok(5));
        sit(&mut map, 5, 2, 0).unwrap();
        assert_eq!(map.members().keys().copied().collect::<Vec<_>>(), [2, 4, 5]);
        // The one that led has lost them: it stays until another one leads.
        assert_eq!(join_again(&mut map, 10, 0, Slots::default()), Ok(6));
        sit(&mut map, 6, 1, 0).unwrap();
        assert_eq!((map.leader_of(6), map.owner(5)), (Some(4), Some(4)));
        sit(&mut map, 6, 1, 9).unwrap();
        assert_eq!((map.id_of(name(8)), map.owner(5)), (None, Some(6)));
        // One without slots is of its set at once, one that has brought some is not yet.
        for (number, its, leader, owner) in
            [(11, Slots::default(), 6, None), (12, slots(600..=600), 8, Some(8))]
        {
            let (name, address) = (name(number), address(7000));
            let seat = Some(Seat { set: 5, server: number.into() });
            let join = Change::Join { name, home: 8, version: 0, address, slots: its, epoch: 0, seat };
            assert_eq!(Change::decode(&join.encode()), Some(join.clone()));
            let id = apply(&mut map, join).unwrap();
            assert_eq!((map.leader_of(id), map.owner(600)), (Some(leader), owner));
        }
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let saved = map().save();
        for len in 0..saved.len() {
            assert!(Map::default().load(&saved[..len]).is_err());
        }
        assert!(map().apply(b"?").is_err());
    }
}
