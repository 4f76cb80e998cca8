//! What the servers of a replica set send to each other.

use crate::{
    push::{
        exchange::Published,
        invalidation::{Changed, Part},
    },
    server::replica_set::ClusterOfSet,
};
use bytes::Bytes;
use holdfast_consensus::{
    Envelope, Extract, MemberId,
    code::{Decoder, Encoder, Malformed},
};

/// What a data folder is to a replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is nothing in it.
    Blank,
    /// A server on its own has served it.
    Data,
    /// The others copy it.
    Origin,
    /// It is one of the set's.
    Member,
    /// The same, but it is damaged.
    Damaged,
}

impl Kind {
    /// Whether it is of a set that is founded.
    pub fn is_of_set(self) -> bool {
        matches!(self, Kind::Member | Kind::Damaged)
    }

    /// Whether a copy is needed of all that the set has: what was promised is forgotten, or not to be relied on.
    pub fn needs_all(self) -> bool {
        matches!(self, Kind::Blank | Kind::Damaged)
    }
}

/// Who is there, and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which of the servers it is for, as its sender knows them.
    pub to: MemberId,
    /// What its sender has drawn at its start, by which it knows itself.
    pub nonce: u64,
    /// Which of the servers sends it; `None`: it does not know yet.
    pub from: Option<MemberId>,
    /// Where that is, as the sender knows it.
    pub address: String,
    /// A checksum of the sender's list.
    pub servers: u32,
    /// The set; 0: it has none.
    pub set: u64,
    /// What its folder is.
    pub kind: Kind,
    /// The number of its last entry; 0: it has none.
    pub last: u64,
    /// The sender leads the set, and who it is for is not one of that.
    pub is_stranger: bool,
    /// The cluster in which all of the set are to be; `None`: the sender is in none.
    pub cluster: Option<ClusterOfSet>,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Who is there.
    Hello(Hello),
    /// A folder is to be copied, by the one of the servers that it is for.
    Offer {
        /// The set that begins with it.
        set: u64,
        /// Who has it.
        from: MemberId,
        /// Whose copy it will be.
        to: MemberId,
        /// By what the server knows itself that has asked for it, since it has nothing; 0: it lacks a part of the log.
        nonce: u64,
        /// Which copy it is: the same server may offer another one, of another moment, when it leads again.
        copy: u64,
        /// With what its log begins and ends.
        extract: Extract,
        /// Its files, with their lengths.
        files: Vec<(String, u64)>,
    },
    /// A part of a file is wanted; without a name: whether all was kept until now.
    Fetch {
        /// The set.
        set: u64,
        /// Who wants it.
        from: MemberId,
        /// For which copy.
        copy: u64,
        /// The file.
        name: String,
        /// Where the part begins.
        offset: u64,
    },
    /// A part of a file, without the zeroes at its end; without a name: all was kept.
    Part {
        /// The set.
        set: u64,
        /// Of which copy.
        copy: u64,
        /// The file.
        name: String,
        /// Where it begins.
        offset: u64,
        /// What it has.
        bytes: Vec<u8>,
    },
    /// From a replica to another one.
    Envelope {
        /// The set.
        set: u64,
        /// What is in it.
        envelope: Envelope,
    },
    /// Another server is to lead, which asks the one that does.
    HandOver {
        /// The set.
        set: u64,
        /// Who is to lead.
        to: MemberId,
    },
    /// Messages for those who have subscribed at other servers.
    Publish {
        /// The set.
        set: u64,
        /// The messages.
        messages: Vec<Published>,
    },
    /// Clients of one that follows track keys.
    Track {
        /// The set.
        set: u64,
    },
    /// Which keys have changed.
    Changed {
        /// The set.
        set: u64,
        /// The next part of what the leader tells of it.
        part: Part,
    },
}

