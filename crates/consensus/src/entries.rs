//! The entries of a group whose log is the store's own: an entry is a group of batches, and what ends it there says which one.
//!
//! The journal holds only the vote and the *base*: an entry that all later ones follow, where it ends in the log, and who the members are
//! then. What ends a later entry may say that they are others from there on.

use crate::{
    MemberId,
    code::{Decoder, Encoder, Malformed},
    journal::{Journal, Records},
    members::Members,
};
use holdfast_io::{Error, Result};
use holdfast_log::{BATCH_HEADER, Log, Lsn, Replayed, SEAL, batch_len};
use parking_lot::Mutex;
use raft::{
    GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{Entry, HardState, Snapshot},
};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// Bytes of entries that are kept in memory once they are durable, for members that have nearly all.
const RECENT_BYTES: usize = 16 << 20;
/// Entries before the base of which it is known where they are, for members that are behind.
const OLDER_MAX: usize = 1 << 20;
/// Seals that are read at once to find out where older entries are: the leader's lock is held meanwhile.
const REACH_AT_ONCE: usize = 512;

/// The number and the term of the entry that a group begins with. It says nothing.
const FIRST: (u64, u64) = (1, 1);

/// What ends an entry in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    pub index: u64,
    pub term: u64,
    /// Where the seal of the entry before begins in the log. The first entry has none: where it ends.
    pub before: Lsn,
}

/// Who is told of each batch of a log: its LSN and payload.
pub type EachBatch<'f> = &'f mut dyn FnMut(Lsn, &[u8]) -> Result<()>;

/// Bytes of a seal that says nothing of the members.
const PLAIN: usize = 25;

/// Bytes of log that a seal takes with so many bytes about the members.
pub const fn seal_len(members: usize) -> u64 {
    batch_len(PLAIN + members)
}

