//! What a member has promised, on the medium: the state of its machine up to some entry, the entries from there on, and its vote.
//!
//! A *journal* is a file of units, each durable before the next one is written. Unit 0 is all that is known when the file is made; each
//! later one adds entries or a vote. A unit begins at a multiple of [`BLOCK`]:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | magic |
//! | 4 | length of what follows the header |
//! | 8 | salt of the file |
//! | 8 | number of the unit in the file |
//! | 4 | CRC-32C of all that, and of what follows |
//! | … | records: a kind, and bytes that it says |
//!
//! After a unit was made durable, a *mark* is written behind it, a unit of its number without records, which nobody waits for and the
//! next unit overwrites. So the end of a journal is told from damage: a unit that fails its check, and behind which there is one of its
//! number or a later one, was durable once. A journal that is damaged is refused, since it may have held a vote.
//!
//! When a file is full, the next one is made, of the machine's state as it is then, and the old one is removed.

use crate::{
    MemberId,
    code::{Decoder, Encoder, Malformed},
    message::{decode_entry, decode_snapshot, encode_entry, encode_snapshot},
};
use bytes::Bytes;
use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Io, Result, crc32c_append};
use raft::{
    GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot},
    util::limit_size,
};
use std::{cell::Cell, sync::Arc};

const MAGIC: [u8; 4] = *b"HFcj";
const HEADER: usize = 28;
/// Bytes of a file for each byte of its first unit, and at least: how long it lasts.
const SPARE: u64 = 4;
const FILE_MIN: u64 = 1 << 20;
/// Bytes of a file at most.
const FILE_MAX: u64 = 2 << 30;
/// The number of the first file.
const FIRST: u64 = 1;

const SNAPSHOT: u8 = 1;
const VOTE: u8 = 2;
const ENTRY: u8 = 3;
const OPENED: u8 = 4;

/// A member's journal.
pub struct Journal {
    io: Arc<dyn Io>,
    folder: String,
    file: Arc<dyn File>,
    /// The number of the file.
    number: u64,
    salt: u64,
    /// The number of the next unit, and where it begins.
    unit: u64,
    end: u64,
    len: u64,
    content: Content,
    /// A member is to be sent a newer snapshot than there is.
    is_wanted: Cell<bool>,
}

/// What a journal says.
#[derive(Clone, Default)]
struct Content {
    /// Who is the member.
    member: MemberId,
    /// How often the journal was opened.
    opened: u64,
    vote: HardState,
    /// The state of the machine; entries follow on it.
    snapshot: Snapshot,
    entries: Vec<Entry>,
}

impl Content {
    fn first_index(&self) -> u64 {
        self.snapshot.get_metadata().index + 1
    }

    fn last_index(&self) -> u64 {
        self.first_index() + self.entries.len() as u64 - 1
    }

    /// Adds an entry, in the place of one of its index and all behind that.
    fn add(&mut self, entry: Entry) -> std::result::Result<(), Malformed> {
        let at = entry.index.checked_sub(self.first_index()).ok_or(Malformed)? as usize;
        if at > self.entries.len() {
            return Err(Malformed);
        }
        self.entries.truncate(at);
        self.entries.push(entry);
        Ok(())
    }

    /// Takes a snapshot that is newer than all entries, or is a state that they have led to: those behind it stay.
    fn install(&mut self, snapshot: Snapshot) {
        let (index, term) = (snapshot.get_metadata().index, snapshot.get_metadata().term);
        let follows = self.term(index) == Some(term);
        let passed = (index + 1).saturating_sub(self.first_index()) as usize;
        match follows {
            true => drop(self.entries.drain(..passed.min(self.entries.len()))),
            false => self.entries.clear(),
        }
        self.snapshot = snapshot;
    }

    fn term(&self, index: u64) -> Option<u64> {
        let about = self.snapshot.get_metadata();
        match index.checked_sub(about.index)? {
            0 => Some(about.term),
            ahead => self.entries.get(ahead as usize - 1).map(|entry| entry.term),
        }
    }

    fn encode(&self) -> Records {
        let mut records = Records::default();
        records.opened(self.member, self.opened);
        records.snapshot(&self.snapshot);
        records.vote(&self.vote);
        self.entries.iter().for_each(|entry| records.entry(entry));
        records
    }

