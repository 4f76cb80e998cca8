//! What servers of a cluster send to each other.

use crate::{
    place::{Address, Name, Seat, name},
    slots::Slots,
};
use holdfast_consensus::{
    MemberId, Message,
    code::{Decoder, Encoder, Malformed},
};

/// Something that one server sends to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Of the group that decides on the map of a cluster.
    Group {
        /// Which cluster.
        cluster: u64,
        /// Where the sender is to be answered, on its host: who has just joined knows nobody.
        bus_port: u16,
        /// What its member says.
        message: Message,
    },
    /// A server that knows no other one wants to become a part of the other's cluster.
    Join {
        /// Its name.
        name: Name,
        /// The cluster that it is of now, alone.
        home: u64,
        /// The one that it wants to be of; 0: whichever that is.
        cluster: u64,
        /// The version of the map of that.
        version: u64,
        /// Where it is. If it does not know its host, that from which it has connected.
        address: Address,
        /// Its slots.
        slots: Slots,
        /// The epoch of these.
        epoch: u64,
        /// Of which replica set it is.
        seat: Option<Seat>,
        /// The host by which it has found the other one.
        found_by: String,
    },
    /// It is a part of it.
    Welcome {
        /// Who.
        name: Name,
        /// With what its map was when it had that version.
        version: u64,
        /// Of which cluster.
        cluster: u64,
        /// With which number.
        id: MemberId,
    },
    /// It is not, and why.
    Refused {
        /// Who.
        name: Name,
        /// Why.
        why: String,
    },
    /// A server with others asks one that has none to join it.
    Invite {
        /// Where it is.
        address: Address,
        /// Of which cluster.
        cluster: u64,
        /// The host by which it has found the other one.
        found_by: String,
    },
    /// A message to the subscribers of a channel.
    Publish {
        /// Which cluster.
        cluster: u64,
        /// The channel.
        channel: Vec<u8>,
        /// The message.
        message: Vec<u8>,
    },
}

impl Frame {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        match self {
            Frame::Group { cluster, bus_port, message } => {
                out.u8(0).u64(*cluster).u32((*bus_port).into()).nested(|out| message.encode_to(out));
            }
            Frame::Join { name, home, cluster, version, address, slots, epoch, seat, found_by } => {
                out.u8(1)
                    .bytes(&name.0)
                    .u64(*home)
                    .u64(*cluster)
                    .u64(*version)
                    .u64(*epoch)
                    .bytes(found_by.as_bytes());
                address.encode(&mut out);
                slots.encode(&mut out);
                Seat::encode(*seat, &mut out);
            }
            Frame::Welcome { name, version, cluster, id } => {
                out.u8(2).bytes(&name.0).u64(*version).u64(*cluster).u64(*id);
            }
            Frame::Refused { name, why } => {
                out.u8(3).bytes(&name.0).bytes(why.as_bytes());
            }
            Frame::Invite { address, cluster, found_by } => {
                out.u8(4).u64(*cluster).bytes(found_by.as_bytes());
                address.encode(&mut out);
            }
            Frame::Publish { cluster, channel, message } => {
                out.u8(5).u64(*cluster).bytes(channel).bytes(message);
            }
        }
        out.into_bytes()
    }

    /// A frame of these bytes; `None`: they are none.
    pub fn decode(bytes: &[u8]) -> Option<Frame> {
        let mut bytes = Decoder(bytes);
        let frame = decode(&mut bytes).ok()?;
        bytes.end().ok()?;
        Some(frame)
    }
}

fn decode(bytes: &mut Decoder) -> Result<Frame, Malformed> {
    Ok(match bytes.u8()? {
        0 => {
            let (cluster, bus_port) = (bytes.u64()?, u16::try_from(bytes.u32()?).map_err(|_| Malformed)?);
            Frame::Group { cluster, bus_port, message: Message::decode(bytes.bytes()?).ok_or(Malformed)? }
        }
        1 => {
            let (name, home, cluster) = (name(bytes)?, bytes.u64()?, bytes.u64()?);
            let (version, epoch, found_by) = (bytes.u64()?, bytes.u64()?, text(bytes)?);
            let (address, slots) = (Address::decode(bytes)?, Slots::decode(bytes)?);
            let seat = Seat::decode(bytes)?;
            Frame::Join { name, home, cluster, version, address, slots, epoch, seat, found_by }
        }
        2 => Frame::Welcome {
            name: name(bytes)?,
            version: bytes.u64()?,
            cluster: bytes.u64()?,
            id: bytes.u64()?,
        },
        3 => Frame::Refused { name: name(bytes)?, why: text(bytes)? },
        4 => {
            let (cluster, found_by) = (bytes.u64()?, text(bytes)?);
            Frame::Invite { address: Address::decode(bytes)?, cluster, found_by }
        }
        5 => Frame::Publish {
            cluster: bytes.u64()?,
            channel: bytes.bytes()?.to_vec(),
            message: bytes.bytes()?.to_vec(),
        },
        _ => return Err(Malformed),
    })
}

fn text(bytes: &mut Decoder) -> Result<String, Malformed> {
    String::from_utf8(bytes.bytes()?.to_vec()).map_err(|_| Malformed)
}
