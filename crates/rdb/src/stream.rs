//! Streams: their entries in packed nodes, then what is known of all entries that ever were, then the groups.
//!
//! A node is a listpack whose key is the ID that those in it are counted from. It begins with a master entry: the numbers
//! of entries and of deleted ones, the number of fields and their names, and 0. Each entry is flags, the distances of its
//! ID's two parts, if its fields are not the master's their number, names (but for the master's fields) and values in
//! turn, and how many items of the listpack it has had so far.

use crate::{
    Error, Result, VERSION_ACTIVITY, VERSION_STREAM, kind,
    packed::{self, PackedWriter},
    payload::{begin, finish, put_length, put_string},
    reader::{Input, Reader},
    strings::Strings,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

const NODE: Error = Error::Malformed("unsound node of a stream");
const ORDER: Error = Error::Malformed("entries of a stream out of order");
const GROUP: Error = Error::Malformed("unsound group of a stream");
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// Bytes that names may come to that entries share: so many, or so many times as the nodes have.
const NAMES_MIN: usize = 64 << 20;
const NAMES_FACTOR: usize = 16;
const NAMES: Error = Error::Malformed("names of fields repeated too often");
/// Entries and bytes of a node that is written, about.
const NODE_ENTRIES: usize = 100;
const NODE_BYTES: usize = 4096;
/// Stands for a number that is not known.
const UNKNOWN: u64 = u64::MAX;

/// The ID of an entry: milliseconds, and a number within them.
pub type Id = (u64, u64);

/// A stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// In the order of their IDs.
    pub entries: Vec<Entry>,
    /// The greatest ID that there has been.
    pub last: Id,
    /// How many entries were ever added.
    pub added: u64,
    /// The greatest ID that was deleted.
    pub deleted_max: Id,
    /// The consumer groups.
    pub groups: Vec<Group>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its ID.
    pub id: Id,
    /// The names of its fields, at least one. Entries that follow each other may share them.
    pub names: Arc<Strings>,
    /// Their values.
    pub values: Strings,
}

impl Entry {
    /// Names and values.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
        self.names.iter().zip(self.values.iter())
    }
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Vec<u8>,
    /// The last entry that was delivered.
    pub last: Id,
    /// How many entries were delivered, if that is known.
    pub read: Option<u64>,
    /// Those who read for it.
    pub consumers: Vec<Consumer>,
    /// Entries delivered and not acknowledged, in the order of their IDs.
    pub pending: Vec<Pending>,
}

/// A consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Vec<u8>,
    /// When it last tried to read: Unix time in milliseconds.
    pub seen_ms: u64,
    /// When it last got an entry, if ever.
    pub active_ms: Option<u64>,
}

/// An entry that waits for an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its ID.
    pub id: Id,
    /// Whose it is: a place in the group's consumers.
    pub consumer: usize,
    /// When it was last delivered: Unix time in milliseconds.
    pub delivered_ms: u64,
    /// How often.
    pub deliveries: u64,
}

pub(crate) fn read(reader: &mut Reader<impl Input>, kind: u8) -> Result<Stream> {
    let mut stream = Stream::default();
    let (mut bytes, mut repeated) = (0usize, 0);
    for _ in 0..reader.length()? {
        let (key, node) = (reader.string()?, reader.string()?);
        let known = stream.entries.len();
        read_node(&key, &node, &mut stream.entries)?;
        // They are shared here, but not where the stream goes.
        let names: usize = stream.entries[known..].iter().map(|entry| entry.names.bytes()).sum();
        bytes += node.len();
        repeated = names.saturating_add(repeated);
        if repeated > NAMES_MIN.max(bytes.saturating_mul(NAMES_FACTOR)) {
            return Err(NAMES);
        }
    }
    if !stream.entries.is_sorted_by(|a, b| a.id < b.id) {
        return Err(ORDER);
    }
    let count = reader.length()?;
    stream.last = read_id(reader)?;
    let greatest = stream.entries.last().map_or((0, 0), |entry| entry.id);
    if count != stream.entries.len() as u64 || stream.last < greatest {
        return Err(ORDER);
    }
    stream.added = count;
    if kind != kind::STREAM {
        // The first entry, which is there to be seen.
        read_id(reader)?;
        stream.deleted_max = read_id(reader)?;
        stream.added = reader.length()?;
    }
    let mut names = HashSet::new();
    for _ in 0..reader.length()? {
        let group = read_group(reader, kind, &stream)?;
        if !names.insert(group.name.clone()) {
            return Err(GROUP);
        }
        stream.groups.push(group);
    }
    Ok(stream)
}