impl Frame {
    /// Its bytes, in pieces.
    pub fn encode(&self) -> Vec<Bytes> {
        let mut out = Encoder::default();
        match self {
            Frame::Hello(Hello {
                to,
                nonce,
                from,
                address,
                servers,
                set,
                kind,
                last,
                is_stranger,
                cluster,
            }) => {
                // No server has the number 0.
                out.u8(0).u64(*to).u64(*nonce).u64(from.unwrap_or(0)).bytes(address.as_bytes()).u32(*servers);
                out.u64(*set).u8(*kind as u8).u64(*last).u8((*is_stranger).into());
                out.u8(cluster.is_some().into());
                if let Some(ClusterOfSet { cluster, bus_port, version, is_member }) = cluster {
                    out.u64(*cluster).u32((*bus_port).into()).u64(*version).u8((*is_member).into());
                }
            }
            Frame::Offer { set, from, to, nonce, copy, extract, files } => {
                let Extract { base, last, voted } = extract;
                out.u8(1)
                    .u64(*set)
                    .u64(*from)
                    .u64(*to)
                    .u64(*nonce)
                    .u64(*copy)
                    .u64(last.0)
                    .u64(last.1)
                    .bytes(base)
                    .u64(voted.0)
                    .u64(voted.1);
                for (name, len) in files {
                    out.bytes(name.as_bytes()).u64(*len);
                }
            }
            Frame::Fetch { set, from, copy, name, offset } => {
                out.u8(2).u64(*set).u64(*from).u64(*copy).bytes(name.as_bytes()).u64(*offset);
            }
            Frame::Part { set, copy, name, offset, bytes } => {
                out.u8(3).u64(*set).u64(*copy).bytes(name.as_bytes()).u64(*offset).bytes(bytes);
            }
            Frame::Envelope { set, envelope } => {
                out.u8(4).u64(*set).nested(|out| envelope.encode_to(out));
            }
            Frame::HandOver { set, to } => {
                out.u8(5).u64(*set).u64(*to);
            }
            Frame::Publish { set, messages } => {
                out.u8(6).u64(*set).u32(messages.len() as u32);
                for Published { lsn, from, to_shard, channel, message } in messages {
                    out.u64(*lsn).u64(*from).u8((*to_shard).into()).bytes(channel).bytes(message);
                }
            }
            Frame::Track { set } => {
                out.u8(7).u64(*set);
            }
            Frame::Changed { set, part: Part { stream, number, agreed, changed } } => {
                out.u8(8).u64(*set).u64(*stream).u64(*number).u64(*agreed).u32(changed.len() as u32);
                for Changed { lsn, keys } in changed {
                    out.u64(*lsn).u8(keys.is_some().into());
                    if let Some(keys) = keys {
                        out.u32(keys.len() as u32);
                        for key in keys {
                            out.bytes(key);
                        }
                    }
                }
            }
        }
        out.into_pieces()
    }

    /// A frame of these bytes; `None`: they are none that this version knows.
    pub fn decode(bytes: &Bytes) -> Option<Frame> {
        Frame::read(bytes).ok()
    }

    fn read(whole: &Bytes) -> Result<Frame, Malformed> {
        let mut bytes = Decoder(whole);
        let frame = match bytes.u8()? {
            0 => {
                let (to, nonce, from) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
                let (address, servers, set) = (text(&mut bytes)?, bytes.u32()?, bytes.u64()?);
                let kinds = [Kind::Blank, Kind::Data, Kind::Origin, Kind::Member, Kind::Damaged];
                let kind = *kinds.get(usize::from(bytes.u8()?)).ok_or(Malformed)?;
                let (from, last) = ((from > 0).then_some(from), bytes.u64()?);
                let is_stranger = bytes.flag()?;
                let cluster = match bytes.flag()? {
                    true => Some(ClusterOfSet {
                        cluster: bytes.u64()?,
                        bus_port: u16::try_from(bytes.u32()?).map_err(|_| Malformed)?,
                        version: bytes.u64()?,
                        is_member: bytes.flag()?,
                    }),
                    false => None,
                };
                Frame::Hello(Hello {
                    to,
                    nonce,
                    from,
                    address,
                    servers,
                    set,
                    kind,
                    last,
                    is_stranger,
                    cluster,
                })
            }
            1 => {
                let (set, from, to) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
                let (nonce, copy, last) = (bytes.u64()?, bytes.u64()?, (bytes.u64()?, bytes.u64()?));
                let (base, voted) = (bytes.bytes()?.to_vec(), (bytes.u64()?, bytes.u64()?));
                let mut files = Vec::new();
                while bytes.end().is_err() {
                    files.push((text(&mut bytes)?, bytes.u64()?));
                }
                let extract = Extract { base, last, voted };
                Frame::Offer { set, from, to, nonce, copy, extract, files }
            }
            2 => {
                let (set, from, copy) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
                Frame::Fetch { set, from, copy, name: text(&mut bytes)?, offset: bytes.u64()? }
            }
            3 => {
                let (set, copy) = (bytes.u64()?, bytes.u64()?);
                let (name, offset) = (text(&mut bytes)?, bytes.u64()?);
                Frame::Part { set, copy, name, offset, bytes: bytes.bytes()?.to_vec() }
            }
            4 => {
                let set = bytes.u64()?;
                let envelope = Envelope::decode(bytes.bytes()?, whole).ok_or(Malformed)?;
                Frame::Envelope { set, envelope }
            }
            5 => Frame::HandOver { set: bytes.u64()?, to: bytes.u64()? },
            6 => {
                let (set, count) = (bytes.u64()?, bytes.u32()?);
                let mut messages = Vec::new();
                for _ in 0..count {
                    let (lsn, from, to_shard) = (bytes.u64()?, bytes.u64()?, bytes.flag()?);
                    let (channel, message) = (bytes.bytes()?.to_vec(), bytes.bytes()?.to_vec());
                    messages.push(Published { lsn, from, to_shard, channel, message });
                }
                Frame::Publish { set, messages }
            }
            7 => Frame::Track { set: bytes.u64()? },
            8 => {
                let (set, stream, number, agreed) = (bytes.u64()?, bytes.u64()?, bytes.u64()?, bytes.u64()?);
                let mut changed = Vec::new();
                for _ in 0..bytes.u32()? {
                    let lsn = bytes.u64()?;
                    let keys = if bytes.flag()? { Some(names(&mut bytes)?) } else { None };
                    changed.push(Changed { lsn, keys });
                }
                Frame::Changed { set, part: Part { stream, number, agreed, changed } }
            }
            _ => return Err(Malformed),
        };
        bytes.end().map(|()| frame)
    }
}