    fn replay(&mut self, records: &[u8]) -> std::result::Result<(), Malformed> {
        let mut records = Decoder(records);
        while !records.0.is_empty() {
            match records.u8()? {
                OPENED => (self.member, self.opened) = (records.u64()?, records.u64()?),
                SNAPSHOT => self.install(decode_snapshot(&mut records)?),
                VOTE => {
                    (self.vote.term, self.vote.vote, self.vote.commit) =
                        (records.u64()?, records.u64()?, records.u64()?);
                }
                ENTRY => self.add(decode_entry(&mut records, &Bytes::copy_from_slice)?)?,
                _ => return Err(Malformed),
            }
        }
        Ok(())
    }
}

/// What a unit is to say.
#[derive(Default)]
pub struct Records(Encoder);

impl Records {
    fn opened(&mut self, member: MemberId, opened: u64) {
        self.0.u8(OPENED).u64(member).u64(opened);
    }

    /// The state of the machine, in the place of all entries up to it.
    pub fn snapshot(&mut self, snapshot: &Snapshot) {
        self.0.u8(SNAPSHOT);
        encode_snapshot(&mut self.0, snapshot);
    }

    /// The term, the vote, and up to where entries are decided.
    pub fn vote(&mut self, vote: &HardState) {
        self.0.u8(VOTE).u64(vote.term).u64(vote.vote).u64(vote.commit);
    }

    /// An entry, in the place of one of its index and all behind that.
    pub fn entry(&mut self, entry: &Entry) {
        self.0.u8(ENTRY);
        encode_entry(&mut self.0, entry);
    }
}

fn name(folder: &str, number: u64) -> String {
    format!("{folder}/journal-{number:016x}")
}

/// The number in a file's name, relative to the data folder or to its own one.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.rsplit('/').next()?.strip_prefix("journal-")?;
    u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)
}

fn checksum(header: &[u8], records: &[u8]) -> u32 {
    crc32c_append(crc32c_append(0, &header[..HEADER - 4]), records)
}

/// The bytes of a unit, padded to whole blocks.
fn unit(salt: u64, number: u64, records: &[u8]) -> AlignedBuf {
    let len = (HEADER + records.len()).next_multiple_of(BLOCK);
    let mut bytes = AlignedBuf::zeroed(len);
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&(records.len() as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&salt.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    let crc = checksum(&bytes[..HEADER], records);
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    bytes[HEADER..HEADER + records.len()].copy_from_slice(records);
    bytes
}

/// Where a unit is in a file's bytes.
struct Found<'a> {
    salt: u64,
    number: u64,
    records: &'a [u8],
}

/// The unit at the beginning of `bytes`, if there is one that passes its check.
fn find(bytes: &[u8]) -> Option<Found<'_>> {
    let header = bytes.get(..HEADER).filter(|header| header[..4] == MAGIC)?;
    let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let records = bytes[HEADER..].get(..u32_at(4) as usize)?;
    (checksum(header, records) == u32_at(24)).then(|| Found { salt: u64_at(8), number: u64_at(16), records })
}

fn blocks(records: &[u8]) -> usize {
    (HEADER + records.len()).next_multiple_of(BLOCK)
}

/// What a file says.
enum Read {
    /// All that was durable.
    Sound { content: Box<Content>, salt: u64, unit: u64, end: u64 },
    /// Its first unit was never finished, so nobody was told of the file.
    Unfinished,
}

fn read(file: &dyn File) -> Result<Read> {
    let failed = |e| Error::io(format!("read {}", file.name()), e);
    let len = file.len().map_err(failed)?;
    if len > FILE_MAX {
        return Err(Error::corrupt(file.name(), 0, "a journal is not so long"));
    }
    let mut bytes = AlignedBuf::zeroed((len as usize).next_multiple_of(BLOCK));
    file.read_at(&mut bytes[..len as usize], 0).map_err(failed)?;
    let (mut content, mut salt, mut number, mut at) = (Content::default(), 0, 0, 0);
    while let Some(found) = find(&bytes[at.min(bytes.len())..]) {
        // The mark of the unit before this place, and nothing behind it.
        if found.number != number || (number > 0 && found.salt != salt) {
            break;
        }
        salt = found.salt;
        let replayed = content.replay(found.records);
        replayed.map_err(|Malformed| Error::corrupt(file.name(), at as u64, "records"))?;
        (at, number) = (at + blocks(found.records), number + 1);
    }
    // What was durable once, and is not sound now, has a mark or a later unit behind it.
    let rest = bytes.get(at..).unwrap_or_default();
    let later = rest.chunks(BLOCK).enumerate().filter_map(|(block, _)| find(&rest[block * BLOCK..]));
    if later.into_iter().any(|found| (number == 0 || found.salt == salt) && found.number >= number) {
        return Err(Error::corrupt(file.name(), at as u64, "a unit that was durable"));
    }
    if number == 0 {
        return Ok(Read::Unfinished);
    }
    Ok(Read::Sound { content: Box::new(content), salt, unit: number, end: at as u64 })
}

