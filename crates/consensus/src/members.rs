//! Which replicas a group consists of, and how that changes: by one at a time, so that a majority before and one after have a replica in
//! common.

use crate::{
    MemberId,
    code::{Decoder, Encoder, Malformed},
};
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState};
use std::{collections::BTreeMap, fmt};

/// Replicas of a group at most.
pub const MEMBERS_MAX: usize = 7;
/// Bytes of an address at most.
const ADDRESS_MAX: usize = 512;

/// A replica, as the others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Whether it counts for a majority. One that does not gets all that the others get.
    pub votes: bool,
    /// Where it is, in the words of whoever owns the replicas.
    pub address: String,
}

/// The replicas of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// By their numbers.
    pub peers: BTreeMap<MemberId, Peer>,
    /// The number that the next one gets. Numbers are never given again: what was promised under one that was lost is promised still.
    pub next: MemberId,
}

/// What is to be another one about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// One more, at this address, which has nothing yet and does not vote.
    Add(String),
    /// It votes from now on.
    Promote(MemberId),
    /// It is one of them no more.
    Remove(MemberId),
}

/// Why a change is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This replica does not lead.
    NotLeader,
    /// Another change is not decided yet, or nothing of this leader's is.
    NotYet,
    /// There is none of this number, or it votes already.
    Unknown,
    /// There is one at this address already.
    IsThere,
    /// There may be no more of them.
    TooMany,
    /// It leads: another one must, first.
    Leads,
    /// So many of the others were not heard of that there would be no majority.
    NoMajority,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::NotLeader => "this server does not lead",
            Refused::NotYet => {
                "another change is under way, or this server has only just begun to lead: try again"
            }
            Refused::Unknown => "there is no such server in the set",
            Refused::IsThere => "this server is in the set already",
            Refused::TooMany => "a set has 7 servers at most",
            Refused::Leads => "this server leads: have another one lead first",
            Refused::NoMajority => "too few of the servers that would be left answer",
        })
    }
}

impl Members {
    /// Those that a group begins with, all of whom vote, numbered from 1 on.
    pub fn first(addresses: impl IntoIterator<Item = String>) -> Members {
        let peer = |address| Peer { votes: true, address };
        let peers: BTreeMap<_, _> = (1..).zip(addresses.into_iter().map(peer)).collect();
        Members { next: peers.len() as MemberId + 1, peers }
    }

    /// Those that vote.
    pub fn voters(&self) -> impl Iterator<Item = MemberId> {
        self.peers.iter().filter(|(_, peer)| peer.votes).map(|(id, _)| *id)
    }

    /// Whether it is one that votes.
    pub fn votes(&self, id: MemberId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.votes)
    }

    /// How many of them are a majority.
    pub fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// What they are after a change.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn after(&self, change: &Change) -> Result<Members, Refused> {
        let mut members = self.clone();
        match change {
            Change::Add(address) => {
                if self.peers.values().any(|peer| peer.address == *address) {
                    return Err(Refused::IsThere);
                }
                if self.peers.len() >= MEMBERS_MAX {
                    return Err(Refused::TooMany);
                }
                members.peers.insert(self.next, Peer { votes: false, address: address.clone() });
                members.next += 1;
            }
            Change::Promote(id) => match members.peers.get_mut(id) {
                Some(peer) if !peer.votes => peer.votes = true,
                _ => return Err(Refused::Unknown),
            },
            Change::Remove(id) => {
                members.peers.remove(id).ok_or(Refused::Unknown)?;
                if members.voters().next().is_none() {
                    return Err(Refused::NoMajority);
                }
            }
        }
        Ok(members)
    }

    /// The same for the engine.
    pub(crate) fn state(&self) -> ConfState {
        let of = |votes| self.peers.iter().filter(move |(_, peer)| peer.votes == votes).map(|(id, _)| *id);
        ConfState { voters: of(true).collect(), learners: of(false).collect(), ..ConfState::default() }
    }

    /// What has the engine go over from these to others.
    pub(crate) fn change_to(&self, others: &Members) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        let mut single = |kind: ConfChangeType, node_id: MemberId| {
            let mut single = ConfChangeSingle { node_id, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            change.mut_changes().push(single);
        };
        for (&id, peer) in &others.peers {
            if self.peers.get(&id).map(|known| known.votes) != Some(peer.votes) {
                let kind = if peer.votes { ConfChangeType::AddNode } else { ConfChangeType::AddLearnerNode };
                single(kind, id);
            }
        }
        let gone = self.peers.keys().filter(|id| !others.peers.contains_key(id));
        gone.for_each(|id| single(ConfChangeType::RemoveNode, *id));
        change
    }

    /// Their bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u64(self.next).u32(self.peers.len() as u32);
        for (id, Peer { votes, address }) in &self.peers {
            out.u64(*id).u8((*votes).into()).bytes(address.as_bytes());
        }
        out.into_bytes()
    }

    /// Those of bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Members, Malformed> {
        let mut bytes = Decoder(bytes);
        let (next, count) = (bytes.u64()?, bytes.u32()? as usize);
        let mut peers = BTreeMap::new();
        for _ in 0..count.min(MEMBERS_MAX + 1) {
            let (id, votes) = (bytes.u64()?, bytes.flag()?);
            let address = String::from_utf8(bytes.bytes()?.to_vec()).map_err(|_| Malformed)?;
            let is_next = id > peers.last_key_value().map_or(0, |(last, _)| *last) && id < next;
            if !is_next || address.len() > ADDRESS_MAX {
                return Err(Malformed);
            }
            peers.insert(id, Peer { votes, address });
        }
        bytes.end()?;
        let members = Members { peers, next };
        let is_possible =
            count == members.peers.len() && count <= MEMBERS_MAX && members.voters().next().is_some();
        if is_possible { Ok(members) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_given_again() {
        let members = Members::first(["a", "b", "c"].map(str::to_owned));
        assert_eq!(members.voters().collect::<Vec<_>>(), [1, 2, 3]);
        let members = members.after(&Change::Add("d".into())).unwrap();
        assert_eq!((members.votes(4), members.majority()), (false, 2));
        assert_eq!(members.after(&Change::Add("d".into())), Err(Refused::IsThere));
        let members = members.after(&Change::Promote(4)).unwrap();
        assert_eq!((members.votes(4), members.majority()), (true, 3));
        assert_eq!(members.after(&Change::Promote(4)), Err(Refused::Unknown));
        let members = members.after(&Change::Remove(4)).unwrap();
        assert_eq!(members.after(&Change::Remove(4)), Err(Refused::Unknown));
        let members = members.after(&Change::Add("d".into())).unwrap();
        assert_eq!(members.peers.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 5]);
        let mut members = members;
        for at in ["e", "f", "g"] {
            members = members.after(&Change::Add(at.into())).unwrap();
        }
        assert_eq!(members.after(&Change::Add("h".into())), Err(Refused::TooMany));
    }

    #[test]
    fn members_are_read_as_they_were_written_and_no_other_bytes_are_any() {
        let members = Members::first(["a", "b", "c"].map(str::to_owned));
        let members = members.after(&Change::Remove(2)).unwrap().after(&Change::Add("d:1@2".into())).unwrap();
        let bytes = members.encode();
        assert_eq!(Members::decode(&bytes), Ok(members));
        for len in 0..bytes.len() {
            assert_eq!(Members::decode(&bytes[..len]), Err(Malformed));
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x81;
            if let Ok(members) = Members::decode(&other) {
                assert_eq!(members.encode(), other);
            }
        }
    }
}