fn read_id(reader: &mut Reader<impl Input>) -> Result<Id> {
    Ok((reader.length()?, reader.length()?))
}

/// An ID in 16 bytes, the highest first.
fn raw_id(bytes: [u8; 16]) -> Id {
    let bits = u128::from_be_bytes(bytes);
    ((bits >> 64) as u64, bits as u64)
}

/// The items of a listpack, one by one.
struct Items {
    all: Strings,
    next: usize,
}

impl Items {
    fn left(&self) -> usize {
        self.all.len() - self.next
    }

    fn text(&mut self) -> Result<&[u8]> {
        if self.left() == 0 {
            return Err(NODE);
        }
        self.next += 1;
        Ok(self.all.get(self.next - 1))
    }

    fn number(&mut self) -> Result<i64> {
        std::str::from_utf8(self.text()?).ok().and_then(|digits| digits.parse().ok()).ok_or(NODE)
    }

    /// A number of items that follow: not more than there are.
    fn count(&mut self) -> Result<usize> {
        let count = self.number()?;
        usize::try_from(count).ok().filter(|count| *count <= self.left()).ok_or(NODE)
    }
}

fn read_node(key: &[u8], bytes: &[u8], entries: &mut Vec<Entry>) -> Result<()> {
    let (ms, seq) = raw_id(key.try_into().map_err(|_| NODE)?);
    let mut items = Items { all: packed::listpack(bytes)?, next: 0 };
    let (mut live, mut deleted) = (items.count()?, items.count()?);
    let mut master = Strings::default();
    for _ in 0..items.count()? {
        master.push(items.text()?)?;
    }
    let master = Arc::new(master);
    if items.number()? != 0 || live + deleted == 0 {
        return Err(NODE);
    }
    while live + deleted > 0 {
        let flags = items.number()?;
        let id = (ms.wrapping_add(items.number()? as u64), seq.wrapping_add(items.number()? as u64));
        let (mut names, mut values) = (master.clone(), Strings::default());
        let len = if flags & SAME_FIELDS != 0 {
            for _ in 0..master.len() {
                values.push(items.text()?)?;
            }
            master.len() + 3
        } else {
            let mut own = Strings::default();
            for _ in 0..items.count()? {
                own.push(items.text()?)?;
                values.push(items.text()?)?;
            }
            names = Arc::new(own);
            2 * values.len() + 4
        };
        if items.number()? != len as i64 || values.is_empty() {
            return Err(NODE);
        }
        let left = if flags & DELETED != 0 { &mut deleted } else { &mut live };
        *left = left.checked_sub(1).ok_or(NODE)?;
        if flags & DELETED == 0 {
            entries.push(Entry { id, names, values });
        }
    }
    if items.left() == 0 { Ok(()) } else { Err(NODE) }
}

fn read_group(reader: &mut Reader<impl Input>, kind: u8, stream: &Stream) -> Result<Group> {
    let (name, last) = (reader.string()?, read_id(reader)?);
    let read = match kind {
        kind::STREAM => read_so_far(stream, last),
        _ => Some(reader.length()?).filter(|read| *read != UNKNOWN),
    };
    // With the consumer once it is known.
    let mut pending = BTreeMap::new();
    for _ in 0..reader.length()? {
        let id = raw_id(reader.bytes()?);
        let delivered_ms = u64::from_le_bytes(reader.bytes()?);
        let one = Pending { id, consumer: usize::MAX, delivered_ms, deliveries: reader.length()? };
        if pending.insert(id, one).is_some() {
            return Err(GROUP);
        }
    }
    let (mut consumers, mut names) = (Vec::new(), HashSet::new());
    for _ in 0..reader.length()? {
        let name = reader.string()?;
        let seen_ms = u64::from_le_bytes(reader.bytes()?);
        let active_ms = match kind {
            kind::STREAM_3 => Some(u64::from_le_bytes(reader.bytes()?)).filter(|active| *active != UNKNOWN),
            _ => Some(seen_ms),
        };
        for _ in 0..reader.length()? {
            let one = pending.get_mut(&raw_id(reader.bytes()?)).filter(|one| one.consumer == usize::MAX);
            one.ok_or(GROUP)?.consumer = consumers.len();
        }
        if !names.insert(name.clone()) {
            return Err(GROUP);
        }
        consumers.push(Consumer { name, seen_ms, active_ms });
    }
    let pending: Vec<Pending> = pending.into_values().collect();
    if pending.iter().any(|one| one.consumer == usize::MAX) {
        return Err(GROUP);
    }
    Ok(Group { name, last, read, consumers, pending })
}

