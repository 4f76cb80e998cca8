//! What may change in a map.

use crate::{
    place::{Address, Name, Seat, name},
    slots::Slots,
};
use holdfast_consensus::{
    MemberId,
    code::{Decoder, Encoder, Malformed},
};

/// A change of the [`Map`](crate::Map): an entry that the group decides on. `id` is the server that was told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A server becomes a part of the cluster, with what it had alone.
    Join {
        /// Its name.
        name: Name,
        /// The cluster that it is of now, alone.
        home: u64,
        /// The version of the map of that.
        version: u64,
        /// Where it is.
        address: Address,
        /// Its slots.
        slots: Slots,
        /// The epoch of these.
        epoch: u64,
        /// Of which replica set it is.
        seat: Option<Seat>,
    },
    /// A server is at another place.
    Move {
        /// Which one.
        id: MemberId,
        /// Where.
        address: Address,
    },
    /// Slots that nobody has become a server's.
    AddSlots {
        /// Whose.
        id: MemberId,
        /// Which ones.
        slots: Slots,
    },
    /// Slots are nobody's.
    RemoveSlots {
        /// Which ones.
        slots: Slots,
    },
    /// A server has no slots.
    FlushSlots {
        /// Which one.
        id: MemberId,
    },
    /// The owner of a slot sends clients for what is not there to another one.
    Migrating {
        /// The owner.
        id: MemberId,
        /// The slot.
        slot: u16,
        /// To whom.
        to: Name,
    },
    /// A server takes keys of a slot that it does not own yet, from who asks for that.
    Importing {
        /// Who takes them.
        id: MemberId,
        /// The slot.
        slot: u16,
        /// Who owns it.
        from: Name,
    },
    /// A slot is not on its way.
    Stable {
        /// Which one.
        slot: u16,
    },
    /// A slot is a server's from now on.
    Assign {
        /// Which one.
        slot: u16,
        /// Whose.
        to: Name,
    },
    /// Slots of a server are on their way to another one, all at once. Its number is what comes of it.
    BeginTransfer {
        /// Who has them.
        id: MemberId,
        /// Which ones.
        slots: Slots,
        /// Who is to have them.
        to: Name,
    },
    /// Slots have arrived, or have not.
    EndTransfer {
        /// The number of the transfer.
        number: u64,
        /// Whether they are the other one's from now on.
        has_arrived: bool,
    },
    /// A server has removed what it had left of slots that are not its own.
    Cleared {
        /// Which server.
        id: MemberId,
        /// Which slots.
        slots: Slots,
    },
    /// The epoch of a server that knows no other one.
    SetEpoch {
        /// The server.
        id: MemberId,
        /// Its epoch.
        epoch: u64,
    },
    /// A server has the greatest epoch.
    BumpEpoch {
        /// The server.
        id: MemberId,
    },
    /// A server is no part of the cluster any more.
    Forget {
        /// Which one.
        name: Name,
    },
    /// A server is not heard any more, or again.
    Failed {
        /// Which one.
        id: MemberId,
        /// Whether it is not heard.
        has_failed: bool,
    },
    /// A server has begun, and changes nothing by that: what it proposed before it ended, and was not decided on, comes to nothing from here
    /// on, since proposals of a server are decided in their order.
    Begin {
        /// Which one.
        id: MemberId,
    },
    /// A server is one of a replica set, and leads it, perhaps: then all that servers of the set had is its own from here on. Slots on their way as
    /// a whole from or to the set stay where they are, since what has come of that is not known.
    Sit {
        /// Which server.
        id: MemberId,
        /// Which one of which set.
        seat: Seat,
        /// In which term it leads it; 0: it does not.
        term: u64,
    },
}

