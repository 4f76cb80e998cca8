//! The undo log: what was in the home before the commit that is under way.

use std::sync::Arc;

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Io, Result, WORD};

use super::{FOLDER, Place, read};

const MAGIC: &[u8; 8] = b"HFUNDO\0\0";
/// Where in the header is which commit the log is of: a word, so that it changes at once.
const COMMIT_AT: u64 = 64;
/// Where the records begin.
const RECORDS_AT: u64 = BLOCK as u64;
/// Bytes of a record before what was there: `crc u32, len u32, commit u64, place u64`.
const HEAD: usize = 24;
/// Set in a place that is the owner of an extent.
const OWNER: u64 = 1 << 63;
/// Bytes of memory that a log gets first.
const ROOM_MIN: u64 = 64 << 10;

/// What was somewhere.
pub struct Undo {
    pub place: Place,
    pub bytes: Vec<u8>,
}

/// A file with the records of one commit at most. A record counts if it is of the commit that the header names; that is
/// over when the header names the next one.
pub struct UndoLog {
    file: Arc<dyn File>,
    /// The number of the commit.
    commit: u64,
    /// Where the next record goes.
    end: u64,
    /// Where the memory ends.
    room: u64,
    /// Records that are not stored yet.
    buffer: Vec<u8>,
}

/// The name of the log.
const NAME: &str = "undo-0";

/// Whether a file of the folder is such a log. There was one for each thread once.
pub fn is_one(name: &str) -> bool {
    name.starts_with("undo-")
}

impl UndoLog {
    pub fn create(io: &dyn Io, store_id: [u8; 16]) -> Result<UndoLog> {
        let name = format!("{FOLDER}/{NAME}");
        let failed = |e| Error::io(format!("create {name}"), e);
        let file = io.open(&name, true).map_err(failed)?;
        file.write_at(&[&header(store_id)], 0, Durability::Durable).map_err(failed)?;
        file.allocate(0, ROOM_MIN).map_err(failed)?;
        file.sync().map_err(failed)?;
        io.sync_dir(FOLDER).map_err(failed)?;
        Ok(UndoLog { file, commit: 0, end: RECORDS_AT, room: ROOM_MIN, buffer: Vec::new() })
    }

    /// Opens a log, and reads what the commit has left in it that was not over. `None`: it was being made.
    pub fn open(io: &dyn Io, store_id: [u8; 16], name: &str) -> Result<Option<(UndoLog, Vec<Undo>)>> {
        let name = format!("{FOLDER}/{name}");
        let file = io.open(&name, false).map_err(|e| Error::io(format!("open {name}"), e))?;
        let room = file.len().map_err(|e| Error::io(format!("length of {name}"), e))?;
        if room < ROOM_MIN {
            return Ok(None);
        }
        let mut bytes = vec![0; room as usize];
        read(&*file, &mut bytes, 0)?;
        let word_at = |at: u64| u64::from_le_bytes(*bytes[at as usize..].first_chunk().expect("a word"));
        let commit = word_at(COMMIT_AT);
        let mut found = bytes[..BLOCK].to_vec();
        found[COMMIT_AT as usize..][..WORD].fill(0);
        if found != *header(store_id) {
            return Err(Error::corrupt(&name, 0, "the header is not that of an undo log of this store"));
        }
        let (mut records, mut rest) = (Vec::new(), &bytes[RECORDS_AT as usize..]);
        while let Some((undo, len)) = decode(rest, commit) {
            records.push(undo);
            rest = &rest[len..];
        }
        let log = UndoLog { file, commit, end: RECORDS_AT, room, buffer: Vec::new() };
        Ok(Some((log, records)))
    }

    pub fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Bytes of its records.
    pub fn len(&self) -> u64 {
        self.end - RECORDS_AT
    }

    /// Adds what is somewhere.
    pub fn push(&mut self, place: Place, bytes: &[u8]) {
        let place = match place {
            Place::Page(offset) => offset,
            Place::Owner(extent) => OWNER | u64::from(extent),
        };
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&self.commit.to_le_bytes());
        self.buffer.extend_from_slice(&place.to_le_bytes());
        self.buffer.extend_from_slice(bytes);
        self.buffer.resize(start + record_len(bytes.len()), 0);
        let crc = holdfast_io::crc32c(&self.buffer[start + 4..]);
        self.buffer[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Stores what was added; durable once this thread has fenced.
    pub fn store(&mut self) -> Result<()> {
        let failed = |e| Error::io(format!("store to {}", self.file.name()), e);
        let end = self.end + self.buffer.len() as u64;
        if end > self.room {
            let room = end.next_power_of_two();
            self.file.allocate(self.room, room - self.room).map_err(failed)?;
            self.file.sync().map_err(failed)?;
            self.room = room;
        }
        self.file.store(&self.buffer, self.end).map_err(failed)?;
        self.end = end;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the commit, durably: there is nothing to undo.
    pub fn clear(&mut self, io: &dyn Io) -> Result<()> {
        let failed = |e| Error::io(format!("store to {}", self.file.name()), e);
        self.commit += 1;
        self.file.store(&self.commit.to_le_bytes(), COMMIT_AT).map_err(failed)?;
        io.fence().map_err(failed)?;
        self.end = RECORDS_AT;
        Ok(())
    }
}

/// Bytes of a record of so many, which begins and ends at words.
fn record_len(bytes: usize) -> usize {
    (HEAD + bytes).next_multiple_of(WORD)
}

/// The record at the start of `rest` and its length, if it is whole and of this commit.
fn decode(rest: &[u8], commit: u64) -> Option<(Undo, usize)> {
    let word = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
    let first = word(0)?;
    let (crc, len) = (first as u32, (first >> 32) as usize);
    let record = rest.get(..record_len(len))?;
    if word(8)? != commit || holdfast_io::crc32c(&record[4..]) != crc {
        return None;
    }
    let place = match word(16)? {
        owner if owner & OWNER != 0 => Place::Owner(u32::try_from(owner & !OWNER).ok()?),
        offset => Place::Page(offset),
    };
    Some((Undo { place, bytes: record[HEAD..HEAD + len].to_vec() }, record.len()))
}

fn header(store_id: [u8; 16]) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block[..8].copy_from_slice(MAGIC);
    block[8..24].copy_from_slice(&store_id);
    let crc = holdfast_io::crc32c(&block[..BLOCK - 4]);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    block
}