/// How many entries a group has read whose last one is known, in a stream of which nothing was deleted, as far as is known.
fn read_so_far(stream: &Stream, last: Id) -> Option<u64> {
    let first = stream.entries.first().map_or(stream.last, |entry| entry.id);
    if last == stream.last {
        Some(stream.added)
    } else if last < first {
        Some(0)
    } else {
        (last == first).then_some(1)
    }
}

/// The payload of a stream. When consumers were last active is not in it: that takes Redis 7.2, the rest 7.0.
pub(crate) fn encode(stream: &Stream) -> Vec<u8> {
    finish(body(stream, kind::STREAM_2), VERSION_STREAM)
}

/// The same with when consumers were last active.
pub(crate) fn encode_with_activity(stream: &Stream) -> Vec<u8> {
    finish(body(stream, kind::STREAM_3), VERSION_ACTIVITY)
}

fn body(stream: &Stream, kind: u8) -> Vec<u8> {
    let nodes: Vec<&[Entry]> = nodes(&stream.entries);
    let mut out = begin(kind, nodes.len() as u64);
    for node in nodes {
        put_string(&mut out, &raw(node[0].id));
        put_string(&mut out, &pack(node));
    }
    put_length(&mut out, stream.entries.len() as u64);
    let first = stream.entries.first().map_or((0, 0), |entry| entry.id);
    for (ms, seq) in [stream.last, first, stream.deleted_max] {
        put_length(&mut out, ms);
        put_length(&mut out, seq);
    }
    put_length(&mut out, stream.added);
    put_length(&mut out, stream.groups.len() as u64);
    stream.groups.iter().for_each(|group| put_group(&mut out, group, kind));
    out
}

fn raw((ms, seq): Id) -> [u8; 16] {
    (u128::from(ms) << 64 | u128::from(seq)).to_be_bytes()
}

fn put_group(out: &mut Vec<u8>, group: &Group, kind: u8) {
    put_string(out, &group.name);
    put_length(out, group.last.0);
    put_length(out, group.last.1);
    put_length(out, group.read.unwrap_or(UNKNOWN));
    put_length(out, group.pending.len() as u64);
    for pending in &group.pending {
        out.extend_from_slice(&raw(pending.id));
        out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
        put_length(out, pending.deliveries);
    }
    put_length(out, group.consumers.len() as u64);
    let mut of_consumer = vec![Vec::new(); group.consumers.len()];
    for pending in &group.pending {
        of_consumer[pending.consumer].push(pending.id);
    }
    for (consumer, ids) in group.consumers.iter().zip(of_consumer) {
        put_string(out, &consumer.name);
        out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
        if kind == kind::STREAM_3 {
            out.extend_from_slice(&consumer.active_ms.unwrap_or(UNKNOWN).to_le_bytes());
        }
        put_length(out, ids.len() as u64);
        ids.into_iter().for_each(|id| out.extend_from_slice(&raw(id)));
    }
}

/// Entries by nodes.
fn nodes(entries: &[Entry]) -> Vec<&[Entry]> {
    let (mut nodes, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, entry) in entries.iter().enumerate() {
        if at > start && (at - start == NODE_ENTRIES || bytes >= NODE_BYTES) {
            nodes.push(&entries[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += entry.names.bytes() + entry.values.bytes();
    }
    if start < entries.len() {
        nodes.push(&entries[start..]);
    }
    nodes
}

fn pack(node: &[Entry]) -> Vec<u8> {
    let master = &node[0];
    let mut packed = PackedWriter::default();
    for number in [node.len() as i64, 0, master.names.len() as i64] {
        packed.number(number);
    }
    master.names.iter().for_each(|name| packed.text(name));
    packed.number(0);
    for entry in node {
        let is_same = entry.names == master.names;
        packed.number(if is_same { SAME_FIELDS } else { 0 });
        packed.number(entry.id.0.wrapping_sub(master.id.0) as i64);
        packed.number(entry.id.1.wrapping_sub(master.id.1) as i64);
        if !is_same {
            packed.number(entry.names.len() as i64);
        }
        for (name, value) in entry.fields() {
            if !is_same {
                packed.text(name);
            }
            packed.text(value);
        }
        let len = if is_same { entry.names.len() + 3 } else { 2 * entry.names.len() + 4 };
        packed.number(len as i64);
    }
    packed.finish()
}
