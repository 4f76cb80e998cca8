//! What members send to each other.
//!
//! The engine's own encoding is not used: its library reads nested groups without a limit (RUSTSEC-2024-0437), and bytes from a network
//! are to be refused, not followed.

use crate::{
    MemberId,
    code::{Decoder, Encoder, Malformed},
};
use bytes::Bytes;
use raft::eraftpb::{self, ConfState, Entry, EntryType, MessageType, Snapshot};

/// Messages of a group, numbered as they are sent. Those that a member tells itself are not among them.
const TYPES: [MessageType; 13] = [
    MessageType::MsgPropose,
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTransferLeader,
    MessageType::MsgTimeoutNow,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgReadIndex,
];
const ENTRY_TYPES: [EntryType; 3] =
    [EntryType::EntryNormal, EntryType::EntryConfChange, EntryType::EntryConfChangeV2];

/// A message from one member to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Message(pub(crate) eraftpb::Message);

impl Message {
    /// Who sends it.
    pub fn from(&self) -> MemberId {
        self.0.from
    }

    /// Whom it is for.
    pub fn to(&self) -> MemberId {
        self.0.to
    }

    /// Whether it carries the state of a machine, and so is long.
    pub fn has_snapshot(&self) -> bool {
        self.0.msg_type == MessageType::MsgSnapshot
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        self.encode_to(&mut out);
        out.into_bytes()
    }

    /// Puts its bytes behind others.
    pub fn encode_to(&self, out: &mut Encoder) {
        let message = &self.0;
        let kind = TYPES.iter().position(|known| *known == message.msg_type).expect("one that is sent");
        out.u8(kind as u8).u64(message.to).u64(message.from).u64(message.term);
        out.u64(message.log_term).u64(message.index).u64(message.commit).u64(message.commit_term);
        out.u8(message.reject.into()).u64(message.reject_hint).u64(message.request_snapshot);
        out.u64(message.priority as u64).bytes(&message.context);
        out.u8(message.has_snapshot().into());
        if message.has_snapshot() {
            encode_snapshot(out, message.get_snapshot());
        }
        out.u32(message.entries.len() as u32);
        message.entries.iter().for_each(|entry| encode_entry(out, entry));
    }

    /// A message of these bytes; `None`: they are none.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        decode(bytes, &Bytes::copy_from_slice).ok()
    }

    /// The same, with entries that keep `whole` in memory, of which the bytes are a part.
    pub(crate) fn decode_part(bytes: &[u8], whole: &Bytes) -> Option<Message> {
        decode(bytes, &|part| whole.slice_ref(part)).ok()
    }
}

fn decode(bytes: &[u8], keep: &dyn Fn(&[u8]) -> Bytes) -> Result<Message, Malformed> {
    let mut bytes = Decoder(bytes);
    let mut message = eraftpb::Message::default();
    let kind = *TYPES.get(usize::from(bytes.u8()?)).ok_or(Malformed)?;
    message.set_msg_type(kind);
    (message.to, message.from, message.term) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
    (message.log_term, message.index) = (bytes.u64()?, bytes.u64()?);
    (message.commit, message.commit_term) = (bytes.u64()?, bytes.u64()?);
    (message.reject, message.reject_hint) = (bytes.flag()?, bytes.u64()?);
    (message.request_snapshot, message.priority) = (bytes.u64()?, bytes.u64()? as i64);
    message.context = bytes.bytes()?.to_vec().into();
    if bytes.flag()? {
        message.set_snapshot(decode_snapshot(&mut bytes)?);
    }
    // The engine takes these for granted.
    if (kind == MessageType::MsgSnapshot) != message.has_snapshot() || message.from == 0 {
        return Err(Malformed);
    }
    let (count, mut next) = (bytes.u32()?, message.index);
    for _ in 0..count {
        let entry = decode_entry(&mut bytes, keep)?;
        next = next.wrapping_add(1);
        if kind == MessageType::MsgAppend && entry.index != next {
            return Err(Malformed);
        }
        message.mut_entries().push(entry);
    }
    bytes.end()?;
    Ok(Message(message))
}

pub fn encode_entry(out: &mut Encoder, entry: &Entry) {
    let kind = ENTRY_TYPES.iter().position(|known| *known == entry.entry_type).expect("one of them");
    out.u8(kind as u8).u64(entry.index).u64(entry.term).shared(&entry.data).bytes(&entry.context);
}

/// `keep` makes bytes of a part of what is read.
pub fn decode_entry(bytes: &mut Decoder, keep: &dyn Fn(&[u8]) -> Bytes) -> Result<Entry, Malformed> {
    let mut entry = Entry::default();
    entry.set_entry_type(*ENTRY_TYPES.get(usize::from(bytes.u8()?)).ok_or(Malformed)?);
    (entry.index, entry.term) = (bytes.u64()?, bytes.u64()?);
    entry.data = keep(bytes.bytes()?);
    entry.context = bytes.bytes()?.to_vec().into();
    Ok(entry)
}

pub fn encode_snapshot(out: &mut Encoder, snapshot: &Snapshot) {
    let about = snapshot.get_metadata();
    let members = about.get_conf_state();
    out.u64(about.index).u64(about.term);
    out.numbers(&members.voters).numbers(&members.learners);
    out.numbers(&members.voters_outgoing).numbers(&members.learners_next).u8(members.auto_leave.into());
    out.bytes(&snapshot.data);
}

pub fn decode_snapshot(bytes: &mut Decoder) -> Result<Snapshot, Malformed> {
    let mut snapshot = Snapshot::default();
    let about = snapshot.mut_metadata();
    (about.index, about.term) = (bytes.u64()?, bytes.u64()?);
    let mut members =
        ConfState { voters: bytes.numbers()?, learners: bytes.numbers()?, ..ConfState::default() };
    (members.voters_outgoing, members.learners_next) = (bytes.numbers()?, bytes.numbers()?);
    members.auto_leave = bytes.flag()?;
    about.set_conf_state(members);
    snapshot.data = bytes.bytes()?.to_vec().into();
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let mut message = eraftpb::Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.from, message.to, message.term, message.index) = (1, 2, 3, 4);
        (message.log_term, message.commit, message.reject_hint) = (2, 4, 9);
        for index in [5, 6] {
            let data = vec![index as u8; 3].into();
            message.mut_entries().push(Entry { index, term: 3, data, ..Entry::default() });
        }
        Message(message)
    }

    fn with_snapshot() -> Message {
        let mut message = message().0;
        message.set_msg_type(MessageType::MsgSnapshot);
        message.mut_entries().clear();
        let snapshot = message.mut_snapshot();
        snapshot.data = b"state".to_vec().into();
        snapshot.mut_metadata().index = 7;
        snapshot.mut_metadata().mut_conf_state().voters = vec![1, 2, 3];
        Message(message)
    }

    #[test]
    fn messages_come_through_as_they_are() {
        for message in [message(), with_snapshot()] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for message in [message(), with_snapshot()] {
            let bytes = message.encode();
            for len in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..len]), None, "{len} bytes");
            }
            assert_eq!(Message::decode(&[&bytes[..], b"x"].concat()), None);
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] = 255;
                // Whatever it is taken for, it is something that can be sent again.
                if let Some(message) = Message::decode(&other) {
                    assert_eq!(message.encode(), other);
                }
            }
        }
        let mut gap = message();
        gap.0.mut_entries()[1].index = 8;
        assert_eq!(Message::decode(&gap.encode()), None);
    }
}