impl Change {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        match self {
            Change::Join { name, home, version, address, slots, epoch, seat } => {
                out.u8(0).bytes(&name.0).u64(*home).u64(*version).u64(*epoch);
                address.encode(&mut out);
                slots.encode(&mut out);
                Seat::encode(*seat, &mut out);
            }
            Change::Move { id, address } => {
                out.u8(1).u64(*id);
                address.encode(&mut out);
            }
            Change::AddSlots { id, slots } => {
                out.u8(2).u64(*id);
                slots.encode(&mut out);
            }
            Change::RemoveSlots { slots } => slots.encode(out.u8(3)),
            Change::FlushSlots { id } => {
                out.u8(4).u64(*id);
            }
            Change::Migrating { id, slot, to } => {
                out.u8(5).u64(*id).u32((*slot).into()).bytes(&to.0);
            }
            Change::Importing { id, slot, from } => {
                out.u8(6).u64(*id).u32((*slot).into()).bytes(&from.0);
            }
            Change::Stable { slot } => {
                out.u8(7).u32((*slot).into());
            }
            Change::Assign { slot, to } => {
                out.u8(8).u32((*slot).into()).bytes(&to.0);
            }
            Change::SetEpoch { id, epoch } => {
                out.u8(9).u64(*id).u64(*epoch);
            }
            Change::BumpEpoch { id } => {
                out.u8(10).u64(*id);
            }
            Change::Forget { name } => {
                out.u8(11).bytes(&name.0);
            }
            Change::Failed { id, has_failed } => {
                out.u8(12).u64(*id).u8((*has_failed).into());
            }
            Change::BeginTransfer { id, slots, to } => {
                out.u8(13).u64(*id).bytes(&to.0);
                slots.encode(&mut out);
            }
            Change::EndTransfer { number, has_arrived } => {
                out.u8(14).u64(*number).u8((*has_arrived).into());
            }
            Change::Cleared { id, slots } => slots.encode(out.u8(15).u64(*id)),
            Change::Begin { id } => {
                out.u8(16).u64(*id);
            }
            Change::Sit { id, seat, term } => {
                out.u8(17).u64(*id).u64(seat.set).u64(seat.server).u64(*term);
            }
        }
        out.into_bytes()
    }

    /// A change of these bytes; `None`: they are none.
    pub fn decode(bytes: &[u8]) -> Option<Change> {
        let mut bytes = Decoder(bytes);
        let change = decode(&mut bytes).ok()?;
        bytes.end().ok()?;
        Some(change)
    }
}

fn decode(bytes: &mut Decoder) -> Result<Change, Malformed> {
    Ok(match bytes.u8()? {
        0 => {
            let (name, home, version, epoch) = (name(bytes)?, bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let (address, slots) = (Address::decode(bytes)?, Slots::decode(bytes)?);
            Change::Join { name, home, version, address, slots, epoch, seat: Seat::decode(bytes)? }
        }
        1 => Change::Move { id: bytes.u64()?, address: Address::decode(bytes)? },
        2 => Change::AddSlots { id: bytes.u64()?, slots: Slots::decode(bytes)? },
        3 => Change::RemoveSlots { slots: Slots::decode(bytes)? },
        4 => Change::FlushSlots { id: bytes.u64()? },
        5 => Change::Migrating { id: bytes.u64()?, slot: slot(bytes)?, to: name(bytes)? },
        6 => Change::Importing { id: bytes.u64()?, slot: slot(bytes)?, from: name(bytes)? },
        7 => Change::Stable { slot: slot(bytes)? },
        8 => Change::Assign { slot: slot(bytes)?, to: name(bytes)? },
        9 => Change::SetEpoch { id: bytes.u64()?, epoch: bytes.u64()? },
        10 => Change::BumpEpoch { id: bytes.u64()? },
        11 => Change::Forget { name: name(bytes)? },
        12 => Change::Failed { id: bytes.u64()?, has_failed: bytes.u8()? == 1 },
        13 => {
            let (id, to) = (bytes.u64()?, name(bytes)?);
            Change::BeginTransfer { id, to, slots: Slots::decode(bytes)? }
        }
        14 => Change::EndTransfer { number: bytes.u64()?, has_arrived: bytes.u8()? == 1 },
        15 => Change::Cleared { id: bytes.u64()?, slots: Slots::decode(bytes)? },
        16 => Change::Begin { id: bytes.u64()? },
        17 => {
            let (id, set, server) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            Change::Sit { id, seat: Seat { set, server }, term: bytes.u64()? }
        }
        _ => return Err(Malformed),
    })
}

fn slot(bytes: &mut Decoder) -> Result<u16, Malformed> {
    u16::try_from(bytes.u32()?).ok().filter(|&slot| usize::from(slot) < crate::slots::SLOTS).ok_or(Malformed)
}