impl Journal {
    /// Makes the journal of a new member, whose machine's state is `snapshot`. It is durable then.
    ///
    /// # Errors
    /// The medium's.
    pub fn create(io: Arc<dyn Io>, folder: &str, member: MemberId, snapshot: Snapshot) -> Result<Journal> {
        let term = snapshot.get_metadata().term;
        let vote = HardState { term, commit: snapshot.get_metadata().index, ..HardState::default() };
        let content = Content { member, opened: 1, vote, snapshot, ..Content::default() };
        let names = io.list(folder).map_err(|e| Error::io(format!("list {folder}"), e))?;
        let number = names.iter().filter_map(|name| number_of(name)).max().map_or(FIRST, |last| last + 1);
        Journal::write(io, folder, number, content)
    }

    /// Opens the journal in a folder, if there is one.
    ///
    /// # Errors
    /// The medium's, or the journal is damaged.
    pub fn open(io: Arc<dyn Io>, folder: &str) -> Result<Option<Journal>> {
        let names = io.list(folder).map_err(|e| Error::io(format!("list {folder}"), e))?;
        let mut numbers: Vec<_> = names.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        while let Some(number) = numbers.pop() {
            let name = name(folder, number);
            let failed = |e| Error::io(format!("open {name}"), e);
            let file = io.open(&name, false).map_err(failed)?;
            let Read::Sound { content, salt, unit, end } = read(&*file)? else {
                if numbers.is_empty() && number > FIRST {
                    return Err(Error::corrupt(&name, 0, "the first unit"));
                }
                continue;
            };
            let len = file.len().map_err(failed)?;
            // Its maker may have been killed before it was sure of that, and the older one goes now.
            file.sync().map_err(failed)?;
            io.sync_dir(folder).map_err(failed)?;
            let folder = folder.to_owned();
            let mut journal = Journal {
                io,
                folder,
                file,
                number,
                salt,
                unit,
                end,
                len,
                content: *content,
                is_wanted: Cell::new(false),
            };
            journal.remove_others()?;
            journal.content.opened += 1;
            let mut records = Records::default();
            records.opened(journal.content.member, journal.content.opened);
            journal.append(records)?;
            return Ok(Some(journal));
        }
        Ok(None)
    }

    /// Removes all that is in the folder: the member is no more.
    ///
    /// # Errors
    /// The medium's.
    pub fn remove(io: &dyn Io, folder: &str) -> Result<()> {
        let failed = |e| Error::io(format!("remove {folder}"), e);
        for name in io.list(folder).map_err(failed)? {
            if let Some(number) = number_of(&name) {
                io.remove(&self::name(folder, number)).map_err(failed)?;
            }
        }
        io.sync_dir(folder).map_err(failed)
    }

    /// Writes a new file, which takes the place of all others.
    fn write(io: Arc<dyn Io>, folder: &str, number: u64, content: Content) -> Result<Journal> {
        let name = name(folder, number);
        let failed = |e| Error::io(format!("write {name}"), e);
        let mut salt = [0; 8];
        io.random(&mut salt);
        let salt = u64::from_le_bytes(salt);
        let first = unit(salt, 0, &content.encode().0.into_bytes());
        let end = first.len() as u64;
        let len = (SPARE * end).max(FILE_MIN);
        let file = io.open(&name, true).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        file.set_len(len).map_err(failed)?;
        file.write_at(&[&first], 0, Durability::Durable).map_err(failed)?;
        file.sync().map_err(failed)?;
        io.sync_dir(folder).map_err(failed)?;
        io.sync_dir("").map_err(failed)?;
        let folder = folder.to_owned();
        let journal = Journal {
            io,
            folder,
            file,
            number,
            salt,
            unit: 1,
            end,
            len,
            content,
            is_wanted: Cell::new(false),
        };
        journal.mark();
        journal.remove_others()?;
        Ok(journal)
    }

    fn remove_others(&self) -> Result<()> {
        let failed = |e| Error::io(format!("remove a journal in {}", self.folder), e);
        let mut removed = false;
        for number in self.io.list(&self.folder).map_err(failed)?.iter().filter_map(|name| number_of(name)) {
            if number != self.number {
                self.io.remove(&name(&self.folder, number)).map_err(failed)?;
                removed = true;
            }
        }
        if removed { self.io.sync_dir(&self.folder).map_err(failed) } else { Ok(()) }
    }