fn names(bytes: &mut Decoder) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut names = Vec::new();
    for _ in 0..bytes.u32()? {
        names.push(bytes.bytes()?.to_vec());
    }
    Ok(names)
}

fn text(bytes: &mut Decoder) -> Result<String, Malformed> {
    String::from_utf8(bytes.bytes()?.to_vec()).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written_and_no_other_bytes_are_one() {
        let hello = Hello {
            to: 1,
            nonce: 2,
            from: None,
            address: "host:1@2".into(),
            servers: 3,
            set: 4,
            kind: Kind::Data,
            last: 5,
            is_stranger: true,
            cluster: Some(ClusterOfSet { cluster: 6, bus_port: 7, version: 8, is_member: true }),
        };
        let frames = [
            Frame::Hello(hello.clone()),
            Frame::Hello(Hello { from: Some(2), kind: Kind::Member, cluster: None, ..hello }),
            Frame::Offer {
                set: 1,
                from: 0,
                to: 2,
                nonce: 6,
                copy: 8,
                extract: Extract { base: vec![7], last: (9, 2), voted: (3, 1) },
                files: vec![("heap".into(), 7), ("log/0".into(), 0)],
            },
            Frame::Fetch { set: 1, from: 2, copy: 8, name: "heap".into(), offset: 1 << 20 },
            Frame::Part { set: 1, copy: 8, name: "heap".into(), offset: 5, bytes: vec![1, 2, 3] },
            Frame::HandOver { set: 1, to: 3 },
            Frame::Publish {
                set: 1,
                messages: [false, true]
                    .map(|to_shard| Published {
                        lsn: 7,
                        from: 3,
                        to_shard,
                        channel: vec![1],
                        message: vec![2, 3],
                    })
                    .into(),
            },
            Frame::Track { set: 1 },
            Frame::Changed {
                set: 1,
                part: Part {
                    stream: 2,
                    number: 3,
                    agreed: 4,
                    changed: vec![
                        Changed { lsn: 5, keys: Some(vec![b"a".to_vec(), Vec::new()]) },
                        Changed { lsn: 6, keys: None },
                    ],
                },
            },
        ];
        for frame in frames {
            let bytes = Bytes::from(frame.encode().concat());
            assert_eq!(Frame::decode(&bytes), Some(frame));
            for len in 0..bytes.len() {
                // Fewer files are files, too.
                assert!(bytes[0] == 1 || Frame::decode(&bytes.slice(..len)).is_none());
            }
            assert!(Frame::decode(&[&bytes[..], &[9]].concat().into()).is_none());
        }
    }
}