impl Seal {
    /// Its bytes. `members`: empty, or the bytes of those that there are from this entry on.
    pub fn encode(&self, members: &[u8]) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u8(SEAL).u64(self.index).u64(self.term).u64(self.before);
        out.raw(members);
        out.into_bytes()
    }

    /// `None`: the payload is no seal's.
    fn decode(payload: &[u8]) -> Option<std::result::Result<(Seal, Option<Members>), Malformed>> {
        (payload.first() == Some(&SEAL)).then(|| {
            let (plain, members) = payload.split_at_checked(PLAIN).ok_or(Malformed)?;
            let mut plain = Decoder(&plain[1..]);
            let seal = Seal { index: plain.u64()?, term: plain.u64()?, before: plain.u64()? };
            let members = (!members.is_empty()).then(|| Members::decode(members)).transpose()?;
            Ok((seal, members))
        })
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
struct Place {
    seal: Seal,
    /// Where its seal begins, and so where its batches end. The first entry has neither.
    seal_lsn: Lsn,
    /// Where its seal ends.
    end: Lsn,
}

impl Place {
    /// That of an entry whose seal was read at `lsn`, with so many bytes of payload.
    fn read(seal: Seal, lsn: Lsn, len: usize) -> Place {
        Place { seal, seal_lsn: lsn, end: lsn + batch_len(len) }
    }
}

/// The entries of a member.
pub struct Entries {
    journal: Journal,
    /// The first one only says what the others follow.
    places: VecDeque<Place>,
    /// Those that change the members, with the members from there on.
    changes: BTreeMap<u64, Members>,
    /// The members after the entry of this number, which was the base at the start.
    origin: (u64, Members),
    /// Late entries with their batches, by their numbers.
    recent: BTreeMap<u64, Entry>,
    recent_bytes: usize,
    /// `None`: somebody else has it open.
    pub log: Option<Arc<Log>>,
    /// No older entries than this first one can be found.
    oldest: u64,
    /// Members that lack entries which are here no more.
    behind: Mutex<BTreeSet<MemberId>>,
    /// Bytes of entries that may still be read for the engine.
    allowance: Cell<u64>,
}

/// The entry that a group begins with, behind a log that ends at `end`.
fn first(end: Lsn) -> Place {
    let (index, term) = FIRST;
    let seal = Seal { index, term, before: 0 };
    Place { seal, seal_lsn: end, end }
}

/// The state that a group of `members` begins with.
pub fn first_base(members: &Members, end: Lsn) -> Snapshot {
    encode_base(&first(end), members)
}

/// A base as bytes, for another member.
pub fn base_to_bytes(base: &Snapshot) -> Vec<u8> {
    let about = base.get_metadata();
    let mut out = Encoder::default();
    out.u64(about.index).u64(about.term).bytes(&base.data);
    out.into_bytes()
}

/// The base of these bytes; `None`: they are none.
pub fn base_of_bytes(bytes: &[u8]) -> Option<Snapshot> {
    let read = || -> std::result::Result<_, Malformed> {
        let mut bytes = Decoder(bytes);
        let mut base = Snapshot::default();
        let about = base.mut_metadata();
        (about.index, about.term) = (bytes.u64()?, bytes.u64()?);
        base.data = bytes.bytes()?.to_vec().into();
        bytes.end()?;
        let (_, members) = decode_base(&base)?;
        base.mut_metadata().set_conf_state(members.state());
        Ok(base)
    };
    read().ok()
}

fn encode_base(place: &Place, members: &Members) -> Snapshot {
    let mut data = Encoder::default();
    data.u64(place.seal_lsn).u64(place.end).u64(place.seal.before).bytes(&members.encode());
    let mut base = Snapshot { data: data.into_bytes().into(), ..Snapshot::default() };
    let about = base.mut_metadata();
    (about.index, about.term) = (place.seal.index, place.seal.term);
    about.set_conf_state(members.state());
    base
}

fn decode_base(base: &Snapshot) -> std::result::Result<(Place, Members), Malformed> {
    let mut data = Decoder(&base.data);
    let (seal_lsn, end, before) = (data.u64()?, data.u64()?, data.u64()?);
    let members = Members::decode(data.bytes()?)?;
    data.end()?;
    let about = base.get_metadata();
    let seal = Seal { index: about.index, term: about.term, before };
    if seal_lsn <= end { Ok((Place { seal, seal_lsn, end }, members)) } else { Err(Malformed) }
}

impl Entries {
    /// The entries behind the base of a journal. They are [read](Entries::read) then.
    pub fn new(journal: Journal) -> Result<Entries> {
        let (first, members) = decode_base(journal.snapshot())
            .map_err(|Malformed| Error::Unusable("the journal of a replica has no base".into()))?;
        // A member that is further behind is sent the base as well, as it is.
        let is_change = first.end - first.seal_lsn > seal_len(0);
        Ok(Entries {
            journal,
            places: VecDeque::from([first]),
            changes: is_change.then(|| (first.seal.index, members.clone())).into_iter().collect(),
            origin: (first.seal.index, members),
            recent: BTreeMap::new(),
            recent_bytes: 0,
            log: None,
            oldest: FIRST.0,
            behind: Mutex::default(),
            allowance: Cell::new(u64::MAX),
        })
    }

    /// Reads from the log what entries there are behind the base, up to `limit` at most, and has it end where the last of them does.
    pub fn read(&mut self, limit: u64, open: impl FnOnce(EachBatch) -> Result<Replayed>) -> Result<()> {
        let base = self.journal.snapshot().get_metadata().index;
        self.places.truncate(base.saturating_sub(self.first().seal.index) as usize + 1);
        self.recent.clear();
        self.recent_bytes = 0;
        self.changes.retain(|index, _| *index <= base);
        let (places, changes) = (&mut self.places, &mut self.changes);
        let mut replayed = open(&mut |lsn, payload| {
            let Some(seal) = Seal::decode(payload) else { return Ok(()) };
            let damaged = |what: &str| Error::corrupt("log", lsn, format!("the seal at this LSN: {what}"));
            let (seal, members) = seal.map_err(|Malformed| damaged("not its form"))?;
            let last = places.back().expect("the first");
            if seal.index <= last.seal.index || seal.index > limit {
                return Ok(());
            }
            let follows = seal.index == last.seal.index + 1 && seal.before == last.seal_lsn;
            if !follows || seal.term < last.seal.term || lsn < last.end {
                return Err(damaged("not the next one"));
            }
            places.push_back(Place::read(seal, lsn, payload.len()));
            changes.extend(members.map(|members| (seal.index, members)));
            Ok(())
        })?;
        let end = self.end();
        if replayed.report.tail < end {
            return Err(Error::corrupt("log", end, "it ends before what is decided"));
        }
        replayed.cut(end)?;
        self.log = Some(replayed.open()?);
        Ok(())
    }

    fn first(&self) -> &Place {
        &self.places[0]
    }

    fn last(&self) -> &Place {
        self.places.back().expect("the first")
    }

    /// The number of the last entry.
    pub fn last_number(&self) -> u64 {
        self.last().seal.index
    }

    /// Where the last entry ends.
    pub fn end(&self) -> Lsn {
        self.last().end
    }

    fn place(&self, index: u64) -> Option<&Place> {
        index.checked_sub(self.first().seal.index).and_then(|at| self.places.get(at as usize))
    }

    /// Where an entry ends that is there.
    pub fn end_of(&self, index: u64) -> Option<Lsn> {
        self.place(index).map(|place| place.end)
    }

    /// The seal of the next entry, of this term.
    pub fn next_seal(&self, term: u64) -> Seal {
        Seal { index: self.last_number() + 1, term, before: self.last().seal_lsn }
    }

    /// Finds older entries in the log, as long as it is kept, down to one that another member has, perhaps: some of them at a time.
    pub fn reach(&mut self, index: u64) {
        for _ in 0..REACH_AT_ONCE {
            let first = self.first().seal.index;
            if first <= index.max(self.oldest) {
                return;
            }
            if !self.reach_one() {
                self.oldest = first;
            }
        }
    }

    /// Finds the entry before the first that is known. Whether it is there.
    fn reach_one(&mut self) -> bool {
        let first = &self.first().seal;
        let (number, before) = (first.index - 1, first.before);
        if self.places.len() >= OLDER_MAX {
            return false;
        }
        if number == FIRST.0 {
            self.places.push_front(self::first(before));
            return true;
        }
        let payload = self.log.as_ref().and_then(|log| log.payload_at(before));
        let found = payload.and_then(|payload| Some((Seal::decode(&payload)?.ok()?, payload.len())));
        let Some(((seal, members), len)) = found.filter(|((seal, _), _)| seal.index == number) else {
            return false;
        };
        self.places.push_front(Place::read(seal, before, len));
        self.changes.extend(members.map(|members| (number, members)));
        true
    }

    /// Adds the next entry, whose seal ends at `end`. Its context are the bytes of the members from there on, if they are others.
    pub fn push(&mut self, seal: Seal, entry: Entry, end: Lsn) {
        assert_eq!((seal.index, seal.term), (self.last_number() + 1, entry.term));
        let members_len = entry.context.len();
        if members_len > 0 {
            let members = Members::decode(&entry.context).expect("it was checked");
            self.changes.insert(seal.index, members);
        }
        self.recent_bytes += entry.data.len();
        self.recent.insert(seal.index, entry);
        let seal_lsn = end - seal_len(members_len);
        self.places.push_back(Place { seal, seal_lsn, end });
    }

    /// Forgets what others can read in the log.
    pub fn trim(&mut self, written: Lsn) {
        while self.recent_bytes > RECENT_BYTES {
            let Some((&index, entry)) = self.recent.first_key_value() else { break };
            if self.end_of(index).is_some_and(|end| end > written) {
                break;
            }
            self.recent_bytes -= entry.data.len();
            self.recent.remove(&index);
        }
    }

    /// The members after an entry that is there. `None`: they are not known any more.
    pub fn members_at(&self, index: u64) -> Option<&Members> {
        let (origin, members) = &self.origin;
        if let Some((_, members)) =
            self.changes.range(..=index).next_back().filter(|last| *last.0 > *origin || index < *origin)
        {
            return Some(members);
        }
        let is_same = index >= *origin || self.changes.range(index + 1..=*origin).next().is_none();
        is_same.then_some(members)
    }

    /// The next entry behind `after`, up to `last`, that changes the members, and what they are then.
    pub fn change_behind(&self, after: u64, last: u64) -> Option<(u64, Members)> {
        if after >= last {
            return None;
        }
        self.changes.range(after + 1..=last).next().map(|(index, members)| (*index, members.clone()))
    }

    /// Makes the last entry that ends at or below `from` the base.
    ///
    /// # Errors
    /// The medium's; or what lies below is not known to be decided: a start would find no seals of it.
    pub fn keep_from(&mut self, from: Lsn, decided: u64) -> Result<()> {
        if self.end_of(decided).is_none_or(|end| end < from) {
            return Err(Error::Unusable(
                "a log can be left out only as far as it is known to be decided".into(),
            ));
        }
        let Some(base) = self.base_at(from, decided) else { return Ok(()) };
        let index = base.get_metadata().index;
        if index <= self.journal.snapshot().get_metadata().index {
            return Ok(());
        }
        self.journal.set_snapshot(base)?;
        let older = (index - self.first().seal.index) as usize;
        self.places.drain(..older.saturating_sub(OLDER_MAX));
        Ok(())
    }

    /// The base that a copy of the log begins with which is read from `from` on: the last entry that ends at or below, and is decided.
    pub fn base_at(&self, from: Lsn, decided: u64) -> Option<Snapshot> {
        let known = self.places.partition_point(|place| place.end <= from && place.seal.index <= decided);
        let place = known.checked_sub(1).and_then(|last| self.places.get(last))?;
        Some(encode_base(place, self.members_at(place.seal.index)?))
    }

    /// The last entry that ends at `end` or below.
    pub fn entry_ending_at(&self, end: Lsn) -> Option<(u64, u64)> {
        let known = self.places.partition_point(|place| place.end <= end);
        let place = known.checked_sub(1).and_then(|last| self.places.get(last))?;
        Some((place.seal.index, place.seal.term))
    }

    /// Whether an entry of this number and term is there, or the base is later: what is decided is there.
    pub fn has(&self, (index, term): (u64, u64)) -> bool {
        match self.place(index) {
            Some(place) => place.seal.term == term,
            None => index < self.first().seal.index,
        }
    }

    /// How many bytes of entries the engine gets for other members from now on, and one more message.
    pub fn allow(&self, bytes: u64) {
        self.allowance.set(bytes);
    }

    /// The members that lack entries which are here no more, since this was asked last.
    pub fn take_behind(&mut self) -> BTreeSet<MemberId> {
        std::mem::take(&mut self.behind.lock())
    }

    /// The term and the vote.
    pub fn vote(&self) -> &HardState {
        self.journal.vote()
    }

    /// Remembers a vote: durably, unless only how far entries are decided is another one.
    pub fn remember(&mut self, vote: &HardState) -> Result<()> {
        let known = self.journal.vote();
        if (known.term, known.vote) == (vote.term, vote.vote) {
            let mut records = Records::default();
            records.vote(vote);
            self.journal.note(records);
            return Ok(());
        }
        self.remember_decided(vote)
    }

    /// The same, durably in any case.
    pub fn remember_decided(&mut self, vote: &HardState) -> Result<()> {
        let mut records = Records::default();
        records.vote(vote);
        self.journal.append(records)
    }

    /// Who has them.
    pub fn member(&self) -> MemberId {
        self.journal.member()
    }

    /// The base.
    pub fn base(&self) -> &Snapshot {
        self.journal.snapshot()
    }

    /// The members after the entry that was the base at the start.
    pub fn first_members(&self) -> &Members {
        &self.origin.1
    }

    /// An entry with its batches.
    fn with_batches(&self, index: u64) -> raft::Result<Entry> {
        if let Some(entry) = self.recent.get(&index) {
            return Ok(entry.clone());
        }
        let (Some(before), Some(place)) = (self.place(index - 1), self.place(index)) else {
            return Err(StorageError::Compacted.into());
        };
        let Some(log) = &self.log else { return Err(StorageError::LogTemporarilyUnavailable.into()) };
        let mut batches = vec![0; (place.seal_lsn - before.end) as usize];
        let context = self.changes.get(&index).map_or_else(Vec::new, Members::encode).into();
        match log.read(before.end, &mut batches) {
            Ok(read) if read == batches.len() => {
                Ok(Entry { index, term: place.seal.term, data: batches.into(), context, ..Entry::default() })
            }
            // The segment was freed: the member needs a copy.
            _ => Err(StorageError::Compacted.into()),
        }
    }
}

impl Storage for Entries {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let members = self.journal.snapshot().get_metadata().get_conf_state().clone();
        let mut vote = self.journal.vote().clone();
        // A change is begun when the one before it is decided. So all but the last are: were they not known to be, this one could be elected by
        // those whom several changes have removed.
        let settled = self.changes.keys().nth_back(1).copied().unwrap_or_default();
        // A leader may have known that others have more than it had itself.
        let (base, last) = (self.journal.snapshot().get_metadata().index, self.last_number());
        vote.commit = vote.commit.max(settled).clamp(base, last);
        Ok(RaftState::new(vote, members))
    }

    /// Batches come with entries that are for another member only; this one has them in its log.
    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let first = self.first().seal.index;
        if low <= first {
            let is_gone = first <= self.oldest;
            let why = if is_gone { StorageError::Compacted } else { StorageError::LogTemporarilyUnavailable };
            return Err(why.into());
        }
        if context.can_async() && self.allowance.get() == 0 {
            return Err(StorageError::LogTemporarilyUnavailable.into());
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let (mut entries, mut size) = (Vec::new(), 0);
        for index in low..high {
            let entry = match context.can_async() {
                true => self.with_batches(index)?,
                false => Entry { index, term: self.term(index)?, ..Entry::default() },
            };
            size += (entry.data.len() + BATCH_HEADER) as u64;
            if size > max_size && !entries.is_empty() {
                break;
            }
            self.allowance.set(self.allowance.get().saturating_sub(entry.data.len() as u64));
            entries.push(entry);
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.first().seal.index {
            return Err(StorageError::Compacted.into());
        }
        self.place(index).map(|place| place.seal.term).ok_or_else(|| StorageError::Unavailable.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first().seal.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last_number())
    }

    /// A member that needs what is not there any more needs a copy of the whole folder, which no message carries.
    fn snapshot(&self, _: u64, to: u64) -> raft::Result<Snapshot> {
        self.behind.lock().insert(to);
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}
