//! Which servers there are, and which of them has which hash slots.

use crate::change::Change;
use data_encoding::HEXLOWER;
use holdfast_consensus::{
    Machine, MemberId,
    code::{Decoder, Encoder, Malformed},
};
use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

/// Hash slots, as in Redis Cluster.
pub const SLOTS: usize = 16384;
/// Servers that a cluster has at most.
const SERVERS_MAX: usize = 1000;
/// Names of servers that are not to come back, of which so many are remembered.
const FORGOTTEN_MAX: usize = 1000;

/// The name of a server, or of its shard: forty hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub [u8; 20]);

impl Name {
    /// A name of these digits; `None`: they are none.
    pub fn parse(digits: &[u8]) -> Option<Name> {
        let lower = digits.to_ascii_lowercase();
        HEXLOWER.decode(&lower).ok()?.try_into().ok().map(Name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// A name or an address; empty: it is not known yet.
    pub host: String,
    /// Where clients connect.
    pub port: u16,
    /// Where clients connect by TLS; 0: nowhere.
    pub tls_port: u16,
    /// Where the other servers connect.
    pub bus_port: u16,
}

impl Address {
    pub(crate) fn encode(&self, out: &mut Encoder) {
        out.bytes(self.host.as_bytes())
            .u32(self.port.into())
            .u32(self.tls_port.into())
            .u32(self.bus_port.into());
    }

    pub(crate) fn decode(bytes: &mut Decoder) -> Result<Address, Malformed> {
        let host = String::from_utf8(bytes.bytes()?.to_vec()).map_err(|_| Malformed)?;
        let mut port = || u16::try_from(bytes.u32()?).map_err(|_| Malformed);
        Ok(Address { host, port: port()?, tls_port: port()?, bus_port: port()? })
    }
}

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
    /// The cluster that it was of alone before it joined this one, and the version of its map then.
    pub(crate) home: (u64, u64),
}

/// Hash slots, as ranges in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(pub Vec<RangeInclusive<u16>>);

impl Slots {
    /// These slots, which are in their order.
    pub fn collect(slots: impl Iterator<Item = u16>) -> Slots {
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for slot in slots {
            match ranges.last_mut() {
                Some(last) if last.end() + 1 == slot => *last = *last.start()..=slot,
                _ => ranges.push(slot..=slot),
            }
        }
        Slots(ranges)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().cloned().flatten()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn encode(&self, out: &mut Encoder) {
        out.u32(self.0.len() as u32);
        for range in &self.0 {
            out.u32((*range.start()).into()).u32((*range.end()).into());
        }
    }

    pub(crate) fn decode(bytes: &mut Decoder) -> Result<Slots, Malformed> {
        let count = bytes.u32()?;
        let mut ranges = Vec::new();
        for _ in 0..count {
            let (first, last) = (bytes.u32()?, bytes.u32()?);
            if first > last || last >= SLOTS as u32 {
                return Err(Malformed);
            }
            ranges.push(first as u16..=last as u16);
        }
        Ok(Slots(ranges))
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
            epoch: 0,
            forgotten: Vec::new(),
        }
    }
}

/// What comes of a change: a number, of meaning only where one joins (its own), or why it is refused, in Redis's words.
pub type Outcome = Result<MemberId, String>;

impl Map {
    /// That of a server which knows no other one, as number 1.
    pub fn of_one(name: Name, address: Address) -> Map {
        let mut map = Map { next_id: 2, ..Map::default() };
        map.members.insert(1, Member { name, address, epoch: 0, has_failed: false, home: (0, 0) });
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
        self.owners.iter().filter(|&&owner| owner != 0).count()
    }

    /// Slots that are on their way.
    pub fn moves(&self) -> &BTreeMap<u16, Move> {
        &self.moves
    }

    fn known(&self, id: MemberId) -> Result<(), String> {
        if self.members.contains_key(&id) {
            Ok(())
        } else {
            Err("ERR This node is not a part of the cluster".into())
        }
    }

    fn change(&mut self, change: Change) -> Outcome {
        match change {
            Change::Join { name, home, version, address, slots, epoch } => {
                return self.join(name, (home, version), address, slots, epoch);
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
                slots.iter().for_each(|slot| self.give(slot, id));
            }
            Change::RemoveSlots { slots } => {
                if let Some(slot) = slots.iter().find(|&slot| self.owner(slot).is_none()) {
                    return Err(format!("ERR Slot {slot} is already unassigned"));
                }
                slots.iter().for_each(|slot| self.give(slot, 0));
            }
            Change::FlushSlots { id } => self.slots_of(id).iter().for_each(|slot| self.give(slot, 0)),
            Change::Migrating { id, slot, to } => {
                if self.owner(slot) != Some(id) {
                    return Err(format!("ERR I'm not the owner of hash slot {slot}"));
                }
                let to = self.id_of(to).ok_or_else(|| format!("ERR I don't know about node {to}"))?;
                self.moves.entry(slot).or_default().to = Some(to);
            }
            Change::Importing { id, slot, from } => {
                if self.owner(slot) == Some(id) {
                    return Err(format!("ERR I'm already the owner of hash slot {slot}"));
                }
                let from = self.id_of(from).ok_or_else(|| format!("ERR I don't know about node {from}"))?;
                self.moves.entry(slot).or_default().from = Some((id, from));
            }
            Change::Stable { slot } => drop(self.moves.remove(&slot)),
            Change::Assign { slot, to } => {
                let to = self.id_of(to).ok_or_else(|| format!("ERR Unknown node {to}"))?;
                if self.owner(slot) == Some(to) {
                    // Each of the two sides says so, and everybody else.
                    self.moves.remove(&slot);
                } else {
                    self.give(slot, to);
                    self.epoch += 1;
                    self.members.get_mut(&to).expect("it was found").epoch = self.epoch;
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
        }
        Ok(0)
    }

    /// A slot's owner is another one, and it is on its way no more.
    fn give(&mut self, slot: u16, to: MemberId) {
        self.owners[usize::from(slot)] = to;
        self.moves.remove(&slot);
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
        self.members.insert(id, Member { name, address, epoch, has_failed: false, home });
        // It has changed what it had since it asked.
        self.slots_of(id).iter().for_each(|slot| self.give(slot, 0));
        slots.iter().for_each(|slot| self.give(slot, id));
        Ok(id)
    }

    fn forget(&mut self, id: MemberId) {
        let Some(member) = self.members.remove(&id) else { return };
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
            let member = Member { name, address: Address::decode(&mut bytes)?, epoch, has_failed, home };
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
        bytes.end()?;
        Ok(map)
    }
}

pub(crate) fn name(bytes: &mut Decoder) -> Result<Name, Malformed> {
    bytes.bytes()?.try_into().map(Name).map_err(|_| Malformed)
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
            out.u64(member.home.0).u64(member.home.1);
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
        out.0
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
    use std::collections::BTreeSet;

    fn name(number: u8) -> Name {
        Name([number; 20])
    }

    fn address(port: u16) -> Address {
        Address { host: "10.0.0.1".into(), port, tls_port: 0, bus_port: port + 10000 }
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
        apply(map, Change::Join { name, home: 7, version, address, slots, epoch: 0 })
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
    fn what_is_no_map_is_refused() {
        let saved = map().save();
        for len in 0..saved.len() {
            assert!(Map::default().load(&saved[..len]).is_err());
        }
        assert!(map().apply(b"?").is_err());
    }
}