    /// Notes behind the last unit that it is durable. If the note is lost, less damage is told from an end.
    fn mark(&self) {
        let mark = unit(self.salt, self.unit - 1, &[]);
        if self.end + mark.len() as u64 <= self.len {
            let _ = self.file.write_at(&[&mark], self.end, Durability::Volatile);
        }
    }

    /// Makes records durable, and knows them from then on. After an error nothing may be done but to open the journal anew.
    ///
    /// # Errors
    /// The medium's.
    pub fn append(&mut self, records: Records) -> Result<()> {
        let records = records.0.into_bytes();
        self.content.replay(&records).expect("they were made here");
        let unit = unit(self.salt, self.unit, &records);
        if self.end + unit.len() as u64 > self.len {
            return self.renew();
        }
        let written = self.file.write_at(&[&unit], self.end, Durability::Durable);
        written.map_err(|e| Error::io(format!("write {}", self.file.name()), e))?;
        (self.unit, self.end) = (self.unit + 1, self.end + unit.len() as u64);
        self.mark();
        Ok(())
    }

    /// Knows records from then on that need not be remembered: up to where entries are decided, which the group says again.
    pub fn note(&mut self, records: Records) {
        self.content.replay(&records.0.into_bytes()).expect("they were made here");
    }

    /// Makes durable up to where entries are decided, as it was noted.
    ///
    /// # Errors
    /// The medium's.
    pub fn remember_decided(&mut self) -> Result<()> {
        let mut records = Records::default();
        records.vote(&self.content.vote);
        self.append(records)
    }

    /// Goes on in a new file, which has all that is known.
    fn renew(&mut self) -> Result<()> {
        let content = std::mem::take(&mut self.content);
        *self = Journal::write(self.io.clone(), &self.folder, self.number + 1, content)?;
        Ok(())
    }

    /// Whether a snapshot is due: so much has been added, or another member needs it.
    pub fn wants_snapshot(&self) -> bool {
        self.end > self.len / 2 || self.is_wanted.get()
    }

    /// Goes on in a new file with the state of the machine after the entry `index`, in the place of the entries up to it.
    ///
    /// # Errors
    /// The medium's.
    pub fn compact(&mut self, index: u64, members: &ConfState, state: Vec<u8>) -> Result<()> {
        let mut snapshot = Snapshot { data: state.into(), ..Snapshot::default() };
        let about = snapshot.mut_metadata();
        (about.index, about.term) = (index, self.content.term(index).expect("an entry that is here"));
        about.set_conf_state(members.clone());
        self.content.install(snapshot);
        self.renew()
    }

    /// Goes on in a new file with another state, which the entries that are known do not lead to.
    ///
    /// # Errors
    /// The medium's.
    pub fn set_snapshot(&mut self, snapshot: Snapshot) -> Result<()> {
        self.content.install(snapshot);
        self.renew()
    }

    /// The term, the vote, and up to where entries are decided.
    pub fn vote(&self) -> &HardState {
        &self.content.vote
    }

    /// Whose it is.
    pub fn member(&self) -> MemberId {
        self.content.member
    }

    /// How often it was opened, this time included.
    pub fn opened(&self) -> u64 {
        self.content.opened
    }

    /// The state of the machine that its entries follow on.
    pub fn snapshot(&self) -> &Snapshot {
        &self.content.snapshot
    }
}

impl Storage for Journal {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let members = self.content.snapshot.get_metadata().get_conf_state().clone();
        Ok(RaftState::new(self.content.vote.clone(), members))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let first = self.content.first_index();
        if low < first {
            return Err(StorageError::Compacted.into());
        }
        let mut entries = self.content.entries[(low - first) as usize..(high - first) as usize].to_vec();
        limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = if index < self.content.first_index() {
            StorageError::Compacted
        } else {
            StorageError::Unavailable
        };
        self.content.term(index).ok_or_else(|| missing.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.content.first_index())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.content.last_index())
    }

    /// One for a member. Who is not named in it would not take it.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let about = self.content.snapshot.get_metadata();
        let members = about.get_conf_state();
        let is_known = members.voters.contains(&to) || members.learners.contains(&to);
        if about.index < request_index || !is_known {
            self.is_wanted.set(true);
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(self.content.snapshot.clone())
    }
}
